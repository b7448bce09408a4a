"""Simulated engines without processes: a function gives the time of each step, and another one the answers.

The real engine's own classes decide which sequences get into its KV cache, what stays there, and which beginnings of
prompts are shared. What goes into a step is chosen as a real engine does: by priority, in chunks of prompts, as many
sequences as pay, with as many draft tokens as pay. Left out are the steps by which an engine probes what its steps
cost, and what an earlier engine has left of prompts on disk.
"""

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final, NamedTuple, cast
from zlib import crc32

import numpy as np

from orchestrator.engine.client.engine import Completion, OnText, StopGenerating
from orchestrator.engine.contract import (
    Embeddings,
    EngineSpec,
    EngineStats,
    Generation,
    HeldPrefix,
    Message,
    ModelInfo,
    OfferedTool,
    PrefixFile,
    Ranking,
    TokenizedText,
)
from orchestrator.engine.errors import EngineDied, EngineStopped, not_started
from orchestrator.engine.kv.prefix_tree import Tokens
from orchestrator.engine.llama import Llama
from orchestrator.engine.speculation.controller import (
    Acceptance,
    DraftCandidate,
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
    join_padded,
    padding_streams,
    take_turns,
)
from orchestrator.engine.worker.loop import clamp_max_tokens
from orchestrator.engine.worker.priority import ALIKE, priority
from orchestrator.engine.worker.sequence import Sequence as EngineSequence
from orchestrator.engine.worker.sequences import Sequences
from orchestrator.registry.options import INVARIANT_MICRO_BATCH, DraftName
from orchestrator.registry.thinking import Thinking
from orchestrator.task.events import Usage

# Delay before a step, so that requests of the same moment are in the same step in whatever order they come.
GATHERING_SECONDS = 1e-6

BATCH: Final = 512  # the most tokens of a step, as in a real engine (`engine.llama.model.BATCH`)


UNLIMITED: Final = 1 << 40


@dataclass(frozen=True, slots=True)
class StepLoad:
    """What one call of llama_decode computes."""

    sequences: int  # the sequences that it computes tokens of
    tokens: int  # the tokens that it computes
    prompt_tokens: int  # how many of them belong to prompts
    cells: int  # the cells that the tokens attend to, together
    threads: int


StepSeconds = Callable[[StepLoad], float]  # returns how long a call takes, in seconds


@dataclass(frozen=True, slots=True)
class SimulatedDrafts:
    """Where draft tokens come from, and what becomes of them."""

    source: DraftName
    k: int  # the most draft tokens of a sequence in a step
    acceptance: float  # the probability that a draft token is accepted, given that those before it were
    offered: float = 1.0  # in which part of the steps of a sequence there is something to propose
    token_seconds: float = 0.0  # what drafting a token takes


def token_ids(pieces: Sequence[str]) -> Tokens:
    """Return a token for each piece of a text: equal pieces have equal tokens, in every process."""
    return np.array([crc32(piece.encode()) >> 1 for piece in pieces], dtype=np.int32)


def words_as_tokens(text: str) -> Tokens:
    """Return a token for each word of a text."""
    return token_ids(text.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """How an engine fills its steps, beyond what its specification says."""

    # What it believes that steps cost, by which it decides how many sequences decode together and how many tokens
    # are drafted. Without it all decode, nothing is drafted, and a step takes any number of tokens.
    costs: StepCostModel | None = None
    # Whether every sequence has a stream of cells of its own: prompts are then computed in calls apart.
    split: bool = False
    drafting: SimulatedDrafts | None = None
    token_seconds: float = 0.0  # for each token that it samples, without llama.cpp
    # Returns the tokens of a text. Texts that begin alike have tokens that do, but for the last one in common.
    tokenize: Callable[[str], Tokens] = words_as_tokens
    # The tokens of each message in addition to its text: half of them, rounded down, come before it.
    message_tokens: int = 0
    seed: int = 0  # of what becomes of draft tokens


@dataclass(frozen=True, slots=True)
class SimulatedAnswer:
    """What a simulated model writes."""

    text: str
    tokens: int  # how many tokens it has
    forced: int = 0  # how many of them are at its end and left no choice by a grammar, so that no step computes them


Write = Callable[[Generation], SimulatedAnswer]


def words(text: str) -> SimulatedAnswer:
    """Return an answer with a token for each word and one for the end."""
    return SimulatedAnswer(text, len(text.split()) + 1)


@dataclass
class OwnTime:
    """What the orchestrator's own process takes for each generation, half of it before and half of it after."""

    busy_seconds: float = 0.0  # during which it can do nothing else
    waiting_seconds: float = 0.0  # a further wait of each generation, in which the process can do something else
    _free: float = 0.0  # when the process has done what it was asked for so far

    async def half(self, away_seconds: float = 0.0) -> None:
        """Wait for half of the own time of one generation, after all work that the process does before it.

        `away_seconds` is the additional wait if its engine is on another machine. Generations that
        start at the same moment reach their engine together, as they do in one write of a socket.
        """
        if self.busy_seconds + self.waiting_seconds + away_seconds <= 0:
            return
        loop = asyncio.get_running_loop()
        self._free = max(loop.time(), self._free) + self.busy_seconds / 2
        while (remaining := self._free - loop.time()) > 0:  # noqa: ASYNC110 (it grows as others come)
            await asyncio.sleep(remaining)
        await asyncio.sleep((self.waiting_seconds + away_seconds) / 2)


class _SimulatedSequence(EngineSequence):
    """A sequence of the real engine, to which time passes as on the clock of the event loop."""

    def __init__(
        self,
        number: int,
        request: Generation,
        prompt: Tokens,
        answer: SimulatedAnswer,
        acceptance: dict[DraftName, Acceptance],
        seed: int,
    ) -> None:
        super().__init__(number, request, prompt, max_tokens=answer.tokens, stops=(), grammar=None, stream=False)
        self._loop = asyncio.get_running_loop()
        self.request = request
        self.answer = answer
        self.acceptance = acceptance
        self.arrived = self._loop.time()
        self.priority = priority(self.arrived, self.arrived + request.slack)
        self.done: asyncio.Future[Completion] = self._loop.create_future()
        self.draw = Random(f"{seed} {request.messages[-1].content if request.messages else ''}")  # noqa: S311

    def enter(self, seq: int, cached: int) -> None:
        """Note that it has left the queue for the cache."""
        entered, preempted_at, self.preempted_at = self.entered, self.preempted_at, None
        super().enter(seq, cached)
        now = self._loop.time()
        waited = 0.0 if preempted_at is None else now - preempted_at
        self.entered = now if entered is None else entered + waited
        self.first = None if self.first is None else self.first + waited

    def preempt(self) -> None:
        """Note that it has lost its place in the cache."""
        super().preempt()
        self.preempted_at = self._loop.time()

    @property
    def left(self) -> int:
        """How many tokens of its answer steps have yet to bring."""
        return self.answer.tokens - self.answer.forced - len(self.output)

    @property
    def unread(self) -> int:
        """How many tokens have to be computed before it decodes."""
        return len(self.prefill_tokens) - self.computed

    def completion(self) -> Completion:
        """Return its answer, now that all its tokens are there."""
        now = self._loop.time()
        entered = now if self.entered is None else self.entered
        first = now if self.first is None else self.first
        usage = Usage(
            prompt_tokens=len(self.prompt),
            cached_tokens=self.cached,
            output_tokens=self.answer.tokens,
            queued_seconds=entered - self.arrived,
            prefill_seconds=first - entered,
            decode_seconds=now - first,
            work_seconds=self.work_seconds,
            alone_seconds=self.alone_seconds,
            packed_seconds=self.packed_seconds,
            reuse=self.reuse,
        )
        return Completion(self.answer.text, "stop", usage)


class _SimulatedPart(NamedTuple):
    """What a call computes of one sequence: a chunk of its prompt, or its next token and draft tokens."""

    sequence: _SimulatedSequence
    tokens: int
    cells: int  # the cells that these attend to, together
    # How many tokens of its answer it gets: none by a chunk that does not end its prompt, and otherwise one more
    # than draft tokens are accepted.
    brings: int


class _Cells:
    """The KV cache of a model that computes nothing: what `Sequences` asks of a `Llama`."""

    def __init__(self, spec: EngineSpec, info: ModelInfo, *, split: bool) -> None:
        self.info = info
        self.split = split
        self.can_fork, self.keeps_states = True, False
        self.cell_bytes = 1
        self.context_limit = info.context
        self.sequences = info.slots if split else 2 * info.slots
        self.cells = self.context_limit * self.sequences if split else spec.cells or self.context_limit * info.slots
        self._held = [0] * self.sequences

    def held(self, seq: int) -> int:
        """Return how many cells a sequence holds."""
        return self._held[seq]

    def least_prefix(self, seq: int) -> int:
        """Return how much of a sequence has to stay if it is cut back: nothing."""
        return 0

    def fork(self, source: int, target: int, length: int) -> None:
        """Let a sequence begin with the first tokens of another one."""
        self._held[target] = length

    def truncate(self, seq: int, length: int) -> None:
        """Keep the first tokens of a sequence alone."""
        self._held[seq] = length

    def add(self, seq: int, count: int) -> None:
        """Let a sequence hold `count` more tokens."""
        self._held[seq] += count


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
        away_seconds: float = 0.0,
    ) -> None:
        self.spec = spec
        self.info = info
        self.died = asyncio.Event()
        self.failure: EngineDied | None = None
        self.lost_prompts: list[bytes] = []
        self.steps = self.drafted = self.accepted = 0
        self._step_seconds = step_seconds
        self._write = write
        self._behaviour = behaviour
        self._own = own or OwnTime()
        self._away_seconds = away_seconds
        self._loop = asyncio.get_running_loop()
        self._threads = spec.threads or 1
        self._cells = _Cells(spec, info, split=behaviour.split)
        self._sequences = Sequences(cast("Llama", self._cells), Counter(), lambda _: None, lambda _, count: count)
        self._numbers = itertools.count()
        self._widths: dict[int, int] = {}
        self._batch_turns = BatchTurns()
        self._model_acceptance = model_acceptance()
        self._controller = SpeculationController()
        self._step: asyncio.TimerHandle | None = None

    async def generate(
        self, request: Generation, on_text: OnText | None = None, on_thought: OnText | None = None
    ) -> Completion:
        """Return the answer of `write`. The step that reads the end of its prompt brings the first token.

        Raises PromptTooLong as a real engine does.
        """
        await self._own.half(self._away_seconds)
        if self.failure is not None:
            raise not_started(self.failure)
        prompt, answer = self._prompt(request.messages), self._write(request)
        clamp_max_tokens(request, len(prompt), self._cells.context_limit)
        accepts, seed = sequence_acceptance(self._model_acceptance), self._behaviour.seed
        sequence = _SimulatedSequence(next(self._numbers), request, prompt, answer, accepts, seed)
        self._sequences.add(sequence)
        self._schedule()
        try:
            completion = await sequence.done
        finally:
            if sequence.number in self._sequences.all:
                self._sequences.remove(sequence)
        await self._own.half(self._away_seconds)
        if on_text is not None:
            try:
                on_text(completion.text)
            except StopGenerating:
                return replace(completion, finish="cancelled")
        return completion

    async def count(
        self, messages: Sequence[Message], tools: Sequence[OfferedTool] = (), thinking: Thinking = "auto"
    ) -> int:
        """Return the number of tokens, as the behaviour counts them."""
        return len(self._prompt(messages))

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

    async def locate(self, request: Generation) -> HeldPrefix:
        """Return that nothing can be shared, since machines of a cluster are not simulated."""
        return HeldPrefix("", 0)

    async def export(self, request: Generation, key: str, least: int) -> PrefixFile | None:
        """Return no file."""
        return None

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
        running = len(self._sequences.decoding) + len(self._sequences.prefilling)
        return EngineStats(steps=self.steps, running=running, queued=len(self._sequences.queue))

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
        queued = set(_simulated(self._sequences.queue))
        for sequence in _simulated(self._sequences.all.values()):
            if not sequence.done.done():
                sequence.done.set_exception(
                    not_started(failure) if sequence in queued and not sequence.preempted else failure
                )

    def _prompt(self, messages: Sequence[Message]) -> Tokens:
        """Return the tokens of messages, at least one."""
        before, after = (token_ids(["\0"] * count) for count in _halves(self._behaviour.message_tokens))
        tokenize = self._behaviour.tokenize
        tokens = np.concatenate(
            [before, *(part for message in messages for part in (tokenize(message.content), after, before))]
        )
        tokens = tokens[: len(tokens) - len(before)]
        return tokens if len(tokens) else token_ids([""])

    # Steps

    def _schedule(self) -> None:
        """Schedule a step, unless one is scheduled or there is nothing to do."""
        if self._step is None and self._threads and self.failure is None and self._sequences.all:
            self._step = self._loop.call_later(GATHERING_SECONDS, self._run_step)

    def _run_step(self) -> None:
        self._step = None
        if not self._threads:
            return
        self._sequences.admit()
        if calls := self._choose():
            self._begin_call(calls)

    def _choose(self) -> list[list[_SimulatedPart]]:
        """Return what is computed next: the parts of each call of llama_decode, as `Loop._schedule` of an engine."""
        decoding, prefilling = (
            _simulated(sequences) for sequences in (self._sequences.decoding, self._sequences.prefilling)
        )
        decoding_now, limit = self._choose_decoding(decoding, prefilling)
        decoding_now = _simulated(self._sequences.reserve_or_preempt([*decoding_now]))
        decoding, prefilling = (
            _simulated(sequences) for sequences in (self._sequences.decoding, self._sequences.prefilling)
        )
        held_back = limit == 0 and not any(one.interactive for one in prefilling)
        decodes = self._draft(decoding_now, prompts_wait=bool(prefilling) and not held_back)
        if not prefilling:
            return [decodes] if decodes else []
        first = prefilling if limit is None else [one for one in prefilling if one.interactive]
        ahead = sum(one.priority <= decoding[0].priority + ALIKE for one in first) if decoding else 0
        tokens = sum(part.tokens for part in decodes)
        batch = UNLIMITED if self._behaviour.costs is None else BATCH
        prompt_chunks = chunks_of(
            self._needs(first), decoding=tokens, batch=batch, ahead=ahead, others_decode=bool(decoding)
        )
        chunks = [_chunk(first[index], count) for index, count in prompt_chunks]
        if limit:
            last = [one for one in prefilling if not one.interactive]
            room = min(limit, batch - tokens - sum(count for _, count in prompt_chunks))
            prompt_chunks = chunks_of(self._needs(last), decoding=0, batch=room, chunk=SHORT_CHUNK)
            chunks += [_chunk(last[index], count) for index, count in prompt_chunks]
        if not self._behaviour.split:
            return [[*decodes, *chunks]] if decodes or chunks else []
        chunks.sort(key=lambda part: part.sequence.seq)
        groups = group_equal_chunks([(part.sequence.seq, part.tokens) for part in chunks], BATCH)
        return [*([decodes] if decodes else []), *([chunks[index] for index in group] for group in groups)]

    def _needs(self, prefilling: Sequence[_SimulatedSequence]) -> list[Prefill]:
        return [Prefill(sequence.computed, self._sequences.next_chunk_limit(sequence)) for sequence in prefilling]

    def _choose_decoding(
        self, decoding: list[_SimulatedSequence], prefilling: list[_SimulatedSequence]
    ) -> tuple[list[_SimulatedSequence], int | None]:
        """Return the sequences that decode now: as many as give most tokens a second, taking turns.

        The second value is how many prompt tokens of batch requests are read in one step with interactive sequences
        that decode; None if there are not both.
        """
        costs = self._behaviour.costs
        if costs is None:
            return decoding, None
        interactive = [sequence for sequence in decoding if sequence.interactive]
        others = [sequence for sequence in decoding if not sequence.interactive]
        prompts = self._needs([sequence for sequence in prefilling if not sequence.interactive])
        if not interactive or not (others or prompts):
            self._batch_turns.reset()
            width = self._best_width([sequence.length for sequence in decoding]) if len(decoding) > 1 else 1
            return self._join_padded(costs, take_turns(decoding, width), decoding), None
        depths = [sequence.length for sequence in interactive], [sequence.length for sequence in others]
        width, others_width, limit = self._batch_turns.choose_widths(
            costs, self._best_width, depths, prompts, split=self._behaviour.split
        )
        decoding_now = take_turns(interactive, width)
        if others_width:
            decoding_now += take_turns(others, others_width)
        return self._join_padded(costs, decoding_now, decoding), limit

    def _join_padded(
        self, costs: StepCostModel, decoding_now: list[_SimulatedSequence], decoding: list[_SimulatedSequence]
    ) -> list[_SimulatedSequence]:
        """Return the sequences that decode now, with those whose streams would be padded otherwise."""
        if not self._behaviour.split or not 1 < len(decoding_now) < len(decoding):
            return decoding_now
        width = costs.padded_width(len(decoding_now), sum(sequence.length for sequence in decoding_now))
        streams = sorted(sequence.seq for sequence in decoding_now)
        tokens = int(self.spec.batch_invariant)
        padded = padding_streams(streams, self._cells.sequences, width=width, tokens=tokens, most=INVARIANT_MICRO_BATCH)
        return join_padded(decoding_now, decoding, padded or [])

    def _best_width(self, depths: Sequence[int]) -> int:
        """Return how many of the sequences make most tokens per second together."""
        assert self._behaviour.costs is not None, "without them all decode together"
        if len(depths) not in self._widths:
            self._widths[len(depths)] = best_decode_width(self._behaviour.costs, depths)
        return self._widths[len(depths)]

    def _draft(self, decoding_now: list[_SimulatedSequence], *, prompts_wait: bool) -> list[_SimulatedPart]:
        """Return the next tokens of these sequences, with as many draft tokens as promise most tokens a second."""
        drafting, costs = self._behaviour.drafting, self._behaviour.costs
        plain = [_SimulatedPart(sequence, 1, sequence.length, 1) for sequence in decoding_now]
        if drafting is None or costs is None or prompts_wait or not decoding_now:
            return plain
        if not self._controller.enabled:
            self._controller.skip_step()
            return plain
        candidates = [
            DraftCandidate(
                sequence.acceptance[drafting.source].rate,
                max(0, min(drafting.k, sequence.left - 1)) if sequence.draw.random() < drafting.offered else 0,
                sequence.priority,
                depth=sequence.length,
                cost=drafting.token_seconds,
            )
            for sequence in decoding_now
        ]
        budget, invariant = BATCH - len(decoding_now), self.spec.batch_invariant
        if self._behaviour.split:
            length = common_draft_length(costs, candidates, token_budget=budget, batch_invariant=invariant)
            lengths = [length] * len(decoding_now)
        else:
            lengths = draft_lengths(costs, candidates, token_budget=budget, batch_invariant=invariant)
        return [
            self._drafted(sequence, length, min(length, candidate.max_tokens), drafting)
            for sequence, length, candidate in zip(decoding_now, lengths, candidates, strict=True)
        ]

    def _drafted(
        self, sequence: _SimulatedSequence, length: int, drafted: int, drafting: SimulatedDrafts
    ) -> _SimulatedPart:
        """Return the part of a sequence that verifies `length` tokens, of which the first `drafted` are no padding."""
        accepted = 0
        while accepted < drafted and sequence.draw.random() < drafting.acceptance:
            accepted += 1
        sequence.acceptance[drafting.source].observe(drafted, accepted)
        self.drafted += drafted
        self.accepted += accepted
        return _SimulatedPart(
            sequence, 1 + length, sequence.length + attended_cells(sequence.length, length), 1 + accepted
        )

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
            plain = plain_seconds(behaviour.costs, [part.sequence.length for part in call], brings)
            self._controller.record(verified, brings - len(call), plain, seconds)
        return seconds + behaviour.token_seconds * brings

    def _begin_call(self, calls: list[list[_SimulatedPart]]) -> None:
        """Begin the first of these calls of llama_decode, after which the others follow."""
        self._step = self._loop.call_later(self._compute(calls[0]), self._finish_call, calls)

    def _finish_call(self, calls: list[list[_SimulatedPart]]) -> None:
        self._step = None
        self.steps += 1
        for sequence, tokens, _, brings in calls[0]:
            if sequence.number not in self._sequences.all:
                continue  # it was given up meanwhile
            if sequence.unread:
                self._cells.add(sequence.seq, tokens)
                self._sequences.computed(
                    sequence, sequence.prefill_tokens[sequence.computed : sequence.computed + tokens]
                )
            else:
                self._cells.add(sequence.seq, brings)
            if brings:
                self._bring(sequence, brings)
        remaining = [[part for part in call if part.sequence.number in self._sequences.all] for call in calls[1:]]
        if remaining := [call for call in remaining if call]:
            self._begin_call(remaining)
        else:
            self._schedule()

    def _bring(self, sequence: _SimulatedSequence, tokens: int) -> None:
        """Give a sequence the next tokens of its answer."""
        is_first = not sequence.output
        sequence.first = self._loop.time() if is_first else sequence.first
        sequence.output += [0] * tokens
        if sequence.left <= 0:
            self._sequences.remove(sequence)
            if not sequence.done.done():  # it may be given up in this very moment
                sequence.done.set_result(sequence.completion())
        elif is_first:
            self._sequences.begin_decoding(sequence)

    def _share(self, call: list[_SimulatedPart], seconds: float) -> None:
        """Divide a call's time among its sequences, in proportion to their tokens."""
        parts = [(part.tokens, part.cells) for part in call]
        costs = self._behaviour.costs
        shares = self._plain_shares(call, seconds) if costs is None else divide_step(costs, seconds, parts)
        for (sequence, *_), share in zip(call, shares, strict=True):
            sequence.add_share(share)

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


def _simulated(sequences: Iterable[EngineSequence]) -> list[_SimulatedSequence]:
    """Return the sequences of a simulated engine, all of which are simulated ones."""
    return cast("list[_SimulatedSequence]", [*sequences])


def _halves(count: int) -> tuple[int, int]:
    return count // 2, count - count // 2


def _chunk(sequence: _SimulatedSequence, count: int) -> _SimulatedPart:
    """Return the part of a sequence whose next `count` tokens of its prompt are read."""
    brings = int(count >= sequence.unread and not sequence.output)
    return _SimulatedPart(sequence, count, attended_cells(sequence.computed, count), brings)


@dataclass
class SimulatedMachine:
    """Starts simulated engines."""

    step_seconds: Callable[[str], StepSeconds]  # returns how long the steps of the model in a file take
    write: Write
    # Returns how long loading the model in a file takes.
    load_seconds: Callable[[str], float] = field(default=lambda file: 1.0)
    # Returns how the engine of the model in a file fills its steps.
    behaviour: Callable[[str], Behaviour] = field(default=lambda file: Behaviour())
    own: OwnTime = field(default_factory=OwnTime)  # what the orchestrator takes for each generation
    away_seconds: float = 0.0  # what each generation takes longer because the machine is not the orchestrator's
    engines: list[SimulatedEngine] = field(default_factory=list)  # all engines that were ever started

    async def start(self, spec: EngineSpec) -> SimulatedEngine:
        """Return an engine, after the time that loading takes."""
        seconds = self.load_seconds(spec.file)
        await asyncio.sleep(seconds)
        info, timed, behaviour = model_info(spec, seconds), self.step_seconds(spec.file), self.behaviour(spec.file)
        engine = SimulatedEngine(spec, info, timed, self.write, behaviour, self.own, self.away_seconds)
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
