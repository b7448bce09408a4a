"""Simulated engines without processes: a function gives the time of each step, and another one the answers."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from orchestrator.engine.client.engine import Completion, OnText
from orchestrator.engine.contract import (
    Embeddings,
    EngineSpec,
    EngineStats,
    Generation,
    Message,
    ModelInfo,
    OfferedTool,
    Ranking,
    TokenizedText,
)
from orchestrator.engine.errors import EngineDied, EngineStopped
from orchestrator.engine.worker.priority import priority
from orchestrator.events import Usage

GATHERING_SECONDS = 1e-6
"""Delay before a step, so that requests of the same moment are in the same step in whatever order they come."""

BLOCK: Final = 64
"""The characters of a block of a prompt: prefixes are shared by whole blocks."""


@dataclass(frozen=True, slots=True)
class StepLoad:
    """What one step computes."""

    sequences: int
    """The sequences that get a token each."""
    prompt_tokens: int
    """The tokens of prompts that are read in it."""
    cells: int
    """The tokens that the sequences attend to, together."""
    threads: int


StepSeconds = Callable[[StepLoad], float]
"""Returns how long a step takes, in seconds."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a simulated model writes."""

    text: str
    tokens: int
    """How many tokens it has, the end included: there is a step for each."""


Write = Callable[[Generation], Answer]


def words(text: str) -> Answer:
    """Return an answer with a token for each word and one for the end."""
    return Answer(text, len(text.split()) + 1)


@dataclass(slots=True, eq=False)
class _Sequence:
    request: Generation
    answer: Answer
    prompt_tokens: int
    left: int
    asked: float
    done: asyncio.Future[Completion]
    begun: float = 0.0
    cached_tokens: int = 0
    unread: int = 0
    """The tokens of its prompt that no step has read."""
    read: float = 0.0
    """When its prompt was read."""
    work: float = 0.0
    alone: float = 0.0
    packed: float = 0.0
    """As in `Usage`, in seconds."""

    @property
    def cells(self) -> int:
        """The tokens that its next token attends to."""
        return self.prompt_tokens + self.answer.tokens - self.left


class SimulatedEngine:
    """Decodes as many sequences at a time as it has slots, in the order of priority of a real engine."""

    def __init__(self, spec: EngineSpec, info: ModelInfo, step_seconds: StepSeconds, write: Write) -> None:
        self.spec = spec
        self.info = info
        self.died = asyncio.Event()
        self.failure: EngineDied | None = None
        self.steps = 0
        self._step_seconds = step_seconds
        self._write = write
        self._loop = asyncio.get_running_loop()
        self._threads = spec.threads or 1
        self._waiting: list[_Sequence] = []
        self._running: list[_Sequence] = []
        self._prefixes: set[int] = set()
        self._step: asyncio.TimerHandle | None = None

    async def generate(
        self, request: Generation, on_text: OnText | None = None, on_thought: OnText | None = None
    ) -> Completion:
        """Return the answer of `write`, after a step for each of its tokens. Its first step reads the prompt too."""
        if self.failure is not None:
            raise self.failure
        answer, tokens = self._write(request), _tokens(request.messages)
        one = _Sequence(request, answer, tokens, answer.tokens, self._loop.time(), self._loop.create_future())
        self._waiting.append(one)
        self._schedule()
        try:
            completion = await one.done
        finally:
            for place in (self._waiting, self._running):
                if one in place:
                    place.remove(one)
        if on_text is not None:
            on_text(completion.text)
        return completion

    async def count(self, messages: Sequence[Message], tools: Sequence[OfferedTool] = ()) -> int:
        """Return the number of words."""
        return _tokens(messages)

    async def tokenize(self, text: str, *, special: bool = True, whole: bool = False) -> TokenizedText:
        """Return a token for each word, whose id is its place."""
        words = text.split()
        return TokenizedText(tuple(range(len(words))), tuple(word.encode() for word in words))

    async def detokenize(self, tokens: Sequence[int]) -> str:
        """Return the ids, since simulated tokens have no text."""
        return " ".join(map(str, tokens))

    async def render(
        self,
        messages: Sequence[Message],
        arguments: Mapping[str, bool | int | float | str | None] | None = None,
        tools: Sequence[OfferedTool] = (),
    ) -> str:
        """Return the contents of the messages, in lines."""
        return "\n".join(message.content for message in messages)

    async def embed(self, texts: Sequence[str]) -> Embeddings:
        """Return a vector of one 1 for each text."""
        return Embeddings(np.ones((len(texts), 1), dtype=np.float32), len(texts))

    async def rank(self, query: str, texts: Sequence[str]) -> Ranking:
        """Return the score 1 for each text."""
        return Ranking((1.0,) * len(texts), len(texts))

    async def stats(self) -> EngineStats:
        """Return how many steps there were, and how many sequences are running and queued."""
        if self.failure is not None:
            raise self.failure
        return EngineStats(steps=self.steps, running=len(self._running), queued=len(self._waiting))

    async def set_threads(self, threads: int) -> None:
        """Set the threads of the next steps; with 0 the engine pauses."""
        self._threads = threads
        self._schedule()

    async def stop(self) -> None:
        """Stop the engine."""
        self.die(EngineStopped("the engine was stopped"))

    async def wait_dead(self) -> EngineDied:
        """Wait until the engine has ended, and return why."""
        await self.died.wait()
        assert self.failure is not None
        return self.failure

    def die(self, failure: EngineDied) -> None:
        """End the engine now, and fail all its requests with this failure."""
        if self.failure is not None:
            return
        self.failure = failure
        self.died.set()
        if self._step is not None:
            self._step.cancel()
        for one in (*self._waiting, *self._running):
            if not one.done.done():
                one.done.set_exception(failure)

    def _schedule(self) -> None:
        """Schedule a step, unless one is scheduled or there is nothing to do."""
        if self._step is None and self._threads and self.failure is None and (self._waiting or self._running):
            self._step = self._loop.call_later(GATHERING_SECONDS, self._run_step)

    def _run_step(self) -> None:
        self._step = None
        if not self._threads:
            return
        self._waiting.sort(key=lambda one: priority(one.asked, one.asked + one.request.slack))
        while self._waiting and len(self._running) < self.spec.slots:
            one = self._waiting.pop(0)
            one.begun = self._loop.time()
            one.cached_tokens = min(one.prompt_tokens - 1, round(one.prompt_tokens * self._shared(one.request)))
            one.unread = one.prompt_tokens - one.cached_tokens
            self._running.append(one)
        if self._running:
            unread = sum(one.unread for one in self._running)
            cells = sum(one.cells for one in self._running)
            seconds = self._step_seconds(StepLoad(len(self._running), unread, cells, self._threads))
            self._share(seconds)
            self._step = self._loop.call_later(seconds, self._finish_step, tuple(self._running))

    def _finish_step(self, together: tuple[_Sequence, ...]) -> None:
        self._step = None
        self.steps += 1
        for one in together:
            if one.unread:
                one.unread, one.read = 0, self._loop.time()
            one.left -= 1
            if not one.left and not one.done.done():
                self._running.remove(one)
                one.done.set_result(self._completion(one))
        self._schedule()

    def _share(self, seconds: float) -> None:
        """Divide a step's time among its sequences, in proportion to what each would have taken alone."""
        one_token = self._step_seconds(StepLoad(1, 0, 0, self._threads))
        widths = range(1, self.spec.slots + 1)
        packing = min(self._step_seconds(StepLoad(width, 0, 0, self._threads)) / width for width in widths) / one_token
        alone = [self._step_seconds(StepLoad(1, one.unread, one.cells, self._threads)) for one in self._running]
        for one, took in zip(self._running, alone, strict=True):
            reading = took - self._step_seconds(StepLoad(1, 0, one.cells, self._threads))
            one.work += seconds * took / sum(alone)
            one.alone += took
            one.packed += reading + packing * (took - reading)

    def _shared(self, request: Generation) -> float:
        """Return which part of a prompt was the beginning of one before, and remember the whole of it.

        Requests of one moment share too: a real engine reads what they have in common once.
        """
        text = "\0".join(message.content for message in request.messages)
        known, chain, whole = 0, 0, max(1, len(text) // BLOCK)
        for at in range(whole):
            chain = hash((chain, text[at * BLOCK : (at + 1) * BLOCK]))
            known += chain in self._prefixes and known == at
            self._prefixes.add(chain)
        return known / whole

    def _completion(self, one: _Sequence) -> Completion:
        now = self._loop.time()
        usage = Usage(
            prompt_tokens=one.prompt_tokens,
            cached_tokens=max(0, one.cached_tokens),
            output_tokens=one.answer.tokens,
            queued_seconds=one.begun - one.asked,
            prefill_seconds=max(0.0, one.read - one.begun),
            decode_seconds=now - max(one.read, one.begun),
            work_seconds=one.work,
            alone_seconds=one.alone,
            packed_seconds=one.packed,
        )
        return Completion(one.answer.text, "stop", usage)


@dataclass
class SimulatedMachine:
    """Starts simulated engines."""

    step_seconds: Callable[[str], StepSeconds]
    """Returns how long the steps of the model in a file take."""
    write: Write
    load_seconds: Callable[[str], float] = field(default=lambda file: 1.0)
    """Returns how long loading the model in a file takes."""
    engines: list[SimulatedEngine] = field(default_factory=list)
    """All engines that were ever started."""

    async def start(self, spec: EngineSpec) -> SimulatedEngine:
        """Return an engine, after the time that loading takes."""
        seconds = self.load_seconds(spec.file)
        await asyncio.sleep(seconds)
        engine = SimulatedEngine(spec, model_info(spec, seconds), self.step_seconds(spec.file), self.write)
        self.engines.append(engine)
        return engine


def _tokens(messages: Sequence[Message]) -> int:
    return max(1, sum(len(message.content.split()) for message in messages))


def model_info(spec: EngineSpec, load_seconds: float) -> ModelInfo:
    """Return the description of a simulated engine's model."""
    context = spec.context or 4096
    return ModelInfo(
        pid=0,  # no process, so its memory cannot be measured
        description="simulated",
        architecture="simulated",
        parameters=0,
        bytes=0,
        vocabulary=1,
        context=context,
        training_context=context,
        cells=context * spec.slots,
        slots=spec.slots,
        threads=spec.threads or 1,
        chat_template=True,
        bos="",
        eos="",
        shares_prefixes=False,
        batch_invariant=spec.batch_invariant,
        split_cache=True,
        llama_cpp="",
        load_seconds=load_seconds,
    )
