"""Simulated engines without processes: a function gives the time of each step, and another one the answers.

What goes into a step is chosen as a real engine does: by priority, in chunks of prompts, as many sequences as pay, with
as many draft tokens as pay. Left out are preemption for lack of cells or slots, and the steps by which an engine probes
what its steps cost.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple

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
from orchestrator.engine.speculation.controller import (
    Acceptance,
    DraftCandidate,
    DraftSource,
    SpeculationController,
    common_draft_length,
    draft_lengths,
    model_acceptance,
    plain_seconds,
    sequence_acceptance,
)
from orchestrator.engine.step_cost.model import (
    StepCostModel,
    StepShare,
    attended_cells,
    best_decode_width,
    divide_step,
)
from orchestrator.engine.worker.batching import (
    SHORT_CHUNK,
    BatchTurns,
    Prefill,
    chunks_of,
    group_equal_chunks,
    take_turns,
)
from orchestrator.engine.worker.priority import ALIKE, priority
from orchestrator.events import Usage
from registry.thinking import Thinking

GATHERING_SECONDS = 1e-6
"""Delay before a step, so that requests of the same moment are in the same step in whatever order they come."""

BLOCK: Final = 16
"""The characters of a block of a prompt: prefixes are shared by whole blocks."""

BATCH: Final = 512
"""The most tokens of a step, as in a real engine (`engine.llama.model.BATCH`)."""


UNLIMITED: Final = 1 << 40


@dataclass(frozen=True, slots=True)
class StepLoad:
    """What one call of llama_decode computes."""

    sequences: int
    """The sequences that it computes tokens of."""
    tokens: int
    """The tokens that it computes."""
    prompt_tokens: int
    """How many of them belong to prompts."""
    cells: int
    """The cells that the tokens attend to, together."""
    threads: int


StepSeconds = Callable[[StepLoad], float]
"""Returns how long a call takes, in seconds."""


@dataclass(frozen=True, slots=True)
class SimulatedDrafts:
    """Where draft tokens come from, and what becomes of them."""

    source: DraftSource
    k: int
    """The most draft tokens of a sequence in a step."""
    acceptance: float
    """The probability that a draft token is accepted, given that those before it were."""
    offered: float = 1.0
    """In which part of the steps of a sequence there is something to propose."""
    token_seconds: float = 0.0
    """What drafting a token takes."""


def count_words(text: str) -> float:
    """Return the number of words."""
    return len(text.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """How an engine fills its steps, beyond what its specification says."""

    costs: StepCostModel | None = None
    """What it believes that steps cost, by which it decides how many sequences decode together and how many tokens are
    drafted. Without it all decode, nothing is drafted, and a step takes any number of tokens."""
    split: bool = False
    """Whether every sequence has a stream of cells of its own: prompts are then computed in calls apart."""
    drafting: SimulatedDrafts | None = None
    token_seconds: float = 0.0
    """What the engine takes besides llama.cpp for each token that it samples."""
    count: Callable[[str], float] = count_words
    """Returns how many tokens a text has."""
    seed: int = 0
    """Of what becomes of draft tokens."""


@dataclass(frozen=True, slots=True)
class SimulatedAnswer:
    """What a simulated model writes."""

    text: str
    tokens: int
    """How many tokens it has, the end included: there is a step for each."""


Write = Callable[[Generation], SimulatedAnswer]


def words(text: str) -> SimulatedAnswer:
    """Return an answer with a token for each word and one for the end."""
    return SimulatedAnswer(text, len(text.split()) + 1)


@dataclass
class OwnTime:
    """What the orchestrator's own process takes for each generation, half of it before and half of it after."""

    busy_seconds: float = 0.0
    """During which it can do nothing else."""
    waiting_seconds: float = 0.0
    """What a generation waits besides, while the process can do something else."""
    _free: float = 0.0
    """When the process has done what it was asked for so far."""

    async def half(self) -> None:
        """Let half of the time of one generation pass."""
        if self.busy_seconds + self.waiting_seconds <= 0:
            return
        now = asyncio.get_running_loop().time()
        self._free = max(now, self._free) + self.busy_seconds / 2
        await asyncio.sleep(self._free - now + self.waiting_seconds / 2)


@dataclass(slots=True, eq=False)
class _SimulatedSequence:
    request: Generation
    answer: SimulatedAnswer
    prompt_tokens: int
    left: int
    asked: float
    done: asyncio.Future[Completion]
    priority: float
    acceptance: dict[DraftSource, Acceptance]
    draw: Random
    begun: float = 0.0
    stream: int = -1
    """The number of its slot."""
    cached_tokens: int = 0
    unread: int = 0
    """The tokens of its prompt that no step has read."""
    cells: int = 0
    """The tokens that its next token attends to."""
    read: float = 0.0
    """When its prompt was read."""
    steps_left_out: int = 0
    """In how many steps it has not decoded although it could."""
    work: float = 0.0
    alone: float = 0.0
    packed: float = 0.0
    """As in `Usage`, in seconds."""

    @property
    def interactive(self) -> bool:
        """Whether it is of an interactive request, and not of a batch."""
        return self.request.priority == "interactive"


class _SimulatedPart(NamedTuple):
    """What a call computes of one sequence: a chunk of its prompt, or its next token and draft tokens."""

    sequence: _SimulatedSequence
    tokens: int
    cells: int
    """The cells that these attend to, together."""
    brings: int
    """How many tokens of its answer it gets: none by a chunk that does not end its prompt, and otherwise one more than
    draft tokens are accepted."""


class _Prefixes:
    """The prompts whose beginnings are in the cache: as many as there are slots, or as fit into a common pool."""

    def __init__(self, spec: EngineSpec, *, split: bool) -> None:
        self._most = spec.slots if split else None
        self._cells = (spec.cells or (spec.context or 4096) * spec.slots) if not split else None
        self._held: OrderedDict[int, tuple[list[int], int]] = OrderedDict()
        self._held_tokens = 0
        self._known: Counter[int] = Counter()
        self._numbers = 0
        for prompt in spec.system_prompts:  # a real engine restores them from disk
            self._known.update(_blocks(prompt.text))

    def share(self, request: Generation, tokens: int) -> float:
        """Return which part of a prompt is in the cache, and remember the whole of it.

        Requests of one moment share too: a real engine reads what they have in common once.
        """
        chain = _blocks("\0".join(message.content for message in request.messages))
        shared = next((at for at, block in enumerate(chain) if not self._known[block]), len(chain))
        self._numbers += 1
        self._held[self._numbers] = chain, tokens
        self._held_tokens += tokens
        self._known.update(chain)
        while self._is_full:
            _, (oldest, dropped) = self._held.popitem(last=False)
            self._held_tokens -= dropped
            for block in oldest:
                self._known[block] -= 1
                if not self._known[block]:
                    del self._known[block]
        return shared / len(chain)

    @property
    def _is_full(self) -> bool:
        if self._most is not None:
            return len(self._held) > self._most
        return len(self._held) > 1 and self._held_tokens > (self._cells or 0)


def _blocks(text: str) -> list[int]:
    """Return a hash for each beginning of a text that ends with a block."""
    chain, found = 0, []
    for at in range(0, max(1, len(text) // BLOCK * BLOCK), BLOCK):
        chain = hash((chain, text[at : at + BLOCK]))
        found.append(chain)
    return found


class SimulatedEngine:
    """Decodes as many sequences at a time as it has slots, in the order of priority of a real engine."""

    def __init__(
        self,
        spec: EngineSpec,
        info: ModelInfo,
        step_seconds: StepSeconds,
        write: Write,
        behaviour: Behaviour = Behaviour(),
        own: OwnTime | None = None,
    ) -> None:
        self.spec = spec
        self.info = info
        self.died = asyncio.Event()
        self.failure: EngineDied | None = None
        self.steps = self.drafted = self.accepted = 0
        self._step_seconds = step_seconds
        self._write = write
        self._behaviour = behaviour
        self._own = own or OwnTime()
        self._loop = asyncio.get_running_loop()
        self._threads = spec.threads or 1
        self._waiting: list[_SimulatedSequence] = []
        self._running: list[_SimulatedSequence] = []
        self._prefixes = _Prefixes(spec, split=behaviour.split)
        self._widths: dict[int, int] = {}
        self._batch_turns = BatchTurns()
        self._model_acceptance = model_acceptance()
        self._controller = SpeculationController()
        self._step: asyncio.TimerHandle | None = None

    async def generate(
        self, request: Generation, on_text: OnText | None = None, on_thought: OnText | None = None
    ) -> Completion:
        """Return the answer of `write`. The step that reads the end of its prompt brings the first token."""
        await self._own.half()
        if self.failure is not None:
            raise self.failure
        answer, tokens, now = self._write(request), self._count(request.messages), self._loop.time()
        one = _SimulatedSequence(
            request,
            answer,
            tokens,
            answer.tokens,
            now,
            self._loop.create_future(),
            priority(now, now + request.slack),
            sequence_acceptance(self._model_acceptance),
            Random(f"{self._behaviour.seed} {request.messages[-1].content if request.messages else ''}"),  # noqa: S311
            cells=tokens,
        )
        self._waiting.append(one)
        self._schedule()
        try:
            completion = await one.done
        finally:
            for place in (self._waiting, self._running):
                if one in place:
                    place.remove(one)
        await self._own.half()
        if on_text is not None:
            on_text(completion.text)
        return completion

    async def count(
        self, messages: Sequence[Message], tools: Sequence[OfferedTool] = (), thinking: Thinking = "auto"
    ) -> int:
        """Return the number of tokens, as the behaviour counts them."""
        return self._count(messages)

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

    def _count(self, messages: Sequence[Message]) -> int:
        return max(1, round(sum(self._behaviour.count(message.content) for message in messages)))

    # Steps

    def _schedule(self) -> None:
        """Schedule a step, unless one is scheduled or there is nothing to do."""
        if self._step is None and self._threads and self.failure is None and (self._waiting or self._running):
            self._step = self._loop.call_later(GATHERING_SECONDS, self._run_step)

    def _run_step(self) -> None:
        self._step = None
        if not self._threads:
            return
        self._admit()
        if calls := self._choose():
            seconds = sum(self._compute(call) for call in calls)
            self._step = self._loop.call_later(seconds, self._finish_step, calls)

    def _admit(self) -> None:
        """Give the requests that go first the free slots."""
        if self._waiting and len(self._running) < self.spec.slots:
            self._waiting.sort(key=lambda one: one.priority)
            free = [stream for stream in range(self.spec.slots) if stream not in {one.stream for one in self._running}]
            for stream, one in zip(free, [*self._waiting], strict=False):
                self._waiting.remove(one)
                shared = self._prefixes.share(one.request, one.prompt_tokens + one.answer.tokens)
                one.begun, one.stream = self._loop.time(), stream
                one.cached_tokens = max(0, min(one.prompt_tokens - 1, round(one.prompt_tokens * shared)))
                one.unread = one.prompt_tokens - one.cached_tokens
                self._running.append(one)
            self._running.sort(key=lambda one: one.priority)

    def _choose(self) -> list[list[_SimulatedPart]]:
        """Return what is computed next: the parts of each call of llama_decode, as `Loop._schedule` of an engine."""
        decoding = [one for one in self._running if not one.unread]
        prefilling = [one for one in self._running if one.unread]
        chosen, limit = self._choose_decoding(decoding, prefilling)
        held_back = limit == 0 and not any(one.interactive for one in prefilling)
        decodes = self._draft(chosen, prompts_wait=bool(prefilling) and not held_back)
        if not prefilling:
            return [decodes] if decodes else []
        first = prefilling if limit is None else [one for one in prefilling if one.interactive]
        ahead = sum(one.priority <= decoding[0].priority + ALIKE for one in first) if decoding else 0
        tokens = sum(part.tokens for part in decodes)
        batch = UNLIMITED if self._behaviour.costs is None else BATCH
        taken = chunks_of(_needs(first), decoding=tokens, batch=batch, ahead=ahead, others_decode=bool(decoding))
        chunks = [_chunk(first[index], count) for index, count in taken]
        if limit:
            last = [one for one in prefilling if not one.interactive]
            left = min(limit, batch - tokens - sum(count for _, count in taken))
            taken = chunks_of(_needs(last), decoding=0, batch=left, chunk=SHORT_CHUNK)
            chunks += [_chunk(last[index], count) for index, count in taken]
        if not self._behaviour.split:
            return [[*decodes, *chunks]] if decodes or chunks else []
        chunks.sort(key=lambda part: part.sequence.stream)
        groups = group_equal_chunks([(part.sequence.stream, part.tokens) for part in chunks], BATCH)
        return [*([decodes] if decodes else []), *([chunks[index] for index in group] for group in groups)]

    def _choose_decoding(
        self, decoding: list[_SimulatedSequence], prefilling: list[_SimulatedSequence]
    ) -> tuple[list[_SimulatedSequence], int | None]:
        """Return the sequences that decode now: as many as give most tokens a second, taking turns.

        The second value is how many tokens of the prompts of a batch are read beside interactive sequences that decode,
        None where there are not both.
        """
        costs = self._behaviour.costs
        if costs is None:
            return decoding, None
        interactive = [one for one in decoding if one.interactive]
        others = [one for one in decoding if not one.interactive]
        prompts = _needs([one for one in prefilling if not one.interactive])
        if not interactive or not (others or prompts):
            self._batch_turns.reset()
            width = self._best_width([one.cells for one in decoding]) if len(decoding) > 1 else 1
            return take_turns(decoding, width), None
        depths = [one.cells for one in interactive], [one.cells for one in others]
        width, beside, limit = self._batch_turns.choose_widths(
            costs, self._best_width, depths, prompts, split=self._behaviour.split
        )
        chosen = take_turns(interactive, width)
        return chosen + take_turns(others, beside) if beside else chosen, limit

    def _best_width(self, depths: Sequence[int]) -> int:
        """Return how many of so many sequences make most tokens per second together."""
        assert self._behaviour.costs is not None, "without them all decode together"
        if len(depths) not in self._widths:
            self._widths[len(depths)] = best_decode_width(self._behaviour.costs, depths)
        return self._widths[len(depths)]

    def _draft(self, chosen: list[_SimulatedSequence], *, prompts_wait: bool) -> list[_SimulatedPart]:
        """Return the next tokens of these sequences, with as many draft tokens as promise most tokens a second."""
        drafting, costs = self._behaviour.drafting, self._behaviour.costs
        plain = [_SimulatedPart(one, 1, one.cells, 1) for one in chosen]
        if drafting is None or costs is None or prompts_wait or not chosen:
            return plain
        if not self._controller.enabled:
            self._controller.skip_step()
            return plain
        candidates = [
            DraftCandidate(
                one.acceptance[drafting.source].rate,
                max(0, min(drafting.k, one.left - 1)) if one.draw.random() < drafting.offered else 0,
                one.priority,
                depth=one.cells,
                cost=drafting.token_seconds,
            )
            for one in chosen
        ]
        budget, invariant = BATCH - len(chosen), self.spec.batch_invariant
        if self._behaviour.split:
            length = common_draft_length(costs, candidates, token_budget=budget, batch_invariant=invariant)
            lengths = [length] * len(chosen)
        else:
            lengths = draft_lengths(costs, candidates, token_budget=budget, batch_invariant=invariant)
        return [
            self._drafted(one, length, min(length, candidate.max_tokens), drafting)
            for one, length, candidate in zip(chosen, lengths, candidates, strict=True)
        ]

    def _drafted(self, one: _SimulatedSequence, length: int, drafted: int, drafting: SimulatedDrafts) -> _SimulatedPart:
        """Return the part of a sequence that verifies `length` tokens, of which the first `drafted` are no padding."""
        accepted = 0
        while accepted < drafted and one.draw.random() < drafting.acceptance:
            accepted += 1
        one.acceptance[drafting.source].observe(drafted, accepted)
        self.drafted += drafted
        self.accepted += accepted
        return _SimulatedPart(one, 1 + length, one.cells + attended_cells(one.cells, length), 1 + accepted)

    def _compute(self, call: list[_SimulatedPart]) -> float:
        """Return how long a call takes, and divide its time among its sequences."""
        behaviour = self._behaviour
        tokens = prompts = cells = brings = 0
        for sequence, count, attended, brought in call:
            tokens += count
            cells += attended
            brings += brought
            if sequence.unread:
                prompts += count
        seconds = self._step_seconds(StepLoad(len(call), tokens, prompts, cells, self._threads))
        self._share(call, seconds)
        verified = 0 if prompts else tokens - len(call)
        if behaviour.drafting is not None and behaviour.costs is not None and verified:
            seconds += verified * behaviour.drafting.token_seconds
            plain = plain_seconds(behaviour.costs, [part.sequence.cells for part in call], brings)
            self._controller.record(verified, brings - len(call), plain, seconds)
        return seconds + behaviour.token_seconds * brings

    def _finish_step(self, calls: list[list[_SimulatedPart]]) -> None:
        self._step = None
        self.steps += len(calls)
        for one, tokens, _, brings in (part for call in calls for part in call):
            if one.unread:
                one.unread -= tokens
                one.read = self._loop.time()
            one.left -= brings
            one.cells += brings
            if one.left <= 0 and not one.done.done():
                self._running.remove(one)
                one.done.set_result(self._completion(one))
        self._schedule()

    def _share(self, call: list[_SimulatedPart], seconds: float) -> None:
        """Divide a call's time among its sequences, in proportion to their tokens."""
        parts = [(part.tokens, part.cells) for part in call]
        costs = self._behaviour.costs
        shares = self._plain_shares(call, seconds) if costs is None else divide_step(costs, seconds, parts)
        for (sequence, *_), (work, alone, packed) in zip(call, shares, strict=True):
            sequence.work += work
            sequence.alone += alone
            sequence.packed += packed

    def _plain_shares(self, call: list[_SimulatedPart], seconds: float) -> list[StepShare]:
        """Return the shares where steps are timed by a function alone."""

        def takes(sequences: int, tokens: int, prompt: int, cells: int) -> float:
            return self._step_seconds(StepLoad(sequences, tokens, prompt, cells, self._threads))

        widths = range(1, self.spec.slots + 1)
        packing = min(takes(width, width, 0, 0) / width for width in widths) / takes(1, 1, 0, 0)
        alone = [takes(1, part.tokens, part.tokens if part.sequence.unread else 0, part.cells) for part in call]
        shares = []
        for part, took in zip(call, alone, strict=True):
            reading = took - takes(1, 1, 0, part.cells)
            shares.append(StepShare(seconds * took / sum(alone), took, reading + packing * (took - reading)))
        return shares

    def _completion(self, one: _SimulatedSequence) -> Completion:
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


def _needs(prefilling: Sequence[_SimulatedSequence]) -> list[Prefill]:
    return [Prefill(one.prompt_tokens - one.unread, one.unread) for one in prefilling]


def _chunk(one: _SimulatedSequence, count: int) -> _SimulatedPart:
    """Return the part of a sequence whose next `count` tokens of its prompt are read."""
    cells = attended_cells(one.prompt_tokens - one.unread, count)
    return _SimulatedPart(one, count, cells, int(count >= one.unread))


@dataclass
class SimulatedMachine:
    """Starts simulated engines."""

    step_seconds: Callable[[str], StepSeconds]
    """Returns how long the steps of the model in a file take."""
    write: Write
    load_seconds: Callable[[str], float] = field(default=lambda file: 1.0)
    """Returns how long loading the model in a file takes."""
    behaviour: Callable[[str], Behaviour] = field(default=lambda file: Behaviour())
    """Returns how the engine of the model in a file fills its steps."""
    own: OwnTime = field(default_factory=OwnTime)
    """What the orchestrator takes for each generation."""
    engines: list[SimulatedEngine] = field(default_factory=list)
    """All engines that were ever started."""

    async def start(self, spec: EngineSpec) -> SimulatedEngine:
        """Return an engine, after the time that loading takes."""
        seconds = self.load_seconds(spec.file)
        await asyncio.sleep(seconds)
        info, timed, behaviour = model_info(spec, seconds), self.step_seconds(spec.file), self.behaviour(spec.file)
        engine = SimulatedEngine(spec, info, timed, self.write, behaviour, self.own)
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
