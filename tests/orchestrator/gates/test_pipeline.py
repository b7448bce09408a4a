import pytest

from orchestrator.events import FailureKind, GateResult
from orchestrator.gates import BUILT, FAILURE_KINDS, Artifact, GateContext, failure_of, run_gates
from orchestrator.taskir import GATES, Step

STEP = Step(id="S1", actor="worker", action="Count.", outputs=("n.json",), output_schema={"type": "integer"})
CONTEXT = GateContext(STEP)
GOOD, BAD = Artifact("n.json", b"7"), Artifact("m.json", b'"seven"')


async def test_gates_that_are_not_built_are_not_run_and_say_so() -> None:
    results = await run_gates(["judge", "schema", "lint"], [GOOD], CONTEXT)
    assert [(result.gate, result.status) for result in results] == [
        ("schema", "passed"),
        ("lint", "not run"),
        ("judge", "not run"),
    ]
    assert results[1].evidence == "this version has no gate lint"
    assert results[0].seconds > 0
    assert failure_of(results) is None


async def test_every_gate_there_is_gives_a_result_and_none_passes_unbuilt() -> None:
    results = await run_gates(GATES, [GOOD], CONTEXT)
    assert tuple(result.gate for result in results) == GATES
    assert {result.gate for result in results if result.status == "passed"} == set(BUILT)


async def test_no_gate_asked_for_is_no_result() -> None:
    assert await run_gates([], [BAD], CONTEXT) == ()


async def test_failure_names_every_artifact_and_stops_the_dearer_gates() -> None:
    results = await run_gates(["schema", "unit"], [GOOD, BAD, BAD], CONTEXT)
    assert [result.status for result in results] == ["passed", "failed", "failed", "not run"]
    assert results[-1].evidence == "gate schema failed before it"
    failure = failure_of(results)
    assert failure is not None
    assert failure.kind is FailureKind.SCHEMA
    assert failure.message == "gate schema failed"
    assert failure.evidence == "\n".join(["m.json: /: 'seven' is not of type 'integer'"] * 2)


@pytest.mark.parametrize("gate", GATES)
async def test_each_gate_fails_as_its_own_kind(gate: str) -> None:
    async def refuse(artifact: Artifact, context: GateContext) -> GateResult:
        return GateResult(gate, "failed", f"{artifact.name} is no good")

    failure = failure_of(await run_gates([gate], [GOOD], CONTEXT, {gate: refuse}))
    assert failure is not None
    assert failure.kind is FAILURE_KINDS[gate]
