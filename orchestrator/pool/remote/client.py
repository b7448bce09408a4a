"""Generate with a remote model as with a local engine: streaming, deadline, cancellation, typed errors."""

import asyncio
import heapq
import itertools
import math
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from typing import Final

import structlog

from orchestrator.engine.client.engine import Completion, OnText, StopGenerating
from orchestrator.engine.contract import Finish, Generation
from orchestrator.engine.errors import BadRequest, EngineError, EngineStopped
from orchestrator.pool.remote.answer import Answer, ThoughtTooLong
from orchestrator.pool.remote.breaker import CLOSED, LONGEST_PAUSE, THRESHOLD, Breaker
from orchestrator.pool.remote.errors import (
    ParameterRefused,
    RemoteBusy,
    RemoteError,
    RemoteFailed,
    RemoteRefused,
    RemoteResting,
    ToolsRefused,
    Unanswered,
)
from orchestrator.pool.remote.http import Server, pause
from orchestrator.pool.remote.speed import SentRequest, ServerSpeed
from orchestrator.pool.remote.wire import (
    SUBSTITUTES,
    WireRequest,
    finish_of,
    wire_request,
)
from orchestrator.pool.replica_choice import Pace
from orchestrator.pool.status import ServerStatus
from orchestrator.registry.models import Endpoint, ModelEntry
from orchestrator.task.stages import PATIENCE_SECONDS, ModelWait, is_patient, pausing, wait_noted

# HTTP statuses with which a server refuses all requests for the model: a wrong key, path or model name.
_UNFIT: Final = (401, 403, 404)
USAGE_SECONDS: Final = 1.0  # wait after the end of an answer for token counts and the end of the stream

log = structlog.get_logger(__name__)


class RequestSlots:
    """A semaphore of `count` slots, granted in the order of `due` (event loop time), then of arrival.

    No request starves, because later requests are due later, except for a difference in slack.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._arrivals = itertools.count()
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []

    @asynccontextmanager
    async def hold(self, due: float) -> AsyncIterator[None]:
        await self._take(due)
        try:
            yield
        finally:
            self._give()

    async def _take(self, due: float) -> None:
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (due, next(self._arrivals), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # the slot was given at the same moment as the cancellation
                self._give()
            raise

    def _give(self) -> None:
        while self._waiting:
            *_, turn = heapq.heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


class RemoteModel:
    """A model of the registry at one of the servers that run it: a replica without prefixes, memory and cores here.

    At most `slots` requests run at a time, the most urgent first. A request is retried until text arrives, if that may
    help. While the circuit is open, requests wait (`orchestrator.task.stages`). Use it from one event loop, and
    `close` it. `chance` returns a random number in [0, 1).
    """

    def __init__(
        self,
        entry: ModelEntry,
        endpoint: Endpoint,
        *,
        breaker: Breaker = CLOSED,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.entry = entry
        self.endpoint = endpoint
        self.on_change: Callable[[], None] = lambda: None  # called when it may get requests again, or no more
        self.leases = 0  # requests that the pool has given it
        self.requests = 0
        self.active = 0
        self.last_failure: str | None = None
        self._speed = ServerSpeed()
        self._settled = asyncio.Event()  # Set, and then replaced, when the circuit has changed.
        self._refused: frozenset[str] = frozenset()  # parameters that the server has refused; they are not sent again
        self._no_tools: ToolsRefused | None = None
        self._server = Server(entry.id, endpoint)
        self._slots = RequestSlots(endpoint.slots)
        self._breaker = breaker
        self._chance = chance
        self._scopes: set[asyncio.Timeout] = set()
        self._idle = asyncio.Event()
        self._closed = False
        self._retired = False

    @property
    def ready(self) -> bool:
        """Whether it may get a request now."""
        return self.endpoint.unavailable is None and self._breaker.admits(_now())

    @property
    def takes_tools(self) -> bool:
        return self.endpoint.native_tools and self._no_tools is None

    @property
    def slots(self) -> int:
        return self.endpoint.slots

    @property
    def at_once(self) -> int:
        """How many requests it probably answers at a time."""
        return min(self.slots, self._speed.at_once or self.slots)

    @property
    def pace(self) -> Pace | None:
        return self._speed.pace(_now())

    def grant(self) -> None:
        self.leases += 1

    async def generate(
        self,
        request: Generation,
        on_text: OnText | None = None,
        on_thought: OnText | None = None,
        *,
        elsewhere: bool = False,
    ) -> Completion:
        """Generate text, as `Engine.generate` does. Cancelling the task closes the connection.

        Tool calls are written into the text (`registry.call_syntax.REMOTE`). `usage.estimated_tokens` are not counted
        by the server. If another replica can do it `elsewhere`, the first failure is final, and opens the circuit.

        Raises RemoteError, BadRequest, EngineStopped, what a callback raises, or ToolsRefused before any text; with
        `elsewhere` Unanswered instead, if the caller has got no text.
        """
        # The server has refused tools before, so it is not asked again.
        if request.tools and self._no_tools is not None:
            raise self._no_tools
        wire = wire_request(self.endpoint.model, request, self.entry.context)
        answer = Answer(wire, on_text, on_thought, _now(), _budget(request), elsewhere)
        scope = asyncio.timeout(request.deadline_seconds)
        try:
            with self._counted(scope):
                async with scope:
                    with pausing(scope):
                        finish = await self._answered(request, wire, answer, scope)
        except StopGenerating:
            finish = "cancelled"
        except EngineError as error:
            if not elsewhere or answer.delivered or isinstance(error, EngineStopped):
                raise
            raise Unanswered(error) from error
        except TimeoutError:
            if not scope.expired():
                raise
            if self._closed:
                raise self._stopped() from None
            finish = "deadline"
        return answer.completion(finish, _now())

    async def _answered(self, request: Generation, wire: WireRequest, answer: Answer, scope: asyncio.Timeout) -> Finish:
        due = _now() + request.slack
        while True:
            if not answer.elsewhere:
                await self._until_admitted()
            async with self._slots.hold(due):
                if not self._breaker.admits(_now()):
                    if answer.elsewhere:
                        raise self._resting(self._breaker.open_seconds(_now()))
                    continue  # the circuit has opened during the wait for a slot
                self.active += 1
                try:
                    return await self._with_accepted_parameters(request, wire, answer, scope)
                except ThoughtTooLong:
                    # A server cannot be made to end its reasoning, so the model is asked again without.
                    request = replace(request, thinking="off")
                    wire = wire_request(self.endpoint.model, request, self.entry.context)
                    answer.ask_again()
                    return await self._with_accepted_parameters(request, wire, answer, scope)
                finally:
                    self.active -= 1

    async def _until_admitted(self) -> None:
        patient_until = math.inf if is_patient() else _now() + PATIENCE_SECONDS
        while not self._breaker.admits(_now()):
            seconds = self._breaker.open_seconds(_now())
            if self._retired or self._breaker.hopeless or _now() + seconds > patient_until:
                raise self._resting(seconds)
            wait = ModelWait(self.entry.id, str(self._resting(seconds)), seconds or None)
            with wait_noted(wait), suppress(TimeoutError):
                async with asyncio.timeout(seconds or min(patient_until - _now(), LONGEST_PAUSE)):
                    await self._settled.wait()

    async def close(self) -> None:
        """End all requests, which raise EngineStopped as later ones do, and close the connections."""
        self._closed = True
        for scope in self._scopes:
            if not scope.expired():
                scope.reschedule(_now())
        try:
            if self._scopes:
                await self._idle.wait()
        finally:
            await self._server.close()

    async def retire(self) -> None:
        """Wait for all requests, then close. Requests that wait for the circuit fail."""
        self._retired = True
        self._settle(replace(self._breaker))
        if self._scopes:
            await self._idle.wait()
        await self.close()

    def open_seconds(self, now: float) -> float:
        """Return for how many seconds the circuit blocks requests."""
        return self._breaker.open_seconds(now)

    @property
    def hopeless(self) -> bool:
        """Whether it has failed for so long that requests do not wait for it."""
        return self._breaker.hopeless

    def status(self, now: float) -> ServerStatus:
        pace = self._speed.pace(now)
        # Also when the pause is over: nobody knows whether it is back before a request has tried it.
        resting = None if self._breaker.state == "closed" else str(self._resting(self.open_seconds(now)))
        return ServerStatus(
            name=self.endpoint.name,
            url=self.endpoint.base_url,
            model=self.endpoint.model,
            state="unavailable" if self.endpoint.unavailable else "resting" if resting else "ready",
            requests=self.requests,
            active=self.active,
            slots=self.slots,
            at_once=self._speed.at_once,
            first_seconds=self._speed.first_seconds,
            token_seconds=None if pace is None else pace.step(1),
            reason=self.endpoint.unavailable or resting or self.last_failure,
        )

    def why_resting(self, now: float) -> str | None:
        return str(self._resting(self._breaker.open_seconds(now))) if not self._breaker.admits(now) else None

    @contextmanager
    def _counted(self, scope: asyncio.Timeout) -> Iterator[None]:
        if self._closed:
            raise self._stopped()
        self.requests += 1
        self._scopes.add(scope)
        self._idle.clear()
        try:
            yield
        finally:
            self.requests -= 1
            self._scopes.discard(scope)
            if not self._scopes:
                self._idle.set()

    async def _with_accepted_parameters(
        self, request: Generation, wire: WireRequest, answer: Answer, scope: asyncio.Timeout
    ) -> Finish:
        while True:
            if wire.parameters & self._refused:
                wire = wire_request(self.endpoint.model, request, self.entry.context, self._refused)
            try:
                return await self._with_retries(wire, answer, scope)
            except ToolsRefused as refused:
                self._no_tools = ToolsRefused(str(refused), refused.status)
                log.warning("a server takes no tools, so its model is told of them in words", model=self.entry.id)
                raise
            except ParameterRefused as refused:
                self._refused |= {refused.parameter}
                instead = SUBSTITUTES[refused.parameter] or "nothing"
                log.warning("a parameter is not sent any more", instead=instead, model=self.entry.id, why=str(refused))

    async def _with_retries(self, wire: WireRequest, answer: Answer, scope: asyncio.Timeout) -> Finish:
        for tries in itertools.count(1):
            breaker, permit = self._breaker.ask(_now())
            if permit is None:
                raise self._resting(self._breaker.open_seconds(_now()))
            self._settle(breaker)
            try:
                return await self._try_once(wire, answer, permit)
            except RemoteError as failure:
                helps = failure.passing and not answer.begun and not answer.elsewhere
                wait = pause(tries, failure.retry_after, self._chance()) if helps else None
                due = scope.when()
                if wait is None or (due is not None and _now() + wait >= due):
                    raise
                log.warning(
                    "a remote model is asked again", model=self.entry.id, seconds=round(wait, 1), why=str(failure)
                )
                await asyncio.sleep(wait)
                if not self._breaker.admits(_now()):
                    raise
        raise AssertionError("unreachable")

    async def _try_once(self, wire: WireRequest, answer: Answer, permit: int) -> Finish:
        sent, tokens = self._speed.sent(_now()), (0, 0)
        try:
            finish = await self._request(wire, answer, permit, sent)
            tokens = answer.tokens
        except RemoteFailed as error:
            self._fail(error, permit, 1 if answer.elsewhere else THRESHOLD)
            raise
        # A server that refuses a request is healthy.
        except (RemoteBusy, BadRequest, ThoughtTooLong) as error:
            if answer.elsewhere and self._is_unfit(error):
                self._fail(error, permit, 1)
            self._settle(self._breaker.succeeded(permit))
            raise
        except BaseException:
            self._settle(self._breaker.abandoned(permit))
            raise
        finally:
            self._speed.ended(sent, answer.last, *tokens)
        self._settle(self._breaker.succeeded(permit))
        return finish

    def _fail(self, error: Exception, permit: int, threshold: int) -> None:
        self.last_failure = str(error)
        self._settle(self._breaker.failed(permit, _now(), threshold))

    def _is_unfit(self, error: Exception) -> bool:
        # Whether a refusal holds for other requests, too.
        if isinstance(error, RemoteBusy):
            return not self._speed.busy()
        return isinstance(error, RemoteRefused) and error.status in _UNFIT

    async def _request(self, wire: WireRequest, answer: Answer, permit: int, sent: SentRequest) -> Finish:
        answer.begin(_now())
        reason: str | None = None
        async with aclosing(self._server.chunks(wire)) as chunks:
            async for chunk in chunks:
                self._settle(self._breaker.answered(permit))
                if chunk.text or chunk.thought or chunk.calls:
                    self._speed.started(sent, _now())
                answer.take(chunk, _now())
                if answer.is_too_long:
                    log.warning("a server ignores max_tokens, so its answer is cut", model=self.entry.id)
                    answer.end()
                    return "length"
                reason = chunk.reason
                if reason is not None:
                    break
            answer.end()
            if reason is None:
                raise RemoteFailed(f"{self._server.where}: the stream ended before the answer did", passing=True)
            # The answer is complete, so an error in the rest of the stream no longer matters.
            with suppress(EngineError, TimeoutError):
                async with asyncio.timeout(USAGE_SECONDS):
                    async for late in chunks:
                        answer.count(late)
        return finish_of(self._server.where, reason)

    def _settle(self, breaker: Breaker) -> None:
        if breaker is not self._breaker:
            before, self._breaker = self._breaker, breaker
            self._settled.set()
            self._settled = asyncio.Event()
            if before.state != breaker.state:
                self.on_change()

    def _resting(self, seconds: float) -> RemoteResting:
        if seconds:
            when = f"next try in {math.ceil(seconds)} s"
        else:
            when = "the next request tries it" if self._breaker.state == "open" else "one request is trying it now"
        message = f"{self._server.where}: is left out after failures; {when}; the last one: {self.last_failure}"
        return RemoteResting(message, retry_after=seconds, lasting=self._breaker.hopeless)

    def _stopped(self) -> EngineStopped:
        return EngineStopped(f"{self._server.where}: was cancelled, because the pool has stopped")


def _budget(request: Generation) -> int | None:
    return request.thinking if isinstance(request.thinking, int) and request.thinking else None


def _now() -> float:
    return asyncio.get_running_loop().time()
