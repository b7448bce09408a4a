"""Decide which sequences get a place in a KV cache whose cells form one pool, and which finished prompts stay in it.

A sequence is admitted when the pool has cells for its prompt and for the next tokens of its answer. A pool with fewer
cells than all sequences could take may run out of them later. Then `reserve_cells` returns False, and the caller has to
preempt a sequence.
"""

import bisect
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.engine.kv.prefix_tree import PrefixTree
from orchestrator.engine.llama import Llama, Tokens
from registry.options import Adapters

ANSWER_RESERVE = 64
"""When a sequence is admitted, the pool must have cells for this many further tokens of its answer and of the answers
of all admitted sequences. So many tokens are made between two preemptions."""


@dataclass(slots=True)
class CellReservation:
    """What an admitted sequence needs: cells for the tokens that it prefills, and then for its answer."""

    prefill: int
    """How many tokens are computed before it decodes."""
    answer: int
    """The most tokens of the answer that may follow."""
    computed: int
    """How many of the prefill tokens are in the cache."""

    @property
    def to_compute(self) -> int:
        """How many prefill tokens still have to be computed."""
        return self.prefill - self.computed

    def answer_cells(self, held: int) -> int:
        """Return how many of the `held` cells of the sequence belong to its answer."""
        return max(0, held - self.computed)


class Slots(ABC):
    """The sequences of one context: those that are live, and finished prompts that are retained to be shared."""

    def __init__(self, llama: Llama, slots: int) -> None:
        self.tree = PrefixTree()
        self._llama = llama
        self._slots = slots
        self._free = list(range(llama.sequences))
        self._live: dict[int, CellReservation] = {}
        self._retained: OrderedDict[int, int] = OrderedDict()
        self._admission_blocked = False
        self.min_shared_tokens = 1
        """Shared prefixes of fewer tokens are computed again."""

    @property
    def retained(self) -> int:
        """How many finished prompts are retained."""
        return len(self._retained)

    @property
    def pooled_cells(self) -> int:
        """How many cells are held, or would be held in a pool, which retains less of finished prompts than streams."""
        answers = sum(one.answer_cells(self._llama.held(seq)) for seq, one in self._live.items())
        kept = min(self.tree.cells, self._llama.context_limit)
        return answers + max(kept, self.tree.cells_of(self._live))

    @property
    def full(self) -> bool:
        """Whether every slot is taken."""
        return len(self._live) >= self._slots

    @property
    @abstractmethod
    def used_cells(self) -> int:
        """How many cells are held, or reserved for prompts that are being computed and for answers."""

    @abstractmethod
    def available_cells(self, wanted: int) -> int:
        """Return how many of the `wanted` cells live sequences could get if finished prompts were evicted."""

    @abstractmethod
    def reserve_cells(self, cells: int) -> bool:
        """Evict finished prompts until so many cells are free for this step, and return whether they are."""

    @abstractmethod
    def longest_shared_prefix(self, tokens: Tokens, lora: Adapters = ()) -> tuple[int, int]:
        """Return the sequence that holds the longest prefix of `tokens`, and the prefix's length; (-1, 0) for none.

        Only sequences that were computed with the adapters `lora` count. The last token is never shared, because its
        logits are needed.
        """

    @abstractmethod
    def admit(self, tokens: Tokens, answer: int, lora: Adapters = (), *, shares: bool = True) -> tuple[int, int] | None:
        """Give a place to a sequence that will prefill `tokens` and then make up to `answer` tokens, with `lora`.

        It `shares` what others have computed, or begins with nothing. Returns its sequence id and how many of the
        tokens it shares with others, or None if there is no place now.
        """

    def retry_admission(self) -> None:
        """Note that another sequence is now the first to be admitted, so that `admit` may succeed again."""
        self._admission_blocked = False

    @abstractmethod
    def release(self, seq: int, computed: int) -> None:
        """Free the place of a sequence. The `computed` tokens of its prompt are retained while there is room, unless
        another sequence holds them, too."""

    @abstractmethod
    def can_insert_prefix(self, length: int) -> bool:
        """Return whether a prefix of so many tokens that was not computed here may be retained."""

    def insert_prefix(self, tokens: Tokens, lora: Adapters, fill: Callable[[int], bool]) -> bool:
        """Retain a prefix as if a finished prompt had left it, and return whether that was possible.

        `lora` are the adapters that it was computed with.

        `fill` is called with an empty sequence, puts the cells into it and returns whether it did. The last free
        sequence is used, so that the first ones stay adjacent for those that will be admitted.
        """
        if not self._free or not self.can_insert_prefix(len(tokens)) or not fill(self._free[-1]):
            return False
        seq = self._free.pop()
        self.tree.start(seq, lora)
        self.tree.extend(seq, tokens)
        self._retained[seq] = len(tokens)
        return True

    def preempt(self, seq: int) -> None:
        """Take a sequence's place away, and the cells that it shares with nobody."""
        del self._live[seq]
        self._remove(seq)

    def cells_freed_by(self, seq: int) -> int:
        """Return how many cells, held or reserved, preempting a live sequence would free."""
        one = self._live[seq]
        return self.tree.exclusive(seq) + one.to_compute + one.answer_cells(self._llama.held(seq))

    def mark_computed(self, seq: int, tokens: Tokens) -> None:
        """Note that the next prefill tokens of a sequence are in the cache now."""
        self.tree.extend(seq, tokens)
        self._live[seq].computed += len(tokens)

    def _begin(self, seq: int, source: int, reused: int, lora: Adapters) -> None:
        """Let an empty sequence begin with the first `reused` tokens of `source`, which has the same adapters."""
        if not reused:
            self.tree.start(seq, lora)
            return
        self.tree.fork(source, seq, reused)
        self._llama.fork(source, seq, reused)
        if source in self._retained:
            self._retained.move_to_end(source)

    def _is_held_by_another(self, seq: int) -> bool:
        """Return whether another sequence has the same prompt: it holds all of this one's but for the last token, which
        each has computed itself."""
        return self.tree.exclusive(seq) <= 1

    def _evict(self, seq: int) -> None:
        """Remove a finished prompt."""
        del self._retained[seq]
        self._remove(seq)

    def _remove(self, seq: int) -> None:
        self.tree.drop(seq)
        self._llama.truncate(seq, 0)
        bisect.insort(self._free, seq)


class PooledSlots(Slots):
    """The sequences of a pool that all share. Finished prompts together retain at most `retain` cells of their own."""

    def __init__(self, llama: Llama, slots: int, retain: int) -> None:
        super().__init__(llama, slots)
        self._retain = retain if llama.can_fork else 0
        self._spare = 0  # so many cells are certainly free: counting them in every step would take too long

    @property
    def used_cells(self) -> int:
        """How many cells are held, or reserved for prompts that are being computed and for the next answer tokens."""
        live = self._live.items()
        soon = sum(min(ANSWER_RESERVE, one.answer - one.answer_cells(self._llama.held(seq))) for seq, one in live)
        return self._taken + soon

    def available_cells(self, wanted: int) -> int:
        """Return how many of the `wanted` cells live sequences could get if finished prompts were evicted."""
        if wanted > self._spare:
            self._spare = self._llama.cells - self._taken
        if wanted > self._spare:
            return min(wanted, self._spare + sum(map(self.tree.exclusive, self._retained)))
        return wanted

    @property
    def _taken(self) -> int:
        """How many cells are held, or reserved for prompts that are being computed."""
        live = self._live.items()
        return self.tree.cells + sum(one.to_compute + one.answer_cells(self._llama.held(seq)) for seq, one in live)

    def reserve_cells(self, cells: int) -> bool:
        """Evict finished prompts until so many cells are free for this step, and return whether they are."""
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

    def longest_shared_prefix(self, tokens: Tokens, lora: Adapters = ()) -> tuple[int, int]:
        """Return the sequence that holds the longest prefix of `tokens`, and the prefix's length; (-1, 0) for none."""
        return self.tree.match(tokens[:-1], lora) if self._llama.can_fork else (-1, 0)

    def admit(self, tokens: Tokens, answer: int, lora: Adapters = (), *, shares: bool = True) -> tuple[int, int] | None:
        """Give a place to a sequence, as `Slots.admit` says, if the pool has cells for it."""
        if self.full or self._admission_blocked:
            return None
        source, reused = self.longest_shared_prefix(tokens, lora) if shares else (-1, 0)
        if not self._free:
            oldest = next((seq for seq in self._retained if seq != source), None)
            if oldest is None:
                return None
            self._evict(oldest)
        seq = self._free.pop(0)
        self._begin(seq, source, reused, lora)
        need = len(tokens) - reused + min(ANSWER_RESERVE, answer) + self.used_cells - self._taken
        # Where even all finished prompts would not make enough room, none of them is evicted.
        hopeless = bool(self._live) and self.available_cells(need) < need
        fits = not hopeless and self.reserve_cells(need)
        self._spare = 0
        if not fits:
            self._remove(seq)
            self._admission_blocked = True  # until a sequence leaves: trying again in every step would cost as much
            return None
        self._live[seq] = CellReservation(len(tokens), answer, reused)
        self._evict_surplus()
        return seq, reused

    def _evict_surplus(self) -> None:
        """Evict now the finished prompts for which there will be no cells when the live ones finish: until then every
        step would read their cells."""
        while self._retained and self.tree.cells + sum(one.to_compute for one in self._live.values()) > self._retain:
            self._evict(next(iter(self._retained)))

    def can_insert_prefix(self, length: int) -> bool:
        """Return whether a prefix of so many tokens that was not computed here may be retained."""
        return sum(map(self.tree.exclusive, self._retained)) + length <= self._retain

    def preempt(self, seq: int) -> None:
        """Take a sequence's place away, and the cells that it shares with nobody."""
        super().preempt(seq)
        self._admission_blocked = False

    def release(self, seq: int, computed: int) -> None:
        """Free the place of a sequence. The `computed` tokens of its prompt are retained while there are cells."""
        del self._live[seq]
        self._admission_blocked = False
        if not self._retain or self._is_held_by_another(seq):
            self._remove(seq)
            return
        self._llama.truncate(seq, computed)
        self._retained[seq] = computed
        while sum(map(self.tree.exclusive, self._retained)) > self._retain:
            self._evict(next(iter(self._retained)))
