"""Limit how many requests generate at the same time, and cancel the work of disconnected clients."""

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

CLIENT_CLOSED_REQUEST = 499  # as nginx logs it; the client never sees it

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class CallStarted:
    """A tool call starts in an answer."""

    index: int  # among the calls of the answer, from 0
    id: str
    name: str  # of the tool
    logprobs: tuple[TokenLogprob, ...] = ()  # of the tokens since the last piece, if the request asks for them


@dataclass(frozen=True, slots=True)
class CallArguments:
    index: int
    text: str  # a piece of JSON
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class CallEnded:
    """A call is complete. The `Completion` will list it."""

    index: int


@dataclass(frozen=True, slots=True)
class RunEvent:
    """An event of the run that answers, for clients that ask for events."""

    run: str
    number: int  # in the run, from 1
    body: str  # JSON, as in the journal


# A tool call ends before the next one starts.
Piece = str | CallStarted | CallArguments | CallEnded | RunEvent
# Generates one answer. It calls its first argument with each piece of the answer, its second with each of the thoughts.
Generate = Callable[[Callable[[Piece], None], Callable[[str], None]], Awaitable[Completion]]


@dataclass(frozen=True, slots=True)
class Thought:
    """A piece of the reasoning before the answer."""

    text: str


Item = Piece | Thought | Completion  # the completion comes last

log = structlog.get_logger(__name__)


class InternalError(OrchestratorError):
    """A defect in this program prevented an answer. The log has the traceback."""


class GenerationLimiter:
    """Lets at most `max_generations()` requests generate, plan or embed at the same time.

    Generations run in the task group `tasks`, which must stay open until the last request is answered.
    """

    def __init__(self, tasks: asyncio.TaskGroup, max_generations: Callable[[], int]) -> None:
        self._tasks = tasks
        self._max_generations = max_generations
        self._handles: set[GenerationHandle] = set()
        self._handleless = 0  # requests that plan or embed
        self._thread_lock = asyncio.Lock()
        self._draining = False
        self._released = asyncio.Event()

    def start(self, generates: Sequence[Generate]) -> "GenerationHandle":
        """Start all answers to one request.

        Raises Busy if too many requests are in progress, and NotReady if the daemon is about to stop.
        """
        self._check_capacity()
        handle = GenerationHandle(self._tasks, generates, self._release)
        self._handles.add(handle)
        return handle

    async def run_in_thread(self, compute: Callable[[], Made]) -> Made:
        """Run `compute`, which keeps a core busy, in a thread, one at a time. Raises as `start` and `compute` do."""
        with self._counted():
            async with self._thread_lock:
                return await asyncio.to_thread(compute)

    async def run_while_connected(self, request: Request, work: Callable[[], Awaitable[Made]]) -> Made:
        """Return the result of `work`, which is cancelled if the client disconnects.

        Raises HTTPException if it does, and otherwise as `start` and `work` do.
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
        """Refuse new requests, and return when all accepted ones are answered."""
        self._draining = True
        while self._handles or self._handleless:
            self._released.clear()
            await self._released.wait()

    def cancel_all(self) -> None:
        for handle in tuple(self._handles):
            handle.cancel()

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        self._check_capacity()
        self._handleless += 1
        try:
            yield
        finally:
            self._handleless -= 1
            self._released.set()

    def _check_capacity(self) -> None:
        if self._draining:
            raise NotReady("the daemon is about to stop")
        if (count := len(self._handles) + self._handleless) >= self._max_generations():
            raise Busy(f"{count} requests are being answered", 1)

    def _release(self, handle: "GenerationHandle") -> None:
        self._handles.discard(handle)
        self._released.set()


class GenerationHandle:
    """The answers to one request while they are generated.

    Its owner must call `cancel` in the end, whatever happened; it may be called more than once.
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

        Raises that error, or HTTPException if the client has disconnected. Both cancel all answers.
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
        """Return all answers in order, and release the handle.

        Raises the error of an answer, or HTTPException if the client has disconnected.
        """
        all_task = self._tasks.create_task(self._wait_all())
        try:
            await self._while_connected(request, all_task)
            return [_result(outcome) for outcome in all_task.result()]
        finally:
            self.cancel()

    async def items(self) -> AsyncGenerator[tuple[int, Item], None]:
        """Yield (index of the answer, item): pieces as they come, then the whole. Raises the error of an answer."""
        running = len(self._generation_tasks)
        while running:
            index, item = await self._items.get()
            if isinstance(item, Completion | OrchestratorError):
                running -= 1
                yield index, _result(item)
            else:
                yield index, item

    def cancel(self) -> None:
        """Cancel incomplete answers, and release the handle's place in the limiter."""
        for task in self._generation_tasks:
            task.cancel()
        self._release(self)

    async def _generate(self, index: int, generate: Generate) -> None:
        try:
            outcome: Completion | OrchestratorError = await generate(
                lambda piece: self._emit(index, piece), lambda text: self._emit(index, Thought(text))
            )
        except OrchestratorError as error:
            outcome = error
        except Exception as error:
            log.exception("a generation failed because of a defect")
            outcome = InternalError(f"internal error: {type(error).__name__}")
        self._emit(index, outcome)

    def _emit(self, index: int, item: Item | OrchestratorError) -> None:
        self._items.put_nowait((index, item))
        if isinstance(item, OrchestratorError) and not self._started.is_set():
            self._early_error = item
        self._started.set()

    async def _wait_started(self) -> None:
        await self._started.wait()

    async def _wait_all(self) -> list[Completion | OrchestratorError]:
        outcomes: dict[int, Completion | OrchestratorError] = {}
        while len(outcomes) < len(self._generation_tasks):
            index, item = await self._items.get()
            if isinstance(item, Completion | OrchestratorError):
                outcomes[index] = item
        return [outcomes[index] for index in sorted(outcomes)]

    async def _while_connected(self, request: Request, waiting: "asyncio.Task[Any]") -> None:
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
