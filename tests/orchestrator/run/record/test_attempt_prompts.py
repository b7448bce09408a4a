"""The parts of prompts, found again from what a run journaled, and which of them other steps have in common."""

from pathlib import Path

import pytest

from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.orchestrator import Orchestrator
from orchestrator.run.record.attempt_prompts import TEXT_UNAVAILABLE, PromptPart, attempt_prompt
from orchestrator.run.record.view import RunView
from tests.orchestrator.run_jobs import RECORDS, REGISTRY, execute, job, step


async def ran(home: Path, *steps: dict[str, object], folder: Path = RECORDS) -> str:
    async with Orchestrator.open(home, REGISTRY) as orchestrator:
        return await execute(orchestrator, job(list(steps), folder=folder))


def prompt(home: Path, run: str, name: str, number: int = 1) -> tuple[PromptPart, ...]:
    with JournalReader.open_to_read(home) as journal:
        return attempt_prompt(journal, RunView.of(event for _, event in journal.events(run)), name, number)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "folder"
    made.mkdir()
    for name in ("a.txt", "b.txt"):
        (made / name).write_text((RECORDS / name).read_text())
    return made


async def test_a_prompt_has_role_inputs_and_task(tmp_path: Path, folder: Path) -> None:
    run = await ran(
        tmp_path / "home",
        step("S1", "Summarize a.txt.", ["a.txt"], ["s1"]),
        step("S2", "Compare the summaries.", ["s1", "b.txt"], ["s2"]),
        folder=folder,
    )
    parts = prompt(tmp_path / "home", run, "S2")
    assert [(part.kind, part.name) for part in parts] == [
        ("system", ""),
        ("input", "s1"),
        ("input", "b.txt"),
        ("task", ""),
    ]
    assert parts[0].text == REGISTRY.system("worker", REGISTRY.roles["worker"].model)
    assert parts[1].text
    assert parts[2].text == (RECORDS / "b.txt").read_text()
    assert parts[3].text == "Compare the summaries."
    assert [part.shared_with for part in parts] == ["S1", "", "", ""]


async def test_what_several_steps_read_comes_first_and_is_shared(tmp_path: Path, folder: Path) -> None:
    run = await ran(
        tmp_path / "home",
        step("S1", "Summarize a.txt.", ["a.txt"], ["s1"]),
        step("S2", "Summarize b.txt.", ["b.txt", "a.txt"], ["s2"]),
        folder=folder,
    )
    parts = prompt(tmp_path / "home", run, "S2")
    assert [(part.kind, part.name, part.shared_with) for part in parts] == [
        ("system", "", "S1"),
        ("input", "a.txt", "S1"),
        ("input", "b.txt", ""),
        ("task", "", ""),
    ]


async def test_a_file_that_has_changed_is_not_shown(tmp_path: Path, folder: Path) -> None:
    run = await ran(tmp_path / "home", step("S1", "Summarize a.txt.", ["a.txt"], ["s1"]), folder=folder)
    (folder / "a.txt").write_text("something private")
    (part,) = [part for part in prompt(tmp_path / "home", run, "S1") if part.kind == "input"]
    assert (part.text, part.why_not) == ("", TEXT_UNAVAILABLE)


async def test_a_child_reads_its_item(tmp_path: Path) -> None:
    task_input = {"type": "text", "label": "names.json", "value": '["Zilthir", "Koldin"]'}
    steps = [step("S1", "Summarize the item.", [], ["item"], foreach="names.json")]
    async with Orchestrator.open(tmp_path, REGISTRY) as orchestrator:
        run = await execute(orchestrator, job(steps, inputs=[task_input]))
    parts = prompt(tmp_path, run, "S1[1]")
    assert [(part.kind, part.name, part.text) for part in parts if part.kind == "item"] == [
        ("item", "names.json[1]", "Koldin")
    ]
