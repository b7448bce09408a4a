"""Let clients wait for the answers of runs, and come back to a run whose client has gone.

A client that loses its connection sends its request again. It then waits for the same run: by an idempotency key, which
the journal knows, or else because its request is the same as one whose client has gone within the last minute. A run
that nobody comes back to is cancelled, unless it has a key, with which its answer can be fetched at any time.

The journal has the digests of requests, too. So after a restart, which breaks all connections, a client can come back
to a run as long as it goes on, and for a minute after that. It is not cancelled if none does.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import structlog

from orchestrator.errors import OrchestratorError

log = structlog.get_logger(__name__)

Submit = Callable[[], Awaitable[str]]
"""Submits the run of a request, and returns its id."""
StartTask = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


@dataclass(frozen=True, slots=True)
class Resending:
    """How a request is recognised when its client sends it again."""

    digest: str = ""
    """The digest of the whole request; empty for one that is never recognised by its text."""
    key: str | None = None
    """Its idempotency key."""
    again: bool = False
    """Whether the client says that it sends the request once more, so that an earlier connection of it is broken, even
    where that was not noticed here."""


@dataclass(slots=True, eq=False)
class _Awaited:
    """A run that clients wait for, or have waited for until a moment ago."""

    run: asyncio.Future[str]
    """Its id, or the error for which it was not accepted."""
    asked: Resending
    clients: int = 0
    """How many clients wait for it."""
    answered: bool = False
    """Whether a client has got its answer, as far as is known here."""
    ended: bool = False
    """Whether the run, which was resumed after a restart, has ended."""
    timer: asyncio.TimerHandle | None = None
    """Gives the run up, unless a client comes back before; None while one waits."""


class AwaitedRuns:
    """The runs whose answers clients wait for.

    `cancel` cancels a run, and `start` begins a task that ends with the service. `seconds` is how long a run goes on
    without a client, read whenever a client goes.
    """

    def __init__(
        self, cancel: Callable[[str], Awaitable[object]], start: StartTask, seconds: Callable[[], float]
    ) -> None:
        self._cancel = cancel
        self._start = start
        self._seconds = seconds
        self._by_digest: dict[str, _Awaited] = {}
        self._left: set[_Awaited] = set()
        self._resumed: dict[str, _Awaited] = {}

    def resume(self, run: str, digest: str) -> None:
        """Let a client come back to a run that goes on after a restart. `digest` is that of the client's request."""
        if digest in self._by_digest:
            return
        found: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        found.set_result(run)
        self._by_digest[digest] = self._resumed[run] = _Awaited(found, Resending(digest))

    def ended(self, run: str) -> None:
        """Note that a run has ended. One that was resumed can be joined for a while yet."""
        awaited = self._resumed.pop(run, None)
        if awaited is not None:
            awaited.ended = True
            if not awaited.clients and awaited.timer is None:
                self._wait_for_client(awaited)

    @asynccontextmanager
    async def waiting(self, asked: Resending, submit: Submit) -> AsyncGenerator[str, None]:
        """Return a context manager in which a client waits for the run of its request; its value is the run's id.

        `submit` is called unless the request joins a run. When the block is left by an exception, the client has gone,
        and the run goes on for a while. When the block is completed, the client gets its answer: only a request that
        says that it is sent once more joins that run then, since the answer may have been lost on its way. Raises what
        `submit` raises.
        """
        awaited = self._joined(asked) or self._begun(asked, submit)
        awaited.clients += 1
        try:
            yield await asyncio.shield(awaited.run)
            awaited.answered = True
        finally:
            self._leave(awaited)

    def close(self) -> None:
        """Give up no more runs: the service ends, and those that have not ended are resumed by the next one."""
        for awaited in self._left:
            assert awaited.timer is not None, "it is set when the last client goes"
            awaited.timer.cancel()
        self._left.clear()
        self._by_digest.clear()
        self._resumed.clear()

    def _joined(self, asked: Resending) -> _Awaited | None:
        """Return the run that a request joins, if there is one. Where there is a key, the journal finds the run."""
        found = self._by_digest.get(asked.digest) if asked.digest and asked.key is None else None
        if found is None or not (asked.again or (not found.clients and not found.answered)):
            return None
        if found.timer is not None:
            found.timer.cancel()
            found.timer = None
            self._left.discard(found)
        return found

    def _begun(self, asked: Resending, submit: Submit) -> _Awaited:
        awaited = _Awaited(asyncio.get_running_loop().create_future(), asked)
        if asked.digest and asked.key is None:
            self._by_digest[asked.digest] = awaited
        self._start(_settle(awaited.run, submit))
        return awaited

    def _leave(self, awaited: _Awaited) -> None:
        """Take note that a client waits no longer. After the last one, another may come back within the time."""
        awaited.clients -= 1
        if awaited.clients:
            return
        if awaited.asked.key is not None or _failed(awaited.run):
            self._forget(awaited)
            return
        self._wait_for_client(awaited)

    def _wait_for_client(self, awaited: _Awaited) -> None:
        awaited.timer = asyncio.get_running_loop().call_later(self._seconds(), self._give_up, awaited)
        self._left.add(awaited)

    def _give_up(self, awaited: _Awaited) -> None:
        self._forget(awaited)
        if not (awaited.answered or awaited.ended):
            self._start(self._cancel_run(awaited))

    async def _cancel_run(self, awaited: _Awaited) -> None:
        """Cancel a run that nobody waits for any more; nothing happens if it has ended, or was never accepted."""
        await asyncio.wait([awaited.run])
        if awaited.run.cancelled() or awaited.run.exception() is not None:
            return
        run = awaited.run.result()
        log.info("a run is given up: its client has gone and has not come back", run=run)
        with suppress(OrchestratorError):
            await self._cancel(run)

    def _forget(self, awaited: _Awaited) -> None:
        self._left.discard(awaited)
        if self._by_digest.get(awaited.asked.digest) is awaited:
            del self._by_digest[awaited.asked.digest]


async def _settle(run: "asyncio.Future[str]", submit: Submit) -> None:
    """Submit a run, and tell its id, or the error. A client that goes away meanwhile does not interrupt it."""
    try:
        found = await submit()
    except Exception as error:  # noqa: BLE001 - whoever waits for the run raises it
        run.set_exception(error)
        run.exception()  # it may be that nobody waits any more
    except BaseException:  # the service ends
        run.cancel()
        raise
    else:
        run.set_result(found)


def _failed(run: "asyncio.Future[str]") -> bool:
    return run.done() and (run.cancelled() or run.exception() is not None)
