"""Decide who may enter a common pool of KV cells, from which shared prefix, and which finished prompts stay in it.

Whoever enters has room for its prompt and for what it will say soon. A pool that has fewer cells than all sequences
could take may run out in the middle: then `reserve_cells` says no, and somebody has to be preempted.
"""

import bisect
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.engine.kv.prefix_tree import PrefixTree
from orchestrator.engine.llama import Llama, Tokens

MIN_RETAINED_CELLS = 32
"""A finished prompt that would keep fewer cells than this is not kept: computing it again is as cheap."""

ANSWER_RESERVE = 64
"""Who enters a pool finds room for so many tokens of answer, for itself and for each that is there already. So between
two preemptions much is said."""


@dataclass(slots=True)
class CellReservation:
    """What a live sequence takes: `head` tokens to begin with, of which `computed` are there, and then its answer."""

    head: int
    answer: int
    computed: int

    @property
    def to_come(self) -> int:
        """How many tokens of its head are still to be computed."""
        return self.head - self.computed

    def said(self, held: int) -> int:
        """Return how many cells hold its answer, when it holds so many in all."""
        return max(0, held - self.computed)


class Slots(ABC):
    """The sequences of one context: who is in it, and what is kept for those to come."""

    def __init__(self, llama: Llama, slots: int) -> None:
        self.tree = PrefixTree()
        self._llama = llama
        self._slots = slots
        self._free = list(range(llama.sequences))
        self._live: dict[int, CellReservation] = {}
        self._retained: OrderedDict[int, int] = OrderedDict()
        self._admission_blocked = False
        self.min_shared_tokens = 1
        """Beginnings of fewer tokens are computed again rather than shared."""

    @property
    def retained(self) -> int:
        """How many finished prompts are kept."""
        return len(self._retained)

    @property
    def pooled_cells(self) -> int:
        """How many cells are held in a pool, or would be, which keeps less of finished prompts than streams do."""
        said = sum(claim.said(self._llama.held(seq)) for seq, claim in self._live.items())
        kept = min(self.tree.cells, self._llama.context_limit)
        return said + max(kept, self.tree.cells_of(self._live))

    @property
    def full(self) -> bool:
        """Whether every slot is taken."""
        return len(self._live) >= self._slots

    @property
    @abstractmethod
    def used_cells(self) -> int:
        """Cells held, or promised to heads that are being computed and to what will be said soon."""

    @abstractmethod
    def available_cells(self, wanted: int) -> int:
        """Return how many of the `wanted` cells there are for live sequences, if finished prompts make way."""

    @abstractmethod
    def reserve_cells(self, cells: int) -> bool:
        """Let finished prompts make way for so many cells, and return whether there is room for them in this step."""

    @abstractmethod
    def longest_shared_prefix(self, head: Tokens) -> tuple[int, int]:
        """Return the sequence that holds the longest beginning of a head, and its length; (-1, 0) for none.

        The last token is never shared: its logits are needed.
        """

    @abstractmethod
    def admit(self, head: Tokens, answer: int) -> tuple[int, int] | None:
        """Give a sequence its place: (sequence id, tokens already there), or None when there is no room now."""

    def retry_admission(self) -> None:
        """Take note that another one is to be let in first now."""
        self._admission_blocked = False

    @abstractmethod
    def release(self, seq: int, computed: int) -> None:
        """Free a sequence's place. What it has computed of its head stays for others, as long as there is room."""

    @abstractmethod
    def can_insert_prefix(self, length: int) -> bool:
        """Return whether so many tokens may be kept that nobody here has computed."""

    def insert_prefix(self, tokens: Tokens, fill: Callable[[int], bool]) -> bool:
        """Keep a beginning that `fill` puts into the empty sequence it is given, as if a finished prompt had left it.

        Return whether it did. The last sequence is taken: the first ones lie side by side for those that come.
        """
        if not self._free or not self.can_insert_prefix(len(tokens)) or not fill(self._free[-1]):
            return False
        seq = self._free.pop()
        self.tree.start(seq)
        self.tree.extend(seq, tokens)
        self._retained[seq] = len(tokens)
        return True

    def preempt(self, seq: int) -> None:
        """Take a sequence's place away, and what it holds for itself alone."""
        del self._live[seq]
        self._remove(seq)

    def cells_freed_by(self, seq: int) -> int:
        """Return how many cells would be free without a live sequence, held or promised."""
        claim = self._live[seq]
        return self.tree.exclusive(seq) + claim.to_come + claim.said(self._llama.held(seq))

    def mark_computed(self, seq: int, tokens: Tokens) -> None:
        """Note that a chunk of the head is in the cache now."""
        self.tree.extend(seq, tokens)
        self._live[seq].computed += len(tokens)

    def _begin(self, seq: int, source: int, reused: int) -> None:
        """Let an empty sequence begin with what it shares."""
        if not reused:
            self.tree.start(seq)
            return
        self.tree.fork(source, seq, reused)
        self._llama.fork(source, seq, reused)
        if source in self._retained:
            self._retained.move_to_end(source)

    def _evict(self, seq: int) -> None:
        del self._retained[seq]
        self._remove(seq)

    def _remove(self, seq: int) -> None:
        self.tree.drop(seq)
        self._llama.truncate(seq, 0)
        bisect.insort(self._free, seq)


class PooledSlots(Slots):
    """The sequences of one pool. `retain` is the most cells that finished prompts may keep to themselves."""

    def __init__(self, llama: Llama, slots: int, retain: int) -> None:
        super().__init__(llama, slots)
        self._retain = retain if llama.can_fork else 0
        self._spare = 0  # so many cells are free for sure: counting them at every step would take too long

    @property
    def used_cells(self) -> int:
        """Cells held, or promised to heads that are being computed and to what will be said soon."""
        claims = self._live.items()
        soon = sum(min(ANSWER_RESERVE, claim.answer - claim.said(self._llama.held(seq))) for seq, claim in claims)
        return self._taken + soon

    def available_cells(self, wanted: int) -> int:
        """Return how many of the `wanted` cells there are for live sequences, if finished prompts make way."""
        if wanted > self._spare:
            self._spare = self._llama.cells - self._taken
        if wanted > self._spare:
            return min(wanted, self._spare + sum(map(self.tree.exclusive, self._retained)))
        return wanted

    @property
    def _taken(self) -> int:
        """Cells held, or promised to heads that are being computed."""
        claims = self._live.items()
        return self.tree.cells + sum(claim.to_come + claim.said(self._llama.held(seq)) for seq, claim in claims)

    def reserve_cells(self, cells: int) -> bool:
        """Let finished prompts make way for so many cells, and return whether there is room for them in this step."""
        if cells > self._spare:
            self._spare = self._llama.cells - self._taken
        while cells > self._spare and self._retained:
            before = self.tree.cells
            self._evict(next(iter(self._retained)))
            self._spare += before - self.tree.cells
        if cells > self._spare:
            return False
        self._spare -= cells
        return True

    def longest_shared_prefix(self, head: Tokens) -> tuple[int, int]:
        """Return the sequence that holds the longest beginning of a head, and its length; (-1, 0) for none."""
        return self.tree.match(head[:-1]) if self._llama.can_fork else (-1, 0)

    def admit(self, head: Tokens, answer: int) -> tuple[int, int] | None:
        """Give a sequence its place: (sequence id, tokens already there), or None when there is no room now."""
        if self.full or self._admission_blocked:
            return None
        source, reused = self.longest_shared_prefix(head)
        if not self._free:
            oldest = next((seq for seq in self._retained if seq != source), None)
            if oldest is None:
                return None
            self._evict(oldest)
        seq = self._free.pop(0)
        self._begin(seq, source, reused)
        need = len(head) - reused + min(ANSWER_RESERVE, answer) + self.used_cells - self._taken
        # Where even all finished prompts would not make enough room, none of them is evicted.
        hopeless = bool(self._live) and self.available_cells(need) < need
        fits = not hopeless and self.reserve_cells(need)
        self._spare = 0
        if not fits:
            self._remove(seq)
            self._admission_blocked = True  # until someone leaves: trying again would cost as much at every step
            return None
        self._live[seq] = CellReservation(len(head), answer, reused)
        self._evict_surplus()
        return seq, reused

    def _evict_surplus(self) -> None:
        """Forget the finished prompts that those which run now will push out when they finish, as it is: until then
        every step would read their cells."""
        while self._retained and self.tree.cells + sum(claim.to_come for claim in self._live.values()) > self._retain:
            self._evict(next(iter(self._retained)))

    def can_insert_prefix(self, length: int) -> bool:
        """Return whether so many tokens may be kept that nobody here has computed."""
        return sum(map(self.tree.exclusive, self._retained)) + length <= self._retain

    def preempt(self, seq: int) -> None:
        """Take a sequence's place away, and what it holds for itself alone."""
        super().preempt(seq)
        self._admission_blocked = False

    def release(self, seq: int, computed: int) -> None:
        """Free a sequence's place. What it has computed of its head stays for others, as long as there is room."""
        del self._live[seq]
        self._admission_blocked = False
        if not self._retain or self.tree.exclusive(seq) < MIN_RETAINED_CELLS:
            self._remove(seq)
            return
        self._llama.truncate(seq, computed)
        self._retained[seq] = computed
        while sum(map(self.tree.exclusive, self._retained)) > self._retain:
            self._evict(next(iter(self._retained)))
