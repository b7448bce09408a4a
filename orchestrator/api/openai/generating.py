"""Have answers made while their client is there to read them, and stop when it has gone."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any, TypeVar

import structlog
from fastapi import Request
from starlette.exceptions import HTTPException

from orchestrator.engine.client.engine import Completion
from orchestrator.errors import OrchestratorError
from orchestrator.service.errors import Busy, NotReady

CLIENT_CLOSED_REQUEST = 499

Made = TypeVar("Made")

Work = Callable[[Callable[[str], None]], Awaitable[Completion]]
"""Generates one answer, and hands the pieces of its text out as they come."""

log = structlog.get_logger(__name__)


class InternalError(OrchestratorError):
    """The fault is ours; the log says more."""


class Workplace:
    """Where answers are made: to as many requests at once as `most` says. `tasks` outlives all generations."""

    def __init__(self, tasks: asyncio.TaskGroup, most: Callable[[], int]) -> None:
        self._tasks = tasks
        self._most = most
        self._at_work: set[Generating] = set()
        self._computing = 0
        self._turn = asyncio.Lock()
        self._draining = False
        self._less = asyncio.Event()

    def begin(self, works: Sequence[Work]) -> "Generating":
        """Begin with the answers to one request. Raises Busy, NotReady."""
        self._check_room()
        generating = Generating(self._tasks, works, self._forget)
        self._at_work.add(generating)
        return generating

    async def compute(self, make: Callable[[], Made]) -> Made:
        """Return what `make` does, which keeps a core busy: in a thread, and for one request at a time.

        Raises Busy, NotReady.
        """
        self._check_room()
        self._computing += 1
        try:
            async with self._turn:
                return await asyncio.to_thread(make)
        finally:
            self._computing -= 1
            self._less.set()

    async def attend(self, request: Request, make: Callable[[], Awaitable[Made]]) -> Made:
        """Return what `make` comes to, and give it up when the client leaves. Raises Busy, NotReady, HTTPException."""
        self._check_room()
        self._computing += 1
        ear = self._tasks.create_task(_gone(request))
        patience = asyncio.timeout(None)

        def leave(ended: asyncio.Task[None]) -> None:
            with contextlib.suppress(RuntimeError):  # the work has ended at the same time
                if not ended.cancelled():
                    patience.reschedule(0)

        try:
            async with patience:
                ear.add_done_callback(leave)
                return await make()
        except TimeoutError as error:
            if not patience.expired():
                raise
            raise HTTPException(CLIENT_CLOSED_REQUEST, "the client has gone") from error
        finally:
            ear.cancel()
            self._computing -= 1
            self._less.set()

    async def drain(self) -> None:
        """Begin nothing more, and wait until everyone who is here has an answer."""
        self._draining = True
        while self._at_work or self._computing:
            self._less.clear()
            await self._less.wait()

    def stop(self) -> None:
        """End all generations."""
        for generating in tuple(self._at_work):
            generating.stop()

    def _check_room(self) -> None:
        """Raise Busy if as many requests are being answered as may be, NotReady if none may any more."""
        if self._draining:
            raise NotReady("the daemon is about to stop")
        if (count := len(self._at_work) + self._computing) >= self._most():
            raise Busy(f"{count} requests are being answered", 1)

    def _forget(self, generating: "Generating") -> None:
        self._at_work.discard(generating)
        self._less.set()


class Generating:
    """The answers to one request under way. `stop` it at the end, whatever happened; that may be done twice."""

    def __init__(self, tasks: asyncio.TaskGroup, works: Sequence[Work], forget: Callable[["Generating"], None]) -> None:
        self._items: asyncio.Queue[tuple[int, str | Completion | OrchestratorError]] = asyncio.Queue()
        self._begun = asyncio.Event()
        self._failed: OrchestratorError | None = None
        self._forget = forget
        self._tasks = tasks
        self._carrying = [tasks.create_task(self._carry(number, work)) for number, work in enumerate(works)]

    async def wait_begun(self, request: Request) -> None:
        """Return when there is something to read. Raises what failed before; HTTPException for a client that left.

        What raises ends the generation; whoever reads on calls `stop`.
        """
        begun = False
        try:
            await self._while_there(request, self._tasks.create_task(self._wait()))
            if self._failed is not None:
                raise self._failed
            begun = True
        finally:
            if not begun:
                self.stop()

    async def completions(self, request: Request) -> list[Completion]:
        """Return all answers, in order, and end. Raises what one of them fails for, and HTTPException as above."""
        ended = self._tasks.create_task(self._all())
        try:
            await self._while_there(request, ended)
            return [_done(outcome) for outcome in ended.result()]
        finally:
            self.stop()

    async def items(self) -> AsyncGenerator[tuple[int, str | Completion], None]:
        """Yield pieces of text as they come, and each answer's end, with its number. Raises what one fails for."""
        left = len(self._carrying)
        while left:
            number, item = await self._items.get()
            left -= not isinstance(item, str)
            yield number, item if isinstance(item, str) else _done(item)

    def stop(self) -> None:
        """End what still goes on."""
        for task in self._carrying:
            task.cancel()
        self._forget(self)

    async def _carry(self, number: int, work: Work) -> None:
        try:
            outcome: Completion | OrchestratorError = await work(lambda text: self._tell(number, text))
        except OrchestratorError as error:
            outcome = error
        except Exception as error:
            log.exception("a generation broke down")
            outcome = InternalError(f"internal error: {type(error).__name__}")
        self._tell(number, outcome)

    def _tell(self, number: int, item: str | Completion | OrchestratorError) -> None:
        self._items.put_nowait((number, item))
        if isinstance(item, OrchestratorError) and not self._begun.is_set():
            self._failed = item
        self._begun.set()

    async def _wait(self) -> None:
        await self._begun.wait()

    async def _all(self) -> list[Completion | OrchestratorError]:
        found: dict[int, Completion | OrchestratorError] = {}
        while len(found) < len(self._carrying):
            number, item = await self._items.get()
            if not isinstance(item, str):
                found[number] = item
        return [found[number] for number in sorted(found)]

    async def _while_there(self, request: Request, waiting: "asyncio.Task[Any]") -> None:
        """Wait, but no longer than the client does."""
        ear = self._tasks.create_task(_gone(request))
        try:
            await asyncio.wait([waiting, ear], return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                raise HTTPException(CLIENT_CLOSED_REQUEST, "the client has gone")
        finally:
            ear.cancel()
            waiting.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _done(outcome: Completion | OrchestratorError) -> Completion:
    if isinstance(outcome, OrchestratorError):
        raise outcome
    return outcome
