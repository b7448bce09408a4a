"""Keep the sequences of an engine, each group in order of priority, and let them into the KV cache and out of it.

A sequence is queued, then its prompt is computed (prefilling), then it decodes. When the cache runs out in the middle,
one that decodes or is in prefill goes back into the queue, and what it held is computed again later. So does one of a
batch where an interactive one would have to wait for a slot.
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

_SCAN = 64
"""At most this many queued sequences are considered in a step."""
_WORTH_WAITING = 16
"""A sequence waits for a prefix that another one is computing if that saves at least this many tokens."""


class Sequences:
    """All sequences of one context, by number and in their groups.

    `counts` is given the counts of EngineStats that change here: `reused_tokens`, `prefill_tokens`, `preempted` and
    `recomputed_tokens`. `on_cells_lost` is called with a sequence that is about to lose its cells.
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
        """Queue a new sequence."""
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
        return [one for one in self.all.values() if one.deadline is not None and one.deadline <= now]

    def admit(self) -> list[Sequence]:
        """Let queued sequences into the cache, in order of priority, and return those that enter it.

        One that waits for a prefix which another one computes is passed over. One that waits for free cells is not, so
        that a long prompt is not starved by short ones. An interactive one does not wait for a slot that a sequence of
        a batch holds, if that was never preempted.
        """
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
        """Return how many tokens of a prefill may be computed next: up to where another sequence will fork, or all."""
        return self._forks.get(sequence.number, len(sequence.prefill_tokens)) - sequence.computed

    def computed(self, sequence: Sequence, chunk: Tokens) -> None:
        """Note that the next chunk of a sequence's prefill is computed in this step."""
        sequence.computed += len(chunk)
        self.slots.mark_computed(sequence.seq, chunk)
        self._counts["recomputed_tokens" if sequence.preempted else "prefill_tokens"] += len(chunk)
        if sequence.decodes:
            self.begin_decoding(sequence)

    def begin_decoding(self, sequence: Sequence) -> None:
        """Move a sequence from those in prefill to those that decode."""
        self.prefilling.remove(sequence)
        bisect.insort(self.decoding, sequence, key=_priority)

    def reserve_or_preempt(self, decode: list[Sequence]) -> list[Sequence]:
        """Reserve a cell for the next token of each of these sequences, and return those that still hold cells then.

        Prompts of finished sequences are forgotten first. Where that is not enough, sequences are preempted: never the
        one with the highest priority, which fits into the cache alone.
        """
        while not self.slots.reserve_cells(len(decode)):
            live = [*self.decoding, *self.prefilling]
            victim = live[
                select_preemption_victim(
                    [CacheHolder(one.priority, self.slots.cells_freed_by(one.seq)) for one in live]
                )
            ]
            self._preempt(victim)
            decode = [one for one in decode if one is not victim]
        return decode

    def _preempt_for_slot(self, interactive: Sequence) -> bool:
        """Preempt the sequence of a batch that has least to compute again, and return whether there was one.

        It was never preempted before and has a lower priority, so that no batch is starved.
        """
        others = [
            one
            for one in (*self.decoding, *self.prefilling)
            if not (one.interactive or one.preempted) and one.priority > interactive.priority
        ]
        if not others:
            return False
        self._preempt(min(others, key=lambda one: one.computed - one.cached + len(one.output)))
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
        """Return whether a queued sequence waits, since one in prefill will soon hold many more of its tokens than now.

        The prefill of that one pauses where the queued one will fork from it, so that the rests of both are computed
        together, and they decode together from the first token on. It takes
        over the priority and the class of a sequence that waits for it, or others would come between.
        """
        alike = [other for other in self.prefilling if other.lora == sequence.lora]
        if not self._can_share or not alike or not sequence.shares:
            return False
        shareable = sequence.prefill_tokens[:-1]
        common, computed, at = max(
            (common_prefix(shareable, other.prefill_tokens), other.computed, at) for at, other in enumerate(alike)
        )
        there = max(computed, self.slots.longest_shared_prefix(sequence.prefill_tokens, sequence.lora)[1])
        if common < max(self.slots.min_shared_tokens, there + _WORTH_WAITING):
            return False
        first = alike[at]
        self._forks[first.number] = min(common, self._forks.get(first.number, common))
        first.interactive |= sequence.interactive
        if sequence.priority < first.priority:
            first.priority = sequence.priority
            self.prefilling.sort(key=_priority)
        return True


def _priority(sequence: Sequence) -> float:
    return sequence.priority
