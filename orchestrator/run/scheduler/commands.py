"""Define what the scheduler asks for. Each command is answered by events (`orchestrator.task.events`).

Commands are carried out after the events that caused them are durable. After a restart `RunState.resume` returns the
unfinished ones again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from orchestrator.task.failures import FailedAttempt
from orchestrator.task.taskir.models import Step


@dataclass(frozen=True, slots=True)
class StartAttempt:
    """Carry out one attempt of a step.

    Answers: AttemptStarted, AttemptGenerated (may be left out), then AttemptSucceeded or AttemptFailed.
    """

    step: Step  # a child of a `foreach` step has an id such as `S2[0]` and outputs such as `name[0]`
    number: int  # from 1 for each step
    # The requested role: the step's actor, the role that the step was escalated to, or the one of the attempt that is
    # retried. A router may choose another role, which AttemptStarted then names.
    role: str
    reason: str = ""
    failures: tuple[FailedAttempt, ...] = ()  # all earlier failures of the step, oldest first
    delay_seconds: float = 0.0  # start no earlier than this from now
    slack: float = 0.0  # predicted seconds by which the step may be late without delaying the end of the run
    item: int | None = None  # the index of a child's item in the list; None for a step that is no child


@dataclass(frozen=True, slots=True)
class CheckOutputs:
    """Let the gates that a restart interrupted check an attempt again. Answers: AttemptSucceeded or AttemptFailed."""

    step: Step
    number: int
    outputs: Mapping[str, str]  # digests by name
    slack: float = 0.0
    item: int | None = None


@dataclass(frozen=True, slots=True)
class ExpandStep:
    """Read the list that `step.foreach` names. Answers: StepExpanded, or AttemptFailed with the number 0."""

    step: Step


@dataclass(frozen=True, slots=True)
class GatherStep:
    """Join the outputs of the children into lists. Answers: StepGathered, or AttemptFailed with the number 0."""

    step: Step
    children: tuple[str, ...]  # in the order of the list


@dataclass(frozen=True, slots=True)
class ExtendPlan:
    """Plan the rest, after step `after`. Answers: ReplanStarted, any number of StepsPlanned, ReplanFinished."""

    after: str


@dataclass(frozen=True, slots=True)
class AnswerDirectly:
    """Add a step that answers the whole request, since the plan has failed. Answer: PlanReplaced."""

    reason: str
    stronger: bool = False  # models failed by what they wrote, so the most able role answers


@dataclass(frozen=True, slots=True)
class CheckAnswer:
    """Compare the answer with the request, now that all steps are done. Answer: AnswerChecked."""


@dataclass(frozen=True, slots=True)
class CancelAttempt:
    """Stop an attempt. Answers: AttemptCancelled, also if there is no such attempt, or the attempt's own outcome."""

    step: str
    number: int


@dataclass(frozen=True, slots=True)
class RestartAttempt:
    """Stop a running attempt, so that the step is tried again.

    Answer: AttemptCancelled or the attempt's own outcome.
    """

    step: str
    number: int


@dataclass(frozen=True, slots=True)
class HurryAttempt:
    """Let what an attempt at work requests go before the requests of others. No answer."""

    step: str
    number: int


@dataclass(frozen=True, slots=True)
class FinishRun:
    """End the run, for which nothing is left to do. Answer: RunFinished."""

    status: Literal["done", "failed", "cancelled"]
    error: str | None = None
    doubt: str = ""  # as in RunFinished


Command = (
    StartAttempt
    | CheckOutputs
    | ExpandStep
    | GatherStep
    | ExtendPlan
    | AnswerDirectly
    | CheckAnswer
    | CancelAttempt
    | RestartAttempt
    | HurryAttempt
    | FinishRun
)
