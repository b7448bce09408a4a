"""What the model writes is the input of these tests, so it is scripted."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from orchestrator.engine.client.engine import Completion, OnText, StopGenerating
from orchestrator.engine.contract import Finish, Generation, Message
from orchestrator.engine.errors import BrokenModel, EngineDied, ModelLoadFailed, PromptTooLong
from orchestrator.registry.prompts import prompt_set
from orchestrator.run.frontdoor.direct import DirectAnswer
from orchestrator.run.frontdoor.generation import PlanRequest
from orchestrator.run.frontdoor.planner import make_plan
from orchestrator.run.planning import PlanError, Planned, PlannedPart
from orchestrator.run.steps.role import ResolvedRole
from orchestrator.task.events import FailureKind, ModeForecast, Usage
from orchestrator.task.prediction import PredictedPath
from orchestrator.task.taskir.json_text import compact_json
from orchestrator.task.taskir.models import Step
from tests.orchestrator.model_calls import ModelCalls, count_characters

A = {"role": "worker", "action": "Summarize a.txt.", "inputs": ["a.txt"]}
B = {"role": "worker", "action": "Summarize b.txt.", "inputs": ["b.txt"]}
JOIN = {"role": "worker", "action": "Compare the summaries.", "inputs": ["P1", "P2"]}
BAD = {"role": "worker", "action": "Summarize c.txt.", "inputs": ["c.txt"]}
TEXT = "Summarize a and b, then compare them"
REQUEST = PlanRequest(
    text=TEXT,
    files=("a.txt", "b.txt"),
    roles=("worker", "coder"),
    direct=DirectAnswer(
        request=TEXT, role="worker", model="large", inputs=("a.txt", "b.txt"), files=("a.txt", "b.txt")
    ),
    role=ResolvedRole(model="large", system="Plan the request as steps.", prompts=prompt_set("tiny")),
)


def plan(*parts: dict[str, Any]) -> str:
    return json.dumps({"plan": parts})


@dataclass
class Script:
    """Writes its answers in small pieces, or breaks off with an error after what it has written."""

    answers: list[tuple[str, Exception | Finish]]
    request: PlanRequest = REQUEST
    known: list[PlannedPart] = field(default_factory=list)
    asked: list[Generation] = field(default_factory=list)
    made: list[PlannedPart] = field(default_factory=list)
    progress: list[tuple[int, int]] = field(default_factory=list)
    streams: bool = True

    async def generate(self, model: str, request: Generation, on_text: OnText | None) -> Completion:
        self.asked.append(request)
        text, end = self.answers.pop(0)
        assert on_text is not None
        for index in range(0, len(text) if self.streams else 0, 7):
            try:
                on_text(text[index : index + 7])
            except StopGenerating:
                return Completion(text[: index + 7], "cancelled", Usage(prompt_tokens=10, output_tokens=index + 7))
            self.progress.append((index, len(self.accepted)))
        if isinstance(end, Exception):
            raise end
        return Completion(text, end, Usage(prompt_tokens=10, output_tokens=len(text)))

    async def plan(self) -> Planned:
        models = ModelCalls(count_characters, self.generate)
        return await make_plan(self.request, models, self.made.append, known=self.known)

    async def run(self) -> tuple[str, str, Usage]:
        planned = await self.plan()
        return planned.origin, planned.reason, planned.usage

    @property
    def accepted(self) -> list[Step]:
        return [step for made in self.made for step in made.steps]

    @property
    def actions(self) -> list[str]:
        return [step.action for step in self.accepted]


async def test_a_frontdoor_that_plans_by_cores_is_told_them() -> None:
    script = Script([(plan(A, B, JOIN), "stop")], replace(REQUEST, cores=16))
    await script.run()
    assert script.asked[0].messages[1] == Message("user", f"Files: a.txt, b.txt\nCores: 16\nRequest: {TEXT}")


async def test_plan_is_asked_for_in_the_layout_the_models_know() -> None:
    script = Script([(plan(A, B, JOIN), "stop")])
    origin, reason, usage = await script.run()
    assert (origin, reason) == ("planned", "")
    assert usage == Usage(prompt_tokens=10, output_tokens=len(plan(A, B, JOIN)))
    (asked,) = script.asked
    assert asked.messages == (
        Message("system", "Plan the request as steps."),
        Message("user", f"Files: a.txt, b.txt\nRequest: {TEXT}"),
    )
    assert asked.schema is not None
    assert asked.max_tokens is None
    assert [step.id for step in script.accepted] == ["S1", "S2", "S3"]
    assert script.accepted[2].inputs == ("s1.txt", "s2.txt")


async def test_steps_are_handed_on_while_the_plan_is_still_being_written() -> None:
    script = Script([(plan(A, B, JOIN), "stop")])
    await script.run()
    seen = dict.fromkeys(count for _, count in script.progress)
    assert list(seen) == [0, 1, 2, 3]
    first = next(index for index, count in script.progress if count == 1)
    assert first < len(plan(A)) + 7


async def test_text_that_comes_only_at_the_end_is_read_too() -> None:
    script = Script([(plan(A, B, JOIN), "stop")], streams=False)
    assert (await script.run())[0] == "planned"
    assert len(script.accepted) == 3


async def test_flaw_stops_the_plan_and_the_repair_replaces_only_the_rest() -> None:
    script = Script([(plan(A, BAD, JOIN), "stop"), (plan(A, B, JOIN), "stop")])
    origin, reason, _ = await script.run()
    assert origin == "repaired"
    assert reason == "P2: 'c.txt' is no earlier part, no file and not 'request'"
    assert script.actions == [A["action"], B["action"], JOIN["action"]]
    first, second = script.asked
    told = second.messages[1][1]
    assert told.startswith(first.messages[1][1] + f"\nThe previous plan failed: {reason}\n")
    assert '{"plan":[{"role":"worker","action":"Summarize a.txt.","inputs":["a.txt"]}]}' in told
    assert isinstance(second.schema, dict)
    fields: Any = second.schema["properties"]
    assert fields["plan"]["prefixItems"] == [{"const": A}]


async def test_model_is_not_let_write_on_after_a_flaw() -> None:
    script = Script([(plan(BAD, A, B), "stop"), (plan(A), "stop")])
    await script.run()
    assert max(index for index, _ in script.progress[: len(plan(BAD)) // 7]) < len(plan(BAD)) + 14
    assert script.actions == [A["action"]]


async def test_second_flaw_ends_in_one_step_that_does_the_request() -> None:
    script = Script([(plan(BAD), "stop"), (plan(BAD), "stop")])
    origin, reason, _ = await script.run()
    assert origin == "fallback"
    assert reason.count("'c.txt' is no earlier part") == 2
    assert script.accepted == [
        Step(id="S1", actor="worker", action=TEXT, inputs=("a.txt", "b.txt"), outputs=("s1.txt",))
    ]


async def test_fallback_stands_beside_what_was_accepted() -> None:
    script = Script([(plan(A, BAD), "stop"), (plan(A, BAD), "stop")])
    assert (await script.run())[0] == "fallback"
    assert script.actions == [A["action"], TEXT]
    assert script.accepted[1].id == "S2"


async def test_repair_that_changes_accepted_steps_is_refused() -> None:
    script = Script([(plan(A, BAD), "stop"), (plan(B, A), "stop")])
    origin, reason, _ = await script.run()
    assert origin == "fallback"
    assert "does not begin with the parts that were accepted" in reason
    assert script.actions == [A["action"], TEXT]


@pytest.mark.parametrize("finish", ["length", "repetition", "deadline"])
async def test_plan_that_is_cut_off_is_flawed(finish: Finish) -> None:
    script = Script([(plan(A, B)[:-40], finish), (plan(A, B), "stop")])
    origin, reason, _ = await script.run()
    assert (origin, reason) == ("repaired", f"the plan was cut off ({finish}) in P2")
    assert script.actions == [A["action"], B["action"]]


async def test_plan_without_steps_is_flawed() -> None:
    script = Script([(plan(), "stop"), (plan(A), "stop")])
    assert (await script.run())[:2] == ("repaired", "the plan is empty")


async def test_dead_engine_is_asked_again_for_what_is_missing() -> None:
    died = EngineDied("the engine process was killed by SIGKILL", signal="SIGKILL", log="a long log")
    script = Script([(plan(A, B)[:-30], died), (plan(A, B, JOIN), "stop")])
    origin, reason, _ = await script.run()
    assert (origin, reason) == ("planned", "the engine process was killed by SIGKILL")
    assert script.actions == [A["action"], B["action"], JOIN["action"]]
    assert "failed" not in script.asked[1].messages[1][1]


async def test_engine_that_keeps_dying_gives_no_plan() -> None:
    script = Script([("", EngineDied("dead")), ("", EngineDied("dead again"))])
    with pytest.raises(PlanError, match="dead again") as caught:
        await script.run()
    assert caught.value.failure.kind is FailureKind.INFRASTRUCTURE
    assert script.accepted == []


async def test_model_that_cannot_be_loaded_is_asked_once() -> None:
    script = Script([("", ModelLoadFailed("large.gguf", "missing", "there is no such file"))])
    with pytest.raises(PlanError, match="no such file") as caught:
        await script.run()
    assert caught.value.failure.final


async def test_request_too_long_to_plan_is_one_step() -> None:
    script = Script([("", PromptTooLong(9000, 2048))])
    origin, reason, _ = await script.run()
    assert origin == "fallback"
    assert "9000 tokens" in reason
    assert script.actions == [TEXT]


async def test_tokens_of_a_plan_that_was_stopped_are_counted() -> None:
    script = Script([(plan(A, BAD, JOIN), "stop"), (plan(A, B, JOIN), "stop")])
    _, _, usage = await script.run()
    written = usage.output_tokens - len(plan(A, B, JOIN))
    assert usage.prompt_tokens == 20
    assert len(plan(A, BAD)) - 2 <= written < len(plan(A, BAD)) + 7, "up to the flaw, and a piece beyond at most"


LIST = {"role": "worker", "action": "List each file in a.txt.", "inputs": ["a.txt"], "replan": True}
ENDS = replace(REQUEST, replans=1)


async def test_plan_may_say_that_it_goes_on_after_its_last_step() -> None:
    script = Script([(plan(B, LIST), "stop")], ENDS)
    planned = await script.plan()
    assert (planned.origin, planned.reason, planned.goes_on_after) == ("planned", "", "S2")
    assert [made.written for made in script.made] == [compact_json(B), compact_json(LIST)]
    assert "replan" in json.dumps(script.asked[0].schema)


async def test_replan_is_not_offered_where_a_plan_may_not_go_on() -> None:
    script = Script([(plan(LIST), "stop")])
    assert (await script.plan()).goes_on_after == "S1", "whoever asked knows that it is one too many"
    assert "replan" not in json.dumps(script.asked[0].schema)


@pytest.mark.parametrize(
    ("answer", "end", "reason"),
    [
        (plan(LIST, B), "stop", "P2: nothing may follow S1"),
        (plan(LIST)[:-2], "length", "the plan was cut off (length) in P2"),
        (plan(LIST)[:-2], EngineDied("dead"), "dead"),
        (plan(LIST)[:-2], BrokenModel("NaN"), "NaN"),
    ],
)
async def test_plan_is_whole_with_the_step_that_it_goes_on_after(
    answer: str, end: Exception | Finish, reason: str
) -> None:
    script = Script([(answer, end)], ENDS)
    planned = await script.plan()
    assert (planned.origin, planned.goes_on_after) == ("planned", "S1")
    assert planned.reason.startswith(reason)
    assert script.actions == [LIST["action"]]


async def test_interrupted_plan_is_asked_for_with_what_is_known_in_front() -> None:
    first = Script([(plan(A, B), "stop")])
    await first.run()
    script = Script([(plan(A, B, JOIN), "stop")], known=first.made[:1])
    assert (await script.run())[:2] == ("planned", "")
    assert script.actions == [B["action"], JOIN["action"]]
    assert [step.id for step in script.accepted] == ["S2", "S3"]
    assert script.asked[0].messages == first.asked[0].messages
    schema: Any = script.asked[0].schema
    parts = schema["properties"]["plan"]
    assert (parts["prefixItems"], parts["minItems"]) == ([{"const": A}], 1)


async def test_interrupted_plan_that_was_whole_is_not_asked_for_again() -> None:
    first = Script([(plan(LIST), "stop")], ENDS)
    await first.run()
    script = Script([], ENDS, known=first.made)
    planned = await script.plan()
    assert (planned.origin, planned.goes_on_after, script.made) == ("planned", "S1", [])


async def test_a_plan_with_listed_names_ends_where_it_begins_to_repeat_itself() -> None:
    listed = replace(REQUEST, role=replace(REQUEST.role, prompts=prompt_set("general")))
    again = B | {"action": "Summarize b.txt.", "inputs": []}
    script = Script([(plan(A, B, again, JOIN), "stop")], request=listed)
    assert (await script.run())[:2] == ("planned", "")
    assert script.actions == [A["action"], B["action"]]
    (asked,) = script.asked
    assert "P1" in json.dumps(asked.schema), "earlier parts are listed"
    script = Script([(plan(A, B, B, JOIN), "stop")])
    await script.run()
    assert len(script.accepted) == 4, "the embedded models are trained on plans that may repeat a part"


def compared(direct_seconds: float = 1.0, **more: Any) -> PlanRequest:
    """Return the request if nobody has forced a plan. Each step of a plan is predicted to take a second."""

    def predict(steps: Sequence[Step]) -> PredictedPath:
        return PredictedPath(direct_seconds if steps[0].action == TEXT else float(len(steps)))

    return replace(REQUEST, predict=predict, **more)


async def test_the_repair_of_a_plan_of_which_nothing_was_handed_on_begins_afresh() -> None:
    script = Script([(plan(A, BAD), "stop"), (plan(B, A), "stop")], compared(early=False))
    origin, reason, _ = await script.run()
    assert origin == "repaired"
    first, second = script.asked
    assert second.messages[1][1] == f"{first.messages[1][1]}\nThe previous plan failed: {reason}"
    assert second.schema is not None
    assert "prefixItems" not in json.dumps(second.schema)
    assert script.actions == [B["action"], A["action"]]


SUM = {"role": "worker", "action": "Summarize both.", "inputs": ["a.txt", "b.txt"]}
SHORTEN = {"role": "worker", "action": "Shorten the summary.", "inputs": ["P1"]}


async def test_a_plan_of_one_step_gives_way_to_the_request_itself() -> None:
    script = Script([(plan(SUM), "stop")], compared())
    planned = await script.plan()
    assert (planned.origin, planned.reason) == ("direct", "the plan has only one step")
    assert planned.forecast == ModeForecast(direct_seconds=1.0, plan_seconds=1.0)
    assert planned.usage.output_tokens, "it was asked for"
    assert script.actions == [TEXT]


async def test_a_chain_gives_way_unless_it_is_clearly_faster() -> None:
    script = Script([(plan(SUM, SHORTEN), "stop")], compared())
    assert (await script.plan()).origin == "direct"
    assert script.actions == [TEXT]
    script = Script([(plan(SUM, SHORTEN), "stop")], compared(direct_seconds=3.0))
    assert (await script.plan()).origin == "planned"
    assert script.actions == [SUM["action"], SHORTEN["action"]]


async def test_a_plan_with_width_starts_as_soon_as_that_shows() -> None:
    script = Script([(plan(A, B, JOIN), "stop")], compared())
    planned = await script.plan()
    assert planned.origin == "planned"
    assert planned.forecast == ModeForecast(direct_seconds=1.0, plan_seconds=3.0)
    assert list(dict.fromkeys(count for _, count in script.progress)) == [0, 2, 3]


async def test_a_plan_that_goes_on_is_no_direct_answer() -> None:
    script = Script([(plan({**SUM, "replan": True}), "stop")], compared(replans=1))
    planned = await script.plan()
    assert (planned.origin, planned.goes_on_after) == ("planned", "S1")


async def test_a_plan_that_stays_flawed_is_replaced_as_a_whole_if_nothing_was_handed_on() -> None:
    script = Script([(plan(A, BAD), "stop"), (plan(A, BAD), "stop")], compared())
    assert (await script.plan()).origin == "fallback"
    assert script.actions == [TEXT]
    script = Script([(plan(A, B, BAD), "stop"), (plan(A, B, BAD), "stop")], compared())
    assert (await script.plan()).origin == "fallback"
    assert script.actions == [A["action"], B["action"], TEXT]


async def test_a_model_that_cannot_plan_leaves_the_request_to_one_that_can_answer() -> None:
    other = replace(REQUEST.direct, model="small")
    script = Script([("", ModelLoadFailed("large.gguf", "missing", "there is no such file"))], compared(direct=other))
    planned = await script.plan()
    assert planned.origin == "fallback"
    assert "no such file" in planned.reason
    assert script.actions == [TEXT]
