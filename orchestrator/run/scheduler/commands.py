"""Define what the scheduler asks for. Each command is answered by events (`orchestrator.task.events`), by no value.

Commands are carried out after the events that caused them are durable. After a restart `RunState.resume` returns again
those that were not carried out to their end.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from orchestrator.task.failures import FailedAttempt
from orchestrator.task.taskir import Step


@dataclass(frozen=True, slots=True)
class StartAttempt:
    """Carry out one attempt of a step, not earlier than `delay_seconds` from now.

    Answers: AttemptStarted, AttemptGenerated (may be left out), then one of AttemptSucceeded and AttemptFailed.
    """

    step: Step
    """The step to carry out. A child of a `foreach` step has an id such as `S2[0]` and outputs such as `name[0]`."""
    number: int
    """The number of the attempt, which counts from 1 for each step."""
    role: str
    """The role that is asked for: the step's actor, the role that the step was escalated to, or the one that made the
    attempt which is retried. A router may choose another role, which AttemptStarted then names."""
    reason: str = ""
    """Why the attempt is made."""
    failures: tuple[FailedAttempt, ...] = ()
    """All earlier failures of the step, oldest first."""
    delay_seconds: float = 0.0
    slack: float = 0.0
    """Seconds by which the step may be late without delaying the end of the run, by prediction."""
    item: int | None = None
    """The index of the child's item in the list that `step.foreach` names; None for a step that is no child."""


@dataclass(frozen=True, slots=True)
class CheckOutputs:
    """Let the gates check again what an attempt has made, whose gates a restart has interrupted.

    Answers: AttemptSucceeded or AttemptFailed.
    """

    step: Step
    number: int
    outputs: Mapping[str, str]
    """The digests of the outputs, by name."""
    slack: float = 0.0
    item: int | None = None
    """As in `StartAttempt`, like `slack`."""


@dataclass(frozen=True, slots=True)
class ExpandStep:
    """Read the list that `step.foreach` names. Answers: StepExpanded, or AttemptFailed with the number 0."""

    step: Step


@dataclass(frozen=True, slots=True)
class GatherStep:
    """Join the outputs of the children (none for an empty list) into lists, in this order.

    Answers: StepGathered, or AttemptFailed with the number 0.
    """

    step: Step
    children: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExtendPlan:
    """Ask the planner for the rest of the plan, now that step `after` is done.

    Answers: ReplanStarted, StepsPlanned (any number of them), ReplanFinished.
    """

    after: str


@dataclass(frozen=True, slots=True)
class AnswerDirectly:
    """Add a step that answers the whole request, now that all steps have ended and the plan has failed.

    Answer: PlanReplaced.
    """

    reason: str
    """Why the plan has failed."""
    stronger: bool = False
    """Whether models have failed at it for what they wrote, so that the most able role is to answer."""


@dataclass(frozen=True, slots=True)
class CheckAnswer:
    """Compare the answer with the request, now that all steps are done. Answer: AnswerChecked.

    After a repair, keep of its outputs only those that are better than what they replace.
    """


@dataclass(frozen=True, slots=True)
class CancelAttempt:
    """Stop an attempt. Answers: AttemptCancelled, also where there is no such attempt, or the attempt's own outcome."""

    step: str
    number: int


@dataclass(frozen=True, slots=True)
class FinishRun:
    """End the run, for which nothing is left to do. Answer: RunFinished."""

    status: Literal["done", "failed", "cancelled"]
    error: str | None = None
    doubt: str = ""
    """As in RunFinished."""


Command = (
    StartAttempt
    | CheckOutputs
    | ExpandStep
    | GatherStep
    | ExtendPlan
    | AnswerDirectly
    | CheckAnswer
    | CancelAttempt
    | FinishRun
)
