"""Hold the scheduler's record of one step."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.run.scheduler.commands import CheckOutputs, ExpandStep, GatherStep, StartAttempt
from orchestrator.run.scheduler.queue import Rank
from orchestrator.task.events import (
    AnswerDoubt,
    AttemptCancelled,
    AttemptFailed,
    AttemptGenerated,
    AttemptStarted,
    AttemptSucceeded,
    Failure,
    StepExpanded,
    StepGathered,
    StepReused,
)
from orchestrator.task.failures import Escalate, FailedAttempt, FailureResponse, Retry, doubted
from orchestrator.task.states import ACTIVE, FINAL, Cause, State
from orchestrator.task.taskir.models import Step

AttemptEvent = AttemptStarted | AttemptGenerated | AttemptSucceeded | AttemptFailed | AttemptCancelled
StepEvent = AttemptEvent | StepExpanded | StepGathered | StepReused


@dataclass(frozen=True, slots=True)
class StepView:
    """A step at one moment, as reports show it."""

    step: Step
    state: State
    role: str  # of the current attempt, else of the next one
    attempts: int  # how many were requested
    reason: str  # why the latest attempt is made
    failures: tuple[FailedAttempt, ...]  # oldest first
    cause: Cause | None  # why the step failed, was cancelled, or is to be cancelled
    slack: float  # predicted seconds by which it may be late without delaying the end of the plan
    state_history: tuple[State, ...]  # the present state is last
    children: tuple[str, ...] | None  # of a `foreach` step; None until its list is read
    parent: str | None  # the `foreach` step that this is a child of
    item: int | None  # index in the list

    @property
    def id(self) -> str:
        return self.step.id


@dataclass(slots=True)
class StepRecord:
    """A step inside the state machine. For fields without a comment see `StepView`."""

    step: Step
    rank: Rank
    parent: "StepRecord | None" = None
    item: int | None = None
    state: State = State.WAITING
    state_history: list[State] = field(default_factory=lambda: [State.WAITING])
    unmet: int = 0  # how many steps it still waits for
    number: int = 0  # of the latest attempt
    started: bool = False  # whether that attempt has started
    outputs: Mapping[str, str] = field(default_factory=dict)  # what that attempt made for its gates: digests by name
    lost: bool = False  # a restart came while it was being cancelled: it holds no slot, and only has to end
    restarting: bool = False  # the user wants that attempt stopped and another one
    role: str = ""
    requested_role: str = ""  # of the latest attempt, which a router may have replaced
    interrupted_role: str | None = None  # of the attempt that a restart has interrupted, until the next one starts
    reason: str = "first attempt"
    delay_seconds: float = 0.0
    failures: list[FailedAttempt] = field(default_factory=list)
    cause: Cause | None = None
    children: tuple["StepRecord", ...] | None = None
    pending: int = 0  # how many children have not ended
    # It was done, and runs again because the answer is doubtful. It ends as done in any case.
    repairing: bool = False
    repaired: bool = False  # whether such a repair has started

    def __post_init__(self) -> None:
        self.role = self.requested_role = self.step.actor

    @property
    def id(self) -> str:
        return self.step.id

    @property
    def fans_out(self) -> bool:
        """Whether the step runs as its children and makes no attempt of its own."""
        return self.step.foreach is not None and self.item is None

    @property
    def lane(self) -> str | None:
        """The role whose slot the step needs; None for reading and joining lists."""
        return None if self.fans_out else self.role

    @property
    def cancelling(self) -> bool:
        """Whether the step is to end cancelled as soon as its current work has stopped."""
        return self.cause is not None and self.state not in FINAL

    @property
    def place(self) -> tuple[float, int, int]:
        return (*self.rank.place, self.item or 0)

    @property
    def next_number(self) -> int:
        return self.number if self.fans_out else self.number + 1

    def expects(self, event: StepEvent) -> bool:
        """Return whether the event can happen to the step now."""
        if self.pending or not (self.state is State.READY or self.state in ACTIVE):
            return False
        if isinstance(event, StepReused):
            return not (self.started or self.repairing)
        if isinstance(event, StepExpanded | StepGathered):
            return self.fans_out and (self.children is not None) == isinstance(event, StepGathered)
        if self.fans_out:
            return isinstance(event, AttemptFailed) and event.number == 0
        if self.cancelling:
            return True
        if isinstance(event, AttemptStarted):  # the next number if a restart lost the previous attempt
            again = self.started or self.state is State.READY
            return event.number == (self.number + 1 if again else self.number)
        news = self.started and self.state in ACTIVE and (self.restarting or not isinstance(event, AttemptCancelled))
        return news and event.number == self.number

    def command(self) -> StartAttempt | ExpandStep | GatherStep:
        """Return the command to continue the step."""
        if self.children is not None:
            return GatherStep(self.step, tuple(child.id for child in self.children))
        if self.fans_out:
            return ExpandStep(self.step)
        return StartAttempt(
            step=self.step,
            number=self.number,
            role=self.role,
            reason=self.reason,
            failures=tuple(self.failures),
            delay_seconds=self.delay_seconds,
            slack=self.rank.slack,
            item=self.item,
        )

    def start(self, event: AttemptStarted) -> None:
        self.number, self.started, self.restarting, self.delay_seconds = event.number, True, False, 0.0
        self.outputs = {}
        self.requested_role, self.role, self.interrupted_role = self.role, event.role, None

    def check(self) -> CheckOutputs:
        """Return the command by which the gates check the attempt's outputs again."""
        return CheckOutputs(self.step, self.number, self.outputs, self.rank.slack, self.item)

    def failed(self, failure: Failure, answer: str = "") -> FailedAttempt:
        """Return the failure of the current attempt, with its role and its answer's digest."""
        return FailedAttempt(
            self.role, failure, None if self.requested_role == self.role else self.requested_role, answer
        )

    def take_up(self, decision: FailureResponse) -> None:
        self.reason = decision.reason
        if isinstance(decision, Escalate):
            self.role, self.delay_seconds = decision.role, 0.0
        elif isinstance(decision, Retry):
            self.delay_seconds = decision.delay_seconds

    @property
    def can_be_restarted(self) -> bool:
        """Whether an attempt runs that may be stopped and made again."""
        return self.started and self.state in ACTIVE and not (self.cancelling or self.restarting)

    def restart(self) -> None:
        """Let the next attempt be made as the one that was stopped."""
        self.restarting, self.role = False, self.requested_role
        self.reason, self.delay_seconds = "tried again at the request of the user", 0.0

    @property
    def can_be_repaired(self) -> bool:
        """Whether its output may be written once more: it is done, by one attempt that only wrote text."""
        return self.state is State.DONE and not (self.fans_out or self.parent or self.step.acts)

    def begin_repair(self, doubts: Sequence[AnswerDoubt]) -> None:
        """Let the next attempt repair the output."""
        failure = doubted(doubts)
        self.repairing = self.repaired = True
        self.failures.append(self.failed(failure))
        self.reason, self.delay_seconds = f"repair of the answer: {failure.message}", 0.0

    def end_repair(self) -> None:
        self.repairing, self.cause, self.lost = False, None, False

    def lose(self) -> None:
        """Forget an attempt that a restart has interrupted. The same role is requested again."""
        self.restarting = False
        if self.started:
            self.interrupted_role, self.role = self.role, self.requested_role
            self.reason = "run again: the orchestrator was restarted"
        elif not self.fans_out:
            # The next attempt gets its number.
            self.number -= 1

    def view(self) -> StepView:
        return StepView(
            step=self.step,
            state=self.state,
            role=self.role,
            attempts=self.number,
            reason=self.reason,
            failures=tuple(self.failures),
            cause=self.cause,
            slack=self.rank.slack,
            state_history=tuple(self.state_history),
            children=None if self.children is None else tuple(child.id for child in self.children),
            parent=self.parent.id if self.parent else None,
            item=self.item,
        )


def expand_children(record: StepRecord, count: int) -> tuple[StepRecord, ...]:
    """Add a child for each of the `count` items of the step's list, and return the children in order."""
    record.children = tuple(_child(record, item) for item in range(count))
    record.pending = count
    return record.children


def outcome_of_children(record: StepRecord) -> tuple[State, Cause] | None:
    """Return how a step whose children have all ended ends itself, and why; None if its outputs are to be gathered.

    A step with a request to cancel is cancelled. Else it takes the cause of the first child that failed, else of the
    first that was cancelled.
    """
    if record.cause:
        return State.CANCELLED, record.cause
    children = record.children or ()
    failed = [child for child in children if child.state is State.FAILED]
    failed_before = next((child.cause for child in (*failed, *children) if child.cause), None)
    if failed_before is None:
        return None
    return State.FAILED if failed else State.CANCELLED, failed_before


def _child(record: StepRecord, item: int) -> StepRecord:
    names = tuple(f"{name}[{item}]" for name in record.step.outputs)
    step = record.step.model_copy(update={"id": f"{record.id}[{item}]", "outputs": names})
    return StepRecord(step, record.rank, parent=record, item=item)


class StepViews(Mapping[str, StepView]):
    """A read-only mapping of the records, always up to date. A view is made on access."""

    def __init__(self, records: Mapping[str, StepRecord]) -> None:
        self._records = records

    def __getitem__(self, step: str) -> StepView:
        return self._records[step].view()

    def state_of(self, step: str) -> State:
        # Makes no view, unlike `self[step]`.
        return self._records[step].state

    def children_of(self, step: str) -> tuple[str, ...]:
        # Empty for a step that is no `foreach` step.
        return tuple(child.id for child in self._records[step].children or ())

    def parent_of(self, step: str) -> str | None:
        parent = self._records[step].parent
        return parent.id if parent else None

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)
