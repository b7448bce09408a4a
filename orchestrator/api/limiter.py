"""Limit how many requests generate at the same time, and stop the work of a client that has disconnected."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog
from fastapi import Request
from starlette.exceptions import HTTPException

from orchestrator.engine.client.engine import Completion
from orchestrator.engine.contract import TokenLogprob
from orchestrator.errors import OrchestratorError
from orchestrator.service.errors import Busy, NotReady

CLIENT_CLOSED_REQUEST = 499
"""The status that nginx logs for a client that closed the connection. The client itself never sees it."""

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class CallStarted:
    """A call of a tool begins in an answer."""

    index: int
    """Its number among the calls of the answer, from 0."""
    id: str
    name: str
    """The name of the tool."""
    logprobs: tuple[TokenLogprob, ...] = ()
    """The tokens of the answer since the last piece, where the request asks how likely they were."""


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A piece of the arguments of a call, which are JSON."""

    index: int
    text: str
    logprobs: tuple[TokenLogprob, ...] = ()
    """As in `CallStarted`."""


@dataclass(frozen=True, slots=True)
class CallEnded:
    """A call is complete. The `Completion` has it among its calls."""

    index: int


@dataclass(frozen=True, slots=True)
class RunEvent:
    """Something has happened to the run that answers. Only clients that ask for it are told."""

    run: str
    number: int
    """The event's number in the run, from 1."""
    body: str
    """The event as JSON, in the form of the journal."""


Piece = str | CallStarted | CallArguments | CallEnded | RunEvent
"""A piece of an answer: of its text, or of a call of a tool, of which one ends before the next one begins; or an event
of the run that makes it."""
Generate = Callable[[Callable[[Piece], None], Callable[[str], None]], Awaitable[Completion]]
"""Generates one answer. It calls its first argument with each piece of the answer as soon as the piece is there, and
its second one with each piece of what the model thinks before."""


@dataclass(frozen=True, slots=True)
class Thought:
    """A piece of what a model thinks before it answers."""

    text: str


Item = Piece | Thought | Completion
"""What there is of an answer: a piece of it or of the thoughts before it, and in the end the whole."""

log = structlog.get_logger(__name__)


class InternalError(OrchestratorError):
    """An answer could not be generated because of a defect in this program. The log has the traceback."""


class GenerationLimiter:
    """Lets at most `max_generations()` requests generate, plan or embed at the same time.

    `tasks` is the task group that generations run in. It has to be left after the last request has been answered.
    """

    def __init__(self, tasks: asyncio.TaskGroup, max_generations: Callable[[], int]) -> None:
        self._tasks = tasks
        self._max_generations = max_generations
        self._handles: set[GenerationHandle] = set()
        self._others = 0  # requests that plan or embed, which have no handle
        self._thread_lock = asyncio.Lock()
        self._draining = False
        self._released = asyncio.Event()

    def start(self, generates: Sequence[Generate]) -> "GenerationHandle":
        """Start all answers to one request, and return the handle to them.

        Raises Busy when too many requests generate already, and NotReady when the daemon is about to stop.
        """
        self._check_capacity()
        handle = GenerationHandle(self._tasks, generates, self._release)
        self._handles.add(handle)
        return handle

    async def run_in_thread(self, compute: Callable[[], Made]) -> Made:
        """Run `compute`, which keeps a core busy, in a thread and return its result. One thread runs at a time.

        Raises Busy and NotReady as `start` does, and whatever `compute` raises.
        """
        with self._counted():
            async with self._thread_lock:
                return await asyncio.to_thread(compute)

    async def run_while_connected(self, request: Request, work: Callable[[], Awaitable[Made]]) -> Made:
        """Return the result of `work`, which is cancelled when the client of the request disconnects.

        Raises Busy and NotReady as `start` does, HTTPException when the client has disconnected, and whatever `work`
        raises.
        """
        with self._counted():
            disconnect_task = self._tasks.create_task(_wait_for_disconnect(request))
            # The work runs in the task of the request, because a task of the group that raised would end the group.
            # The timeout never expires by itself: it is what cancels the work from outside.
            timeout = asyncio.timeout(None)

            def on_disconnect(ended: asyncio.Task[None]) -> None:
                with contextlib.suppress(RuntimeError):  # the work has ended at the same moment
                    if not ended.cancelled():
                        timeout.reschedule(0)

            try:
                async with timeout:
                    disconnect_task.add_done_callback(on_disconnect)
                    return await work()
            except TimeoutError as error:
                if not timeout.expired():
                    raise
                raise HTTPException(CLIENT_CLOSED_REQUEST, "the client has disconnected") from error
            finally:
                disconnect_task.cancel()

    async def drain(self) -> None:
        """Refuse new requests from now on, and return when all that were accepted have been answered."""
        self._draining = True
        while self._handles or self._others:
            self._released.clear()
            await self._released.wait()

    def cancel_all(self) -> None:
        """Cancel every generation."""
        for handle in tuple(self._handles):
            handle.cancel()

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        self._check_capacity()
        self._others += 1
        try:
            yield
        finally:
            self._others -= 1
            self._released.set()

    def _check_capacity(self) -> None:
        """Raise NotReady while the daemon drains, and Busy when as many requests are in progress as may be."""
        if self._draining:
            raise NotReady("the daemon is about to stop")
        if (count := len(self._handles) + self._others) >= self._max_generations():
            raise Busy(f"{count} requests are being answered", 1)

    def _release(self, handle: "GenerationHandle") -> None:
        self._handles.discard(handle)
        self._released.set()


class GenerationHandle:
    """The answers to one request while they are generated.

    Whoever has a handle has to call `cancel` in the end, whatever happened; it may be called more than once.
    """

    def __init__(
        self,
        tasks: asyncio.TaskGroup,
        generates: Sequence[Generate],
        release: Callable[["GenerationHandle"], None],
    ) -> None:
        self._items: asyncio.Queue[tuple[int, Item | OrchestratorError]] = asyncio.Queue()
        self._started = asyncio.Event()
        self._early_error: OrchestratorError | None = None
        self._release = release
        self._tasks = tasks
        self._generation_tasks = [
            tasks.create_task(self._generate(index, generate)) for index, generate in enumerate(generates)
        ]

    async def wait_started(self, request: Request) -> None:
        """Return when the first piece of an answer is there, so that an earlier error can still choose the status.

        Raises what an answer failed with before that, and HTTPException when the client has disconnected. In both
        cases all answers are cancelled.
        """
        started = False
        try:
            await self._while_connected(request, self._tasks.create_task(self._wait_started()))
            if self._early_error is not None:
                raise self._early_error
            started = True
        finally:
            if not started:
                self.cancel()

    async def completions(self, request: Request) -> list[Completion]:
        """Return all answers in order when the last one is complete, and release the handle.

        Raises what one of them failed with, and HTTPException when the client has disconnected.
        """
        all_task = self._tasks.create_task(self._wait_all())
        try:
            await self._while_connected(request, all_task)
            return [_result(outcome) for outcome in all_task.result()]
        finally:
            self.cancel()

    async def items(self) -> AsyncGenerator[tuple[int, Item], None]:
        """Yield (index of the answer, item) as items come: pieces, and at the end of each answer the whole.

        Raises what an answer fails with.
        """
        left = len(self._generation_tasks)
        while left:
            index, item = await self._items.get()
            if isinstance(item, Completion | OrchestratorError):
                left -= 1
                yield index, _result(item)
            else:
                yield index, item

    def cancel(self) -> None:
        """Cancel the answers that are not complete, and release the handle's place in the limiter."""
        for task in self._generation_tasks:
            task.cancel()
        self._release(self)

    async def _generate(self, index: int, generate: Generate) -> None:
        try:
            outcome: Completion | OrchestratorError = await generate(
                lambda piece: self._put(index, piece), lambda text: self._put(index, Thought(text))
            )
        except OrchestratorError as error:
            outcome = error
        except Exception as error:
            log.exception("a generation failed because of a defect")
            outcome = InternalError(f"internal error: {type(error).__name__}")
        self._put(index, outcome)

    def _put(self, index: int, item: Item | OrchestratorError) -> None:
        self._items.put_nowait((index, item))
        if isinstance(item, OrchestratorError) and not self._started.is_set():
            self._early_error = item
        self._started.set()

    async def _wait_started(self) -> None:
        await self._started.wait()

    async def _wait_all(self) -> list[Completion | OrchestratorError]:
        found: dict[int, Completion | OrchestratorError] = {}
        while len(found) < len(self._generation_tasks):
            index, item = await self._items.get()
            if isinstance(item, Completion | OrchestratorError):
                found[index] = item
        return [found[index] for index in sorted(found)]

    async def _while_connected(self, request: Request, waiting: "asyncio.Task[Any]") -> None:
        """Wait for a task to end. Raises HTTPException when the client disconnects before."""
        disconnect_task = self._tasks.create_task(_wait_for_disconnect(request))
        try:
            await asyncio.wait([waiting, disconnect_task], return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                raise HTTPException(CLIENT_CLOSED_REQUEST, "the client has disconnected")
        finally:
            disconnect_task.cancel()
            waiting.cancel()


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _result(outcome: Completion | OrchestratorError) -> Completion:
    if isinstance(outcome, OrchestratorError):
        raise outcome
    return outcome
