"""What the scheduler asks for. Each command is answered by events (see `orchestrator.events`), never by a return value.

Commands are carried out after the events that caused them are durable. Those that a restart has lost are asked for
again by `RunState.resume`.
"""

from dataclasses import dataclass
from typing import Literal

from orchestrator.failures import FailedAttempt
from orchestrator.taskir import Step


@dataclass(frozen=True, slots=True)
class StartAttempt:
    """Carry out one attempt of a step, not earlier than `delay_seconds` from now.

    `step` is concrete: a child of a `foreach` step has the id `S2[0]` and the outputs `name[0]`, and `item` is the
    index of its item in the list that `step.foreach` names. `role` is the actor, or whom the step was escalated to, or
    who made the attempt that is retried; a router may choose another one, which AttemptStarted tells. `reason` says why
    the attempt is made. `failures` are all earlier ones, oldest first. `slack` is in seconds, for the engine to choose
    among sequences.

    Answers: AttemptStarted, AttemptGenerated (may be left out), then one of AttemptSucceeded and AttemptFailed.
    """

    step: Step
    number: int
    role: str
    reason: str = ""
    failures: tuple[FailedAttempt, ...] = ()
    delay_seconds: float = 0.0
    slack: float = 0.0
    item: int | None = None


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
    """Have the rest of the plan written, now that step `after` is done.

    Answers: ReplanStarted, StepsPlanned (any number of them), ReplanFinished.
    """

    after: str


@dataclass(frozen=True, slots=True)
class CancelAttempt:
    """Stop an attempt. Answers: AttemptCancelled, even if there is no such attempt (any more), or its late outcome."""

    step: str
    number: int


@dataclass(frozen=True, slots=True)
class FinishRun:
    """Nothing is left to do. Answer: RunFinished."""

    status: Literal["done", "failed", "cancelled"]
    error: str | None = None


Command = StartAttempt | ExpandStep | GatherStep | ExtendPlan | CancelAttempt | FinishRun
