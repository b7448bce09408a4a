"""Ask a remote model the way a local engine is asked: text piece by piece, a deadline, cancellation, typed errors."""

import asyncio
import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager, suppress
from typing import Final

import structlog

from orchestrator.engine.client.engine import Completion, OnText, StopGenerating
from orchestrator.engine.contract import Finish, Generation
from orchestrator.engine.errors import BadRequest, EngineError, EngineStopped
from orchestrator.events import Usage
from orchestrator.remote.breaker import CLOSED, Breaker
from orchestrator.remote.errors import ParameterRefused, RemoteBusy, RemoteError, RemoteFailed
from orchestrator.remote.http import Server
from orchestrator.remote.retry import pause
from orchestrator.remote.slots import Slots
from orchestrator.remote.wire import BYTES_A_TOKEN, INSTEAD, Chunk, Counts, Question, finish_of, question
from registry.models import ModelEntry

LAST_WORDS_SECONDS: Final = 1.0
"""How long the counts may take to follow the end of an answer, and the end of the stream to follow them."""

log = structlog.get_logger(__name__)


class RemoteModel:
    """A model of the registry that another server runs.

    At most `slots` requests are under way, the most urgent first. A try that fails before any text has arrived is
    made again after a pause if that may help; a server that keeps failing is left alone for a while. Use it from one
    event loop, and `close` it at the end. `chance` is drawn from [0, 1) for each pause.

    Which parameters the server does not take is learned from its refusals, and remembered.
    """

    def __init__(
        self, entry: ModelEntry, *, breaker: Breaker = CLOSED, chance: Callable[[], float] = random.random
    ) -> None:
        assert entry.remote is not None, "the registry says where it is"
        self.entry = entry
        self.requests = 0
        self.active = 0
        self.last_failure: str | None = None
        self._name = entry.remote.model
        self._refused: frozenset[str] = frozenset()
        self._server = Server(entry.id, entry.remote)
        self._slots = Slots(entry.slots)
        self._breaker = breaker
        self._chance = chance
        self._scopes: set[asyncio.Timeout] = set()
        self._quiet = asyncio.Event()
        self._closed = False

    async def generate(self, request: Generation, on_text: OnText | None = None) -> Completion:
        """Generate text, as `Engine.generate` does. Cancelling the task closes the connection.

        Tokens are counted by the server; where it does not, `usage.estimated_tokens` says how many are estimated.
        Raises RemoteError, BadRequest (BadGrammar, RemoteRefused, RemotePromptTooLong), EngineStopped, or what
        `on_text` raises.
        """
        asked = question(self._name, request, self.entry.context)
        answer = _Answer(asked, on_text, _now())
        scope = asyncio.timeout(request.deadline_seconds)
        try:
            with self._counted(scope):
                async with scope, self._slots.hold(_now() + request.slack):
                    self.active += 1
                    try:
                        finish = await self._until_understood(request, asked, answer, scope)
                    finally:
                        self.active -= 1
        except StopGenerating:
            finish = "cancelled"
        except TimeoutError:
            if not scope.expired():
                raise
            if self._closed:
                raise self._stopped() from None
            finish = "deadline"
        return answer.completion(finish, _now())

    async def close(self) -> None:
        """End all requests, which raise EngineStopped, as later ones do, and close the connections."""
        self._closed = True
        for scope in self._scopes:
            if not scope.expired():
                scope.reschedule(_now())
        try:
            if self._scopes:
                await self._quiet.wait()
        finally:
            await self._server.close()

    async def retire(self) -> None:
        """Wait until all requests have ended, and close the connections."""
        if self._scopes:
            await self._quiet.wait()
        await self.close()

    def rests_for(self, now: float) -> float:
        """Return for how many seconds the server is left alone, since it failed too often; 0 if it is not."""
        return self._breaker.rests_for(now)

    @contextmanager
    def _counted(self, scope: asyncio.Timeout) -> Iterator[None]:
        if self._closed:
            raise self._stopped()
        self.requests += 1
        self._scopes.add(scope)
        self._quiet.clear()
        try:
            yield
        finally:
            self.requests -= 1
            self._scopes.discard(scope)
            if not self._scopes:
                self._quiet.set()

    async def _until_understood(
        self, request: Generation, asked: Question, answer: "_Answer", scope: asyncio.Timeout
    ) -> Finish:
        """Ask in other words each time that the server names a parameter which it does not take."""
        while True:
            if asked.parameters & self._refused:
                asked = question(self._name, request, self.entry.context, self._refused)
            try:
                return await self._until_answered(asked, answer, scope)
            except ParameterRefused as refused:
                self._refused |= {refused.parameter}
                instead = INSTEAD[refused.parameter] or "nothing"
                log.warning("a parameter is not sent any more", instead=instead, model=self.entry.id, why=str(refused))

    async def _until_answered(self, asked: Question, answer: "_Answer", scope: asyncio.Timeout) -> Finish:
        """Try until there is an answer, or no point in trying. Return how the answer ended."""
        failure: RemoteError | None = None
        for tries in itertools.count(1):
            self._breaker, permit = self._breaker.ask(_now())
            if permit is None:
                break
            try:
                return await self._tried(asked, answer, permit)
            except RemoteError as error:
                failure = error
            wait = None if answer.begun or not failure.passing else pause(tries, failure.retry_after, self._chance())
            due = scope.when()
            if wait is None or (due is not None and _now() + wait >= due):
                break
            log.warning("a remote model is asked again", model=self.entry.id, seconds=round(wait, 1), why=str(failure))
            await asyncio.sleep(wait)
        raise failure or self._resting()

    async def _tried(self, asked: Question, answer: "_Answer", permit: int) -> Finish:
        """Make one try, and tell the breaker how it went: a refusal is a sign of health, giving up says nothing."""
        try:
            finish = await self._one_try(asked, answer, permit)
        except RemoteFailed as error:
            self.last_failure = str(error)
            self._breaker = self._breaker.failed(permit, _now())
            raise
        except (RemoteBusy, BadRequest):
            self._breaker = self._breaker.succeeded(permit)
            raise
        except BaseException:
            self._breaker = self._breaker.abandoned(permit)
            raise
        self._breaker = self._breaker.succeeded(permit)
        return finish

    async def _one_try(self, asked: Question, answer: "_Answer", permit: int) -> Finish:
        answer.begin(_now())
        reason: str | None = None
        async with aclosing(self._server.chunks(asked)) as chunks:
            async for chunk in chunks:
                self._breaker = self._breaker.answered(permit)
                answer.take(chunk, _now())
                reason = chunk.reason
                if reason is not None:
                    break
            if reason is None:
                raise RemoteFailed(f"{self._server.where}: the stream ended before the answer did", passing=True)
            # The answer is whole: whatever becomes of the stream now, it stands.
            with suppress(EngineError, TimeoutError):
                async with asyncio.timeout(LAST_WORDS_SECONDS):
                    async for late in chunks:
                        answer.count(late.counts)
        return finish_of(self._server.where, reason)

    def _resting(self) -> RemoteBusy:
        seconds = self._breaker.rests_for(_now())
        when = f"next try in {seconds:.0f} s" if seconds else "one request is trying it now"
        what = f"{self._server.where}: failed too often; {when}; the last time: {self.last_failure}"
        return RemoteBusy(what, retry_after=seconds)

    def _stopped(self) -> EngineStopped:
        return EngineStopped(f"{self._server.where}: was given up, since the pool has stopped")


class _Answer:
    """An answer on its way, and when what of it happened, by the event loop's clock."""

    def __init__(self, asked: Question, on_text: OnText | None, now: float) -> None:
        self._question = asked
        self._on_text = on_text
        self._asked = now
        self._sent: float | None = None
        self._first: float | None = None
        self._last = now
        self._pieces: list[str] = []
        self._counts = Counts()

    @property
    def begun(self) -> bool:
        """Whether some text has been handed on."""
        return bool(self._pieces)

    def begin(self, now: float) -> None:
        """The request is sent, for the first time or again."""
        self._sent = self._last = now
        self._counts = Counts()

    def take(self, chunk: Chunk, now: float) -> None:
        """Take a piece in and hand its text on. Raises what `on_text` raises."""
        self._last = now
        self.count(chunk.counts)
        if chunk.text:
            self._first = self._first or now
            self._pieces.append(chunk.text)
            if self._on_text is not None:
                self._on_text(chunk.text)

    def count(self, counts: Counts | None) -> None:
        """Take note of what the server has counted, if it has."""
        self._counts = counts or self._counts

    def completion(self, finish: Finish, now: float) -> Completion:
        """Return it as far as it has come."""
        return Completion("".join(self._pieces), finish, self._usage(now))

    def _usage(self, now: float) -> Usage:
        """Return what it took. Without counts a piece is taken for a token, as most servers send them."""
        told = self._counts
        guessed_prompt = -(-self._question.prompt_bytes // BYTES_A_TOKEN) if told.prompt_tokens is None else 0
        guessed_output = len(self._pieces) if told.completion_tokens is None else 0
        if self._sent is None:
            return Usage(queued_seconds=now - self._asked)
        first = self._last if self._first is None else self._first
        return Usage(
            prompt_tokens=told.prompt_tokens or guessed_prompt,
            cached_tokens=told.cached_tokens,
            output_tokens=told.completion_tokens or guessed_output,
            estimated_tokens=guessed_prompt + guessed_output,
            queued_seconds=self._sent - self._asked,
            prefill_seconds=first - self._sent,
            decode_seconds=self._last - first,
        )


def _now() -> float:
    return asyncio.get_running_loop().time()
