"""Which outputs of a plan the user wants."""

import pytest

from orchestrator.run.frontdoor.planner import wanted_outputs
from orchestrator.task.taskir.models import Step

FILES = ("a.md", "b.md", "menu.txt")


def step(number: int, action: str, *inputs: str, output: str = "", foreach: str | None = None) -> Step:
    more = {"foreach": foreach} if foreach else {}
    return Step(
        id=f"S{number}", actor="worker", action=action, inputs=inputs, outputs=(output or f"s{number}",), **more
    )


def summaries() -> tuple[Step, ...]:
    return step(1, "Summarize a.md.", "a.md"), step(2, "Summarize b.md.", "b.md")


@pytest.mark.parametrize(
    ("request_text", "parts", "wanted"),
    [
        (
            "Summarize each file and then compare them.",
            [summaries(), (step(3, "Compare the summaries.", "s1", "s2"),)],
            "s1 s2 s3",
        ),
        (
            "Fasse jede Datei zusammen und vergleiche sie dann.",
            [summaries(), (step(3, "Compare the summaries.", "s1", "s2"),)],
            "s1 s2 s3",
        ),
        (
            "Which file is friendlier?",
            [summaries(), (step(3, "Say which summary is friendlier.", "s1", "s2"),)],
            "s3",
        ),
        (
            "List the dishes in menu.txt and write a recipe for each dish.",
            [
                (step(1, "List the dishes in menu.txt.", "menu.txt"),),
                (step(2, "Write a recipe for this dish.", foreach="s1"),),
            ],
            "s1 s2",
        ),
        (
            "What is still open in a.md and b.md?",
            [summaries(), (step(3, "List what is still open.", "a.md", "b.md"),)],
            "s3",
        ),
        (
            "Compare a.md and b.md, and translate menu.txt into French.",
            [
                (step(1, "Translate menu.txt into French.", "menu.txt"),),
                (step(2, "Compare a.md and b.md.", "a.md", "b.md"),),
            ],
            "s2 s1",
        ),
        (
            "Write a poem about the sea, translate it as poem.fr.md and save the poem as poem.md.",
            [
                (step(1, "Write a poem about the sea.", output="poem.md"),),
                (step(2, "Translate the poem into French.", "poem.md", output="poem.fr.md"),),
            ],
            "poem.fr.md poem.md",
        ),
        (
            "Résume a.md.",
            [(step(1, "Summarize a.md.", "a.md"),)],
            "s1",
        ),
    ],
)
def test_wanted_outputs_come_in_the_order_of_the_request(
    request_text: str, parts: list[tuple[Step, ...]], wanted: str
) -> None:
    assert wanted_outputs(request_text, FILES, parts) == tuple(wanted.split())
