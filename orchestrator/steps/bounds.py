"""Bound an attempt in time, and turn what engines and the pool raise in it into the attempt's failure."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from orchestrator.engine.errors import EngineError
from orchestrator.events import Failure, FailureKind
from orchestrator.pool.errors import PoolError
from orchestrator.steps.blame import failure_from
from orchestrator.steps.errors import AttemptError


@asynccontextmanager
async def bounded(seconds: float | None) -> AsyncIterator[asyncio.Timeout]:
    """Let the block run for `seconds`, None for ever. What leaves it is `AttemptError` or `CancelledError`."""
    scope = asyncio.timeout(seconds)
    try:
        async with scope:
            yield scope
    except TimeoutError as error:
        if not scope.expired():
            raise
        raise AttemptError(Failure(FailureKind.TIMEOUT, f"not done within {seconds:g} s")) from error
    except (EngineError, PoolError) as error:
        raise AttemptError(failure_from(error)) from error


def seconds_left(scope: asyncio.Timeout) -> float | None:
    """Return how long the block may still take, None for ever."""
    deadline = scope.when()
    return None if deadline is None else deadline - asyncio.get_running_loop().time()
