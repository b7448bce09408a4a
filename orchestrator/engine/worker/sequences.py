"""Keep the sequences of an engine, each group in order of priority, and let them into the KV cache and out of it.

A sequence is queued, then its prompt is computed (prefilling), then it decodes. When the cache runs out in the middle,
one that decodes or is in prefill goes back into the queue, and what it held is computed again later.
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
"""How many queued sequences are looked at in a step, when some of them wait for a prefix."""
_WORTH_WAITING = 16
"""Wait for a prefix that another sequence is computing if it saves at least this many tokens."""


class Sequences:
    """All sequences of one context, by number and in their groups.

    `counts` gets reused_tokens, preempted and recomputed_tokens. `let_go` is told of a sequence that is about to lose
    its place in the cache.
    """

    def __init__(self, llama: Llama, counts: Counter[str], let_go: Callable[[Sequence], None]) -> None:
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
        self._let_go = let_go

    def add(self, sequence: Sequence) -> None:
        """Queue a new sequence."""
        self.all[sequence.number] = sequence
        bisect.insort(self.queue, sequence, key=_priority)
        if self.queue[0] is sequence:
            self.slots.try_again()

    def remove(self, sequence: Sequence) -> None:
        """Forget a sequence, wherever it is, and free what it holds."""
        del self.all[sequence.number]
        self._take_out(sequence)
        self._let_go(sequence)
        if sequence.seq >= 0:
            self.slots.leave(sequence.seq, sequence.computed)
        else:
            self.slots.try_again()

    def late(self, now: float) -> list[Sequence]:
        """Return those whose deadline is over."""
        return [one for one in self.all.values() if one.deadline is not None and one.deadline <= now]

    def admit(self) -> None:
        """Give slots to the queue, in order of priority. Who waits for a prefix lets others pass; who waits for
        room does not, so that a large one is not starved by small ones."""
        entered = []
        self._forks.clear()
        for sequence in self.queue[:_SCAN]:
            if self.slots.full:
                break
            if self._waits(sequence):
                continue
            place = self.slots.enter(sequence.prefill_tokens, sequence.left)
            if place is None:
                break
            sequence.enter(*place)
            if not sequence.preempted:
                self._counts["reused_tokens"] += sequence.cached
            bisect.insort(self.prefilling, sequence, key=_priority)
            entered.append(sequence)
        for sequence in entered:
            self.queue.remove(sequence)

    def stretch(self, sequence: Sequence) -> int:
        """Return how many tokens of a prefill to compute next: up to where another sequence will fork, or all."""
        return self._forks.get(sequence.number, len(sequence.prefill_tokens)) - sequence.computed

    def computed(self, sequence: Sequence, chunk: Tokens) -> None:
        """Note that the next chunk of a sequence's prefill is computed in this step."""
        sequence.computed += len(chunk)
        self.slots.computed(sequence.seq, chunk)
        self._counts["recomputed_tokens" if sequence.preempted else "prefill_tokens"] += len(chunk)
        if sequence.decodes:
            self.begin_decoding(sequence)

    def begin_decoding(self, sequence: Sequence) -> None:
        """Take a sequence from those in prefill to those that decode."""
        self.prefilling.remove(sequence)
        bisect.insort(self.decoding, sequence, key=_priority)

    def make_room(self, decode: list[Sequence]) -> list[Sequence]:
        """Free a cell for a token of each of these sequences, and return those that still hold cells after that.

        Prompts of finished sequences are forgotten first. Where that is not enough, sequences are preempted: never the
        one with the highest priority, which fits into the cache alone.
        """
        while not self.slots.make_room(len(decode)):
            live = [*self.decoding, *self.prefilling]
            victim = live[
                select_preemption_victim([CacheHolder(one.priority, self.slots.frees(one.seq)) for one in live])
            ]
            self._preempt(victim)
            decode = [one for one in decode if one is not victim]
        return decode

    def _preempt(self, sequence: Sequence) -> None:
        self._take_out(sequence)
        self._let_go(sequence)
        self.slots.preempt(sequence.seq)
        sequence.preempt()
        bisect.insort(self.queue, sequence, key=_priority)
        self._counts["preempted"] += 1

    def _take_out(self, sequence: Sequence) -> None:
        for group in (self.queue, self.prefilling, self.decoding):
            if sequence in group:
                group.remove(sequence)

    def _waits(self, sequence: Sequence) -> bool:
        """Return whether a sequence in prefill will soon hold many more of this one's tokens than the cache does now.

        That one stops where the other forks from it, so that what differs is computed together, and they decode
        together from the first token on. It takes over the priority of a sequence that waits for it, or others
        would come between.
        """
        if not self._can_share or not self.prefilling:
            return False
        shareable = sequence.prefill_tokens[:-1]
        common, computed, at = max(
            (common_prefix(shareable, other.prefill_tokens), other.computed, at)
            for at, other in enumerate(self.prefilling)
        )
        there = max(computed, self.slots.shared(sequence.prefill_tokens)[1])
        if common < max(self.slots.least_shared, there + _WORTH_WAITING):
            return False
        first = self.prefilling[at]
        self._forks[first.number] = min(common, self._forks.get(first.number, common))
        if sequence.priority < first.priority:
            first.priority = sequence.priority
            self.prefilling.sort(key=_priority)
        return True


def _priority(sequence: Sequence) -> float:
    return sequence.priority
