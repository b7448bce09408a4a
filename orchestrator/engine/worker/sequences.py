"""Keep the sequences of an engine in order of priority, and move them into and out of the KV cache.

A sequence is queued, then prefilled, then it decodes. A preempted one goes back into the queue, and is prefilled again.
"""

import bisect
from collections import Counter
from collections.abc import Callable

from orchestrator.engine.kv.prefix_tree import common_prefix
from orchestrator.engine.kv.slots import PooledSlots, Slots
from orchestrator.engine.kv.streams import StreamSlots
from orchestrator.engine.llama import Llama, Tokens
from orchestrator.engine.worker.priority import CacheHolder, select_preemption_victim
from orchestrator.engine.worker.sequence import Sequence

_SCAN = 64  # at most this many queued sequences are considered in a step
# A sequence waits for a prefix that another one is computing if that saves at least this many tokens.
_WORTH_WAITING = 16


class Sequences:
    """All sequences of one context, by number and in their groups.

    `counts` gets the counts of EngineStats that change here. `on_cells_lost` gets a sequence before it loses its cells.
    """

    def __init__(self, llama: Llama, counts: Counter[str], on_cells_lost: Callable[[Sequence], None]) -> None:
        self.slots: Slots = (
            StreamSlots(llama, llama.info.slots)
            if llama.split
            else PooledSlots(llama, llama.info.slots, retain=llama.context_limit)
        )
        self.all: dict[int, Sequence] = {}
        self.queue: list[Sequence] = []
        self.prefilling: list[Sequence] = []
        self.decoding: list[Sequence] = []
        self._forks: dict[int, int] = {}
        self._can_share = llama.can_fork
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
            self.slots.release(sequence.seq, sequence.computed)
        else:
            self.slots.retry_admission()

    def overdue(self, now: float) -> list[Sequence]:
        """Return the sequences whose deadline has passed at the time `now`."""
        return [
            sequence for sequence in self.all.values() if sequence.deadline is not None and sequence.deadline <= now
        ]

    def admit(self) -> list[Sequence]:
        """Admit queued sequences to the cache, in order of priority, and return them."""
        entered: list[Sequence] = []
        self._forks.clear()
        for sequence in self.queue[:_SCAN]:
            if self.slots.full and not sequence.interactive:
                break
            if self._waits(sequence):
                continue
            if self.slots.full and not self._preempt_for_slot(sequence):
                break
            place = self.slots.admit(sequence.prefill_tokens, sequence.remaining, sequence.lora, shares=sequence.shares)
            # Others do not overtake it, so that short prompts do not starve a long one.
            if place is None:
                break
            sequence.enter(*place)
            if not sequence.preempted:
                self._counts["reused_tokens"] += sequence.cached
            bisect.insort(self.prefilling, sequence, key=_priority)
            entered.append(sequence)
        for sequence in entered:
            self.queue.remove(sequence)
        return entered

    def next_chunk_limit(self, sequence: Sequence) -> int:
        """Return how many prefill tokens may be computed next: up to where another sequence will fork, or all."""
        return self._forks.get(sequence.number, len(sequence.prefill_tokens)) - sequence.computed

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
        sequence.preempt()
        bisect.insort(self.queue, sequence, key=_priority)
        self._counts["preempted"] += 1

    def _take_out(self, sequence: Sequence) -> None:
        for group in (self.queue, self.prefilling, self.decoding):
            if sequence in group:
                group.remove(sequence)

    def _waits(self, sequence: Sequence) -> bool:
        alike = [candidate for candidate in self.prefilling if candidate.lora == sequence.lora]
        if not self._can_share or not alike or not sequence.shares:
            return False
        shareable = sequence.prefill_tokens[:-1]
        common, computed, at = max(
            (common_prefix(shareable, candidate.prefill_tokens), candidate.computed, at)
            for at, candidate in enumerate(alike)
        )
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


def _priority(sequence: Sequence) -> float:
    return sequence.priority
