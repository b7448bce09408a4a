"""Attempts with tools. What the model writes is the input of these tests, so it is scripted; at the end it is real."""

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from orchestrator.engine.client.engine import Completion, OnText
from orchestrator.engine.contract import Generation, Message, Priority
from orchestrator.pool.machine import Topology
from orchestrator.pool.pool import Pool
from orchestrator.registry.load import find_registry, load_registry
from orchestrator.run.steps.attempt import Attempt, AttemptError, Produced
from orchestrator.run.steps.role import StepInput
from orchestrator.run.steps.tools.attempt import ToolRunner
from orchestrator.run.steps.tools.loop import AGAIN
from orchestrator.task.events import Failure, FailureKind, Usage
from orchestrator.task.taskir.models import Step
from tests.orchestrator.model_calls import ModelCalls, attempt_of
from tests.orchestrator.run.steps.tools.tool_fixture import ToolFixture


class Actor:
    """Gives its answers in turn; a token a character."""

    def __init__(self, *answers: object) -> None:
        self.answers = [answer if isinstance(answer, str) else json.dumps(answer) for answer in answers]
        self.asked: list[Generation] = []

    async def count(self, model: str, messages: Sequence[Message], priority: Priority = "interactive") -> int:
        return characters(messages)

    async def generate(self, model: str, request: Generation, on_text: OnText | None = None) -> Completion:
        self.asked.append(request)
        return Completion(
            self.answers.pop(0), "stop", Usage(prompt_tokens=characters(request.messages), output_tokens=10)
        )


def characters(messages: Sequence[Message]) -> int:
    return sum(len(message.content) for message in messages)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "files"
    place.mkdir()
    for number in range(14):
        (place / f"d{number}.txt").write_text(f"Document {number}. " + f"What it says is {number * 11}. " * 10)
    return place


def attempt(tools: Sequence[str], inputs: dict[str, str] | None = None, **more: Any) -> Attempt:
    fields = {"id": "S1", "actor": "worker", "action": "Find 33.", "outputs": ("o.txt",), "kind": "tool"}
    step = Step.model_validate({**fields, "tools": tools, **more.pop("step", {})})
    texts = tuple(StepInput(name, text) for name, text in (inputs or {}).items())
    return attempt_of(step, **{"system": "Act.", "inputs": texts, "max_tokens": 200, **more})


async def carry_out(
    folder: Path, work: Attempt, actor: Actor, *, context: int | None = None, turns: int = 20
) -> tuple[Produced, ToolFixture]:
    fixture = ToolFixture(
        folder, {item.name: item.text for item in work.inputs}, work.step.outputs, tuple(work.step.tools)
    )
    made = await ToolRunner(fixture.toolbox, context, turns).run(work, actor)
    return made, fixture


async def failing(folder: Path, work: Attempt, actor: Actor, **more: Any) -> Failure:
    with pytest.raises(AttemptError) as caught:
        await carry_out(folder, work, actor, **more)
    return caught.value.failure


async def test_a_call_that_the_document_fixes_asks_no_model(folder: Path) -> None:
    work = attempt(["read_file"], step={"arguments": {"name": "d3.txt", "length": 11}})
    made, fixture = await carry_out(folder, work, Actor())
    assert made.outputs == {"o.txt": b"Document 3."}
    assert made.usage == Usage()
    assert [(call.tool, call.outcome) for call in fixture.calls] == [("read_file", "done")]


async def test_arguments_take_what_the_step_reads(folder: Path) -> None:
    step = {"arguments": {"name": {"$input": "which"}, "length": 11}}
    made, _ = await carry_out(folder, attempt(["read_file"], {"which": "d4.txt"}, step=step), Actor())
    assert made.outputs == {"o.txt": b"Document 4."}
    child = {"foreach": "names.json", "arguments": {"name": {"$input": "names.json"}, "length": 11}}
    made, _ = await carry_out(folder, attempt(["read_file"], {"names.json[1]": "d2.txt"}, step=child), Actor())
    assert made.outputs == {"o.txt": b"Document 2."}


@pytest.mark.parametrize(
    ("arguments", "kind", "why"),
    [
        ({"name": "nowhere.txt"}, FailureKind.RESOURCE, "there is no 'nowhere.txt'; accepted: d0.txt"),
        ({"name": 3}, FailureKind.SCHEMA, "/name: 3 is not of type 'string'"),
    ],
)
async def test_a_fixed_call_that_fails_is_not_tried_again(
    folder: Path, arguments: dict[str, Any], kind: FailureKind, why: str
) -> None:
    found = await failing(folder, attempt(["read_file"], step={"arguments": arguments}), Actor())
    assert (found.kind, found.final, why in found.message) == (kind, True, True)


async def test_a_model_acts_until_it_finishes_and_hands_on_what_is_relevant(folder: Path) -> None:
    actor = Actor(
        {"tool": "list_files", "arguments": {}},
        {"tool": "read_file", "arguments": {"name": "d1.txt"}},
        {"tool": "read_file", "arguments": {"name": "d3.txt"}},
        {"tool": "read_file", "arguments": {"name": "d99.txt"}},
        {"finish": "It is in d3.", "documents": ["D3"]},
    )
    made, fixture = await carry_out(folder, attempt(["list_files", "read_file"]), actor)
    text = made.outputs["o.txt"].decode()
    assert text.startswith("It is in d3.\n\n[d3.txt]\nDocument 3.")
    assert "Document 1." not in text
    prompts = sum(characters(request.messages) for request in actor.asked)
    assert made.usage == Usage(prompt_tokens=prompts, output_tokens=50)
    assert [call.outcome for call in fixture.calls] == ["done", "done", "done", "failed"]
    told = [request.messages for request in actor.asked]
    assert all(after[: len(before)] == before for before, after in pairwise(told)), "it only grows"
    assert told[-1][-1][1].startswith("read_file failed: there is no 'd99.txt'; accepted: d0.txt")


class Reader(Actor):
    """Reads on, whatever it is asked, until it is refused that; then it prunes all but what it read first."""

    async def generate(self, model: str, request: Generation, on_text: OnText | None = None) -> Completion:
        last = request.messages[-1][1]
        shown = [
            message.content[1:].split()[0]
            for message in request.messages
            if message.role == "user" and message.content.startswith("[D")
        ]
        if last.startswith("Pruned"):
            self.answers = [json.dumps({"finish": "33", "documents": shown[:1]})]
        elif "accepted: prune or finish" in last:
            self.answers = [json.dumps({"prune": shown[1:]})]
        else:
            self.answers = [json.dumps({"tool": "read_file", "arguments": {"name": f"d{len(shown)}.txt"}})]
        return await super().generate(model, request, on_text)


def lengthen(folder: Path) -> None:
    """Make the files so long that the second one fills the context."""
    for file in folder.iterdir():
        file.write_text(file.read_text() * 7)


async def test_a_full_context_leaves_pruning_and_the_end(folder: Path) -> None:
    lengthen(folder)
    reader = Reader()
    made, fixture = await carry_out(folder, attempt(["read_file"], context=4000), reader, context=4000)
    full, refused, last = reader.asked[-3:]
    assert "It is full: prune by id or finish." in full.messages[-1][1]
    assert "read_file" not in json.dumps(full.schema)
    assert "no tool can be called; accepted: prune or finish" in refused.messages[-1][1]
    assert "read_file" in json.dumps(last.schema), "there is room again"
    assert "What it says is 11." not in json.dumps(last.messages)
    assert len(fixture.calls) == 2
    assert made.outputs["o.txt"].decode().startswith("33\n\n[d0.txt]\nDocument 0.")


async def test_answers_that_are_no_actions_end_in_a_failure(folder: Path) -> None:
    found = await failing(folder, attempt(["list_files"]), Actor("list the files", "{}", "[]"))
    assert found.kind is FailureKind.SCHEMA
    assert "3 answers in a row are no action" in found.message


async def test_turns_run_out(folder: Path) -> None:
    calls = [{"tool": "list_files", "arguments": {"pattern": f"d{number}*"}} for number in range(4)]
    found = await failing(folder, attempt(["list_files"]), Actor(*calls), turns=4)
    assert (found.kind, found.message) == (FailureKind.LOGIC, "not done after 4 turns")


async def test_an_answer_that_repeats_the_prompt_is_none(folder: Path) -> None:
    failed = (Failure(FailureKind.LOGIC, "wrong", "It is not 32."),)
    for text, before in [("Find 33.", ()), ("The previous answer failed: It is not 32.", failed)]:
        answer = {"finish": f"Task: {text}" if not before else text}
        found = await failing(folder, attempt(["write_artifact"], failures=before), Actor(answer))
        assert (found.kind, found.final) == (FailureKind.FORMAT, False)
    written = {"tool": "write_artifact", "arguments": {"name": "o.txt", "text": "Task: Find 33."}}
    made, _ = await carry_out(folder, attempt(["write_artifact"]), Actor(written, {"finish": "Task: Find 33."}))
    assert made.outputs == {"o.txt": b"Task: Find 33."}, "a tool has written it"


LOOK = {"tool": "read_file", "arguments": {"name": "d3.txt", "length": 11}}


def write(text: str) -> dict[str, object]:
    return {"tool": "write_artifact", "arguments": {"name": "o.txt", "text": text}}


async def test_a_call_that_is_made_again_is_pointed_out_and_ends_the_attempt_the_third_time(folder: Path) -> None:
    actor = Actor(LOOK, LOOK, {"finish": "It is 33."})
    made, _ = await carry_out(folder, attempt(["read_file"]), actor)
    assert made.outputs == {"o.txt": b"It is 33."}
    assert [AGAIN in request.messages[-1].content for request in actor.asked] == [False, False, True]
    found = await failing(folder, attempt(["read_file"]), Actor(LOOK, LOOK, LOOK))
    assert (found.kind, found.final) == (FailureKind.LOGIC, False)
    assert found.message == (
        'the model made the same call 3 times with the same result: read_file {"name": "d3.txt", "length": 11}'
    )
    missing = {"tool": "read_file", "arguments": {"name": "nowhere.txt"}}
    found = await failing(folder, attempt(["read_file"]), Actor(missing, LOOK, missing, missing))
    assert "3 times" in found.message, "a call may fail the same way each time, too"


async def test_a_call_may_be_made_again_after_something_was_changed(folder: Path) -> None:
    tools = ["read_file", "write_artifact"]
    answers = [LOOK, write("a"), LOOK, write("b"), LOOK, LOOK, {"finish": "Found."}]
    made, _ = await carry_out(folder, attempt(tools), Actor(*answers))
    assert made.outputs == {"o.txt": b"b"}
    found = await failing(folder, attempt(tools), Actor(write("a"), LOOK, write("a"), LOOK, LOOK))
    assert "3 times" in found.message, "what was written before changes nothing"


async def test_that_it_is_done_is_an_answer_only_after_a_call(folder: Path) -> None:
    made, _ = await carry_out(folder, attempt(["read_file"]), Actor(LOOK, {"finish": "Done."}))
    assert made.outputs == {"o.txt": b"Done."}
    found = await failing(folder, attempt(["read_file"]), Actor({"finish": "Done."}))
    assert found.kind is FailureKind.FORMAT


async def test_written_artifacts_need_no_answer(folder: Path) -> None:
    actor = Actor(
        {"tool": "write_artifact", "arguments": {"name": "o.txt", "text": "by tool"}}, {"finish": "I am done."}
    )
    made, _ = await carry_out(folder, attempt(["write_artifact"]), actor)
    assert made.outputs == {"o.txt": b"by tool"}


async def test_grammar_holds_a_real_model_to_what_it_may_do(folder: Path, tmp_path: Path) -> None:
    registry = load_registry(find_registry(None))
    fixture = ToolFixture(folder, outputs=("o.txt",), granted=("list_files",))
    work = attempt(["list_files"], model="tiny-large", context=2048, max_tokens=100)
    async with Pool(registry, tmp_path / "logs", topology=Topology.flat(1, 1 << 40)) as pool:
        asked: list[str] = []

        async def generate(model: str, request: Generation, on_text: OnText | None) -> Completion:
            done = await pool.generate(model, request, on_text)
            asked.append(done.text)
            return done

        try:
            await ToolRunner(fixture.toolbox, 2048, 3).run(work, ModelCalls(pool.count, generate))
        except AttemptError as error:
            assert error.failure.kind in (FailureKind.FORMAT, FailureKind.LOGIC, FailureKind.SCHEMA)  # noqa: PT017 - what it says is its own
    assert asked
    whole = [json.loads(text) for text in asked if text.endswith("}")]
    assert all(action.keys() & {"tool", "finish", "prune"} for action in whole)
    assert {call.outcome for call in fixture.calls} <= {"done"}, "no call that is not granted, none out of form"
