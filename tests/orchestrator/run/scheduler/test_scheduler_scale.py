"""Plans of many thousand steps: what an event costs must not grow with the plan, only with its logarithm.

Work that is quadratic in the plan would take hours, and so run into the timeout that all tests have.
"""

import pytest

from orchestrator.run.scheduler.commands import (
    ExpandStep,
    FinishRun,
    GatherStep,
    StartAttempt,
)
from orchestrator.run.scheduler.run import RunState
from orchestrator.task.events import (
    AttemptFailed,
    AttemptStarted,
    AttemptSucceeded,
    Event,
    Failure,
    FailureKind,
    PlanFinished,
    StepExpanded,
    StepsPlanned,
)
from orchestrator.task.failures import EscalationChain
from orchestrator.task.states import State
from orchestrator.task.taskir.fields import MAX_STEPS
from orchestrator.task.taskir.models import Parallelism, Step
from tests.orchestrator.scheduler_driver import by_step, step

MANY = 5_000


@pytest.mark.parametrize(
    "count",
    [
        MANY,
        pytest.param(20_000, marks=pytest.mark.slow),
        pytest.param(MAX_STEPS, marks=[pytest.mark.slow, pytest.mark.timeout(900)]),
    ],
)
def test_a_plan_of_any_size_runs_to_its_end(count: int) -> None:
    steps = tuple(
        step(number, *{1 + number * 7 // 8, number - 1} if number > 8 else ()) for number in range(1, count + 1)
    )
    state = RunState(
        mode="as-planned",
        escalation=EscalationChain({}),
        parallelism=Parallelism(max_concurrent_steps=4),
        estimate=by_step(seconds),
    )
    commands = state.handle(StepsPlanned(at=0, steps=steps), PlanFinished(at=0, origin="taskir"))
    for _ in range(count):
        command = commands.pop()
        assert isinstance(command, StartAttempt)
        commands += state.handle(*attempt(command))
    assert commands == [FinishRun("done")]


def test_a_great_fan_out_runs_to_its_end() -> None:
    state = RunState(
        mode="as-planned",
        escalation=EscalationChain({}),
        parallelism=Parallelism(max_concurrent_steps=8),
        labels=["list"],
    )
    commands = state.handle(StepsPlanned(at=0, steps=(step(1, foreach="list"),)), PlanFinished(at=0, origin="taskir"))
    assert commands == [ExpandStep(state.graph.steps["S1"])]
    commands = state.handle(StepExpanded(at=0, step="S1", count=MANY))
    for _ in range(MANY):
        command = commands.pop()
        assert isinstance(command, StartAttempt)
        commands += state.handle(*attempt(command))
    (command,) = commands
    assert isinstance(command, GatherStep)
    assert len(command.children) == MANY


def test_a_failure_at_the_root_cancels_a_great_plan() -> None:
    steps = (step(1), *(step(number, number - 1) for number in range(2, MANY + 1)))
    state = RunState(mode="as-planned", escalation=EscalationChain({}))
    (command,) = state.handle(StepsPlanned(at=0, steps=steps), PlanFinished(at=0, origin="taskir"))
    assert isinstance(command, StartAttempt)
    started, _ = attempt(command)
    broken = AttemptFailed(at=0, step="S1", number=1, failure=Failure(FailureKind.TIMEOUT, "too slow"))
    (finish,) = state.handle(started, broken)
    assert isinstance(finish, FinishRun)
    assert finish.status == "failed"
    assert state.steps[f"S{MANY}"].state is State.CANCELLED


def attempt(command: StartAttempt) -> tuple[Event, Event]:
    name, number = command.step.id, command.number
    return (
        AttemptStarted(at=0, step=name, number=number, role="worker", persona=None, model="m", reason=""),
        AttemptSucceeded(at=0, step=name, number=number, outputs={}),
    )


def seconds(step: Step) -> float:
    return float(len(step.id))
