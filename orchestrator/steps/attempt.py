"""Define what one try of a step is given and what it makes, whatever the kind of step."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Protocol

from orchestrator.engine.client.engine import Completion
from orchestrator.engine.contract import Generation, Message, Priority
from orchestrator.events import Failure, GateResult, Usage
from orchestrator.gates import RunJob, no_sandbox
from orchestrator.steps.prompt import Input
from orchestrator.steps.role import ResolvedRole
from orchestrator.taskir import Commands, Step

MIN_ANSWER_TOKENS = 16
"""A prompt that leaves less of the context than this (or than the answer's limit) is too long."""

OnText = Callable[[str], None]
OnGenerated = Callable[[Usage], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checks:
    """What gates may use, beside what the step reads and writes.

    `tests` are inputs of the task that belong to the step though it does not read them. `run` runs jobs in the sandbox.
    """

    tests: tuple[Input, ...] = ()
    commands: Commands = field(default_factory=Commands)
    judge: ResolvedRole | None = None
    run: RunJob = no_sandbox


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try of a step, with all that was decided about it.

    `step` is concrete: a `foreach` child has outputs `name[0]`. `failures` are those of earlier attempts that it is
    told of, oldest first. `gates` are those asked for.
    """

    step: Step
    role: ResolvedRole
    inputs: tuple[Input, ...] = ()
    failures: tuple[Failure, ...] = ()
    gates: tuple[str, ...] = ()
    checks: Checks = field(default_factory=Checks)
    seed: int | None = None
    slack: float = 0.0

    @property
    def max_tokens(self) -> int | None:
        """The most tokens of an answer: the step's limit, else the role's, of which None sets none."""
        return self.step.max_tokens or self.role.max_tokens


class Models(Protocol):
    """Models that can be asked, each by its id: the pool, as steps and planners see it."""

    async def count(self, model: str, messages: Sequence[Message], priority: Priority = ...) -> int:
        """Return the tokens of a prompt, for a request of this class. Raises EngineError, PoolError."""

    async def generate(self, model: str, request: Generation, on_text: OnText | None = None) -> Completion:
        """Generate text. `on_text` gets it piece by piece. Raises EngineError, PoolError, or what `on_text` raises."""


@dataclass(frozen=True, slots=True)
class Produced:
    """What an attempt made: artifacts by name, the gates' results, and what it took."""

    outputs: Mapping[str, bytes]
    gates: tuple[GateResult, ...]
    usage: Usage


class StepRunner(Protocol):
    """Carries out attempts at one kind of step."""

    async def run(
        self, attempt: Attempt, models: Models, on_generated: OnGenerated = ..., on_text: OnText | None = None
    ) -> Produced:
        """Return what the attempt made. Raises `AttemptError`, and nothing else but `CancelledError`.

        `on_generated` is called with what it took once the models are done, before anything looks at what they made;
        `on_text` with pieces of what they write.
        """


def added(*usages: Usage) -> Usage:
    """Return the sum, field by field."""
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
