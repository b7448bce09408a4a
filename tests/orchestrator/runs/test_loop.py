"""The main loop with effects that do what a test needs: order, cancellation, breakdowns, and what is journaled when."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from run_jobs import step

from orchestrator import failures
from orchestrator.events import (
    AttemptFailed,
    AttemptSucceeded,
    CancelRequested,
    Event,
    Failure,
    FailureKind,
    PlanFailed,
    PlanFinished,
    PlanningStarted,
    PromptDigests,
    RunAccepted,
    StepsPlanned,
)
from orchestrator.history.replay import fresh_state
from orchestrator.history.report import load_report
from orchestrator.journal import Journal
from orchestrator.routing import Route
from orchestrator.runs.clock import Clock
from orchestrator.runs.loop import RunLoop
from orchestrator.runs.updates import Broadcast
from orchestrator.scheduler import ExpandStep, GatherStep, StartAttempt
from orchestrator.taskir import TaskIR, task_from

RUN = "20260101-000000-abcdef"
CLOCK = Clock()
Act = Callable[["Scripted", StartAttempt], Awaitable[Event]]


class Scripted:
    """Effects whose attempts are what a test says."""

    def __init__(self, act: Act) -> None:
        self.act = act
        self.loop: RunLoop

    def note(self, event: Event) -> None: ...

    def route(self, command: StartAttempt) -> Route:
        return Route(command.role, None, "model", "a test")

    def prompts(self, role: str, persona: str | None) -> PromptDigests:
        return PromptDigests()

    async def attempt(self, command: StartAttempt, route: Route, emit: Callable[[Event], None]) -> Event:
        return await self.act(self, command)

    async def expand(self, command: ExpandStep) -> Event:
        raise NotImplementedError

    async def gather(self, command: GatherStep) -> Event:
        raise NotImplementedError

    def planning(self) -> PlanningStarted | None:
        raise NotImplementedError

    async def plan(self, emit: Callable[[Event], None]) -> Event:
        raise NotImplementedError


def task(*, limit: int | None = None) -> TaskIR:
    steps = [step("S1", "one", [], ["one"]), step("S2", "two", [], ["two"])]
    return task_from({"objective": "x", "plan": {"steps": steps, "parallelism": {"max_concurrent_steps": limit}}})


def succeeded(command: StartAttempt) -> AttemptSucceeded:
    return AttemptSucceeded(at=CLOCK.now(), step=command.step.id, number=command.number, outputs={})


def failed(command: StartAttempt, kind: FailureKind) -> AttemptFailed:
    failure = Failure(kind, "as the test says")
    return AttemptFailed(at=CLOCK.now(), step=command.step.id, number=command.number, failure=failure)


async def drive(journal: Journal, act: Act, *, limit: int | None = None) -> None:
    asked = task(limit=limit)
    accepted = RunAccepted(at=CLOCK.now(), run=RUN, mode="as-planned", task=asked)
    events: list[Event] = [
        accepted,
        StepsPlanned(at=accepted.at, steps=asked.plan.steps),
        PlanFinished(at=accepted.at, origin="taskir"),
    ]
    await journal.append(RUN, events)
    state, effects = fresh_state(accepted), Scripted(act)
    state.handle(*events)
    effects.loop = RunLoop(RUN, state, effects, journal, CLOCK, Broadcast())
    async with asyncio.timeout(60):
        await effects.loop.drive(state.resume())


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal.open(tmp_path / "home")


async def test_an_attempt_is_durable_before_it_begins(journal: Journal) -> None:
    seen: list[list[str]] = []

    async def act(effects: Scripted, command: StartAttempt) -> Event:
        seen.append([e.step for _, e in journal.events(RUN) if e.kind == "attempt_started"])
        return succeeded(command)

    with journal:
        await drive(journal, act, limit=1)
    assert seen == [["S1"], ["S1", "S2"]]


async def test_planning_is_durable_before_the_model_is_asked(journal: Journal) -> None:
    seen: list[str] = []

    class Planner(Scripted):
        def planning(self) -> PlanningStarted:
            return PlanningStarted(at=CLOCK.now(), role="frontdoor", model="model")

        async def plan(self, emit: Callable[[Event], None]) -> Event:
            seen.extend(event.kind for _, event in journal.events(RUN))
            return PlanFailed(at=CLOCK.now(), failure=Failure(FailureKind.FORMAT, "as the test says"))

    async def never(effects: Scripted, command: StartAttempt) -> Event:
        raise AssertionError

    accepted = RunAccepted(at=CLOCK.now(), run=RUN, mode="as-planned", request="do it")
    with journal:
        await journal.append(RUN, [accepted])
        state = fresh_state(accepted)
        state.handle(accepted)
        async with asyncio.timeout(60):
            await RunLoop(RUN, state, Planner(never), journal, CLOCK, Broadcast()).drive(plan=True)
    assert seen == ["run_accepted", "planning_started"]


async def test_a_step_that_starts_and_is_cancelled_at_once_ends(journal: Journal) -> None:
    async def act(effects: Scripted, command: StartAttempt) -> Event:
        # Runs when the success is in the inbox and before the loop looks: both are handled in one batch.
        asyncio.get_running_loop().call_soon(effects.loop.emit, CancelRequested(at=CLOCK.now()))
        return succeeded(command)

    with journal:
        await drive(journal, act, limit=1)
        report = load_report(journal, RUN)
    assert report.status == "cancelled"
    assert [row.state for row in report.steps] == ["done", "cancelled"]


async def test_a_step_can_be_cancelled_while_it_waits_to_be_tried_again(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pause before the next attempt is far longer than this test may take: nobody waits for its end."""
    monkeypatch.setattr(failures, "BACK_OFF_SECONDS", (3600.0,))

    async def act(effects: Scripted, command: StartAttempt) -> Event:
        if command.step.id == "S2":
            return succeeded(command)
        asyncio.get_running_loop().call_later(0.1, effects.loop.emit, CancelRequested(at=CLOCK.now(), step="S1"))
        return failed(command, FailureKind.RESOURCE)

    with journal:
        await drive(journal, act)
        report = load_report(journal, RUN)
    assert [row.state for row in report.steps] == ["cancelled", "done"]


async def test_a_breakdown_is_an_attempt_that_failed(journal: Journal) -> None:
    async def act(effects: Scripted, command: StartAttempt) -> Event:
        if command.step.id == "S1" and command.number == 1:
            raise ZeroDivisionError("a defect")
        return succeeded(command)

    with journal:
        await drive(journal, act)
        report = load_report(journal, RUN)
    assert report.status == "done"
    assert [attempt.outcome for attempt in report.steps[0].attempts] == ["infrastructure", "done"]
    assert "a defect" in report.steps[0].attempts[0].message
