"""The pipeline with scripted gates, so that order, time and cancellation can be tested without tools."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.run.gates.contract import Artifact, Gate, GateContext, GateError, GateSkipped, Repaired
from orchestrator.run.gates.pipeline import BUILTIN_GATES, run_gates
from orchestrator.run.gates.planned import Scope, as_first_child, default_gates, planned_gates
from orchestrator.run.gates.shares import JobRunner
from orchestrator.run.sandbox.contract import JobOutcome, SandboxJob
from orchestrator.run.sandbox.sandbox import Sandbox
from orchestrator.task.events import FailureKind, GateResult
from orchestrator.task.stages import GateEnd, GateRun, Stage, following
from tests.orchestrator.run.gates.gate_steps import step

ARTIFACT = Artifact("a.py", b"old")
CONTEXT = GateContext(Scope(step("a.py")))


class WaitingGate(Gate):
    """Runs a job in the sandbox."""

    name = "lint"
    fails_as = FailureKind.CODE

    def skip_reason(self, scope: Scope) -> str:
        return ""

    async def check(self, artifacts: Sequence[Artifact], context: GateContext) -> GateResult | Repaired:
        await context.run(SandboxJob(argv=("true",)))
        return self.passed()


class ScriptedGate(Gate):
    """Answers `answer`, once `after` is set. Remembers what it saw."""

    fails_as = FailureKind.CODE

    def __init__(self, name: str, answer: str = "pass", after: asyncio.Event | None = None) -> None:
        self.name = name  # type: ignore[misc]
        self.sequential = BUILTIN_GATES[name].sequential  # type: ignore[misc]
        self.answer, self.after = answer, after
        self.saw: list[bytes] = []
        self.ended = asyncio.Event()
        self.cancelled = False

    def skip_reason(self, scope: Scope) -> str:
        return "nothing to do" if self.answer == "idle" else ""

    async def check(self, artifacts: Sequence[Artifact], context: GateContext) -> GateResult | Repaired:
        self.saw = [artifact.data for artifact in artifacts]
        try:
            if self.after is not None:
                await self.after.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        self.ended.set()
        match self.answer:
            case "fail":
                return self.failed(f"{self.name} says no\nand why")
            case "mend":
                return Repaired(self.passed("mended"), (Artifact("a.py", b"new"),))
            case "break":
                raise GateError(f"{self.name} is not there", final=True)
        return self.passed()


def built(*gates: ScriptedGate) -> dict[str, Gate]:
    return {gate.name: gate for gate in gates}


def test_there_is_every_gate_that_a_task_may_name_and_in_its_order() -> None:
    order = "schema shellcheck format lint build typecheck security smoke unit integration bench judge"
    assert list(BUILTIN_GATES) == order.split()


async def test_no_gate_asked_for_is_no_result() -> None:
    checked = await run_gates([], [ARTIFACT], CONTEXT)
    assert (checked.results, checked.failure, checked.artifacts) == ((), None, (ARTIFACT,))


async def test_the_earliest_failure_counts_though_a_later_one_was_there_first() -> None:
    late = asyncio.Event()
    lint, build = ScriptedGate("lint", "fail", late), ScriptedGate("build", "fail")
    typecheck, unit = ScriptedGate("typecheck", "pass", asyncio.Event()), ScriptedGate("unit")
    asked = asyncio.create_task(
        run_gates(["unit", "typecheck", "build", "lint"], [ARTIFACT], CONTEXT, built(lint, build, typecheck, unit))
    )
    await build.ended.wait()
    late.set()
    checked = await asked
    assert checked.failure is not None
    assert (checked.failure.message, checked.failure.evidence) == (
        "gate lint failed: lint says no",
        "lint says no\nand why",
    )
    assert [(result.gate, result.status) for result in checked.results] == [
        ("lint", "failed"),
        ("build", "failed"),
        ("typecheck", "not run"),
        ("unit", "not run"),
    ]
    assert checked.results[-1].evidence == "gate lint failed before it"
    assert typecheck.cancelled
    assert unit.saw == []


async def test_what_stands_before_a_failure_is_heard() -> None:
    late = asyncio.Event()
    lint, build = ScriptedGate("lint", "pass", late), ScriptedGate("build", "fail")
    asked = asyncio.create_task(run_gates(["lint", "build"], [ARTIFACT], CONTEXT, built(lint, build)))
    await build.ended.wait()
    late.set()
    checked = await asked
    assert [result.status for result in checked.results] == ["passed", "failed"]


async def test_gates_in_turn_see_what_others_have_mended() -> None:
    formatter, lint, unit = ScriptedGate("format", "mend"), ScriptedGate("lint"), ScriptedGate("unit")
    checked = await run_gates(["format", "lint", "unit"], [ARTIFACT], CONTEXT, built(formatter, lint, unit))
    assert (lint.saw, unit.saw) == ([b"old"], [b"new"])
    assert checked.artifacts == (Artifact("a.py", b"new"),)
    mended, _, tested = checked.results
    assert replace(mended, seconds=0.0, offset_seconds=0.0) == GateResult("format", "passed", "mended")
    assert tested.offset_seconds >= mended.offset_seconds + mended.seconds, "it ran after the others"


async def test_tests_run_one_after_the_other() -> None:
    unit, integration = ScriptedGate("unit", "fail"), ScriptedGate("integration")
    await run_gates(["integration", "unit"], [ARTIFACT], CONTEXT, built(unit, integration))
    assert unit.saw
    assert not integration.saw


async def test_a_gate_that_comes_to_no_verdict_lets_nothing_pass() -> None:
    checked = await run_gates(["lint"], [ARTIFACT], CONTEXT, built(ScriptedGate("lint", "break")))
    assert checked.failure is not None
    assert (checked.failure.kind, checked.failure.final) == (FailureKind.INFRASTRUCTURE, True)
    assert checked.failure.evidence == "", "the model is not to be told of what is not its fault"
    assert "lint is not there" in checked.failure.message
    assert checked.results[0].status == "failed"


@pytest.mark.parametrize("gate", sorted(set(BUILTIN_GATES) - {"schema"}))
async def test_without_a_sandbox_and_a_judge_no_gate_passes(gate: str) -> None:
    checked = await run_gates([gate], [ARTIFACT], CONTEXT)
    assert not any(result.passed for result in checked.results)


@pytest.mark.parametrize(("text", "schema"), [(b"[1]", "passed"), (b"[1", "failed")])
async def test_gates_that_nobody_insists_on_are_not_run_where_they_cannot_look(text: bytes, schema: str) -> None:
    async def refuse(job: SandboxJob) -> JobOutcome:
        raise GateSkipped("there is no bubblewrap")

    context = GateContext(Scope(step("a.py", "a.json")), run=refuse)
    checked = await run_gates(["schema", "format", "lint"], [Artifact("a.py", b"x"), Artifact("a.json", text)], context)
    assert [(result.gate, result.status) for result in checked.results] == [
        ("schema", schema),
        ("format", "not run"),
        ("lint", "not run"),
    ]
    assert (checked.failure is None) == (schema == "passed")
    if checked.failure is None:
        assert {result.evidence for result in checked.results[1:]} == {"there is no bubblewrap"}


def test_gates_look_at_what_is_written_for_one_item_of_a_list() -> None:
    planned = step("told.json", "all.py", foreach="names.json")
    assert default_gates(planned) == ("format", "lint", "build", "smoke")
    child = planned.model_copy(update={"id": "S1[7]", "outputs": ("told.json[7]", "all.py[7]")})
    assert as_first_child(child) is child
    assert Scope(as_first_child(planned)).outputs("python", "json") == ("all.py[0]",)


@pytest.mark.parametrize(
    ("inputs", "outputs", "tested"),
    [
        ((), ("a.py", "test_a.py"), True),
        (("test_a.py",), ("a.py",), True),
        (("a.py",), ("test_a.py",), False),
        (("test_b.py",), ("a.py",), False),
        ((), ("a.py",), False),
    ],
)
def test_tests_run_if_the_step_writes_their_module(
    inputs: tuple[str, ...], outputs: tuple[str, ...], tested: bool
) -> None:
    assert ("unit" in default_gates(step(*outputs, inputs=inputs))) == tested


async def test_cancelling_stops_every_gate() -> None:
    lint, build = ScriptedGate("lint", "pass", asyncio.Event()), ScriptedGate("build")
    asked = asyncio.create_task(run_gates(["lint", "build"], [ARTIFACT], CONTEXT, built(lint, build)))
    await build.ended.wait()
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert lint.cancelled


def test_what_will_not_look_says_why_before_anything_runs() -> None:
    plans = planned_gates(["judge", "unit", "lint", "shellcheck", "nose"], Scope(step("a.py")))
    assert [(plan.gate, plan.idle) for plan in plans] == [
        ("shellcheck", "no output is a shell script"),
        ("lint", ""),
        ("unit", "there is no test_NAME.py for an output NAME.py"),
        ("judge", ""),
        ("nose", "this version has no such gate"),
    ]


@given(
    st.dictionaries(st.sampled_from(list(BUILTIN_GATES)), st.sampled_from(["pass", "fail", "idle", "break", "mend"]))
)
def test_one_result_a_gate_and_the_first_failure_counts(answers: dict[str, str]) -> None:
    async def go() -> None:
        gates = built(*(ScriptedGate(name, answer) for name, answer in answers.items()))
        checked = await run_gates(list(answers), [ARTIFACT], CONTEXT, gates)
        assert [result.gate for result in checked.results] == [gate for gate in BUILTIN_GATES if gate in answers]
        failing = [gate for gate in BUILTIN_GATES if answers.get(gate) in ("fail", "break")]
        assert (checked.failure is None) == (not failing)
        if checked.failure and failing:
            assert f"gate {failing[0]} failed" in checked.failure.message
            order = list(BUILTIN_GATES)
            behind = order[order.index(failing[0]) + 1 :]
            alone = [
                result for result in checked.results if result.gate in behind and BUILTIN_GATES[result.gate].sequential
            ]
            assert all(result.status == "not run" for result in alone)

    asyncio.run(go())


async def test_what_a_gate_waits_for_the_sandbox_and_for_a_core_is_no_work() -> None:
    async def run(_job: SandboxJob) -> JobOutcome:
        await asyncio.sleep(0.2)  # until it is the job's turn
        return JobOutcome(exit_code=0, seconds=0.1, cpu_seconds=0.03)

    found = await run_gates(["lint"], [ARTIFACT], GateContext(Scope(step("a.py")), run=run), {"lint": WaitingGate()})
    (result,) = found.results
    assert result.work_seconds is not None
    assert 0.03 <= result.work_seconds <= result.seconds - 0.2 + 0.03 + 1e-9
    none = await run_gates(["lint"], [ARTIFACT], CONTEXT, {"lint": ScriptedGate("lint")})
    assert none.results[0].work_seconds is None, "all of its time is work"


async def test_whoever_follows_is_told_which_gates_check() -> None:
    stages: list[Stage] = []
    format_gate, lint, unit = (ScriptedGate(name) for name in ("format", "lint", "unit"))
    with following(stages.append):
        await run_gates(["format", "lint", "unit"], [ARTIFACT], CONTEXT, {g.name: g for g in (format_gate, lint, unit)})
    assert stages == [
        *(GateRun("format"), GateEnd("format")),
        *(GateRun("lint"), GateEnd("lint")),
        *(GateRun("unit"), GateEnd("unit")),
    ]


async def test_a_gate_that_is_cancelled_checks_no_more() -> None:
    stages: list[Stage] = []
    failing, later = ScriptedGate("format", "fail"), ScriptedGate("lint", after=asyncio.Event())
    with following(stages.append):
        await run_gates(["format", "lint"], [ARTIFACT], CONTEXT, {"format": failing, "lint": later})
    assert stages[-1] == GateEnd("lint")


async def test_a_job_that_waits_for_its_turn_says_so(sandbox: Sandbox) -> None:
    async def here() -> Sandbox:
        return sandbox

    runner, first, second = JobRunner(here, limit=1), list[Stage](), list[Stage]()
    context = GateContext(Scope(step("a.py")), run=runner.run)

    async def check(stages: list[Stage]) -> None:
        with following(stages.append):
            await run_gates(["lint"], [ARTIFACT], context, {"lint": WaitingGate()})

    async with asyncio.TaskGroup() as group:
        group.create_task(check(first))
        group.create_task(check(second))
    waits = [GateRun("lint"), GateRun("lint", waits=True), GateRun("lint"), GateEnd("lint")]
    assert (first, second) == (waits, waits)
