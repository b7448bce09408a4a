"""One attempt at a step of any kind: what it gets, what it produces, how it fails, and its time limit."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, fields
from typing import Protocol

from orchestrator.engine.client.engine import Completion, OnText
from orchestrator.engine.contract import Generation, Message, Priority
from orchestrator.engine.errors import BadRequest, BrokenModel, EngineError, MachineLost, ModelLoadFailed, PromptTooLong
from orchestrator.pool.errors import ModelBroken, ModelTooLarge, ModelUnavailable, PoolError, UnknownModel
from orchestrator.pool.remote.errors import RemoteBusy, RemoteResting
from orchestrator.run.steps.files import SeenFiles
from orchestrator.run.steps.role import ResolvedRole, StepInput
from orchestrator.task.events import Failure, FailureKind, GateResult, Usage
from orchestrator.task.reuse import Reuse
from orchestrator.task.stages import pausing
from orchestrator.task.taskir.models import Step

# A prompt that leaves less room than this, and less than the answer's limit, is too long.
MIN_ANSWER_TOKENS = 16
# Seconds past its deadline for a model to report how far it came, before the attempt is stopped.
GRACE = 1.0

OnGenerated = Callable[[Usage], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    step: Step  # the child of a `foreach` step has outputs such as `name[0]`
    role: ResolvedRole
    inputs: tuple[StepInput, ...] = ()  # in the order of the prompt
    failures: tuple[Failure, ...] = ()  # of earlier attempts, as the prompt shows them, oldest first
    previous: str = ""  # this role's answer that the last of `failures` is about; empty for none
    seed: int | None = None
    slack: float = 0.0  # seconds by which the step may be late without delaying its run, as predicted
    seen: SeenFiles = field(default_factory=SeenFiles)  # the user's files that the attempt reads

    @property
    def max_tokens(self) -> int | None:
        """The most tokens of an answer: the step's limit, else the role's; None for no limit."""
        if self.step.max_tokens or self.role.max_tokens is None:
            return self.step.max_tokens
        # What did not fit once would not fit again, so the role's limit is doubled after a cut-off answer. Only once:
        # a model that does not end within twice its limit has mostly lost its way. The step's own limit is its
        # author's wish.
        cut = any(failure.cut_at is not None for failure in self.failures)
        return self.role.max_tokens * (2 if cut else 1)


class Models(Protocol):
    """The pool as steps and planners see it: models by id."""

    async def count(self, model: str, messages: Sequence[Message], priority: Priority = ...) -> int:
        """Return the tokens of a prompt. Raises EngineError, PoolError."""

    async def generate(self, model: str, request: Generation, on_text: OnText | None = None) -> Completion:
        """Generate text; `on_text` gets it in pieces. Raises EngineError, PoolError, or what `on_text` raises."""


@dataclass(frozen=True, slots=True)
class Produced:
    outputs: Mapping[str, bytes]  # artifacts by name, before the gates
    usage: Usage
    answer: str = ""  # the whole text from which they were read; empty for a step that acts


class StepRunner(Protocol):
    """Carries out attempts at one kind of step."""

    async def run(
        self, attempt: Attempt, models: Models, on_generated: OnGenerated = ..., on_text: OnText | None = None
    ) -> Produced:
        """Return what the attempt made. Raises only `AttemptError` and `CancelledError`.

        `on_generated` gets the usage when the models are done, even if the attempt fails. `on_text` gets their text in
        pieces.
        """


def added(*usages: Usage) -> Usage:
    numbers = [entry.name for entry in fields(Usage) if entry.name not in ("reuse", "nodes", "shipped")]
    reuse = sum((usage.reuse for usage in usages), Reuse())
    nodes = tuple(dict.fromkeys(node for usage in usages for node in usage.nodes))
    shipped = tuple(shipped for usage in usages for shipped in usage.shipped)
    sums = {name: sum(getattr(usage, name) for usage in usages) for name in numbers}
    return Usage(**sums, reuse=reuse, nodes=nodes, shipped=shipped)


@contextmanager
def reporting_usage(scope: asyncio.Timeout, report: OnGenerated, usage: Callable[[], Usage]) -> Iterator[None]:
    """Report the usage of a block when it ends, by an error or the end of `scope` too, but not if cancelled."""
    over = True
    try:
        yield
    except asyncio.CancelledError:
        over = scope.expired()
        raise
    finally:
        if over:
            report(usage())


class AttemptError(Exception):
    """An attempt failed. `gates` are the results so far; `answer` is the text that failed, if any."""

    def __init__(self, failure: Failure, gates: tuple[GateResult, ...] = (), *, answer: str = "") -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.gates = gates
        self.answer = answer

    def with_answer(self, answer: str) -> "AttemptError":
        return AttemptError(self.failure, self.gates, answer=answer)


def unusable_input(message: str) -> AttemptError:
    """Return the error for an input that cannot be read; final, since a retry would not change that."""
    return AttemptError(Failure(FailureKind.RESOURCE, message, final=True))


def map_error(error: EngineError | PoolError) -> Failure:
    """Return the failure that an error stands for; `final` if a retry cannot help."""
    lost = isinstance(error, MachineLost) or (isinstance(error, ModelLoadFailed) and error.kind == "lost")
    return Failure(_kind(error), str(error), final=_is_final(error), lost=lost)


def _kind(error: EngineError | PoolError) -> FailureKind:
    if isinstance(error, PromptTooLong | ModelTooLarge):
        return FailureKind.RESOURCE
    if isinstance(error, RemoteBusy):
        return FailureKind.RESOURCE  # its rule waits before the next attempt
    if isinstance(error, ModelLoadFailed) and error.kind == "memory":
        return FailureKind.RESOURCE
    return FailureKind.INFRASTRUCTURE


def _is_final(error: EngineError | PoolError) -> bool:
    if isinstance(error, ModelLoadFailed):
        return not error.passing
    if isinstance(error, ModelBroken | RemoteResting):
        return error.lasting
    return isinstance(error, BadRequest | BrokenModel | UnknownModel | ModelUnavailable | ModelTooLarge)


@asynccontextmanager
async def attempt_timeout(seconds: float | None, grace: float = 0.0) -> AsyncIterator[asyncio.Timeout]:
    """Limit the block to `seconds` (None: no limit), and turn timeouts and model errors into `AttemptError`.

    `grace` is how many seconds more a model has to keep the deadline itself. Time in which a model rests after
    failures does not count. Otherwise only `CancelledError` and defects leave the block.
    """
    scope = asyncio.timeout(None if seconds is None else seconds + grace)
    try:
        async with scope:
            with pausing(scope):
                yield scope
    except TimeoutError as error:
        if not scope.expired():
            raise
        raise AttemptError(Failure(FailureKind.TIMEOUT, f"not done within {seconds:g} s")) from error
    except (EngineError, PoolError) as error:
        raise AttemptError(map_error(error)) from error


def seconds_left(scope: asyncio.Timeout, grace: float = 0.0) -> float | None:
    """Return the seconds left in a block of `attempt_timeout`, without its `grace`; None for no limit."""
    end = scope.when()
    return None if end is None else end - grace - asyncio.get_running_loop().time()
