"""Courses of runs, drawn by hypothesis: events with lists, failures, cancellations and plans that grow."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, get_args

from hypothesis import strategies as st

from orchestrator.run.scheduler.commands import Command, StartAttempt
from orchestrator.task.events import (
    AttemptFailed,
    AttemptGenerated,
    AttemptStarted,
    AttemptSucceeded,
    CallOutcome,
    Event,
    GateResult,
    ModelAwaited,
    RunAccepted,
    RunBegun,
    ToolCalled,
    Usage,
)
from orchestrator.task.modes import Mode
from orchestrator.task.taskir.fields import REQUEST_LABEL
from orchestrator.task.taskir.models import Step
from tests.orchestrator.scheduler_driver import Driver
from tests.orchestrator.scheduler_driver import step as planned_step

hostile = st.text(st.characters(codec="utf-8"), max_size=20) | st.sampled_from(
    ['"]}', "</script>", "\u202eevil", "a\x00b\x1b[31m", "line\nline"]
)
seconds = st.floats(0, 100, allow_nan=False)
usages = st.builds(
    lambda prompt, cached, output, waited, read, wrote, nodes: Usage(
        prompt_tokens=prompt,
        cached_tokens=min(prompt, cached),
        output_tokens=output,
        queued_seconds=waited,
        prefill_seconds=read,
        decode_seconds=wrote,
        nodes=nodes,
    ),
    *[st.integers(0, 1000)] * 3,
    *[seconds] * 3,
    st.lists(hostile, max_size=2, unique=True).map(tuple),
)
gate_results = st.lists(
    st.builds(
        GateResult,
        gate=hostile,
        status=st.sampled_from(["passed", "failed", "not run"]),
        evidence=hostile,
        seconds=seconds,
        offset_seconds=seconds,
        work_seconds=st.none() | seconds,
    ),
    max_size=4,
).map(tuple)


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
        "retry": list(driver.state.steps),
        "restarted": list(driver.to_restart),
        "prioritise": list(driver.state.steps),
        "reuse": driver.reusable(),
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


@st.composite
def recorded(draw: st.DrawFn) -> list[Event]:
    """Draw the events of a run with times, usage, calls of tools, waits for models and restarts."""
    events: list[Event] = []
    at = 0.0
    for event in draw(courses()):
        for more in (*_before(event, draw), _filled(event, draw)):
            events.append(replace(more, at=at))
            at += draw(st.sampled_from([0.0, 1e-7, 0.0004]) | seconds)
    return events


def _before(event: Event, draw: st.DrawFn) -> Iterator[Event]:
    match event:
        case AttemptSucceeded(step=step, number=number) | AttemptFailed(step=step, number=number) if number:
            for _ in range(draw(st.integers(0, 2))):
                yield ToolCalled(
                    at=0.0,
                    step=step,
                    number=number,
                    tool=draw(hostile),
                    arguments="{}",
                    outcome=draw(st.sampled_from(get_args(CallOutcome))),
                    seconds=draw(seconds),
                )
            if draw(st.booleans()):
                yield ModelAwaited(
                    at=0.0, step=step, number=number, model="m", reason=draw(hostile), seconds=draw(st.none() | seconds)
                )
            if draw(st.booleans()):
                yield AttemptGenerated(at=0.0, step=step, number=number, usage=draw(usages))
        case AttemptStarted() if draw(st.booleans()):
            yield RunBegun(at=0.0)


def _filled(event: Event, draw: st.DrawFn) -> Event:
    match event:
        case RunAccepted():
            return replace(event, request=draw(hostile))
        case AttemptStarted():
            return replace(event, model=draw(hostile), reason=draw(hostile), persona=draw(st.none() | hostile))
        case AttemptSucceeded():
            return replace(event, gates=draw(gate_results))
        case AttemptFailed():
            return replace(event, gates=draw(gate_results), failure=replace(event.failure, message=draw(hostile)))
    return event
