"""The main loop with effects that do what a test needs: order, cancellation, breakdowns, and what is journaled when."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.run.journal.journal import Journal
from orchestrator.run.loop import RunLoop
from orchestrator.run.record.report import load_report
from orchestrator.run.routing import Decision, DecisionContext, RuleRouter
from orchestrator.run.scheduler.commands import (
    AnswerDirectly,
    CheckOutputs,
    ExpandStep,
    ExtendPlan,
    GatherStep,
    StartAttempt,
)
from orchestrator.run.scheduler.run import fresh_state
from orchestrator.run.state_folder import SystemClock
from orchestrator.run.updates import Broadcast
from orchestrator.task import failures
from orchestrator.task.events import (
    AnswerChecked,
    AttemptFailed,
    AttemptStarted,
    AttemptSucceeded,
    CancelRequested,
    Event,
    Failure,
    FailureKind,
    PlanFailed,
    PlanFinished,
    PlanningStarted,
    PlanReplaced,
    PromptDigests,
    ReplanStarted,
    RetryRequested,
    RunAccepted,
    StepPrioritised,
    StepsPlanned,
)
from orchestrator.task.stages import heeding
from orchestrator.task.taskir.models import TaskIR
from orchestrator.task.taskir.parse import task_from
from tests.orchestrator.run_jobs import REGISTRY, step

RUN = "20260101-000000-abcdef"
CLOCK = SystemClock()
Act = Callable[["Scripted", StartAttempt], Awaitable[Event]]


class Scripted:
    """Effects whose attempts are what a test says."""

    def __init__(self, act: Act) -> None:
        self.act = act
        self.loop: RunLoop

    def note(self, event: Event) -> None: ...

    async def context(self, command: StartAttempt) -> DecisionContext:
        return DecisionContext(registry=REGISTRY, role=command.role, roles=(), step=command.step)

    def prompts(self, role: str, persona: str | None, model: str) -> PromptDigests:
        return PromptDigests()

    async def choose(self, context: DecisionContext) -> Decision:
        return await RuleRouter().choose(context)

    async def attempt(self, command: StartAttempt, decision: Decision, emit: Callable[[Event], None]) -> Event:
        return await self.act(self, command)

    async def check(self, command: CheckOutputs, emit: Callable[[Event], None]) -> Event:
        raise NotImplementedError

    async def expand(self, command: ExpandStep) -> Event:
        raise NotImplementedError

    async def gather(self, command: GatherStep) -> Event:
        raise NotImplementedError

    def planning(self) -> PlanningStarted | None:
        raise NotImplementedError

    async def plan(self, emit: Callable[[Event], None]) -> Event:
        raise NotImplementedError

    def replanning(self, command: ExtendPlan) -> ReplanStarted:
        raise NotImplementedError

    async def extend(self, command: ExtendPlan, emit: Callable[[Event], None]) -> Event:
        raise NotImplementedError

    def replace(self, command: AnswerDirectly) -> PlanReplaced:
        raise NotImplementedError

    async def check_answer(self) -> AnswerChecked:
        raise NotImplementedError


def task(*, limit: int | None = None, coders: int | None = None) -> TaskIR:
    steps = [step("S1", "one", [], ["one"]), step("S2", "two", [], ["two"])]
    plan = {"steps": steps, "parallelism": {"max_concurrent_steps": limit}}
    agents = [{"tier": "B", "role": "coder", "max_concurrency": coders}]
    return task_from({"objective": "x", "plan": plan, "agents": agents})


def succeeded(command: StartAttempt) -> AttemptSucceeded:
    return AttemptSucceeded(at=CLOCK.now(), step=command.step.id, number=command.number, outputs={})


def failed(command: StartAttempt, kind: FailureKind) -> AttemptFailed:
    failure = Failure(kind, "as the test says")
    return AttemptFailed(at=CLOCK.now(), step=command.step.id, number=command.number, failure=failure)


async def drive(
    journal: Journal,
    act: Act,
    *,
    limit: int | None = None,
    coders: int | None = None,
    effects: Callable[[Act], Scripted] = Scripted,
) -> None:
    asked = task(limit=limit, coders=coders)
    accepted = RunAccepted(at=CLOCK.now(), run=RUN, mode="as-planned", task=asked)
    events: list[Event] = [
        accepted,
        StepsPlanned(at=accepted.at, steps=asked.plan.steps),
        PlanFinished(at=accepted.at, origin="taskir"),
    ]
    await journal.append(RUN, events)
    state, made = fresh_state(accepted), effects(act)
    state.handle(*events)
    made.loop = RunLoop(RUN, state, made, journal, CLOCK, Broadcast())
    async with asyncio.timeout(60):
        await made.loop.drive(state.resume())


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


async def test_what_has_happened_and_what_begins_share_a_commit(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits: list[list[str]] = []
    append = journal.append

    async def noted(run: str, events: Sequence[Event]) -> None:
        commits.append([event.kind for event in events])
        await append(run, events)

    async def act(effects: Scripted, command: StartAttempt) -> Event:
        return succeeded(command)

    monkeypatch.setattr(journal, "append", noted)
    with journal:
        await drive(journal, act, limit=1)
    assert commits[1:] == [
        ["attempt_started"],
        ["attempt_succeeded", "attempt_started"],
        ["attempt_succeeded", "run_finished"],
    ]


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


async def test_a_running_attempt_is_stopped_and_made_again(journal: Journal) -> None:
    async def act(effects: Scripted, command: StartAttempt) -> Event:
        if (command.step.id, command.number) == ("S1", 1):
            effects.loop.emit(RetryRequested(at=CLOCK.now(), step="S1"))
            await asyncio.Event().wait()
        return succeeded(command)

    with journal:
        await drive(journal, act)
        report = load_report(journal, RUN)
    assert report.status == "done"
    assert [attempt.outcome for attempt in report.steps[0].attempts] == ["cancelled", "done"]
    assert "at the request of the user" in report.steps[0].attempts[1].reason


async def test_an_attempt_that_ends_before_it_is_stopped_counts(journal: Journal) -> None:
    async def act(effects: Scripted, command: StartAttempt) -> Event:
        # The success is in the inbox before the request.
        asyncio.get_running_loop().call_soon(effects.loop.emit, RetryRequested(at=CLOCK.now(), step=command.step.id))
        return succeeded(command)

    with journal:
        await drive(journal, act)
        report = load_report(journal, RUN)
    assert [[attempt.outcome for attempt in row.attempts] for row in report.steps] == [["done"], ["done"]]


async def test_what_an_attempt_requests_is_hurried_when_its_step_goes_first(journal: Journal) -> None:
    hurried = list[str]()

    async def act(effects: Scripted, command: StartAttempt) -> Event:
        first = asyncio.Event()

        def heed() -> None:
            hurried.append(command.step.id)
            first.set()

        with heeding(heed):
            if command.step.id == "S2":
                effects.loop.emit(StepPrioritised(at=CLOCK.now(), step="S2"))
                await first.wait()
        return succeeded(command)

    with journal:
        await drive(journal, act)
        report = load_report(journal, RUN)
    assert report.status == "done"
    assert hurried == ["S2"]
    assert [row.first for row in report.steps] == [False, True]


async def test_a_step_that_goes_first_is_hurried_after_its_pause_too(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "BACK_OFF_SECONDS", (0.05,))
    hurried = list[int]()

    async def act(effects: Scripted, command: StartAttempt) -> Event:
        if command.step.id == "S2":
            return succeeded(command)
        if command.number == 1:
            asyncio.get_running_loop().call_soon(effects.loop.emit, StepPrioritised(at=CLOCK.now(), step="S1"))
            return failed(command, FailureKind.RESOURCE)
        with heeding(lambda: hurried.append(command.number)):
            return succeeded(command)

    with journal:
        await drive(journal, act)
    assert hurried == [2]


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


async def test_a_router_that_takes_long_keeps_nobody_else_from_going_on(journal: Journal) -> None:
    chosen, done = asyncio.Event(), list[str]()

    class Pondering(Scripted):
        async def choose(self, context: DecisionContext) -> Decision:
            if context.step is not None and context.step.id == "S1":
                await chosen.wait()
            return await super().choose(context)

    async def act(effects: Scripted, command: StartAttempt) -> Event:
        done.append(command.step.id)
        chosen.set()
        return succeeded(command)

    with journal:
        await drive(journal, act, effects=Pondering)
        report = load_report(journal, RUN)
    assert done == ["S2", "S1"]
    assert report.status == "done"


async def test_a_step_can_be_cancelled_while_it_is_chosen_who_does_it(journal: Journal) -> None:
    class Pondering(Scripted):
        async def choose(self, context: DecisionContext) -> Decision:
            if context.step is not None and context.step.id == "S1":
                await asyncio.Event().wait()
            return await super().choose(context)

    async def act(effects: Scripted, command: StartAttempt) -> Event:
        effects.loop.emit(CancelRequested(at=CLOCK.now(), step="S1"))
        return succeeded(command)

    with journal:
        await drive(journal, act, effects=Pondering)
        report = load_report(journal, RUN)
    assert [row.state for row in report.steps] == ["cancelled", "done"]
    assert report.steps[0].attempts == ()


async def test_a_choice_that_breaks_down_fails_the_step_and_not_the_run(journal: Journal) -> None:
    class Broken(Scripted):
        async def context(self, command: StartAttempt) -> DecisionContext:
            if command.step.id == "S1":
                raise ZeroDivisionError("a defect")
            return await super().context(command)

        async def attempt(self, command: StartAttempt, decision: Decision, emit: Callable[[Event], None]) -> Event:
            if decision.problem is not None:
                failure = Failure(FailureKind.INFRASTRUCTURE, str(decision.problem), final=True)
                return AttemptFailed(at=CLOCK.now(), step=command.step.id, number=command.number, failure=failure)
            return succeeded(command)

    async def never(effects: Scripted, command: StartAttempt) -> Event:
        raise AssertionError

    with journal:
        await drive(journal, never, effects=Broken)
        report = load_report(journal, RUN)
        started = [event for _, event in journal.events(RUN) if isinstance(event, AttemptStarted)]
    assert [row.state for row in report.steps] == ["failed", "done"]
    assert "a defect" in started[0].problem


async def test_a_role_without_a_free_slot_is_not_taken(journal: Journal) -> None:
    """Both steps could be done by a coder, of which one may run at a time; the other is done by its actor."""
    at_work, together = set[str](), asyncio.Event()

    class Ambitious(Scripted):
        async def choose(self, context: DecisionContext) -> Decision:
            ruled = await super().choose(context)
            return replace(ruled, role="coder", propensity=0.5, router="test-1")

    async def act(effects: Scripted, command: StartAttempt) -> Event:
        at_work.add(command.step.id)
        if len(at_work) == 2:
            together.set()
        await together.wait()
        return succeeded(command)

    with journal:
        await drive(journal, act, coders=1, effects=Ambitious)
        started = [event for _, event in journal.events(RUN) if isinstance(event, AttemptStarted)]
    assert [(event.role, event.router) for event in started] == [("coder", "test-1"), ("worker", "rules-1")]
    assert "of which no more may run at once" in started[1].reason


async def test_what_fails_is_blamed_on_the_role_that_did_it(journal: Journal) -> None:
    class Ambitious(Scripted):
        async def choose(self, context: DecisionContext) -> Decision:
            return replace(await super().choose(context), role="coder")

    async def act(effects: Scripted, command: StartAttempt) -> Event:
        if command.step.id == "S1" and command.number == 1:
            assert command.role == "worker"
            return failed(command, FailureKind.SCHEMA)
        if command.step.id == "S1":
            assert command.role == "coder", "who made the attempt is who tries again"
            assert [attempt.role for attempt in command.failures] == ["coder"]
        return succeeded(command)

    with journal:
        await drive(journal, act, effects=Ambitious)
        report = load_report(journal, RUN)
    assert report.status == "done"
    assert "retry 1 of 3 as coder" in report.steps[0].attempts[1].reason
