"""Courses of runs, drawn by hypothesis: events with lists, failures, cancellations and plans that grow."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

from hypothesis import strategies as st

from orchestrator.run.scheduler import Command, StartAttempt
from orchestrator.task.events import Event, RunAccepted
from orchestrator.task.modes import Mode
from orchestrator.task.taskir.fields import REQUEST_LABEL
from orchestrator.task.taskir.models import Step
from tests.orchestrator.scheduler_driver import Driver
from tests.orchestrator.scheduler_driver import step as planned_step


@st.composite
def courses(draw: st.DrawFn) -> list[Event]:
    """Draw the events of a run with lists, failures, cancellations and a plan that grows and goes on."""
    mode: Mode = draw(st.sampled_from(get_args(Mode)))
    driver = Driver({"mode": mode, "labels": (REQUEST_LABEL,), "max_replans": 1})
    driver.plan(*drawn_steps(draw, 1), closed=False)
    closing = draw(st.integers(0, 12))
    for turn in range(draw(st.integers(0, 25))):
        if turn == closing:
            driver.close("S1" if draw(st.booleans()) else None)
        elif driver.finish is None:
            go_on(driver, draw)
    if driver.finish is not None:
        driver.send(driver.end_event(driver.finish.status, driver.finish.error))
    accepted = RunAccepted(at=0, run="R", mode=mode, request="x", max_replans=1)
    return [replace(event, at=float(at)) for at, event in enumerate([accepted, *driver.journal])]


def go_on(driver: Driver, draw: st.DrawFn) -> None:
    """Let one thing happen to a run."""
    can: dict[str, Sequence[str]] = {
        "start": [name for name, command in driver.working.items() if is_unstarted(driver, command)],
        "succeed": list(driver.working),
        "fail": list(driver.working),
        "stopped": list(driver.to_cancel),
        "cancel": list(driver.state.steps),
        "rest": ["plan"] * bool(driver.extending),
    }
    what = draw(st.sampled_from([name for name, subjects in can.items() if subjects]))
    if what == "rest":
        driver.begin_rest()
        driver.plan(*drawn_steps(draw, len(driver.state.graph.steps) + 1), closed=False)
        driver.end_rest()
    else:
        getattr(driver, what)(draw(st.sampled_from(can[what])))


def is_unstarted(driver: Driver, command: Command) -> bool:
    return isinstance(command, StartAttempt) and driver.started[command.step.id] < command.number


def drawn_steps(draw: st.DrawFn, first: int) -> list[Step]:
    """Draw up to three steps from number `first` on. The second may be there once for each item of what S1 writes."""
    count = draw(st.integers(1, 3))
    each = draw(st.booleans())
    made = []
    for number in range(first, first + count):
        fields: dict[str, Any] = {"foreach": "a1"} if each and number == 2 else {}
        made.append(planned_step(number, *([1] if number > 1 and draw(st.booleans()) else []), **fields))
    return made
