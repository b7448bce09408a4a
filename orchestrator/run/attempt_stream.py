"""Follow what models do for one attempt, or for the plan: their text, reasoning and waits, and what they used."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

from orchestrator.engine.client.engine import Completion, OnText
from orchestrator.engine.contract import Generation, Message, Priority
from orchestrator.run.steps.attempt import Attempt, Models, Produced, StepRunner
from orchestrator.run.updates import Broadcast, Progress
from orchestrator.task.events import AttemptGenerated, Event, ModelAwaited, Usage
from orchestrator.task.stages import (
    GateEnd,
    GateRun,
    ModelLoad,
    ModelWait,
    Placed,
    PromptRead,
    QueuePlace,
    Stage,
    following,
    waiting_for_models,
)

PROGRESS_SECONDS: Final = 0.1  # between two publications
TAIL_LENGTH: Final = 2000  # characters of the latest text that are published: what fits into a panel


class ThinkingModels(Models, Protocol):
    """Models whose reasoning can be followed."""

    async def generate(
        self, model: str, request: Generation, on_text: OnText | None = None, on_thought: OnText | None = None
    ) -> Completion:
        """Generate as `Models.generate` does. `on_thought` gets the reasoning, piece by piece."""


class AttemptStream:
    """The models that one attempt or the plan may use.

    It publishes their progress, emits the waits and the usage, and keeps their reasoning for the journal.
    """

    def __init__(
        self,
        models: ThinkingModels,
        broadcast: Broadcast,
        now: Callable[[], float],
        emit: Callable[[Event], None],
        *,
        step: str = "",
        number: int = 0,
    ) -> None:
        """`step` is empty for the plan."""
        self._models = models
        self._broadcast = broadcast
        self._now, self._emit = now, emit
        self._step, self._number = step, number
        self._reasoning: list[str] = []
        self._pieces = self._thoughts = 0
        self._tail = ""
        self._thinking = False
        self._first = self._published = 0.0
        self._stage: ModelLoad | QueuePlace | PromptRead | None = None
        self._nodes: dict[str, None] = {}  # in the order of their use
        self._gates: dict[str, bool] = {}  # the gates that check, and whether each waits for a core
        self._gates_since: dict[str, float] = {}
        self._waiting = 0  # requests that wait for a model
        self._usage: Usage | None = None
        self._reported = False

    @property
    def thoughts(self) -> str:
        """All reasoning so far; may be empty."""
        return "\n\n".join(self._reasoning)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes and servers that requests have been with so far, without those of judges."""
        return tuple(self._nodes)

    async def count(self, model: str, messages: Sequence[Message], priority: Priority = "interactive") -> int:
        return await self._models.count(model, messages, priority)

    async def generate(self, model: str, request: Generation, on_text: OnText | None = None) -> Completion:
        completion = await self._models.generate(model, request, on_text, self.thought)
        if completion.reasoning:
            self._reasoning.append(completion.reasoning)
        return completion

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Follow what is done in the block, in all its tasks. The usage is emitted at its end."""
        with waiting_for_models(self.wait), following(self.stage):
            try:
                yield
            finally:
                self.report_usage()

    async def carried_out(self, runner: StepRunner, attempt: Attempt) -> Produced:
        """Run the attempt and return its result. Raises what the runner raises."""
        try:
            return await runner.run(attempt, self, self._generated, self.text)
        except asyncio.CancelledError:
            # An engine reports no usage for a request that is cancelled, and the tokens so far count, too.
            if not self._reported and self._pieces:
                self._generated(self._estimated_usage())
            raise

    def report_usage(self, outputs: Mapping[str, str] | None = None) -> None:
        """Emit the usage, if there is one that was not emitted yet.

        Call it before gates run. Without gates it is left to the end: nothing happens in between, and one commit less
        is waited for.
        """
        usage, self._usage = self._usage, None
        if usage is not None:
            at, step, number = self._now(), self._step, self._number
            self._emit(AttemptGenerated(at=at, step=step, number=number, usage=usage, outputs=outputs or {}))

    def text(self, text: str) -> None:
        """Count a piece of text: a token, or a character that takes several tokens."""
        self._count(text, thinking=False)

    def thought(self, text: str) -> None:
        """Count a piece of the model's reasoning."""
        self._count(text, thinking=True)

    def wait(self, wait: ModelWait | None) -> None:
        """Emit that a model is awaited: one event for all requests that wait together."""
        self._waiting += 1 if wait is not None else -1
        if wait is not None and self._waiting == 1:
            at, step, number = self._now(), self._step or None, self._number
            self._emit(
                ModelAwaited(
                    at=at, step=step, number=number, model=wait.model, reason=wait.reason, seconds=wait.seconds
                )
            )

    def stage(self, stage: Stage) -> None:
        """Publish at once what the attempt waits for, or that a gate checks it."""
        match stage:
            case Placed(node):
                if self._gates or node in self._nodes:
                    return
                self._nodes[node], self._stage = None, None
            case GateRun(gate, waits):
                self._gates[gate], self._stage = waits, None
                self._gates_since.setdefault(gate, self._now())
            case GateEnd(gate):
                self._gates.pop(gate, None)
                self._gates_since.pop(gate, None)
                self._stage = None
                if not self._gates:  # the text is complete, so the next event or gate says what follows
                    return
            case _:
                self._stage = stage
        self._publish(asyncio.get_running_loop().time())

    def _generated(self, usage: Usage) -> None:
        self._usage, self._reported = usage, True

    def _estimated_usage(self) -> Usage:
        return Usage(
            output_tokens=self._pieces,
            decode_seconds=asyncio.get_running_loop().time() - self._first,
            estimated_tokens=self._pieces,
            reasoning_tokens=self._thoughts,
            nodes=self.nodes,
        )

    def _count(self, text: str, *, thinking: bool) -> None:
        now = asyncio.get_running_loop().time()
        self._first = self._first or now
        self._pieces += 1
        self._thoughts += thinking
        if thinking != self._thinking:
            self._thinking, self._tail = thinking, ""
        self._tail = (self._tail + text)[-TAIL_LENGTH:]
        if self._stage is not None or now - self._published >= PROGRESS_SECONDS:
            self._stage = None
            self._published = now
            self._publish(now)

    def _publish(self, now: float) -> None:
        stage, written = self._stage, now - self._first
        self._broadcast.publish(
            Progress(
                self._step,
                self._number,
                self._pieces,
                (self._pieces - 1) / written if self._pieces and written > 0 else 0.0,
                self._tail,
                thinking=self._thinking,
                nodes=self.nodes,
                loading=stage.model if isinstance(stage, ModelLoad) else "",
                ahead=stage.ahead if isinstance(stage, QueuePlace) else None,
                read_tokens=stage.tokens if isinstance(stage, PromptRead) else 0,
                prompt_tokens=stage.prompt_tokens if isinstance(stage, PromptRead) else 0,
                gates=tuple(self._gates),
                gates_since=tuple(self._gates_since.values()),
                waits_for_core=bool(self._gates) and all(self._gates.values()),
            )
        )
