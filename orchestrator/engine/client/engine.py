"""Drive one engine process from asyncio: start it, ask it, notice its end."""

import asyncio
import contextlib
import dataclasses
import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, cast

import numpy as np

from orchestrator.engine import errors
from orchestrator.engine.client.grammar import schema_grammar
from orchestrator.engine.client.spawn import Child, how_it_ended, launch, signal_name
from orchestrator.engine.client.watchdog import Activity, Watchdog
from orchestrator.engine.contract import (
    Embeddings,
    EngineSpec,
    EngineStats,
    Finish,
    Generation,
    Message,
    ModelInfo,
    texts_problem,
)
from orchestrator.engine.errors import BadRequest, EngineDied, EngineHung, EngineStopped, ModelLoadFailed
from orchestrator.engine.protocol import (
    VERSION,
    Cancel,
    Command,
    Count,
    Counted,
    Embed,
    Embedded,
    Failed,
    Finished,
    Frames,
    GetStats,
    Heartbeat,
    Load,
    LoadFailed,
    ProtocolError,
    Ready,
    Reply,
    SetThreads,
    Stats,
    Stop,
    Submit,
    Texts,
    decode_reply,
    encode,
)
from orchestrator.events import Usage

OnText = Callable[[str], None]
"""Gets the pieces of a text as they come. It may raise `StopGenerating`."""
_STOP_SECONDS = 5.0
_EXIT_SECONDS = 1.0
"""How long a process that has closed its socket may take to exit, before it is killed."""


class StopGenerating(Exception):
    """Raised by `on_text`: the text ends here. Its completion says "cancelled", and what it took so far."""


@dataclass(frozen=True, slots=True)
class Completion:
    """What a generation came to. Any `finish` but "stop" means that the model was not done."""

    text: str
    finish: Finish
    usage: Usage


@dataclass(slots=True)
class _Waiting:
    """A request in progress."""

    future: asyncio.Future[Any]
    on_text: OnText | None = None


class Engine(asyncio.Protocol):
    """The parent's end of one engine process.

    Use it from the event loop that started it. Once the process has ended, for whatever reason, every pending and
    later call raises EngineDied (or EngineHung, EngineStopped), and `died` is set.
    """

    info: ModelInfo

    def __init__(self, spec: EngineSpec, child: Child) -> None:
        self.spec = spec
        self.died = asyncio.Event()
        self.failure: EngineDied | None = None
        self._loop = asyncio.get_running_loop()
        self._child = child
        self._transport: asyncio.Transport | None = None
        self._unsent: list[bytes] = []
        self._frames = Frames()
        self._ids = itertools.count(1)
        self._waiting: dict[int, _Waiting] = {}
        self._loading: asyncio.Future[ModelInfo] = self._loop.create_future()
        self._doomed: EngineDied | None = None
        self._exited = False
        self._open_socket = True
        self._activity = Activity(child.process.pid)
        self._watchdog = Watchdog(
            spec.load_seconds,
            owes=self._owed,
            worked=self._activity.worked,
            hung=self._on_hung,
            call_later=self._loop.call_later,
        )
        self._exit_timer: asyncio.TimerHandle | None = None

    # Life

    @classmethod
    async def start(cls, spec: EngineSpec) -> Self:
        """Start a process and load the model. Raises ModelLoadFailed, after the process is gone."""
        problem = spec.problem()
        if problem:
            raise ModelLoadFailed(spec.file, "settings", problem)
        try:
            child = launch(spec)
        except OSError as error:
            raise ModelLoadFailed(spec.file, "died", f"the engine process cannot be started: {error}") from error
        engine = cls(spec, child)
        try:
            engine.info = await engine._open()
        except EngineDied as error:
            kind: errors.LoadFailure = "hung" if isinstance(error, EngineHung) else "died"
            raise ModelLoadFailed(spec.file, kind, str(error), log=error.log) from error
        except OSError as error:
            await engine._end_now()
            raise ModelLoadFailed(spec.file, "died", f"the engine process cannot be spoken to: {error}") from error
        except BaseException:
            await engine._end_now()
            raise
        return engine

    async def stop(self) -> None:
        """End the process, politely at first. Pending generations raise EngineStopped. Harmless when it is dead."""
        if not self.died.is_set():
            self._doom(EngineStopped("the engine was stopped"), kill=False)
            self._send(Stop())
            try:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_STOP_SECONDS):
                        await self.died.wait()
            finally:
                await self._end_now()

    async def wait_dead(self) -> EngineDied:
        """Wait until the process has ended and say how."""
        await self.died.wait()
        return self.failure or EngineDied("the engine process ended")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # Requests

    async def generate(self, request: Generation, on_text: OnText | None = None) -> Completion:
        """Generate text. `on_text` gets it piece by piece, in whole characters. Cancelling the task frees everything.

        Raises BadRequest, BadPrompt, BadGrammar, PromptTooLong, BrokenModel, EngineDied, or what `on_text` raises.
        """
        self._check_kind(embeds=False)
        try:
            problem = request.problem()
        except UnicodeEncodeError as error:
            raise BadRequest(f"text that is no Unicode: {error}") from error
        if problem:
            raise BadRequest(problem)
        seed = random.getrandbits(64) if request.seed is None else request.seed
        grammar = request.grammar if request.schema is None else schema_grammar(request.schema)
        wire = dataclasses.replace(request, schema=None, grammar=grammar, seed=seed)
        done: Finished = await self._ask(lambda seq: Submit(seq, wire, on_text is not None), on_text)
        usage = Usage(
            prompt_tokens=done.prompt_tokens,
            cached_tokens=done.cached_tokens,
            output_tokens=done.output_tokens,
            queued_seconds=done.queued_seconds,
            prefill_seconds=done.prefill_seconds,
            decode_seconds=done.decode_seconds,
        )
        return Completion(done.text, done.finish, usage)

    async def count(self, messages: Sequence[Message]) -> int:
        """Return how many tokens the prompt of these messages has. Raises BadRequest, BadPrompt, EngineDied."""
        self._check_kind(embeds=False)
        counted: Counted = await self._ask(lambda seq: Count(seq, tuple(messages)))
        return counted.tokens

    async def embed(self, texts: Sequence[str]) -> Embeddings:
        """Make a vector of each text. Cancelling the task gives up what is not computed yet.

        Raises BadRequest, TextTooLong, BrokenModel, EngineDied.
        """
        self._check_kind(embeds=True)
        if problem := texts_problem(texts):
            raise BadRequest(problem)
        done: Embedded = await self._ask(lambda seq: Embed(seq, tuple(texts)))
        return Embeddings(np.frombuffer(done.vectors, "<f4").reshape(len(texts), -1), done.tokens)

    def _check_kind(self, *, embeds: bool) -> None:
        """Raise BadRequest if this is an engine of the other kind."""
        if self.spec.embeds != embeds:
            can, asked = ("embed texts", "write") if self.spec.embeds else ("write", "embed texts")
            raise BadRequest(f"the model is loaded to {can}, and was asked to {asked}")

    async def stats(self) -> EngineStats:
        """Return the counters. Raises EngineDied."""
        answer: Stats = await self._ask(GetStats)
        return answer.stats

    async def set_threads(self, threads: int) -> None:
        """Compute with this many threads from the next step on; rest with 0. Raises EngineDied, ValueError."""
        if not 0 <= threads <= 1024:
            raise ValueError(f"{threads} threads")
        self._send(SetThreads(threads))

    async def _ask(self, command: Callable[[int], Command], on_text: OnText | None = None) -> Any:
        """Send a command with a fresh number and wait for its answer; give it up when the task is cancelled."""
        seq = next(self._ids)
        waiting = _Waiting(self._loop.create_future(), on_text)
        self._send(command(seq))
        if not self._waiting:
            self._watchdog.heard()  # until now it owed us nothing
        self._waiting[seq] = waiting
        self._watchdog.watch()
        try:
            return await waiting.future
        finally:
            self._waiting.pop(seq, None)
            if not waiting.future.done() or waiting.future.cancelled():
                self._give_up(seq)

    def _give_up(self, seq: int) -> None:
        if self._doomed is None:
            self._send(Cancel(seq))

    def _send(self, command: Command) -> None:
        """Write a command, together with all that are sent in this turn of the event loop: requests that are made at
        once reach the engine at once, so that their first step is a common one. Raises EngineDied, BadRequest.
        """
        if self._doomed is not None and not isinstance(command, Stop):
            raise self.failure or self._doomed
        try:
            frame = encode(command)
        except UnicodeEncodeError as error:
            raise BadRequest(f"text that is no Unicode: {error}") from error
        if not self._unsent:
            self._loop.call_soon(self._write)
        self._unsent.append(frame)

    def _write(self) -> None:
        """Hand over what is unsent; asyncio buffers it."""
        if self._transport is not None:
            self._transport.write(b"".join(self._unsent))
        self._unsent.clear()

    # What the process says

    async def _open(self) -> ModelInfo:
        self._loop.add_reader(self._child.pidfd, self._process_exited)
        try:
            await self._loop.create_connection(lambda: self, sock=self._child.socket)
        except BaseException:
            self._open_socket = False
            self._child.socket.close()
            raise
        self._send(Load(VERSION, self.spec))
        self._watchdog.watch()
        return await self._loading

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over our end of the socket."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Handle the replies in what the process has written."""
        self._watchdog.heard()
        try:
            for body in self._frames.feed(data):
                self._handle(decode_reply(body))
        except ProtocolError as error:
            self._doom(EngineDied(self._sentence(f"sent nonsense ({error}) and was killed")))

    def _handle(self, reply: Reply) -> None:
        match reply:
            case Texts(texts):
                self._watchdog.allow(self.spec.hung_seconds)  # a step that takes longer is announced anew
                for seq, text in texts:
                    self._stream(seq, text)
            case Finished(seq) | Counted(seq) | Embedded(seq) | Stats(seq):
                self._watchdog.allow(self.spec.hung_seconds)
                self._settle(seq, reply)
            case Failed():
                self._fail(reply)
            case Heartbeat(seconds):
                if self._loading.done():
                    self._watchdog.allow(max(self.spec.hung_seconds, 5 * seconds))
            case Ready() | LoadFailed():
                self._loaded(reply)

    def _loaded(self, reply: Ready | LoadFailed) -> None:
        if self._loading.done():
            return
        if isinstance(reply, Ready):
            self._loading.set_result(reply.info)
            self._watchdog.allow(self.spec.hung_seconds)
        else:
            kind = cast(errors.LoadFailure, reply.kind)
            failure = ModelLoadFailed(self.spec.file, kind, reply.message, log=self._child.log_tail())
            self._loading.set_exception(failure)

    def _stream(self, seq: int, text: str) -> None:
        waiting = self._waiting.get(seq)
        if waiting is None or waiting.on_text is None or waiting.future.done():
            return
        try:
            waiting.on_text(text)
        except StopGenerating:
            waiting.on_text = None  # what is on its way is of no interest any more, but for the end
            self._give_up(seq)
        except Exception as error:  # noqa: BLE001 (the caller's callback: its error is the caller's, not the engine's)
            waiting.future.set_exception(error)
            self._give_up(seq)

    def _settle(self, seq: int, reply: Reply) -> None:
        waiting = self._waiting.get(seq)
        if waiting is not None and not waiting.future.done():
            waiting.future.set_result(reply)

    def _fail(self, reply: Failed) -> None:
        waiting = self._waiting.get(reply.seq)
        if waiting is not None and not waiting.future.done():
            waiting.future.set_exception(errors.parse_error(reply.kind, reply.message, reply.numbers))

    # How it ends: by exit, by end of file, because it hangs, by our wish. The first cause is the one that is told.

    def _owed(self) -> bool:
        """Whether the process owes us something: an answer, or that it is ready."""
        return self._doomed is None and bool(self._waiting or not self._loading.done())

    def _on_hung(self) -> None:
        """Kill the process, which owes something and does nothing for it."""
        states = self._activity.states()
        if states & {"T", "t"}:
            how = "was stopped by a signal or a debugger"
        elif "D" in states:
            how = "waited for a device without any progress"
        else:
            how = "was blocked, using no CPU time,"
        self._doom(EngineHung(self._sentence(f"{how} for {self._watchdog.limit:g} s and was killed")))

    def _sentence(self, what: str) -> str:
        """Return in one sentence what became of the process, and where its log is."""
        where = f"; its log is in {self.spec.log_file}" if self.spec.log_file else ""
        return f"the engine process of {self.spec.shown_name} {what}{where}"

    def _doom(self, failure: EngineDied, kill: bool = True) -> None:
        """Decide that the process must end; the first reason stays."""
        if self._doomed is None:
            self._doomed = failure
        if kill:
            self._child.kill()

    def connection_lost(self, error: Exception | None) -> None:
        """Note the end of file. The process is about to exit, and how it does says why; one that stays is killed."""
        self._transport = None
        self._open_socket = False
        if not self._exited:
            self._exit_timer = self._loop.call_later(_EXIT_SECONDS, self._on_no_exit)
        self._finish()

    def _on_no_exit(self) -> None:
        self._doom(EngineDied(self._sentence("closed its connection without exiting and was killed")))

    def _process_exited(self) -> None:
        self._loop.remove_reader(self._child.pidfd)
        self._child.process.wait()
        self._exited = True
        self._finish()

    def _finish(self) -> None:
        """Tell everyone, once the process has exited and everything it had written has been read."""
        if not self._exited or self._open_socket or self.died.is_set():
            return
        self.failure = self._doomed = self._obituary()
        self._watchdog.rest()
        if self._exit_timer is not None:
            self._exit_timer.cancel()
        for future in [self._loading, *(waiting.future for waiting in self._waiting.values())]:
            if not future.done():
                future.set_exception(self.failure)
        if self._loading.done() and not self._loading.cancelled():
            self._loading.exception()  # seen: a failed start raises its own error
        self._child.release()
        self.died.set()

    def _obituary(self) -> EngineDied:
        """Return the error that says how the process ended."""
        code = self._child.process.returncode
        log = self._child.log_tail()
        if self._doomed is None:
            error, message = EngineDied, self._sentence(how_it_ended(code, log))
        else:
            error, message = type(self._doomed), str(self._doomed)
        return error(message, signal=signal_name(code), exit_code=code, log=log)

    async def _end_now(self) -> None:
        """Kill the process and wait until it is reaped and everyone has been told."""
        self._doom(EngineStopped("the engine was stopped"))
        await asyncio.shield(self.died.wait())
