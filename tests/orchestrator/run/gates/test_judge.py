"""What the judge says is the input of these tests, so it is scripted; a real one judges in `make bench-gates`."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from orchestrator.run.gates.contract import Artifact, GateContext, JudgeAnswer
from orchestrator.run.gates.pipeline import PipelineResult, run_gates
from orchestrator.run.gates.planned import Scope
from orchestrator.task.events import FailureKind
from tests.orchestrator.run.gates.gate_steps import step

PASSED = '{"critique": "price 214, told 214: right", "score": 9, "verdict": "pass"}'
FAILED = '{"critique": "price 214, told 21: wrong", "score": 3, "verdict": "fail"}'


class Script:
    """Answers in turn, and remembers what it was asked."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[Sequence[tuple[str, str]], str]] = []

    async def judge(self, inputs: Sequence[tuple[str, str]], action: str, schema: Mapping[str, Any]) -> JudgeAnswer:
        self.asked.append((inputs, action))
        assert schema["required"] == ["critique", "score", "verdict"]
        return JudgeAnswer(self.answers.pop(0), 100)


async def judged(script: Script, *made: str, reads: Mapping[str, bytes] | None = None) -> PipelineResult:
    artifacts = [Artifact(f"o{number}", text.encode()) for number, text in enumerate(made)]
    scope = Scope(step(*(artifact.name for artifact in artifacts)))
    return await run_gates(["judge"], artifacts, GateContext(scope, reads=reads or {}, judge=script.judge))


async def test_the_judge_reads_what_the_step_read_its_task_and_its_answer() -> None:
    script = Script(PASSED)
    checked = await judged(script, "price 214", reads={"a.txt": b"The price is 214."})
    read = [("a.txt", "The price is 214."), ("task", "Write it."), ("answer", "price 214")]
    assert script.asked == [(read, "Judge the answer.")]
    assert checked.results[0].passed
    assert (checked.results[0].evidence, checked.results[0].score) == ("", 9)


async def test_without_inputs_the_judge_reads_the_task_first() -> None:
    script = Script(PASSED)
    await judged(script, "x = 1")
    assert script.asked[0][0] == [("task", "Write it."), ("answer", "x = 1")]


async def test_the_critique_is_the_evidence() -> None:
    checked = await judged(Script(PASSED, FAILED, PASSED), "a", "b", "c")
    assert checked.failure is not None
    assert checked.failure.kind is FailureKind.LOGIC
    assert checked.failure.evidence == "o1: price 214, told 21: wrong"
    assert checked.results[0].score == 3
    assert checked.results[0].tokens == 200, "the third was not looked at"
    alone = await judged(Script(FAILED), "b")
    assert alone.failure is not None
    assert alone.failure.evidence == "price 214, told 21: wrong"


@pytest.mark.parametrize("answer", ["", "pass", json.dumps({"verdict": "maybe", "score": 9, "critique": ""})])
async def test_a_judge_without_a_verdict_lets_nothing_pass(answer: str) -> None:
    checked = await judged(Script(answer), "a")
    assert checked.failure is not None
    assert (checked.failure.kind, checked.failure.final) == (FailureKind.INFRASTRUCTURE, False)
