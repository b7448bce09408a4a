"""What the model writes is the input of these tests, so it is scripted."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.engine.client.engine import Completion, OnText, StopGenerating
from orchestrator.engine.contract import Finish, Generation, Message, Priority
from orchestrator.engine.errors import EngineDied, ModelLoadFailed, PromptTooLong
from orchestrator.registry.prompts import prompt_set
from orchestrator.run.frontdoor.builder import PlanBuilder
from orchestrator.run.frontdoor.compact import Part
from orchestrator.run.frontdoor.direct import DirectAnswer
from orchestrator.run.frontdoor.generation import PlanRequest
from orchestrator.run.frontdoor.planner import LEAST_PLAN_TOKENS, SHOWN_LENGTHS, ReplanInput, clip, extend_plan
from orchestrator.run.planning import Extended, PlannedPart
from orchestrator.run.steps.role import ResolvedRole
from orchestrator.task.events import Usage
from orchestrator.task.taskir.models import Step
from tests.orchestrator.model_calls import ModelCalls

TEXT = "Summarize the files that index.txt names"
FILES = ("a.txt", "b.txt", "index.txt")
LIST = {"role": "worker", "action": "List each file in index.txt.", "inputs": ["index.txt"], "replan": True}
A = {"role": "worker", "action": "Summarize a.txt.", "inputs": ["a.txt"]}
B = {"role": "worker", "action": "Summarize b.txt.", "inputs": ["b.txt"]}
JOIN = {"role": "worker", "action": "Compare the summaries.", "inputs": ["P2", "P3"]}
BAD = {"role": "worker", "action": "Summarize c.txt.", "inputs": ["c.txt"]}
SUMMARIES = ("s2.txt", "s3.txt", "s4.txt")
"""The outputs that the user wants: the list of files was only made on the way."""
FOUND = '["a.txt","b.txt"]'
ASKED = (
    f"Files: a.txt, b.txt, index.txt\nRequest: {TEXT}\n"
    'Done: {"plan":[{"role":"worker","action":"List each file in index.txt.","inputs":["index.txt"],"replan":true}]}\n'
    f"[P1]\n{FOUND}\nPlan the rest."
)


def rest(*parts: dict[str, Any]) -> str:
    return json.dumps({"plan": parts}, separators=(",", ":"))


def known(*written: dict[str, Any]) -> list[PlannedPart]:
    """Return these steps as a plan that has accepted them, the first one alone and the others as its rest."""
    made: list[PlannedPart] = []
    for number, text in enumerate(written):
        one = Part.model_validate(text)
        made.append(PlanBuilder(FILES, ("worker",), made, min(number, 1)).add(one))
    return made


@dataclass
class Script:
    """Answers in pieces of seven characters; a character of the prompt is a token."""

    answers: list[tuple[str, Exception | Finish]]
    context: int | None = None
    replans: int = 0
    counts: list[Exception] = field(default_factory=list)
    asked: list[Generation] = field(default_factory=list)
    made: list[PlannedPart] = field(default_factory=list)
    when: list[int] = field(default_factory=list)

    async def generate(self, model: str, request: Generation, on_text: OnText | None = None) -> Completion:
        self.asked.append(request)
        text, end = self.answers.pop(0)
        assert on_text is not None
        for index in range(0, len(text), 7):
            try:
                on_text(text[index : index + 7])
            except StopGenerating:
                return Completion(text[: index + 7], "cancelled", Usage(prompt_tokens=10, output_tokens=index + 7))
            self.when += [index] * (len(self.made) - len(self.when))
        if isinstance(end, Exception):
            raise end
        return Completion(text, end, Usage(prompt_tokens=10, output_tokens=len(text)))

    async def count(self, model: str, messages: Sequence[Message], priority: Priority = "interactive") -> int:
        if self.counts:
            raise self.counts.pop(0)
        return sum(len(message.content) for message in messages)

    async def extend(self, output: str = FOUND, steps: Sequence[PlannedPart] = ()) -> Extended:
        request = PlanRequest(
            text=TEXT,
            files=FILES,
            roles=("worker",),
            direct=DirectAnswer(request=TEXT, role="worker", model="large"),
            role=ResolvedRole(model="large", system="Plan.", context=self.context, prompts=prompt_set("tiny")),
            replans=self.replans,
        )
        models = ModelCalls(self.count, self.generate)
        return await extend_plan(request, ReplanInput("S1", output, steps or known(LIST)), models, self.made.append)

    @property
    def ids(self) -> list[str]:
        return [step.id for step in self.steps]

    @property
    def steps(self) -> list[Step]:
        return [step for made in self.made for step in made.steps]


async def test_the_rest_is_asked_for_in_the_layout_the_models_know() -> None:
    script = Script([(rest(A, B, JOIN), "stop")])
    made = await script.extend(f"\n{FOUND}\n")
    assert made == Extended(
        "planned", "", Usage(prompt_tokens=10, output_tokens=len(rest(A, B, JOIN))), 1, None, SUMMARIES
    )
    (asked,) = script.asked
    assert asked.messages == (Message("system", "Plan."), Message("user", ASKED))
    assert script.ids == ["S2", "S3", "S4"]
    assert script.steps[2].inputs == ("s2.txt", "s3.txt")
    assert [step.depends_on for step in script.steps] == [("S1",), ("S1",), ()]
    schema: Any = asked.schema
    assert schema["properties"]["plan"]["minItems"] == 0
    assert "replan" not in json.dumps(schema)


async def test_steps_are_handed_on_while_the_rest_is_still_being_written() -> None:
    script = Script([(rest(A, B, JOIN), "stop")])
    await script.extend()
    assert script.when[0] < len(rest(A)) < script.when[1] < len(rest(A, B)) < script.when[2]


async def test_nothing_may_be_left_to_do() -> None:
    script = Script([(rest(), "stop")])
    made = await script.extend()
    assert (made.outcome, made.reason, made.asked, script.made) == ("planned", "", 1, [])


async def test_the_rest_may_go_on_again_as_long_as_that_is_allowed() -> None:
    script = Script([(rest(A, {**B, "replan": True}), "stop")], replans=1)
    assert (await script.extend()).goes_on_after == "S3"
    assert '"replan": {"const": true}' in json.dumps(script.asked[0].schema)


async def test_a_flawed_rest_is_repaired_once_and_accepted_steps_stand() -> None:
    script = Script([(rest(A, BAD, JOIN), "stop"), (rest(A, B, JOIN), "stop")])
    made = await script.extend()
    flaw = "P3: 'c.txt' is no earlier part, no file and not 'request'"
    assert (made.outcome, made.reason, made.asked) == ("repaired", flaw, 2)
    assert script.ids == ["S2", "S3", "S4"]
    assert made.usage.prompt_tokens == 20
    stand = f"These parts stand: {rest(A)}\nWrite the plan again, with them first."
    assert script.asked[1].messages[1][1] == f"{ASKED}\nThe previous plan failed: {flaw}\n{stand}"
    schema: Any = script.asked[1].schema
    assert schema["properties"]["plan"]["prefixItems"] == [{"const": A}]


async def test_a_rest_that_cannot_be_repaired_ends_the_plan_without_a_step_in_its_place() -> None:
    script = Script([(rest(A, BAD), "stop"), (rest(A, BAD), "stop")])
    made = await script.extend()
    assert (made.outcome, made.asked, made.goes_on_after) == ("stopped", 2, None)
    assert made.reason.count("'c.txt' is no earlier part") == 2
    assert script.ids == ["S2"]


async def test_a_dead_engine_is_asked_again_for_what_is_missing() -> None:
    script = Script([(rest(A, B)[:-20], EngineDied("killed")), (rest(A, B), "stop")], counts=[EngineDied("died")])
    script.context = 9000
    made = await script.extend("x" * 3000)
    assert (made.outcome, made.reason, script.ids) == ("planned", "killed", ["S2", "S3"])
    assert script.counts == []


@pytest.mark.parametrize("error", [EngineDied("dead"), ModelLoadFailed("large.gguf", "missing", "is dead")])
async def test_an_engine_that_cannot_run_ends_the_plan(error: Exception) -> None:
    script = Script([("", error)] * 2)
    made = await script.extend()
    assert made.outcome == "stopped"
    assert "dead" in made.reason
    script = Script([], context=5000, counts=[error, error])
    assert ((await script.extend("x" * 9000)).outcome, script.asked) == ("stopped", [])


async def test_what_was_accepted_before_a_restart_is_not_accepted_again() -> None:
    script = Script([(rest(A, B, JOIN), "stop")])
    made = await script.extend(steps=known(LIST, A))
    assert (made.outcome, script.ids) == ("planned", ["S3", "S4"])
    assert script.asked[0].messages[1][1] == ASKED, "it is the same question"
    schema: Any = script.asked[0].schema
    parts = schema["properties"]["plan"]
    assert (parts["prefixItems"], parts["minItems"]) == ([{"const": A}], 1)


async def test_a_rest_that_was_whole_before_a_restart_is_not_asked_for_again() -> None:
    script = Script([], replans=1)
    made = await script.extend(steps=known(LIST, {**A, "replan": True}))
    assert made == Extended("planned", "", Usage(), 0, "S2", ("s2.txt",))


async def test_a_long_output_is_shown_as_far_as_it_fits_and_the_gap_is_marked() -> None:
    script = Script([(rest(), "stop")], context=3000)
    made = await script.extend("x" * 9000)
    (asked,) = script.asked
    told = asked.messages[1][1]
    assert told.count("x") - TEXT.count("x") >= 2000
    assert "[… 7,000 characters left out …]" in told
    assert sum(len(message.content) for message in asked.messages) + LEAST_PLAN_TOKENS <= 3000
    assert (made.outcome, made.reason) == ("planned", "of 9,000 characters of S1, 2,000 were shown")


async def test_a_long_output_is_bounded_where_the_context_is_not_known() -> None:
    script = Script([(rest(), "stop")])
    await script.extend("x" * 9000)
    assert "[… 5,000 characters left out …]" in script.asked[0].messages[1][1]


async def test_what_does_not_fit_at_all_ends_the_plan() -> None:
    script = Script([("", PromptTooLong(590, 600))], context=600)
    made = await script.extend("x" * 9000)
    assert made.outcome == "stopped"
    assert "one sequence of this model may have 600 tokens" in made.reason
    (asked,) = script.asked
    assert "[… 8,500 characters left out …]" in asked.messages[1][1]
    assert asked.fit == LEAST_PLAN_TOKENS


async def test_a_short_output_is_not_counted_before_the_model_is_asked() -> None:
    script = Script([(rest(), "stop")], context=3000, counts=[ZeroDivisionError("nobody counts")])
    assert (await script.extend()).outcome == "planned"


async def test_an_engine_that_finds_the_prompt_too_long_ends_the_plan() -> None:
    script = Script([("", PromptTooLong(9000, 2048))])
    assert "9000 tokens" in (await script.extend()).reason


@settings(deadline=None)
@given(output=st.text(max_size=9000), length=st.sampled_from(SHOWN_LENGTHS))
def test_a_clipped_output_keeps_its_ends_and_counts_what_is_missing(output: str, length: int) -> None:
    told = clip(output, length)
    if len(output) <= length:
        assert told == output
        return
    half = length // 2
    assert (told[:half], told[-half:]) == (output[:half], output[-half:])
    assert told[half:-half] == f"\n[… {len(output) - length:,} characters left out …]\n"
