"""Start one engine process, send it requests from asyncio, and detect its end."""

import asyncio
import contextlib
import dataclasses
import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType, TracebackType
from typing import Any, Final, Literal, Self, cast

import numpy as np

from orchestrator.engine import errors
from orchestrator.engine.client.grammar import kept_schema_grammar, schema_grammar
from orchestrator.engine.client.process import ProcessHandle
from orchestrator.engine.client.spawn import launch, signal_name
from orchestrator.engine.client.watchdog import Watchdog
from orchestrator.engine.contract import (
    MAX_PROMPT_BYTES,
    Embeddings,
    EngineSpec,
    EngineStats,
    Finish,
    Generation,
    HeldPrefix,
    Message,
    ModelInfo,
    OfferedTool,
    PrefixFile,
    Ranking,
    TokenizedText,
    TokenLogprob,
    ToolCall,
    texts_problem,
)
from orchestrator.engine.errors import (
    BadRequest,
    EngineDied,
    EngineHung,
    EngineStopped,
    MachineLost,
    ModelLoadFailed,
    not_started,
)
from orchestrator.engine.protocol import (
    VERSION,
    Cancel,
    Count,
    Counted,
    Detokenize,
    Embed,
    Embedded,
    EngineCommand,
    Export,
    Exported,
    Failed,
    Finished,
    Frames,
    GetStats,
    Heartbeat,
    Hurry,
    Load,
    LoadFailed,
    Locate,
    Located,
    Prompts,
    ProtocolError,
    Queued,
    Ready,
    Render,
    Rendered,
    Reply,
    SetThreads,
    Shutdown,
    Started,
    Stats,
    Submit,
    Texts,
    Tokenize,
    Tokenized,
    decode_reply,
    encode,
)
from orchestrator.registry.options import Adapters
from orchestrator.registry.thinking import Thinking
from orchestrator.task import stages
from orchestrator.task.events import Usage

OnText = Callable[[str], None]  # with `logprobs` it gets a `TextPiece`; it may raise `StopGenerating`
NO_ADAPTERS: Final[Mapping[str, str]] = MappingProxyType({})
_STOP_SECONDS = 5.0  # after Shutdown, before the process is killed
_EXIT_SECONDS = 1.0  # after the process has closed its socket, before it is killed


class TextPiece(str):
    """A piece of text with the log probabilities of its tokens."""

    __slots__ = ("logprobs",)

    def __new__(cls, text: str, logprobs: Sequence[TokenLogprob]) -> Self:
        piece = super().__new__(cls, text)
        piece.logprobs = tuple(logprobs)
        return piece

    logprobs: tuple[TokenLogprob, ...]


class StopGenerating(Exception):
    """Raised by an `on_text` callback to end the text.

    The completion so far is returned, with the finish "cancelled".
    """


@dataclass(frozen=True, slots=True)
class Completion:
    text: str
    finish: Finish  # any value but "stop" means that the model would have continued
    usage: Usage
    reasoning: str = ""  # the thoughts before the text, which are not part of it
    stop_string: str = ""  # the stop string that ended the text; empty if none did or a remote server does not say it
    calls: tuple[ToolCall, ...] = ()  # tool calls that were removed from the text. An engine does not parse them.
    logprobs: tuple[TokenLogprob, ...] = ()  # the tokens of the text, if the request has `logprobs`
    prompt_logprobs: tuple[TokenLogprob, ...] = ()
    """The tokens of the prompt, if the request has `prompt_logprobs`. The first one has logprob 0 and no `top`."""
    prompt_blocks: bytes = b""  # digests of `reuse.DIGEST_BYTES` for the whole blocks of the prompt; b"" if unknown


@dataclass(slots=True)
class _Waiting:
    future: asyncio.Future[Any]
    on_text: OnText | None = None
    on_thought: OnText | None = None
    on_stage: stages.OnStage | None = None
    queued: bool = False  # in the engine's queue, so it cannot have caused the end of the process
    prompt_blocks: bytes = b""  # once it has left the queue


class Engine(asyncio.Protocol):
    """One engine process, as its parent uses it.

    Use it from the event loop that started it. Once the process has ended, `died` is set, and every pending and later
    call raises EngineDied (or EngineHung, EngineStopped). `adapters` are files of adapters in the process by the names
    that requests have for them, if these differ.
    """

    info: ModelInfo

    def __init__(self, spec: EngineSpec, child: ProcessHandle, adapters: Mapping[str, str] = NO_ADAPTERS) -> None:
        self.spec = spec
        self._adapters = adapters
        self.died = asyncio.Event()
        self.failure: EngineDied | None = None
        self.lost_prompts: list[bytes] = []
        self._loop = asyncio.get_running_loop()
        self._child = child
        self._transport: asyncio.Transport | None = None
        self._unsent: list[bytes] = []
        self._frames = Frames()
        self._ids = itertools.count(1)
        self._waiting: dict[int, _Waiting] = {}
        self._loading: asyncio.Future[ModelInfo] = self._loop.create_future()
        self._ending: EngineDied | None = None
        self._exited = False
        self._open_socket = True
        self._watchdog = Watchdog(
            spec.load_seconds,
            has_work=self._has_work,
            worked=child.worked,
            on_hung=self._on_hung,
            call_later=self._loop.call_later,
        )
        self._exit_timer: asyncio.TimerHandle | None = None

    # Start and stop

    @classmethod
    async def start(cls, spec: EngineSpec) -> Self:
        """Start a process and load the model. Raises ModelLoadFailed after the process has ended."""
        problem = spec.problem()
        if problem:
            raise ModelLoadFailed(spec.file, "settings", problem)
        try:
            child = launch(spec)
        except OSError as error:
            raise ModelLoadFailed(spec.file, "died", f"the engine process cannot be started: {error}") from error
        return await cls.load(spec, child)

    @classmethod
    async def load(cls, spec: EngineSpec, child: ProcessHandle, adapters: Mapping[str, str] = NO_ADAPTERS) -> Self:
        """Load the model in a process that was started. Raises ModelLoadFailed after the process has ended."""
        engine = cls(spec, child, adapters)
        try:
            engine.info = await engine._open()
        except EngineDied as error:
            kind: errors.LoadFailure = "died"
            if isinstance(error, EngineHung | MachineLost):
                kind = "hung" if isinstance(error, EngineHung) else "lost"
            raise ModelLoadFailed(spec.file, kind, str(error), log=error.log) from error
        except OSError as error:
            await engine._kill_and_wait()
            raise ModelLoadFailed(spec.file, "died", f"the engine process cannot be connected to: {error}") from error
        except BaseException:
            await engine._kill_and_wait()
            raise
        return engine

    async def stop(self) -> None:
        """End the process with Shutdown, after 5 seconds with SIGKILL. Pending requests raise EngineStopped."""
        if not self.died.is_set():
            self._begin_end(EngineStopped("the engine was stopped"), kill=False)
            self._send(Shutdown())
            try:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_STOP_SECONDS):
                        await self.died.wait()
            finally:
                await self._kill_and_wait()

    async def wait_dead(self) -> EngineDied:
        """Wait until the process has ended, and return the error that says how."""
        await self.died.wait()
        return self.failure or EngineDied("the engine process ended")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # Requests

    async def generate(
        self, request: Generation, on_text: OnText | None = None, on_thought: OnText | None = None
    ) -> Completion:
        """Generate a text. Cancelling the task cancels the request in the engine.

        `on_text` is called with pieces of the text, in whole characters, and `on_thought` with pieces of the thoughts.

        Raises BadRequest, BadPrompt, BadGrammar, PromptTooLong, BrokenModel, EngineDied (NotStarted if the request was
        still queued), or what `on_text` or `on_thought` raises.
        """
        self._check_kind("write")
        try:
            problem = request.problem()
        except UnicodeEncodeError as error:
            raise BadRequest(f"text that is not valid Unicode: {error}") from error
        if problem:
            raise BadRequest(problem)
        seed = random.getrandbits(64) if request.seed is None else request.seed
        grammar = request.grammar
        if request.schema is not None:
            schema = request.schema
            grammar = kept_schema_grammar(schema) or await asyncio.to_thread(schema_grammar, schema)
        wire = dataclasses.replace(request, schema=None, grammar=grammar, seed=seed, lora=self._named(request.lora))
        streamed = on_text is not None or on_thought is not None
        waiting = _Waiting(self._loop.create_future(), on_text, on_thought, stages.listener())
        reply: Finished = await self._ask(lambda seq: Submit(seq, wire, streamed, request.schema is not None), waiting)
        usage = Usage(
            prompt_tokens=reply.prompt_tokens,
            cached_tokens=reply.cached_tokens,
            output_tokens=reply.output_tokens,
            queued_seconds=reply.queued_seconds,
            prefill_seconds=reply.prefill_seconds,
            decode_seconds=reply.decode_seconds,
            reasoning_tokens=reply.reasoning_tokens,
            work_seconds=reply.work_seconds,
            alone_seconds=reply.alone_seconds,
            packed_seconds=reply.packed_seconds,
            reuse=reply.reuse,
            drafted_tokens=reply.drafted_tokens,
            accepted_tokens=reply.accepted_tokens,
        )
        stop = reply.stop_string if reply.stop_string in request.stop else ""  # not one of the chat template's own
        return Completion(
            reply.text,
            reply.finish,
            usage,
            reply.reasoning,
            stop,
            logprobs=reply.logprobs,
            prompt_logprobs=reply.prompt_logprobs,
            prompt_blocks=waiting.prompt_blocks,
        )

    async def count(
        self, messages: Sequence[Message], tools: Sequence[OfferedTool] = (), thinking: Thinking = "auto"
    ) -> int:
        """Return the number of tokens in the prompt for these messages and tools.

        Raises BadRequest, BadPrompt, EngineDied.
        """
        self._check_kind("write")
        counted: Counted = await self._ask(lambda seq: Count(seq, tuple(messages), tuple(tools), thinking))
        return counted.tokens

    async def tokenize(self, text: str, *, special: bool = True, whole: bool = False) -> TokenizedText:
        """Return the tokens of a text, in any kind of engine.

        With `special`, names of control tokens in the text mean these tokens. With `whole`, the tokens that the model
        needs around its whole input are added, such as BOS. Raises BadRequest, EngineDied.
        """
        if len(text) > MAX_PROMPT_BYTES:
            raise BadRequest("the text is above 64 MiB")
        reply: Tokenized = await self._ask(lambda seq: Tokenize(seq, text, special, whole))
        return TokenizedText(reply.tokens, reply.pieces)

    async def detokenize(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, with names of control tokens. Invalid UTF-8 becomes U+FFFD.

        Raises BadRequest for an id outside of the vocabulary, and EngineDied.
        """
        reply: Rendered = await self._ask(lambda seq: Detokenize(seq, tuple(tokens)))
        return reply.text

    async def render(
        self,
        messages: Sequence[Message],
        arguments: Mapping[str, bool | int | float | str | None] | None = None,
        tools: Sequence[OfferedTool] = (),
    ) -> str:
        """Render messages and tools with the model's chat template. `arguments` are its variables.

        Raises BadRequest, BadPrompt, EngineDied.
        """
        self._check_kind("write")
        reply: Rendered = await self._ask(lambda seq: Render(seq, tuple(messages), dict(arguments or {}), tuple(tools)))
        return reply.text

    async def locate(self, request: Generation) -> HeldPrefix:
        """Return how much of a request's prompt need not be computed. Raises EngineError."""
        self._check_kind("write")
        wire = self._only_prompt(request)
        reply: Located = await self._ask(lambda seq: Locate(seq, wire))
        return reply.held

    async def export(self, request: Generation, key: str, least: int) -> PrefixFile | None:
        """Return a file with the KV cells of at least `least` tokens of a request's prompt, for an engine with `key`.

        The file is written between steps if there is none yet. Returns None if the engine does not hold as many
        tokens, has another key, or has no room for the file. Raises EngineError.
        """
        self._check_kind("write")
        wire = self._only_prompt(request)
        reply: Exported = await self._ask(lambda seq: Export(seq, wire, key, least))
        return reply.file

    async def embed(self, texts: Sequence[str]) -> Embeddings:
        """Make a vector of each text. Cancelling the task cancels the request in the engine.

        Raises BadRequest, TextTooLong, BrokenModel, EngineDied.
        """
        self._check_kind("embed texts")
        if problem := texts_problem(texts):
            raise BadRequest(problem)
        reply: Embedded = await self._ask(lambda seq: Embed(seq, tuple(texts)))
        return Embeddings(np.frombuffer(reply.vectors, "<f4").reshape(len(texts), -1), reply.tokens)

    async def rank(self, query: str, texts: Sequence[str]) -> Ranking:
        """Score the relevance of each text to a query. Cancelling the task cancels the request in the engine.

        Raises what `embed` raises; TextTooLong if query and text together are too long.
        """
        self._check_kind("rank texts")
        if problem := texts_problem([query, *texts]) or texts_problem(texts):
            raise BadRequest(problem)
        reply: Embedded = await self._ask(lambda seq: Embed(seq, tuple(texts), query))
        return Ranking(tuple(np.frombuffer(reply.vectors, "<f4").tolist()), reply.tokens)

    def _only_prompt(self, request: Generation) -> Generation:
        return dataclasses.replace(request, schema=None, grammar=None, guided=None, lora=self._named(request.lora))

    def _named(self, lora: Adapters) -> Adapters:
        return tuple(
            dataclasses.replace(adapter, file=self._adapters.get(adapter.file, adapter.file)) for adapter in lora
        )

    def _check_kind(self, task: Literal["write", "embed texts", "rank texts"]) -> None:
        can = "rank texts" if self.spec.ranks else "embed texts" if self.spec.embeds else "write"
        if can != task:
            raise BadRequest(f"the model is loaded to {can}, and was asked to {task}")

    async def stats(self) -> EngineStats:
        """Raises EngineDied."""
        answer: Stats = await self._ask(GetStats)
        return answer.stats

    async def set_threads(self, threads: int) -> None:
        """Let the engine use up to this many threads from its next step on; 0 pauses it.

        Raises EngineDied, and ValueError for a number outside of 0 to 1024.
        """
        if not 0 <= threads <= 1024:
            raise ValueError(f"threads is {threads}; accepted: 0 to 1024")
        self._send(SetThreads(threads))

    async def _ask(self, command: Callable[[int], EngineCommand], waiting: _Waiting | None = None) -> Any:
        seq = next(self._ids)
        waiting = waiting or _Waiting(self._loop.create_future(), on_stage=stages.listener())
        message = command(seq)
        self._send(message)
        if not self._waiting:
            self._watchdog.signal()  # until now it had no work
        self._waiting[seq] = waiting
        self._watchdog.start()
        try:
            if not isinstance(message, Submit):
                return await waiting.future
            with stages.heeding(lambda: self._steer(Hurry(seq))):
                return await waiting.future
        finally:
            self._waiting.pop(seq, None)
            if not waiting.future.done() or waiting.future.cancelled():
                self._steer(Cancel(seq))

    def _steer(self, command: Cancel | Hurry) -> None:
        if self._ending is None:
            self._send(command)

    def _send(self, command: EngineCommand) -> None:
        # Raises EngineDied, BadRequest. All commands of one turn of the event loop are sent together, so that requests
        # made at the same time share their first step.
        if self._ending is not None and not isinstance(command, Shutdown):
            raise not_started(self.failure or self._ending)
        try:
            frame = encode(command)
        except UnicodeEncodeError as error:
            raise BadRequest(f"text that is not valid Unicode: {error}") from error
        if not self._unsent:
            self._loop.call_soon(self._write)
        self._unsent.append(frame)

    def _write(self) -> None:
        if self._transport is not None:
            self._transport.write(b"".join(self._unsent))  # asyncio buffers what the socket does not take
        self._unsent.clear()

    # Replies of the process

    async def _open(self) -> ModelInfo:
        self._loop.add_reader(self._child.ended, self._process_exited)
        try:
            await self._loop.create_connection(lambda: self, sock=self._child.socket)
        except BaseException:
            self._open_socket = False
            self._child.socket.close()
            raise
        self._send(Load(VERSION, self.spec))
        self._watchdog.start()
        return await self._loading

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._watchdog.signal()
        try:
            for body in self._frames.feed(data):
                self._handle(decode_reply(body))
        except ProtocolError as error:
            self._begin_end(EngineDied(self._describe_end(f"sent what is no reply ({error}) and was killed")))

    def _handle(self, reply: Reply) -> None:
        match reply:
            case Queued(seqs):
                self._note_queued(seqs, queued=True)
            case Started(seqs, prompts):
                self._note_queued(seqs, queued=False)
                self._note_prompts(seqs, prompts)
            case Prompts():
                self._tell_stages(reply)
            case Texts():
                self._stream_texts(reply)
            case (
                Finished(seq)
                | Counted(seq)
                | Tokenized(seq)
                | Rendered(seq)
                | Located(seq)
                | Exported(seq)
                | Embedded(seq)
                | Stats(seq)
            ):
                self._watchdog.set_limit(self.spec.hung_seconds)
                self._resolve(seq, reply)
            case Failed():
                self._fail(reply)
            case Heartbeat(seconds):
                if self._loading.done():
                    self._watchdog.set_limit(max(self.spec.hung_seconds, 5 * seconds))
            case Ready() | LoadFailed():
                self._loaded(reply)

    def _loaded(self, reply: Ready | LoadFailed) -> None:
        if self._loading.done():
            return
        if isinstance(reply, Ready):
            self._loading.set_result(reply.info)
            self._watchdog.set_limit(self.spec.hung_seconds)
        else:
            kind = cast(errors.LoadFailure, reply.kind)
            failure = ModelLoadFailed(self.spec.file, kind, reply.message, log=self._child.log_tail())
            self._loading.set_exception(failure)

    def _stream(self, seq: int, text: str, *, thought: bool = False) -> None:
        waiting = self._waiting.get(seq)
        if waiting is None or waiting.future.done():
            return
        take = waiting.on_thought if thought else waiting.on_text
        if take is None:
            return
        try:
            take(text)
        except StopGenerating:
            waiting.on_text = waiting.on_thought = (
                None  # pieces that are on their way are dropped; only Finished is waited for
            )
            self._steer(Cancel(seq))
        except Exception as error:  # noqa: BLE001 (the caller's callback: its error is the caller's, not the engine's)
            waiting.future.set_exception(error)
            self._steer(Cancel(seq))

    def _note_queued(self, seqs: Sequence[int], *, queued: bool) -> None:
        for seq in seqs:
            if (waiting := self._waiting.get(seq)) is not None:
                waiting.queued = queued

    def _note_prompts(self, seqs: Sequence[int], prompts: Sequence[bytes]) -> None:
        for seq, blocks in zip(seqs, prompts, strict=True):
            if (waiting := self._waiting.get(seq)) is not None:
                waiting.prompt_blocks = blocks

    def _tell_stages(self, reply: Prompts) -> None:
        for seq, ahead in reply.queued:
            self._tell(seq, stages.QueuePlace(ahead))
        for seq, tokens, prompt_tokens in reply.read:
            self._tell(seq, stages.PromptRead(tokens, prompt_tokens))

    def _tell(self, seq: int, stage: stages.Stage) -> None:
        waiting = self._waiting.get(seq)
        if waiting is not None and waiting.on_stage is not None and not waiting.future.done():
            waiting.on_stage(stage)

    def _stream_texts(self, reply: Texts) -> None:
        self._watchdog.set_limit(self.spec.hung_seconds)  # a longer step is announced again
        for seq, text in reply.thoughts:
            self._stream(seq, text, thought=True)
        tokens = dict(reply.logprobs)
        for seq, text in reply.texts:
            self._stream(seq, TextPiece(text, tokens[seq]) if seq in tokens else text)

    def _resolve(self, seq: int, reply: Reply) -> None:
        waiting = self._waiting.get(seq)
        if waiting is not None and not waiting.future.done():
            waiting.future.set_result(reply)

    def _fail(self, reply: Failed) -> None:
        waiting = self._waiting.get(reply.seq)
        if waiting is not None and not waiting.future.done():
            waiting.future.set_exception(errors.parse_error(reply.kind, reply.message, reply.numbers))

    # The end: the process exits, closes its socket, hangs, or is stopped. The first cause is the one that is reported.

    def _has_work(self) -> bool:
        return self._ending is None and bool(self._waiting or not self._loading.done())

    def _on_hung(self) -> None:
        states = self._child.states()
        if states & {"T", "t"}:
            how = "was stopped by a signal or a debugger"
        elif "D" in states:
            how = "waited for a device without any progress"
        else:
            how = "was blocked, using no CPU time,"
        self._begin_end(EngineHung(self._describe_end(f"{how} for {self._watchdog.limit:g} s and was killed")))

    def _describe_end(self, event: str) -> str:
        where = f"; its log is in {self.spec.log_file}" if self.spec.log_file else ""
        return f"the engine process of {self.spec.shown_name}{self._child.place} {event}{where}"

    def _begin_end(self, failure: EngineDied, kill: bool = True) -> None:
        if self._ending is None:
            self._ending = failure
        if kill:
            self._child.kill()

    def connection_lost(self, error: Exception | None) -> None:
        # Called by asyncio. The process is about to exit, and its exit code will say why.
        self._transport = None
        self._open_socket = False
        if not self._exited:
            self._exit_timer = self._loop.call_later(_EXIT_SECONDS, self._on_no_exit)
        self._finish()

    def _on_no_exit(self) -> None:
        self._begin_end(EngineDied(self._describe_end("closed its connection without exiting and was killed")))

    def _process_exited(self) -> None:
        self._loop.remove_reader(self._child.ended)
        self._exited = True
        self._finish()

    def _finish(self) -> None:
        # Requests fail only after the process has exited and all its replies have been read.
        if not self._exited or self._open_socket or self.died.is_set():
            return
        self.failure = self._ending = self._exit_error()
        self._watchdog.stop()
        if self._exit_timer is not None:
            self._exit_timer.cancel()
        if not self._loading.done():
            self._loading.set_exception(self.failure)
        self.lost_prompts = [waiting.prompt_blocks for waiting in self._waiting.values()]
        for waiting in self._waiting.values():
            if not waiting.future.done():
                failure = not_started(self.failure) if waiting.queued else self.failure
                waiting.future.set_exception(failure)
        if self._loading.done() and not self._loading.cancelled():
            self._loading.exception()  # marks it as retrieved: `start` raises its own error
        self._child.release()
        self.died.set()

    def _exit_error(self) -> EngineDied:
        code, log = self._child.exit_code(), self._child.log_tail()
        if self._ending is None:
            error = MachineLost if self._child.lost else EngineDied
            message = self._describe_end(self._child.describe_end())
        else:
            error, message = type(self._ending), str(self._ending)
        return error(message, signal=signal_name(code), exit_code=code, log=log)

    async def _kill_and_wait(self) -> None:
        self._begin_end(EngineStopped("the engine was stopped"))
        await asyncio.shield(self.died.wait())
