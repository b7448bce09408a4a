"""Hold what the scheduler knows of one step."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from orchestrator.run.scheduler.commands import CheckOutputs, ExpandStep, GatherStep, StartAttempt
from orchestrator.run.scheduler.queue import Rank
from orchestrator.run.scheduler.states import ACTIVE, FINAL, State
from orchestrator.task.events import (
    AttemptCancelled,
    AttemptFailed,
    AttemptGenerated,
    AttemptStarted,
    AttemptSucceeded,
    Failure,
    FailureKind,
    StepExpanded,
    StepGathered,
)
from orchestrator.task.failures import Escalate, FailedAttempt, FailureResponse, Retry
from orchestrator.task.taskir import Step

AttemptEvent = AttemptStarted | AttemptGenerated | AttemptSucceeded | AttemptFailed | AttemptCancelled
StepEvent = AttemptEvent | StepExpanded | StepGathered


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a step failed or was cancelled: the step where it began (None: the run itself), and what happened there."""

    step: str | None
    reason: str

    def __str__(self) -> str:
        return f"{self.step}: {self.reason}" if self.step else self.reason


@dataclass(frozen=True, slots=True)
class StepView:
    """A step at one moment, as reports show it."""

    step: Step
    state: State
    role: str
    """The role that makes the attempt, or is asked for the next one."""
    attempts: int
    """How many attempts were asked for."""
    reason: str
    """Why the latest attempt is or was made."""
    failures: tuple[FailedAttempt, ...]
    """All failures, oldest first."""
    cause: Cause | None
    """Why the step failed, was cancelled, or is to be cancelled."""
    slack: float
    """Seconds by which the step may be late without delaying the end of the plan, by prediction."""
    state_history: tuple[State, ...]
    """All states that the step has been in, the present one last."""
    children: tuple[str, ...] | None
    """The children of a `foreach` step; None until its list was read."""
    parent: str | None
    """The `foreach` step that this step is a child of."""
    item: int | None
    """The index of a child's item in the list."""

    @property
    def id(self) -> str:
        return self.step.id


@dataclass(slots=True)
class StepRecord:
    """A step inside the state machine. What is not explained here is as in `StepView`."""

    step: Step
    rank: Rank
    parent: "StepRecord | None" = None
    item: int | None = None
    state: State = State.WAITING
    state_history: list[State] = field(default_factory=lambda: [State.WAITING])
    unmet: int = 0
    """How many steps it still waits for."""
    number: int = 0
    """The number of the latest attempt."""
    started: bool = False
    """Whether that attempt has started."""
    outputs: Mapping[str, str] = field(default_factory=dict)
    """The digests of what that attempt has made for its gates, by name."""
    lost: bool = False
    """Whether a restart came while the step was being cancelled: it holds no slot, and only has to end."""
    role: str = ""
    """The role that makes the attempt that has started; before that, the one that is asked for it."""
    asked: str = ""
    """The role that was asked for the latest attempt, which a router may have replaced."""
    reason: str = "first attempt"
    delay_seconds: float = 0.0
    failures: list[FailedAttempt] = field(default_factory=list)
    cause: Cause | None = None
    children: tuple["StepRecord", ...] | None = None
    pending: int = 0
    """How many children have not ended."""
    repairing: bool = False
    """Whether it was done, and runs once more because the answer is doubtful. Whatever that comes to, it is done."""
    repaired: bool = False
    """Whether such a repair has begun."""

    def __post_init__(self) -> None:
        self.role = self.asked = self.step.actor

    @property
    def id(self) -> str:
        return self.step.id

    @property
    def fans_out(self) -> bool:
        """Whether the step runs as its children and makes no attempt of its own."""
        return self.step.foreach is not None and self.item is None

    @property
    def lane(self) -> str | None:
        """The role whose slot the step needs; reading and joining lists needs none."""
        return None if self.fans_out else self.role

    @property
    def cancelling(self) -> bool:
        """Whether the step is to end cancelled as soon as what it is doing has stopped."""
        return self.cause is not None and self.state not in FINAL

    @property
    def place(self) -> tuple[float, int, int]:
        """What ready steps are sorted by; the smallest goes first."""
        return (*self.rank.place, self.item or 0)

    @property
    def next_number(self) -> int:
        return self.number if self.fans_out else self.number + 1

    def expects(self, event: StepEvent) -> bool:
        """Return whether the event can happen to the step now: it is ready or active, and has no running children."""
        if self.pending or not (self.state is State.READY or self.state in ACTIVE):
            return False
        if isinstance(event, StepExpanded | StepGathered):
            return self.fans_out and (self.children is not None) == isinstance(event, StepGathered)
        if self.fans_out:
            return isinstance(event, AttemptFailed) and event.number == 0
        if self.cancelling:
            return True
        if isinstance(event, AttemptStarted):  # the number after one that has started: that one was lost in a restart
            again = self.started or self.state is State.READY
            return event.number == (self.number + 1 if again else self.number)
        news = self.started and self.state in ACTIVE and not isinstance(event, AttemptCancelled)
        return news and event.number == self.number

    def command(self) -> StartAttempt | ExpandStep | GatherStep:
        """Return the command by which the step goes on."""
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
        """Take note that an attempt has started, and which role makes it."""
        self.number, self.started, self.delay_seconds = event.number, True, 0.0
        self.outputs = {}
        self.asked, self.role = self.role, event.role

    def check(self) -> CheckOutputs:
        """Return the command by which the gates check again what the attempt has made."""
        return CheckOutputs(self.step, self.number, self.outputs, self.rank.slack, self.item)

    def failed(self, failure: Failure, answer: str = "") -> FailedAttempt:
        """Return the failure of the attempt that is under way, with the role that made it and its answer's digest."""
        return FailedAttempt(self.role, failure, None if self.asked == self.role else self.asked, answer)

    def take_up(self, decision: FailureResponse) -> None:
        """Apply what was decided after a failure: another role, or a pause before the next attempt."""
        self.reason = decision.reason
        if isinstance(decision, Escalate):
            self.role, self.delay_seconds = decision.role, 0.0
        elif isinstance(decision, Retry):
            self.delay_seconds = decision.delay_seconds

    @property
    def can_be_repaired(self) -> bool:
        """Whether its output may be written once more: it is done, by one attempt that did nothing but write."""
        plain = not (self.fans_out or self.parent or self.step.tools) and self.step.kind == "generate"
        return plain and self.state is State.DONE

    def begin_repair(self, doubt: str) -> None:
        """Let the next attempt repair the output, with the doubt as evidence of what is wrong."""
        self.repairing = self.repaired = True
        self.failures.append(self.failed(Failure(FailureKind.LOGIC, doubt, evidence=doubt)))
        self.reason, self.delay_seconds = f"repair of the answer: {doubt}", 0.0

    def end_repair(self) -> None:
        """Take note that the repair is over, whatever came of it."""
        self.repairing, self.cause, self.lost = False, None, False

    def lose(self) -> None:
        """Forget an attempt that a restart has interrupted. The same role is asked again.

        If the attempt had not started, the next one gets its number.
        """
        if self.started:
            self.role = self.asked
            self.reason = "run again: the orchestrator was restarted"
        elif not self.fans_out:
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
    """Add a child to a step for each of the `count` items of its list, and return the children in order."""
    record.children = tuple(_child(record, item) for item in range(count))
    record.pending = count
    return record.children


def outcome_of_children(record: StepRecord) -> tuple[State, Cause] | None:
    """Return how a step whose children have all ended ends itself, and why; None if its outputs are to be gathered.

    It is cancelled if it was to be; else it fails with the first child that failed, or is cancelled with the first
    child that was.
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
    """Return the child for one item of the list: the same step in all but its id and the names of its outputs."""
    names = tuple(f"{name}[{item}]" for name in record.step.outputs)
    step = record.step.model_copy(update={"id": f"{record.id}[{item}]", "outputs": names})
    return StepRecord(step, record.rank, parent=record, item=item)


class StepViews(Mapping[str, StepView]):
    """A read-only mapping of the records, which is always up to date. A view is made when it is asked for."""

    def __init__(self, records: Mapping[str, StepRecord]) -> None:
        self._records = records

    def __getitem__(self, step: str) -> StepView:
        return self._records[step].view()

    def state_of(self, step: str) -> State:
        """Return the state of one step, without making a view of it."""
        return self._records[step].state

    def children_of(self, step: str) -> tuple[str, ...]:
        """Return the children of a `foreach` step, without making a view of it; none for another step."""
        return tuple(child.id for child in self._records[step].children or ())

    def parent_of(self, step: str) -> str | None:
        """Return the `foreach` step that a step is a child of, without making a view of it; None if there is none."""
        parent = self._records[step].parent
        return parent.id if parent else None

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)
