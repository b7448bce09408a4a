"""Define what one attempt at a step is given and what it makes, whatever the kind of step."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Protocol

from orchestrator.engine.client.engine import Completion, OnText
from orchestrator.engine.contract import Generation, Message, Priority
from orchestrator.run.steps.prompt import StepInput
from orchestrator.run.steps.role import ResolvedRole
from orchestrator.run.steps.seen import SeenFiles
from orchestrator.task.events import Failure, Usage
from orchestrator.task.taskir import Step

MIN_ANSWER_TOKENS = 16
"""A prompt that leaves fewer tokens of the context than this, or than the answer's limit, is too long."""

OnGenerated = Callable[[Usage], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt at a step, with all that was decided about it."""

    step: Step
    """The step to carry out. The child of a `foreach` step has outputs such as `name[0]`."""
    role: ResolvedRole
    """The role that makes the attempt."""
    inputs: tuple[StepInput, ...] = ()
    """What the step reads, in the order of the prompt."""
    failures: tuple[Failure, ...] = ()
    """The failures of earlier attempts that the prompt shows, oldest first."""
    previous: str = ""
    """The answer of this role that the last of these failures is about; empty if there is none."""
    seed: int | None = None
    slack: float = 0.0
    """Seconds by which the step may be late without delaying the end of its run, by prediction."""
    seen: SeenFiles = field(default_factory=SeenFiles)
    """Takes note of the user's files that the attempt reads."""

    @property
    def max_tokens(self) -> int | None:
        """The most tokens of an answer: the step's limit, else the role's; None for no limit.

        The role's limit is doubled once an answer was cut off: what did not fit once would not fit again. It is not
        doubled further, since a model that does not end within twice its limit has mostly lost its way, and would take
        minutes to fill still more. A step's own limit is what its author wants, and stays.
        """
        if self.step.max_tokens or self.role.max_tokens is None:
            return self.step.max_tokens
        cut = any(failure.cut_at is not None for failure in self.failures)
        return self.role.max_tokens * (2 if cut else 1)


class Models(Protocol):
    """Models that can be asked, each by its id: the pool, as steps and planners see it."""

    async def count(self, model: str, messages: Sequence[Message], priority: Priority = ...) -> int:
        """Return the tokens of a prompt, for a request of this class. Raises EngineError, PoolError."""

    async def generate(self, model: str, request: Generation, on_text: OnText | None = None) -> Completion:
        """Generate text. `on_text` gets it piece by piece. Raises EngineError, PoolError, or what `on_text` raises."""


@dataclass(frozen=True, slots=True)
class Produced:
    """What an attempt made."""

    outputs: Mapping[str, bytes]
    """The artifacts by name, before any gate has seen them."""
    usage: Usage
    """What the models took for it."""


class StepRunner(Protocol):
    """Carries out attempts at one kind of step."""

    async def run(
        self, attempt: Attempt, models: Models, on_generated: OnGenerated = ..., on_text: OnText | None = None
    ) -> Produced:
        """Return what the attempt made. Raises `AttemptError`, and nothing else but `CancelledError`.

        `on_generated` is called with the usage as soon as the models are done, also if the attempt fails; `on_text`
        with pieces of what the models write.
        """


def added(*usages: Usage) -> Usage:
    """Return the sum of several usages, field by field."""
    return Usage(**{one.name: sum(getattr(usage, one.name) for usage in usages) for one in fields(Usage)})


@contextmanager
def reporting_usage(scope: asyncio.Timeout, report: OnGenerated, usage: Callable[[], Usage]) -> Iterator[None]:
    """Report the usage of a block of code when it ends, also by an error or at the end of `scope`, unless cancelled."""
    over = True
    try:
        yield
    except asyncio.CancelledError:
        over = scope.expired()
        raise
    finally:
        if over:
            report(usage())
