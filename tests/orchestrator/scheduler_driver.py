"""Drive the scheduler in tests: answer its commands with events, and check each command against what was answered."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from orchestrator.run.scheduler.commands import (
    AnswerDirectly,
    CancelAttempt,
    CheckAnswer,
    CheckOutputs,
    Command,
    ExpandStep,
    ExtendPlan,
    FinishRun,
    GatherStep,
    HurryAttempt,
    RestartAttempt,
    StartAttempt,
)
from orchestrator.run.scheduler.progress import Estimate
from orchestrator.run.scheduler.run import RunState
from orchestrator.task.events import (
    AnswerChecked,
    AnswerDoubt,
    AttemptCancelled,
    AttemptFailed,
    AttemptGenerated,
    AttemptStarted,
    AttemptSucceeded,
    CancelRequested,
    EscalationTarget,
    Event,
    Failure,
    FailureKind,
    PlanFinished,
    PlanReplaced,
    ReplanFinished,
    ReplanStarted,
    RetryRequested,
    RunFinished,
    StepExpanded,
    StepGathered,
    StepPrioritised,
    StepReused,
    StepsPlanned,
    Usage,
)
from orchestrator.task.failures import EscalationChain
from orchestrator.task.states import State
from orchestrator.task.taskir.models import Step
from tests.orchestrator.scheduler_invariants import violations

CHAIN = EscalationChain({"worker": EscalationTarget("coder", "B1")})
"""A chain in which the coder takes over from the worker."""


def step(number: int, *after: int, **fields: Any) -> Step:
    """Return the step `S<number>`, which writes `a<number>` and depends on the steps with the numbers `after`."""
    given = {
        "id": f"S{number}",
        "actor": "worker",
        "action": "do it",
        "outputs": (f"a{number}",),
        "depends_on": tuple(f"S{earlier}" for earlier in after),
    }
    return Step(**given | fields)


def by_step(estimate: Callable[[Step], float]) -> Estimate:
    """Return an estimate of whole plans, from one of single steps."""
    return lambda graph: {name: estimate(step) for name, step in graph.steps.items()}


@dataclass
class Driver:
    """Holds a `RunState`, sends it events, and notes its commands."""

    settings: dict[str, Any]
    """Arguments of each `RunState`."""
    estimate: Callable[[Step], float] = lambda step: 1.0
    state: RunState = field(init=False)
    journal: list[Event] = field(default_factory=list)
    working: dict[str, StartAttempt | CheckOutputs | ExpandStep | GatherStep] = field(default_factory=dict)
    """The commands that have not been answered yet, by step id."""
    to_cancel: dict[str, CancelAttempt] = field(default_factory=dict)
    to_restart: dict[str, RestartAttempt] = field(default_factory=dict)
    """The running attempts that are to be stopped and made again, by step id."""
    started: Counter[str] = field(default_factory=Counter)
    done: set[str] = field(default_factory=set)
    repairing: set[str] = field(default_factory=set)
    """The steps that were done and write their outputs once more, because of a doubtful answer."""
    extending: str | None = None
    """The step after which the plan is to be extended, until that is answered."""
    replacing: AnswerDirectly | None = None
    """What asks for a direct answer in the place of the plan, until that is answered."""
    checking: bool = False
    """Whether the answer is to be compared with the request, until that is answered."""
    finish: FinishRun | None = None
    latest: list[Command] = field(default_factory=list)
    crashed: bool = False

    def __post_init__(self) -> None:
        self.settings = {"mode": "as-planned", "escalation": EscalationChain({})} | self.settings
        self.state = self._empty()

    def _empty(self) -> RunState:
        return RunState(**self.settings, estimate=by_step(self.estimate))

    def send(self, event: Event) -> list[Command]:
        """Send one event to the scheduler, note its commands, and check the invariants of its state."""
        commands = self.state.handle(event)
        self.journal.append(event)
        self._note(commands)
        return commands

    def crash(self, estimate: Callable[[Step], float] | None = None) -> None:
        """Lose everything but the journal, and continue from it, with other predicted times if `estimate` is given."""
        before = self.state
        same = estimate is None and not self.crashed
        self.estimate, self.crashed = estimate or self.estimate, True
        self.state = self._empty()
        self.state.handle(*self.journal)
        assert outcomes(self.state) == outcomes(before), "nothing that ended is lost, whatever the estimates are"
        if same:
            assert views(self.state) == views(before), "and everything else too, unless there was a restart in between"
        self.working, self.to_cancel, self.to_restart = {}, {}, {}
        self.extending, self.replacing, self.finish, self.checking = None, None, None, False
        self._note(self.state.resume())

    def _note(self, commands: list[Command]) -> None:
        self.latest = commands
        self.done |= {step_id for step_id in self.repairing if self.state.steps.state_of(step_id) is State.DONE}
        self.repairing -= self.done
        for command in commands:
            if isinstance(command, FinishRun):
                assert self.finish is None, "a run finishes once"
                self.finish = command
            elif isinstance(command, CancelAttempt):
                self.to_cancel[command.step] = command
            elif isinstance(command, RestartAttempt):
                assert self.started[command.step] == command.number, "only an attempt that runs is made again"
                assert command.step in self.working, "nothing that has ended is made again"
                self.to_restart[command.step] = command
            elif isinstance(command, HurryAttempt):
                assert command.step in self.working, "only what is at work is hurried"
            elif isinstance(command, AnswerDirectly):
                assert not self.working, "a plan is replaced when all of its steps have ended"
                self.replacing = command
            elif isinstance(command, ExtendPlan):
                assert self.extending is None, "a plan goes on once at a time"
                assert command.after in self.done, "a plan goes on after what is done"
                self.extending = command.after
            elif isinstance(command, CheckAnswer):
                assert not self.checking, "an answer is compared once at a time"
                assert not self.working, "an answer is compared when all steps are done"
                self.checking = True
            else:
                assert command.step.id not in self.done, "no completed step runs again"
                assert command.step.id not in self.working, "a step does one thing at a time"
                self.working[command.step.id] = command
        if self.finish:
            assert not self.working, "a run does not finish while something is at work"
            assert not self.extending or self.finish.status == "cancelled", "nor while its plan goes on"
        assert list(violations(self.state)) == []

    def check(self, **doubts: str) -> None:
        """Answer CheckAnswer with a doubt about each of these steps. Those that may repair it begin again."""
        self.check_with([AnswerDoubt(text, step_id) for step_id, text in doubts.items()])

    def check_with(self, doubts: Sequence[AnswerDoubt]) -> None:
        """Answer CheckAnswer with these doubts."""
        assert self.checking
        self.checking = False
        doubtful = {doubt.step for doubt in doubts}
        self.repairing = self.done & doubtful
        self.done -= doubtful
        self.send(AnswerChecked(at=0, doubts=tuple(doubts)))

    def attempt(self, step_id: str) -> StartAttempt:
        command = self.working[step_id]
        assert isinstance(command, StartAttempt)
        return command

    def plan(self, *steps: Step, closed: bool = True) -> None:
        self.send(StepsPlanned(at=0, steps=steps))
        if closed:
            self.close()

    def close(self, goes_on_after: str | None = None) -> None:
        self.send(PlanFinished(at=0, origin="planned", goes_on_after=goes_on_after))

    def begin_rest(self) -> None:
        assert self.extending is not None
        self.send(ReplanStarted(at=0, after=self.extending, role="frontdoor", model="m"))

    def end_rest(self, goes_on_after: str | None = None) -> None:
        after, self.extending = self.extending, None
        assert after is not None
        self.send(ReplanFinished(at=0, after=after, outcome="planned", goes_on_after=goes_on_after))

    def replace(self, answer: Step) -> None:
        """Let a step answer directly in the place of the plan, as was asked for."""
        command, self.replacing = self.replacing, None
        assert command is not None
        self.send(PlanReplaced(at=0, answer=answer, reason=command.reason))

    def start(self, step_id: str, role: str | None = None) -> None:
        """Begin an attempt, by another `role` than the one that is asked for if a router has chosen that."""
        command = self.attempt(step_id)
        self.started[step_id] += 1
        assert command.number == self.started[step_id], "attempts that start are numbered without gaps"
        self.send(
            AttemptStarted(
                at=0, step=step_id, number=command.number, role=role or command.role, persona=None, model="m", reason=""
            )
        )

    def generate(self, step_id: str, outputs: Mapping[str, str] | None = None) -> None:
        self._begin(step_id)
        number = self.attempt(step_id).number
        self.send(AttemptGenerated(at=0, step=step_id, number=number, usage=Usage(), outputs=outputs or {}))

    def succeed(self, step_id: str) -> None:
        """Let the current work of a step succeed; a list has two items."""
        self._begin(step_id)
        command = self.working.pop(step_id)
        self.to_restart.pop(step_id, None)
        cancelled = self.to_cancel.pop(step_id, None)
        if isinstance(command, ExpandStep):
            self.send(StepExpanded(at=0, step=step_id, count=2))
            return
        stops = cancelled or self.state.steps[step_id].cause
        if not stops:
            self.done.add(step_id)
        if isinstance(command, GatherStep):
            self.send(StepGathered(at=0, step=step_id, outputs={}))
        else:
            self.send(AttemptSucceeded(at=0, step=step_id, number=command.number, outputs={}))

    def expand(self, step_id: str, count: int) -> None:
        del self.working[step_id]
        self.send(StepExpanded(at=0, step=step_id, count=count))

    def fail(self, step_id: str, kind: FailureKind = FailureKind.TIMEOUT) -> None:
        self._begin(step_id)
        command = self.working.pop(step_id)
        self.to_cancel.pop(step_id, None)
        self.to_restart.pop(step_id, None)
        number = command.number if isinstance(command, StartAttempt | CheckOutputs) else 0
        self.send(AttemptFailed(at=0, step=step_id, number=number, failure=Failure(kind, f"{step_id} broke")))

    def stopped(self, step_id: str) -> None:
        """Answer a CancelAttempt, whether the attempt is running or was lost in a crash."""
        command = self.to_cancel.pop(step_id)
        self.working.pop(step_id, None)
        self.to_restart.pop(step_id, None)
        self.send(AttemptCancelled(at=0, step=step_id, number=command.number))

    def retry(self, step_id: str) -> None:
        self.send(RetryRequested(at=0, step=step_id))

    def restarted(self, step_id: str) -> None:
        """Answer a RestartAttempt: the attempt has stopped."""
        command = self.to_restart.pop(step_id)
        self.to_cancel.pop(step_id, None)
        del self.working[step_id]
        self.send(AttemptCancelled(at=0, step=step_id, number=command.number))

    def prioritise(self, step_id: str) -> None:
        self.send(StepPrioritised(at=0, step=step_id))

    def reuse(self, step_id: str) -> None:
        """Let what an earlier run has made be the outputs of a step that has not started."""
        del self.working[step_id]
        stops = self.to_cancel.pop(step_id, None) or self.state.steps[step_id].cause
        if not stops:
            self.done.add(step_id)
        self.send(StepReused(at=0, step=step_id, run="earlier", outputs={}))

    def reusable(self) -> list[str]:
        """Return the steps at work that have started no attempt."""
        return [
            step_id
            for step_id, command in self.working.items()
            if step_id not in self.repairing
            and (not isinstance(command, StartAttempt) or self.started[step_id] < command.number)
            and not isinstance(command, CheckOutputs)
        ]

    def cancel(self, step_id: str | None = None) -> None:
        self.send(CancelRequested(at=0, step=step_id))

    def end(self) -> RunFinished:
        """Let everything that is left succeed, and the run finish."""
        while self.finish is None:
            if self.to_cancel:
                self.stopped(next(iter(self.to_cancel)))
            elif self.working:
                self.succeed(next(iter(self.working)))
            elif self.checking:
                self.check()
            elif self.extending:
                self.begin_rest()
                self.end_rest()
            else:
                self.close()
        event = self.end_event(self.finish.status, self.finish.error, self.finish.doubt)
        self.send(event)
        for estimate in (self.estimate, lambda step: -self.estimate(step)):
            again = RunState(**self.settings, estimate=by_step(estimate))
            again.handle(*self.journal)
            assert ends(again) == ends(self.state), "a replay tells the same, whatever the estimates are"
        return event

    @staticmethod
    def end_event(status: Literal["done", "failed", "cancelled"], error: str | None, doubt: str = "") -> RunFinished:
        return RunFinished(at=0, status=status, error=error, doubt=doubt)

    def states(self) -> Mapping[str, str]:
        return {step_id: view.state.value for step_id, view in self.state.steps.items()}

    def in_state(self, state: State) -> list[str]:
        return [step_id for step_id, view in self.state.steps.items() if view.state is state]

    def _begin(self, step_id: str) -> None:
        """Start the attempt if it was not started, as it cannot end before."""
        command = self.working[step_id]
        if isinstance(command, StartAttempt) and self.started[step_id] < command.number:
            self.start(step_id)


def planned(*steps: Step, closed: bool = True, **settings: Any) -> Driver:
    """Return the driver of a run whose plan has these steps, and no more if it is `closed`."""
    driver = Driver(settings)
    driver.plan(*steps, closed=closed)
    return driver


def views(state: RunState) -> tuple[object, ...]:
    return dict(state.steps), state.status, state.graph, state.growing


def outcomes(state: RunState) -> dict[str, tuple[object, ...]]:
    """Return the outcome of each step that ended by itself. It does not depend on the order of events."""
    return {
        step_id: (view.state, view.role, view.failures, view.children)
        for step_id, view in state.steps.items()
        if view.state is State.DONE or (view.state is State.FAILED and not view.children)
    }


def ends(state: RunState) -> dict[str, tuple[object, ...]]:
    """Return the outcomes of all steps of a finished run, without the causes, which depend on the order of events."""
    return {
        step_id: (view.state, view.role, view.failures, view.children, bool(view.cause))
        for step_id, view in state.steps.items()
    }
