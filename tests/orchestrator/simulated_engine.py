"""Engines without processes: they take the time that a cost curve says, and write what they are told to."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from orchestrator.engine.client.engine import Completion, OnText
from orchestrator.engine.contract import Embeddings, EngineSpec, EngineStats, Generation, ModelInfo
from orchestrator.engine.errors import EngineDied, EngineStopped
from orchestrator.events import Usage

GATHERING_SECONDS = 1e-6
"""What is asked for at the same moment is in the same step, in whichever order the event loop comes to it."""

Curve = Callable[[int, int], float]
"""The seconds of a step in which so many sequences get a token each, with so many threads."""


@dataclass(slots=True, eq=False)
class _Sequence:
    request: Generation
    left: int
    asked: float
    done: asyncio.Future[Completion]
    begun: float = 0.0


class SimulatedEngine:
    """Decodes as many sequences together as it has slots, those with the least slack first."""

    def __init__(self, spec: EngineSpec, info: ModelInfo, curve: Curve, write: Callable[[Generation], str]) -> None:
        self.spec = spec
        self.info = info
        self.died = asyncio.Event()
        self.failure: EngineDied | None = None
        self.steps = 0
        self._curve = curve
        self._write = write
        self._loop = asyncio.get_running_loop()
        self._threads = spec.threads or 1
        self._waiting: list[_Sequence] = []
        self._running: list[_Sequence] = []
        self._step: asyncio.TimerHandle | None = None

    async def generate(self, request: Generation, on_text: OnText | None = None) -> Completion:
        """Write what `write` says, a token for each word and one for the end."""
        if self.failure is not None:
            raise self.failure
        left = len(self._write(request).split()) + 1
        one = _Sequence(request, left, self._loop.time(), self._loop.create_future())
        self._waiting.append(one)
        self._go_on()
        try:
            completion = await one.done
        finally:
            for place in (self._waiting, self._running):
                if one in place:
                    place.remove(one)
        if on_text is not None:
            on_text(completion.text)
        return completion

    async def count(self, messages: Sequence[tuple[str, str]]) -> int:
        """Count words."""
        return sum(len(text.split()) for _, text in messages)

    async def embed(self, texts: Sequence[str]) -> Embeddings:
        """Return vectors of ones."""
        return Embeddings(np.ones((len(texts), 1), dtype=np.float32), len(texts))

    async def stats(self) -> EngineStats:
        """Return how many steps there were."""
        if self.failure is not None:
            raise self.failure
        return EngineStats(steps=self.steps, running=len(self._running), queued=len(self._waiting))

    async def set_threads(self, threads: int) -> None:
        """Take effect with the next step; rest with 0."""
        self._threads = threads
        self._go_on()

    async def stop(self) -> None:
        """End it."""
        self.die(EngineStopped("the engine was stopped"))

    async def wait_dead(self) -> EngineDied:
        """Wait until it has ended."""
        await self.died.wait()
        assert self.failure is not None
        return self.failure

    def die(self, failure: EngineDied) -> None:
        """End now, with this failure."""
        if self.failure is not None:
            return
        self.failure = failure
        self.died.set()
        if self._step is not None:
            self._step.cancel()
        for one in (*self._waiting, *self._running):
            if not one.done.done():
                one.done.set_exception(failure)

    def _go_on(self) -> None:
        """Begin with a step, unless one is under way or there is nothing to do."""
        if self._step is None and self._threads and self.failure is None and (self._waiting or self._running):
            self._step = self._loop.call_later(GATHERING_SECONDS, self._begin)

    def _begin(self) -> None:
        self._step = None
        if not self._threads:
            return
        self._waiting.sort(key=lambda one: one.asked + one.request.slack)
        while self._waiting and len(self._running) < self.spec.slots:
            one = self._waiting.pop(0)
            one.begun = self._loop.time()
            self._running.append(one)
        if self._running:
            seconds = self._curve(len(self._running), self._threads)
            self._step = self._loop.call_later(seconds, self._stepped, tuple(self._running))

    def _stepped(self, together: tuple[_Sequence, ...]) -> None:
        self._step = None
        self.steps += 1
        for one in together:
            one.left -= 1
            if not one.left and not one.done.done():
                self._running.remove(one)
                one.done.set_result(self._completion(one))
        self._go_on()

    def _completion(self, one: _Sequence) -> Completion:
        text, now = self._write(one.request), self._loop.time()
        usage = Usage(
            prompt_tokens=sum(len(said.split()) for _, said in one.request.messages),
            output_tokens=len(text.split()) + 1,
            queued_seconds=one.begun - one.asked,
            decode_seconds=now - one.begun,
        )
        return Completion(text, "stop", usage)


@dataclass
class SimulatedMachine:
    """Starts simulated engines, which load in `load_seconds`. `engines` are all that were ever started."""

    curve: Curve
    write: Callable[[Generation], str]
    load_seconds: float = 1.0
    engines: list[SimulatedEngine] = field(default_factory=list)

    async def start(self, spec: EngineSpec) -> SimulatedEngine:
        """Load a model."""
        await asyncio.sleep(self.load_seconds)
        engine = SimulatedEngine(spec, model_info(spec, self.load_seconds), self.curve, self.write)
        self.engines.append(engine)
        return engine


def model_info(spec: EngineSpec, load_seconds: float) -> ModelInfo:
    """Return what a simulated engine says of its model."""
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
