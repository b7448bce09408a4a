"""Say why an attempt came to nothing: its error, what engines and the pool raise as a failure, and its time limit."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from orchestrator.engine.errors import BadRequest, BrokenModel, EngineError, ModelLoadFailed, PromptTooLong
from orchestrator.events import Failure, FailureKind, GateResult
from orchestrator.pool.errors import ModelBroken, ModelTooLarge, ModelUnavailable, PoolError, UnknownModel
from orchestrator.remote.errors import RemoteBusy

_PASSING = ("died", "hung", "memory")
"""Load failures that another try may not meet; all others are in the file or the settings."""

GRACE = 1.0
"""Seconds past its deadline in which a model may still say how far it came, before it counts as hung."""


class AttemptError(Exception):
    """An attempt came to nothing. `gates` are the results of those gates that had looked at what was made."""

    def __init__(self, failure: Failure, gates: tuple[GateResult, ...] = ()) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.gates = gates


def unusable_input(message: str) -> AttemptError:
    """Return the error for an input that cannot be read: whoever tries again would find it as it is."""
    return AttemptError(Failure(FailureKind.RESOURCE, message, final=True))


def map_error(error: EngineError | PoolError) -> Failure:
    """Return the failure that the error amounts to, `final` where trying again is useless."""
    return Failure(_kind(error), str(error), final=_is_final(error))


def _kind(error: EngineError | PoolError) -> FailureKind:
    if isinstance(error, PromptTooLong | ModelTooLarge):
        return FailureKind.RESOURCE
    if isinstance(error, ModelBroken | RemoteBusy):
        return FailureKind.RESOURCE  # it is tried again after a while: the rule that waits
    if isinstance(error, ModelLoadFailed) and error.kind == "memory":
        return FailureKind.RESOURCE
    return FailureKind.INFRASTRUCTURE


def _is_final(error: EngineError | PoolError) -> bool:
    if isinstance(error, ModelLoadFailed):
        return error.kind not in _PASSING
    return isinstance(error, BadRequest | BrokenModel | UnknownModel | ModelUnavailable | ModelTooLarge)


@asynccontextmanager
async def attempt_timeout(seconds: float | None, grace: float = 0.0) -> AsyncIterator[asyncio.Timeout]:
    """Let the block run for `seconds`, None for ever; what leaves it is `AttemptError` or `CancelledError`.

    `grace` is how much longer it may run if what it waits for keeps the deadline by itself.
    """
    scope = asyncio.timeout(None if seconds is None else seconds + grace)
    try:
        async with scope:
            yield scope
    except TimeoutError as error:
        if not scope.expired():
            raise
        raise AttemptError(Failure(FailureKind.TIMEOUT, f"not done within {seconds:g} s")) from error
    except (EngineError, PoolError) as error:
        raise AttemptError(map_error(error)) from error


def seconds_left(scope: asyncio.Timeout, grace: float = 0.0) -> float | None:
    """Return how long the block may still take, its `grace` aside; None for ever."""
    end = scope.when()
    return None if end is None else end - grace - asyncio.get_running_loop().time()
