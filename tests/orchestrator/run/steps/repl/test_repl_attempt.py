"""The turn loop. What the model writes is the input of these tests, so it is scripted; the sandbox is the real one."""

import asyncio
import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from orchestrator.engine.client.engine import Completion, OnText
from orchestrator.engine.contract import Finish, Generation, Message, Priority
from orchestrator.pool.machine import Topology
from orchestrator.pool.pool import Pool
from orchestrator.registry.load import find_registry, load_registry
from orchestrator.run.sandbox.sandbox import Sandbox
from orchestrator.run.steps.attempt import Attempt, AttemptError, Models, Produced
from orchestrator.run.steps.repl.attempt import ReplRunner
from orchestrator.run.steps.repl.subcalls import ReplBudget, SubcallModels
from orchestrator.run.steps.role import ResolvedRole, StepInput
from orchestrator.task.events import Failure, FailureKind, Usage
from orchestrator.task.taskir.models import Step
from tests.orchestrator.model_calls import attempt_of
from tests.orchestrator.run.steps.repl.repl_fixture import ReplFixture, echo


class Coder:
    """Writes its answers in turn; a token a character."""

    def __init__(self, *answers: str, finish: Finish = "stop") -> None:
        self.answers, self.finish = list(answers), finish
        self.asked: list[Generation] = []

    async def count(self, model: str, messages: Sequence[Message], priority: Priority = "interactive") -> int:
        return characters(messages)

    async def generate(self, model: str, request: Generation, on_text: OnText | None = None) -> Completion:
        self.asked.append(request)
        return Completion(
            self.answers.pop(0), self.finish, Usage(prompt_tokens=characters(request.messages), output_tokens=10)
        )

    @property
    def models(self) -> Models:
        return self


def characters(messages: Sequence[Message]) -> int:
    return sum(len(message.content) for message in messages)


def attempt(fixture: ReplFixture, **more: Any) -> Attempt:
    step = {"id": "S1", "actor": "coder", "action": "Add it up.", "outputs": ("o.txt",), "kind": "repl"}
    made = Step.model_validate({**step, **more.pop("step", {})})
    inputs = tuple(StepInput(name, text) for name, text in fixture.workspace.inputs.items())
    return attempt_of(made, **{"system": "Write code.", "inputs": inputs, "max_tokens": 400, **more})


async def carry_out(
    sandbox: Sandbox,
    folder: Path,
    coder: Coder,
    *,
    budget: ReplBudget | None = None,
    context: int | None = None,
    **more: Any,
) -> Produced:
    fixture = ReplFixture(folder, budget or ReplBudget(), echo, ("list_files",))
    work = ReplRunner(
        sessions=sandbox.open,
        toolbox=fixture.toolbox,
        subcalls=fixture.subcalls,
        on_call=fixture.calls.append,
        folder=folder,
        context=context,
        budget=fixture.budget,
    )
    if context is not None:
        more["context"] = context
    return await work.run(attempt(fixture, **more), coder.models)


async def test_code_and_output_take_turns_until_final(sandbox: Sandbox, tmp_path: Path) -> None:
    coder = Coder(
        "Let me look.\n```python\ntotal = len(inputs['ship.txt'])\nprint('total', total)\n```",
        "answers = llm_batch(['a', 'b'])\nprint(answers)",
        "final(f'{total} {answers[1]}')",
    )
    made = await carry_out(sandbox, tmp_path, coder)
    assert made.outputs == {"o.txt": b"26 <Task: b>"}
    prompts = sum(characters(request.messages) for request in coder.asked)
    assert made.usage == Usage(prompt_tokens=prompts + 2 * 10, output_tokens=3 * 10 + 2 * 5)
    told = [request.messages for request in coder.asked]
    assert all(after[: len(before)] == before for before, after in pairwise(told)), "it only grows"
    assert told[1][-1][:2] == ("user", "total 26")
    assert tuple(message[:2] for message in told[2][-2:]) == (
        ("assistant", "answers = llm_batch(['a', 'b'])\nprint(answers)"),
        ("user", "['<Task: a>', '<Task: b>']"),
    )
    first = told[0][1][1]
    assert "input ship.txt (26 characters): name: Koldin weight: 12 t" in first
    assert "list_files(pattern?)" in first
    assert len(first) < 2500, "inputs stand in the interpreter, not in the prompt"
    assert (tmp_path / "out1.txt").read_text() == "total 26"


async def test_a_result_out_of_shape_is_reported_and_may_be_mended(sandbox: Sandbox, tmp_path: Path) -> None:
    coder = Coder("final('three')", "final('')", "final(3)")
    made = await carry_out(sandbox, tmp_path, coder, step={"output_schema": {"type": "integer"}})
    assert made.outputs == {"o.txt": b"3"}
    assert "final was refused" in coder.asked[1].messages[-1][1]
    assert "'three' is not of type 'integer'" in coder.asked[1].messages[-1][1]
    assert "final was refused: the result does not match: there is no value for o.txt" in coder.asked[2].messages[-1][1]


async def test_answers_without_code_or_without_an_end_are_not_run(sandbox: Sandbox, tmp_path: Path) -> None:
    coder = Coder("", finish="length")
    with pytest.raises(AttemptError, match=r"no final\(value\) within 1 turns"):
        await carry_out(sandbox, tmp_path, coder, budget=ReplBudget(turns=1))
    coder = Coder("``` \n```", "artifacts['o.txt'] = 'x'\nfinal()")
    assert (await carry_out(sandbox, tmp_path, coder)).outputs == {"o.txt": b"x"}
    assert coder.asked[1].messages[-1][1] == "There was no code in the answer."


@pytest.mark.parametrize(("code", "kind"), [("1 / 0", FailureKind.CODE), ("print('thinking')", FailureKind.LOGIC)])
async def test_turns_run_out(sandbox: Sandbox, tmp_path: Path, code: str, kind: FailureKind) -> None:
    with pytest.raises(AttemptError) as caught:
        await carry_out(sandbox, tmp_path, Coder(code, code), budget=ReplBudget(turns=2))
    assert caught.value.failure.kind is kind
    assert ("division by zero" in caught.value.failure.evidence) == (kind is FailureKind.CODE)


async def test_time_runs_out_and_the_program_is_gone(sandbox: Sandbox, tmp_path: Path) -> None:
    stuck = "import signal\nsignal.signal(signal.SIGALRM, signal.SIG_IGN)\nwhile True: pass"
    with pytest.raises(AttemptError, match="not done within 3 s") as caught:
        await carry_out(sandbox, tmp_path, Coder(stuck), step={"timeout_seconds": 3})
    assert caught.value.failure.kind is FailureKind.TIMEOUT


async def test_a_retry_gets_what_went_wrong(sandbox: Sandbox, tmp_path: Path) -> None:
    coder = Coder("final('x')")
    await carry_out(sandbox, tmp_path, coder, failures=(Failure(FailureKind.CODE, "no", "division by zero"),))
    assert "The previous answer failed: division by zero" in coder.asked[0].messages[1][1]


async def test_a_long_history_is_condensed_and_variables_stay(sandbox: Sandbox, tmp_path: Path) -> None:
    summary = {"plan_state": "counted", "findings": ["kept is 7"], "open_points": []}
    coder = Coder("kept = 7\nprint('x' * 1800)", json.dumps(summary), "final(str(kept))")
    made = await carry_out(sandbox, tmp_path, coder, context=3600)
    assert made.outputs == {"o.txt": b"7"}
    assert coder.asked[2].messages[:2] == coder.asked[0].messages
    assert json.loads(coder.asked[2].messages[2][1])["findings"] == ["kept is 7"]
    assert "x" * 100 not in coder.asked[2].messages[-1][1]


async def test_a_print_that_is_longer_than_the_context_is_reported_and_can_be_looked_at(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    coder = Coder("print('a' * 1900)", "part = peek('out1', 0, 5)\nfinal(part)")
    made = await carry_out(sandbox, tmp_path, coder, context=2200)
    assert made.outputs == {"o.txt": b"aaaaa"}
    assert "characters are too long to be shown: peek('out1', start, length)" in coder.asked[1].messages[-1][1]


async def test_models_that_code_asks_are_real_engines_and_decode_together(sandbox: Sandbox, tmp_path: Path) -> None:
    registry = load_registry(find_registry(None))
    role = registry.roles["worker"]

    def resolve(asked: str | None, persona: str | None) -> ResolvedRole:
        return ResolvedRole(model=role.model, system=role.system, persona="", max_tokens=48, temperature=0.0, top_p=1.0)

    code = (
        "records = {f'r{n}.txt': f'name: Koldin {n}\\nowner: Hillem\\nspeed: {n}' for n in range(4)}\n"
        "made = llm_batch([{'prompt': f'Summarize {n}.', 'inputs': {n: t}} for n, t in records.items()])\n"
        "final(' | '.join(map(str, made)))"
    )
    async with Pool(registry, tmp_path / "logs", topology=Topology.flat(1, 1 << 40)) as pool:
        fixture = ReplFixture(tmp_path / "out", ReplBudget(), echo, ())
        work = ReplRunner(
            sessions=sandbox.open,
            toolbox=fixture.toolbox,
            subcalls=SubcallModels(resolve, pool.generate_batch),
            on_call=fixture.calls.append,
            folder=tmp_path / "out",
            context=None,
        )
        made = await asyncio.wait_for(work.run(attempt(fixture), Coder(code).models), 100)
    assert [(call.tool, call.outcome, call.message) for call in fixture.calls] == [("llm_batch", "done", "")]
    assert len(made.outputs["o.txt"].decode().split(" | ")) == 4
    assert made.usage.output_tokens > 10 + 4
