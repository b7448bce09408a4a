"""AttemptError, the failures that engine and pool errors stand for, and the time limit of an attempt."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from orchestrator.engine.errors import BadRequest, BrokenModel, EngineError, ModelLoadFailed, PromptTooLong
from orchestrator.pool.errors import ModelBroken, ModelTooLarge, ModelUnavailable, PoolError, UnknownModel
from orchestrator.pool.remote.errors import RemoteBusy, RemoteResting
from orchestrator.task.events import Failure, FailureKind, GateResult
from orchestrator.task.stages import pausing

# Seconds past its deadline for a model to report how far it came, before the attempt is stopped.
GRACE = 1.0


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
    return Failure(_kind(error), str(error), final=_is_final(error))


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
