"""Simulated engines without processes: a curve gives the time of each step, and a function the answers."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from orchestrator.engine.client.engine import Completion, OnText
from orchestrator.engine.contract import Embeddings, EngineSpec, EngineStats, Generation, Message, ModelInfo
from orchestrator.engine.errors import EngineDied, EngineStopped
from orchestrator.events import Usage

GATHERING_SECONDS = 1e-6
"""Delay before a step, so that requests of the same moment are in the same step in whatever order they come."""

Curve = Callable[[int, int], float]
"""The seconds of a step, by the number of sequences that get a token each and the number of threads."""


@dataclass(slots=True, eq=False)
class _Sequence:
    request: Generation
    left: int
    asked: float
    done: asyncio.Future[Completion]
    begun: float = 0.0


class SimulatedEngine:
    """Decodes as many sequences at a time as it has slots, in order of their time of arrival plus slack."""

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

    async def generate(
        self, request: Generation, on_text: OnText | None = None, on_thought: OnText | None = None
    ) -> Completion:
        """Return the answer of `write`, after a step for each of its words and one for the end."""
        if self.failure is not None:
            raise self.failure
        left = len(self._write(request).split()) + 1
        one = _Sequence(request, left, self._loop.time(), self._loop.create_future())
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

    async def count(self, messages: Sequence[Message]) -> int:
        """Return the number of words."""
        return sum(len(message.content.split()) for message in messages)

    async def embed(self, texts: Sequence[str]) -> Embeddings:
        """Return a vector of one 1 for each text."""
        return Embeddings(np.ones((len(texts), 1), dtype=np.float32), len(texts))

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
        self._waiting.sort(key=lambda one: one.asked + one.request.slack)
        while self._waiting and len(self._running) < self.spec.slots:
            one = self._waiting.pop(0)
            one.begun = self._loop.time()
            self._running.append(one)
        if self._running:
            seconds = self._curve(len(self._running), self._threads)
            self._step = self._loop.call_later(seconds, self._finish_step, tuple(self._running))

    def _finish_step(self, together: tuple[_Sequence, ...]) -> None:
        self._step = None
        self.steps += 1
        for one in together:
            one.left -= 1
            if not one.left and not one.done.done():
                self._running.remove(one)
                one.done.set_result(self._completion(one))
        self._schedule()

    def _completion(self, one: _Sequence) -> Completion:
        text, now = self._write(one.request), self._loop.time()
        usage = Usage(
            prompt_tokens=sum(len(message.content.split()) for message in one.request.messages),
            output_tokens=len(text.split()) + 1,
            queued_seconds=one.begun - one.asked,
            decode_seconds=now - one.begun,
        )
        return Completion(text, "stop", usage)


@dataclass
class SimulatedMachine:
    """Starts simulated engines."""

    curve: Curve
    write: Callable[[Generation], str]
    load_seconds: float = 1.0
    """How long loading a model takes."""
    engines: list[SimulatedEngine] = field(default_factory=list)
    """All engines that were ever started."""

    async def start(self, spec: EngineSpec) -> SimulatedEngine:
        """Return an engine, after the time that loading takes."""
        await asyncio.sleep(self.load_seconds)
        engine = SimulatedEngine(spec, model_info(spec, self.load_seconds), self.curve, self.write)
        self.engines.append(engine)
        return engine


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
