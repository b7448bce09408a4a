"""Keep the sequences of an engine in order of priority, and move them into and out of the KV cache.

A sequence is queued, then prefilled, then it decodes. A preempted one goes back into the queue, and is prefilled again.
"""

import bisect
import math
from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np

from orchestrator.engine.kv.prefix_tree import common_prefix
from orchestrator.engine.kv.prompt_history import PromptHistory
from orchestrator.engine.kv.slots import NO_TOKENS, PooledSlots, PrefillSeconds, Slots
from orchestrator.engine.kv.states import StateSlots
from orchestrator.engine.kv.streams import StreamSlots
from orchestrator.engine.llama import Llama, Tokens, as_tokens
from orchestrator.engine.worker.priority import CacheHolder, priority, select_preemption_victim
from orchestrator.engine.worker.sequence import Sequence
from orchestrator.registry.options import Adapters
from orchestrator.task.reuse import Reuse

_SCAN = 64  # at most this many queued sequences are considered in a step
# A sequence waits for a prefix that another one is computing if that saves at least this many tokens.
_WORTH_WAITING = 16
# The state of a model with recurrent layers is kept where documents, a message or the prompt end, if that saves at
# least this many tokens. It costs a step.
_WORTH_A_STATE = 64


class Sequences:
    """All sequences of one context, by number and in their groups.

    `counts` gets the counts of EngineStats that change here. `on_cells_lost` gets a sequence before it loses its cells.
    `seconds` says how long a prefill takes. `prefixes` are those with which many prompts start, with their adapters.
    `history` has the engine's earlier prompts. `restore` may put the start of a prompt into the slots before it is
    admitted, and returns how many tokens that are.
    """

    def __init__(
        self,
        llama: Llama,
        counts: Counter[str],
        on_cells_lost: Callable[[Sequence], None],
        seconds: PrefillSeconds,
        prefixes: Iterable[tuple[Adapters, Tokens]] = (),
        history: PromptHistory | None = None,
        restore: Callable[[Slots, Tokens, Adapters], int] = lambda slots, tokens, lora: 0,
    ) -> None:
        self.slots = _make_slots(llama, seconds)
        self.all: dict[int, Sequence] = {}
        self.queue: list[Sequence] = []
        self.prefilling: list[Sequence] = []
        self.decoding: list[Sequence] = []
        # By number of a sequence, how many tokens of its prefill are computed when it pauses: for another sequence that
        # will fork there, and to keep its states there.
        self._forks: dict[int, int] = {}
        self._checkpoints: dict[int, list[int]] = {}
        self._llama = llama
        self._prefixes = tuple(prefixes)
        self._history = history or PromptHistory()
        self._restore = restore
        self._counts = counts
        self._on_cells_lost = on_cells_lost

    def add(self, sequence: Sequence) -> None:
        self.all[sequence.number] = sequence
        bisect.insort(self.queue, sequence, key=_priority)
        if self.queue[0] is sequence:
            self.slots.retry_admission()

    def remove(self, sequence: Sequence) -> None:
        """Remove a sequence, whatever its state, and free its cells."""
        del self.all[sequence.number]
        self._take_out(sequence)
        self._on_cells_lost(sequence)
        if sequence.seq >= 0:
            answer = self._answer_in_cache(sequence)
            self.slots.release(sequence.seq, sequence.computed, answer)
            self._history.leave(sequence.number, sequence.computed)
            if len(answer):
                cached = np.concatenate((sequence.prefill_tokens[: sequence.computed], answer))
                self._history.note(cached, sequence.lora)
        else:
            self.slots.retry_admission()

    def hurry(self, number: int) -> None:
        """Let a sequence go first, as if it had arrived with infinitely little slack. No effect if there is none."""
        sequence = self.all.get(number)
        if sequence is None:
            return
        sequence.priority = min(sequence.priority, priority(sequence.arrived, -math.inf))
        for group in (self.queue, self.prefilling, self.decoding):
            group.sort(key=_priority)
        if self.queue and self.queue[0] is sequence:
            self.slots.retry_admission()

    def cells_by_role(self) -> dict[str, int]:
        """Return how many cells the sequences of requests of each role hold; shared ones count once."""
        return dict(self.slots.cells_by({live.seq: live.role for live in (*self.decoding, *self.prefilling)}))

    def overdue(self, now: float) -> list[Sequence]:
        """Return the sequences whose deadline has passed at the time `now`."""
        return [
            sequence for sequence in self.all.values() if sequence.deadline is not None and sequence.deadline <= now
        ]

    def admit(self) -> list[Sequence]:
        """Admit queued sequences to the cache, in order of priority, and return them."""
        entered: list[Sequence] = []
        self._keep_states()
        self._forks.clear()
        for sequence in self.queue[:_SCAN]:
            if self.slots.full and not sequence.interactive:
                break
            if self._waits(sequence):
                continue
            if self.slots.full and not self._preempt_for_slot(sequence):
                break
            if sequence.shares and not sequence.looked_up:
                sequence.looked_up = True
                restored = self._restore(self.slots, sequence.prefill_tokens, sequence.lora)
                self._history.note(sequence.prefill_tokens[:restored], sequence.lora)
            parting = self._parting(sequence)
            place = self.slots.admit(sequence.prefill_tokens, sequence.remaining, sequence.lora, shares=sequence.shares)
            # Others do not overtake it, so that short prompts do not starve a long one.
            if place is None:
                break
            sequence.enter(*place)
            self._checkpoints[sequence.number] = self._choose_checkpoints(sequence, parting)
            self._note_entry(sequence)
            bisect.insort(self.prefilling, sequence, key=_priority)
            entered.append(sequence)
        for sequence in entered:
            self.queue.remove(sequence)
        return entered

    def _note_entry(self, sequence: Sequence) -> None:
        can_fork = self._llama.can_fork
        shareable = sequence.prompt[:-1]
        held = self.slots.tree.match(shareable, sequence.lora)[1] if can_fork else len(shareable)
        can_share = can_fork and not self._llama.keeps_states
        # What was restored of a model with windows cannot be cut back far.
        can_share = can_share and self.slots.match(shareable, sequence.lora)[1] >= held
        reuse, sequence.blocks = self._history.enter(
            sequence.number,
            sequence.prompt,
            sequence.lora,
            cached=sequence.computed,
            held=held,
            obstacle="too short" if can_share else "model cannot share",
        )
        if not sequence.preempted:
            self._counts["reused_tokens"] += sequence.cached
            sequence.reuse = reuse if sequence.shares else Reuse()

    def content(self, seq: int) -> Tokens:
        """Return the tokens that a sequence of the cache holds, with those of its answer."""
        live = next((sequence for sequence in self.all.values() if sequence.seq == seq), None)
        if live is None:
            return self.slots.tree.content(seq)[1]
        return np.concatenate((live.prompt, as_tokens(live.output)))[: self._llama.held(seq)]

    def next_chunk_limit(self, sequence: Sequence) -> int:
        """Return how many prefill tokens may be computed next: up to where another one forks or a state is kept."""
        ends = (len(sequence.prefill_tokens), self._forks.get(sequence.number), self._next_checkpoint(sequence))
        return min(end for end in ends if end is not None) - sequence.computed

    def computed(self, sequence: Sequence, chunk: Tokens) -> None:
        """Record that the next chunk of a sequence's prefill is computed in this step."""
        sequence.computed += len(chunk)
        self.slots.mark_computed(sequence.seq, chunk)
        self._counts["recomputed_tokens" if sequence.preempted else "prefill_tokens"] += len(chunk)
        if sequence.decodes:
            self.begin_decoding(sequence)

    def begin_decoding(self, sequence: Sequence) -> None:
        self.prefilling.remove(sequence)
        bisect.insort(self.decoding, sequence, key=_priority)

    def reserve_or_preempt(self, decode: list[Sequence]) -> list[Sequence]:
        """Reserve a cell for the next token of each of these sequences; return those that still hold cells."""
        while not self.slots.reserve_cells(len(decode)):
            live = [*self.decoding, *self.prefilling]
            # Never the one with the highest priority, which fits into the cache alone.
            victim = live[
                select_preemption_victim(
                    [CacheHolder(sequence.priority, self.slots.cells_freed_by(sequence.seq)) for sequence in live]
                )
            ]
            self._preempt(victim)
            decode = [sequence for sequence in decode if sequence is not victim]
        return decode

    def _preempt_for_slot(self, interactive: Sequence) -> bool:
        # Not one that was preempted before or has a higher priority, so that no batch is starved.
        candidates = [
            candidate
            for candidate in (*self.decoding, *self.prefilling)
            if not (candidate.interactive or candidate.preempted) and candidate.priority > interactive.priority
        ]
        if not candidates:
            return False
        # the one with the fewest tokens to compute again
        self._preempt(
            min(candidates, key=lambda candidate: candidate.computed - candidate.cached + len(candidate.output))
        )
        return True

    def _preempt(self, sequence: Sequence) -> None:
        self._take_out(sequence)
        self._on_cells_lost(sequence)
        self.slots.preempt(sequence.seq)
        self._history.leave(sequence.number, sequence.computed)
        sequence.preempt()
        bisect.insort(self.queue, sequence, key=_priority)
        self._counts["preempted"] += 1

    def _take_out(self, sequence: Sequence) -> None:
        self._checkpoints.pop(sequence.number, None)
        for group in (self.queue, self.prefilling, self.decoding):
            if sequence in group:
                group.remove(sequence)

    def _answer_in_cache(self, sequence: Sequence) -> Tokens:
        if not self._llama.keeps_states:
            return NO_TOKENS  # it will be removed
        tokens = np.concatenate((sequence.prompt, as_tokens(sequence.output)))
        return tokens[sequence.computed : self._llama.held(sequence.seq)]

    def _next_checkpoint(self, sequence: Sequence) -> int | None:
        positions = self._checkpoints.get(sequence.number, ())
        return next((position for position in positions if position > sequence.computed), None)

    def _parting(self, sequence: Sequence) -> int:
        # How many tokens it has in common with another sequence, wherever the state of that stands.
        return self.slots.tree.match(sequence.prefill_tokens[:-1], sequence.lora)[1] if self._llama.keeps_states else 0

    def _choose_checkpoints(self, sequence: Sequence, parting: int) -> list[int]:
        if not self._llama.keeps_states:
            return []
        tokens = sequence.prefill_tokens[:-1]
        least = sequence.computed + _WORTH_WAITING
        # Where an earlier prompt parts from this one, later ones may, too.
        starts = [len(prefix) for lora, prefix in self._prefixes if lora == sequence.lora and _starts(tokens, prefix)]
        positions = {position for position in (parting, *starts) if position >= least}
        # The next turn of a conversation continues from the last end of a message. The first one is that of the system
        # prompt.
        ends = self._llama.vocab.message_ends(tokens)
        documents = self._llama.vocab.end_of_documents(tokens, sequence.computed)
        before = [end for end in ends[:1] if end < documents]
        for position in (*before, documents, *ends[-1:], *ends[:1], len(tokens)):
            if all(abs(position - other) >= _WORTH_A_STATE for other in (sequence.computed, *positions)):
                positions.add(position)
        return sorted(positions)

    def _keep_states(self) -> None:
        if not self._llama.keeps_states:
            return
        for sequence in (*self.prefilling, *self.decoding):
            pauses = (self._forks.get(sequence.number), *self._checkpoints.get(sequence.number, ()))
            if sequence.computed in pauses:
                self.slots.checkpoint(sequence.seq)

    def _waits(self, sequence: Sequence) -> bool:
        alike = [candidate for candidate in self.prefilling if candidate.lora == sequence.lora]
        if not self._llama.can_fork or not alike or not sequence.shares:
            return False
        shareable = sequence.prefill_tokens[:-1]
        commons = [
            (common_prefix(shareable, candidate.prefill_tokens), candidate.computed, at)
            for at, candidate in enumerate(alike)
        ]
        if self._llama.keeps_states:
            commons = [common for common in commons if common[1] <= common[0]]  # the others are beyond it
        common, computed, at = max(commons, default=(0, 0, 0))
        available = max(computed, self.slots.longest_shared_prefix(sequence.prefill_tokens, sequence.lora)[1])
        if common < max(self.slots.min_shared_tokens, available + _WORTH_WAITING):
            return False
        first = alike[at]
        # The other sequence pauses where this one will fork, so that both compute the rest and decode together.
        self._forks[first.number] = min(common, self._forks.get(first.number, common))
        # Without this one's priority and class, others would come between.
        first.interactive |= sequence.interactive
        if sequence.priority < first.priority:
            first.priority = sequence.priority
            self.prefilling.sort(key=_priority)
        return True


def _make_slots(llama: Llama, seconds: PrefillSeconds) -> Slots:
    slots = llama.info.slots
    if llama.split:
        return StreamSlots(llama, slots, seconds)
    if llama.keeps_states:
        return StateSlots(llama, slots, seconds)
    return PooledSlots(llama, slots, seconds)


def _starts(tokens: Tokens, prefix: Tokens) -> bool:
    return common_prefix(tokens, prefix) == len(prefix)


def _priority(sequence: Sequence) -> float:
    return sequence.priority
