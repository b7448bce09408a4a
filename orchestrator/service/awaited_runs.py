"""Let clients wait for the answers of runs, and rejoin a run when they have lost the connection.

A client rejoins by its idempotency key, which the journal knows, or by sending the same request again soon enough. A
run that no client rejoins is cancelled, unless it has a key: then its answer can be fetched at any time.

A restart breaks all connections. Clients can then rejoin by the digests of requests in the journal, until a while after
the run has ended; these runs are not cancelled if no client comes.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import structlog

from orchestrator.errors import OrchestratorError

log = structlog.get_logger(__name__)

Submit = Callable[[], Awaitable[str]]  # submits the run of a request, and returns its id
StartTask = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


@dataclass(frozen=True, slots=True)
class Resending:
    """How a request is recognised when its client sends it again."""

    digest: str = ""  # of the whole request; empty: never recognised by its text
    key: str | None = None  # the idempotency key
    # The client says that it sends the request again, so an earlier connection is broken, even if that was not noticed
    # here.
    again: bool = False


@dataclass(slots=True, eq=False)
class _Awaited:
    run: asyncio.Future[str]  # its id, or the error for which it was not accepted
    request: Resending
    clients: int = 0  # those that wait now
    answered: bool = False  # a client has the answer, as far as is known here
    ended: bool = False  # a resumed run has ended
    timer: asyncio.TimerHandle | None = None  # gives the run up unless a client comes back; None while one waits


class AwaitedRuns:
    """The runs whose answers clients wait for.

    `cancel` cancels a run, and `start` starts a task that ends with the service. `seconds` is how long a run continues
    without a client; it is read whenever a client leaves.
    """

    def __init__(
        self, cancel: Callable[[str], Awaitable[object]], start: StartTask, seconds: Callable[[], float]
    ) -> None:
        self._cancel = cancel
        self._start = start
        self._seconds = seconds
        self._by_digest: dict[str, _Awaited] = {}
        self._abandoned: set[_Awaited] = set()
        self._resumed: dict[str, _Awaited] = {}

    def resume(self, run: str, digest: str) -> None:
        """Let a client rejoin a run that continues after a restart, by the digest of its request."""
        if digest in self._by_digest:
            return
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        future.set_result(run)
        self._by_digest[digest] = self._resumed[run] = _Awaited(future, Resending(digest))

    def ended(self, run: str) -> None:
        """Note that a run has ended. Clients can rejoin a resumed run for a while after that."""
        awaited = self._resumed.pop(run, None)
        if awaited is not None:
            awaited.ended = True
            if not awaited.clients and awaited.timer is None:
                self._wait_for_client(awaited)

    @asynccontextmanager
    async def waiting(self, request: Resending, submit: Submit) -> AsyncGenerator[str, None]:
        """Return a context manager in which a client waits for the run of its request; its value is the run's id.

        `submit` is called unless the request joins a run. An exception in the block means that the client has gone; the
        run continues for a while. After a block without one, only a request that says `again` rejoins the run. Raises
        what `submit` raises.
        """
        awaited = self._joined(request) or self._begun(request, submit)
        awaited.clients += 1
        try:
            yield await asyncio.shield(awaited.run)
            awaited.answered = True  # the answer may still be lost on its way, hence `again`
        finally:
            self._leave(awaited)

    def close(self) -> None:
        """Give up no more runs: the next service resumes those that have not ended."""
        for awaited in self._abandoned:
            assert awaited.timer is not None, "it is set when the last client goes"
            awaited.timer.cancel()
        self._abandoned.clear()
        self._by_digest.clear()
        self._resumed.clear()

    def _joined(self, request: Resending) -> _Awaited | None:
        # The journal finds a run with a key.
        awaited = self._by_digest.get(request.digest) if request.digest and request.key is None else None
        if awaited is None or not (request.again or (not awaited.clients and not awaited.answered)):
            return None
        if awaited.timer is not None:
            awaited.timer.cancel()
            awaited.timer = None
            self._abandoned.discard(awaited)
        return awaited

    def _begun(self, request: Resending, submit: Submit) -> _Awaited:
        awaited = _Awaited(asyncio.get_running_loop().create_future(), request)
        if request.digest and request.key is None:
            self._by_digest[request.digest] = awaited
        # A task of its own: a client that leaves does not interrupt the submission.
        self._start(_settle(awaited.run, submit))
        return awaited

    def _leave(self, awaited: _Awaited) -> None:
        awaited.clients -= 1
        if awaited.clients:
            return
        if awaited.request.key is not None or _failed(awaited.run):
            self._forget(awaited)
            return
        self._wait_for_client(awaited)

    def _wait_for_client(self, awaited: _Awaited) -> None:
        awaited.timer = asyncio.get_running_loop().call_later(self._seconds(), self._give_up, awaited)
        self._abandoned.add(awaited)

    def _give_up(self, awaited: _Awaited) -> None:
        self._forget(awaited)
        if not (awaited.answered or awaited.ended):
            self._start(self._cancel_run(awaited))

    async def _cancel_run(self, awaited: _Awaited) -> None:
        await asyncio.wait([awaited.run])
        if awaited.run.cancelled() or awaited.run.exception() is not None:  # it was never accepted
            return
        run = awaited.run.result()
        log.info("a run is given up: its client has gone and has not come back", run=run)
        with suppress(OrchestratorError):  # it has ended by itself
            await self._cancel(run)

    def _forget(self, awaited: _Awaited) -> None:
        self._abandoned.discard(awaited)
        if self._by_digest.get(awaited.request.digest) is awaited:
            del self._by_digest[awaited.request.digest]


async def _settle(run: "asyncio.Future[str]", submit: Submit) -> None:
    try:
        run_id = await submit()
    except Exception as error:  # noqa: BLE001 - whoever waits for the run raises it
        run.set_exception(error)
        run.exception()  # it may be that nobody waits any more
    except BaseException:  # the service ends
        run.cancel()
        raise
    else:
        run.set_result(run_id)


def _failed(run: "asyncio.Future[str]") -> bool:
    return run.done() and (run.cancelled() or run.exception() is not None)
