"""Keep what the scheduler knows of one step."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from orchestrator.events import (
    AttemptCancelled,
    AttemptFailed,
    AttemptGenerated,
    AttemptStarted,
    AttemptSucceeded,
    Failure,
    StepExpanded,
    StepGathered,
)
from orchestrator.failures import Escalate, FailedAttempt, FailureResponse, Retry
from orchestrator.scheduler.commands import ExpandStep, GatherStep, StartAttempt
from orchestrator.scheduler.queue import Rank
from orchestrator.scheduler.states import ACTIVE, FINAL, State
from orchestrator.taskir import Step

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
    """A step as the report sees it, at one moment.

    `attempts` counts those that were asked for; `slack` is in seconds, by prediction, from the start of the plan;
    `reason` says why the latest attempt is or was made. A `foreach` step has `children` (None until its list has
    arrived), each of which names its `parent` and the index of its `item`.
    """

    step: Step
    state: State
    role: str
    attempts: int
    reason: str
    failures: tuple[FailedAttempt, ...]
    cause: Cause | None
    slack: float
    story: tuple[State, ...]
    children: tuple[str, ...] | None
    parent: str | None
    item: int | None

    @property
    def id(self) -> str:
        return self.step.id


@dataclass(slots=True)
class StepRecord:
    """A step inside the state machine. `unmet` counts dependencies, `pending` children that have not ended.

    `role` is who makes the attempt that has started; before that, and for the next one, it is who is asked for it.
    `asked` is who was asked for the latest attempt, should a router have chosen another role.
    `lost` says that a restart came while the step was being cancelled: it has no slot, and only has to be told ended.
    """

    step: Step
    rank: Rank
    parent: "StepRecord | None" = None
    item: int | None = None
    state: State = State.WAITING
    story: list[State] = field(default_factory=lambda: [State.WAITING])
    unmet: int = 0
    number: int = 0
    started: bool = False
    lost: bool = False
    role: str = ""
    asked: str = ""
    reason: str = "first attempt"
    delay_seconds: float = 0.0
    failures: list[FailedAttempt] = field(default_factory=list)
    cause: Cause | None = None
    children: tuple["StepRecord", ...] | None = None
    pending: int = 0

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
        """Where the step stands among those that are ready; the smallest goes first."""
        return (*self.rank.place, self.item or 0)

    @property
    def next_number(self) -> int:
        return self.number if self.fans_out else self.number + 1

    def expects(self, event: StepEvent) -> bool:
        """Whether this is news that a ready or active step can bring. A step with running children brings none."""
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
        """Return what to ask for, for the step to go on."""
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
        """Take note that an attempt has begun, and of the role that makes it."""
        self.number, self.started, self.delay_seconds = event.number, True, 0.0
        self.asked, self.role = self.role, event.role

    def failed(self, failure: Failure) -> FailedAttempt:
        """Return what is to be remembered of a failure of the attempt that is under way."""
        return FailedAttempt(self.role, failure, None if self.asked == self.role else self.asked)

    def take_up(self, decision: FailureResponse) -> None:
        """Go by what was decided after a failure: another role, a pause before the next attempt."""
        self.reason = decision.reason
        if isinstance(decision, Escalate):
            self.role, self.delay_seconds = decision.role, 0.0
        elif isinstance(decision, Retry):
            self.delay_seconds = decision.delay_seconds

    def lose(self) -> None:
        """Forget an attempt that a restart has cut off: the same role is asked again.

        If the attempt had not started, the next one has its number.
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
            story=tuple(self.story),
            children=None if self.children is None else tuple(child.id for child in self.children),
            parent=self.parent.id if self.parent else None,
            item=self.item,
        )


def spread(record: StepRecord, count: int) -> tuple[StepRecord, ...]:
    """Give a step one child for each of the `count` items of its list, and return them in order."""
    record.children = tuple(_child(record, item) for item in range(count))
    record.pending = count
    return record.children


def joined(record: StepRecord) -> tuple[State, Cause] | None:
    """Return how a step ends whose children have all ended, and why; None if its outputs are to be gathered.

    If it was to be cancelled, that comes first; then the first child that failed counts, then one that was cancelled.
    """
    if record.cause:
        return State.CANCELLED, record.cause
    children = record.children or ()
    failed = [child for child in children if child.state is State.FAILED]
    spoilt = next((child.cause for child in (*failed, *children) if child.cause), None)
    if spoilt is None:
        return None
    return State.FAILED if failed else State.CANCELLED, spoilt


def _child(record: StepRecord, item: int) -> StepRecord:
    """Return the child for one item of the list: the same step in all but its id and the names of its outputs."""
    names = tuple(f"{name}[{item}]" for name in record.step.outputs)
    step = record.step.model_copy(update={"id": f"{record.id}[{item}]", "outputs": names})
    return StepRecord(step, record.rank, parent=record, item=item)


class StepViews(Mapping[str, StepView]):
    """A window on the records: always up to date, and nothing can be changed through it."""

    def __init__(self, records: Mapping[str, StepRecord]) -> None:
        self._records = records

    def __getitem__(self, step: str) -> StepView:
        return self._records[step].view()

    def state_of(self, step: str) -> State:
        """The state of one step, without a view of it."""
        return self._records[step].state

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)
