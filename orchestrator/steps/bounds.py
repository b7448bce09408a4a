"""Bound an attempt in time, and turn what engines and the pool raise in it into the attempt's failure."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from orchestrator.engine.errors import EngineError
from orchestrator.events import Failure, FailureKind
from orchestrator.pool.errors import PoolError
from orchestrator.steps.blame import failure_from
from orchestrator.steps.errors import AttemptError

GRACE = 1.0
"""Seconds past its deadline in which a model may still say how far it came, before it counts as hung."""


@asynccontextmanager
async def bounded(seconds: float | None, grace: float = 0.0) -> AsyncIterator[asyncio.Timeout]:
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
        raise AttemptError(failure_from(error)) from error


def seconds_left(scope: asyncio.Timeout, grace: float = 0.0) -> float | None:
    """Return how long the block may still take, its `grace` aside; None for ever."""
    end = scope.when()
    return None if end is None else end - grace - asyncio.get_running_loop().time()
