"""The fold of a run's events gives its steps the states that the scheduler gives them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.run.record.steps import PlanRecord
from orchestrator.run.scheduler.commands import Command, StartAttempt
from orchestrator.run.scheduler.run import RunState
from orchestrator.task.events import EscalationTarget, FailureKind, RunAccepted
from orchestrator.task.failures import EscalationChain
from orchestrator.task.modes import Mode
from orchestrator.task.states import State
from orchestrator.task.taskir.fields import REQUEST_LABEL
from orchestrator.task.taskir.models import Step
from tests.orchestrator.scheduler_driver import Driver
from tests.orchestrator.scheduler_driver import step as planned_step

RUNGS = {"worker": EscalationTarget("coder", "B1")}


@st.composite
def courses(draw: st.DrawFn) -> tuple[Driver, RunAccepted]:
    """Draw a run with lists, failures, cancellations, repairs, a direct answer, and a plan that continues."""
    mode: Mode = draw(st.sampled_from(get_args(Mode)))
    request = draw(st.booleans())
    driver = Driver(
        {
            "mode": mode,
            "labels": (REQUEST_LABEL,),
            "max_replans": 1,
            "escalation": EscalationChain(RUNGS),
            "checks_answer": True,
            "may_answer_directly": request,
        }
    )
    driver.plan(*drawn_steps(draw, 1), closed=False)
    closing = draw(st.integers(0, 12))
    for turn in range(draw(st.integers(0, 40))):
        if turn == closing:
            driver.close("S1" if draw(st.booleans()) else None)
        elif driver.finish is None:
            take_turn(driver, draw)
    if driver.finish is not None:
        driver.send(driver.end_event(driver.finish.status, driver.finish.error))
    elif draw(st.booleans()):
        driver.send(driver.end_event(draw(st.sampled_from(("failed", "cancelled"))), None))
    return driver, RunAccepted(at=0, run="R", mode=mode, request="x", max_replans=1, rungs=RUNGS)


def take_turn(driver: Driver, draw: st.DrawFn) -> None:
    attempts = [name for name, command in driver.working.items() if isinstance(command, StartAttempt)]
    can: dict[str, Sequence[Any]] = {
        "start": [name for name in attempts if is_unstarted(driver, driver.working[name])],
        "again": [name for name in attempts if is_running(driver, name)],
        "generate": [name for name in attempts if driver.state.steps.state_of(name) is State.RUNNING],
        "succeed": list(driver.working),
        "fail": list(driver.working),
        "stopped": list(driver.to_cancel),
        "cancel": [None, *driver.state.steps],
        "retry": list(driver.state.steps),
        "restarted": list(driver.to_restart),
        "prioritise": list(driver.state.steps),
        "reuse": driver.reusable(),
        "rest": ["plan"] * bool(driver.extending),
        "check": [{}, {"S1": "It is too short."}] * driver.checking,
        "replace": [planned_step(9, inputs=(REQUEST_LABEL,))] * bool(driver.replacing),
    }
    action = draw(st.sampled_from([name for name, subjects in can.items() if subjects]))
    subject = draw(st.sampled_from(can[action]))
    match action:
        case "rest":
            driver.begin_rest()
            driver.plan(*drawn_steps(draw, len(driver.state.graph.steps) + 1), closed=False)
            driver.end_rest()
        case "start":
            driver.start(subject, draw(st.sampled_from((None, "coder"))))
        case "again":
            restart(driver, subject)
        case "fail":
            driver.fail(subject, draw(st.sampled_from(list(FailureKind))))
        case "check":
            driver.check(**subject)
        case _:
            getattr(driver, action)(subject)


def restart(driver: Driver, step: str) -> None:
    """Start the next attempt of a step whose attempt was lost, as after a restart."""
    command = driver.attempt(step)
    driver.working[step] = replace(command, number=command.number + 1)
    driver.to_restart.pop(step, None)  # it is forgotten, too
    driver.start(step)


def is_running(driver: Driver, step: str) -> bool:
    view = driver.state.steps[step]
    return driver.started[step] == driver.attempt(step).number and not view.cause


def is_unstarted(driver: Driver, command: Command) -> bool:
    return isinstance(command, StartAttempt) and driver.started[command.step.id] < command.number


def drawn_steps(draw: st.DrawFn, first: int) -> list[Step]:
    count, fans_out = draw(st.integers(1, 3)), draw(st.booleans())
    steps = []
    for number in range(first, first + count):
        fields: dict[str, Any] = {"foreach": "a1"} if fans_out and number == 2 else {}
        steps.append(planned_step(number, *([1] if number > 1 and draw(st.booleans()) else []), **fields))
    return steps


def states(steps: PlanRecord | RunState, *, serial: bool) -> dict[str, tuple[object, ...]]:
    # In a serial run, which of the ready steps has the slot is in no event until its attempt starts. If it is cancelled
    # before, the scheduler waits for its end.
    return {
        name: (
            row.state,
            row.children,
            row.parent,
            row.role,
            *((bool(row.cause),) if serial else (row.cause, row.attempts)),
        )
        for name, row in steps.steps.items()
    }


@given(courses())
def test_steps_have_the_states_that_the_scheduler_gives_them(course: tuple[Driver, RunAccepted]) -> None:
    driver, accepted = course
    record, scheduler, serial = PlanRecord(accepted), RunState(**driver.settings), accepted.mode == "serial"
    for event in driver.journal:
        record.apply(event)
        scheduler.handle(event)
        assert record.graph == scheduler.graph
        if not serial or scheduler.status not in ("queued", "planning", "running"):
            assert states(record, serial=serial) == states(scheduler, serial=serial), event
            assert record.is_answered == scheduler.is_answered, event
