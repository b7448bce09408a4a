"""Admit sequences to a KV cache whose cells form one pool, and choose which finished prompts stay in it."""

import bisect
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from orchestrator.engine.kv.prefix_tree import PrefixTree
from orchestrator.engine.llama import Llama, Tokens
from orchestrator.registry.options import Adapters

PrefillSeconds = Callable[[int, int], float]
"""Takes a position in a prompt and a number of tokens, and returns the seconds to compute the tokens from there."""

NO_TOKENS: Tokens = np.empty(0, np.int32)
# A sequence is admitted if the pool has cells for this many further answer tokens, of it and of each admitted one. So
# this many tokens are made between two preemptions.
ANSWER_RESERVE = 64
# Assumed: how many of the finished prompts come again. Reading what a pool retains of one may take this part of the
# time to compute it again. So prompts that never come again cost no more than that.
RETURNING = 0.25


@dataclass(slots=True)
class CellReservation:
    """The cells that an admitted sequence needs."""

    prefill: int  # tokens that are computed before it decodes
    answer: int  # the most answer tokens that may follow
    computed: int  # prefill tokens in the cache

    @property
    def to_compute(self) -> int:
        return self.prefill - self.computed

    def answer_cells(self, held: int) -> int:
        """Return how many of the `held` cells of the sequence belong to its answer."""
        return max(0, held - self.computed)


class Slots(ABC):
    """The sequences of one context: live ones, and finished prompts that are retained to be shared.

    Those that save the most seconds per byte are retained.
    """

    def __init__(self, llama: Llama, slots: int, seconds: PrefillSeconds) -> None:
        self.tree = PrefixTree()
        self._llama = llama
        self._slots = slots
        self._seconds = seconds
        self._free = list(range(llama.sequences))
        self._live: dict[int, CellReservation] = {}
        self._retained: dict[int, int] = {}  # their numbers of tokens, the one that was used last at the end
        # GreedyDual (Cao and Irani 1997): a prompt is worth its value plus the worth of the last one that was evicted
        # when it was last used. So what is used again stays, and what is not goes after a while, however valuable.
        self._inflation = 0.0
        self._inflation_at_use: dict[int, float] = {}
        self._admission_blocked = False
        self.min_shared_tokens = 1  # shorter shared prefixes are computed again

    @property
    def retained(self) -> int:
        """How many finished prompts are retained."""
        return len(self._retained)

    @property
    def pooled_cells(self) -> int:
        """How many cells a pool holds, or would hold: it does not retain as much of finished prompts for long."""
        answers = sum(need.answer_cells(self._llama.held(seq)) for seq, need in self._live.items())
        retained = min(self.tree.cells, self._llama.context_limit)
        return answers + max(retained, self.tree.cells_of(self._live))

    def cells_by(self, owners: Mapping[int, str]) -> Counter[str]:
        """Return how many cells the live sequences of each owner hold; shared ones count for the first of them."""
        counts = self.tree.cells_by(owners)
        for seq, owner in owners.items():
            counts[owner] += self._live[seq].answer_cells(self._llama.held(seq))
        return counts

    @property
    def finished_cells(self) -> int:
        """How many cells only finished prompts hold."""
        return self.tree.cells - self.tree.cells_of(self._live)

    @property
    def full(self) -> bool:
        return len(self._live) >= self._slots

    @property
    @abstractmethod
    def used_cells(self) -> int:
        """How many cells are held, or reserved for prompts in prefill and for answers."""

    @abstractmethod
    def available_cells(self, cells: int) -> int:
        """Return how many of `cells` cells live sequences could get if finished prompts were evicted."""

    @abstractmethod
    def reserve_cells(self, cells: int) -> bool:
        """Evict finished prompts until `cells` cells are free for this step; return whether they are.

        If not, the caller has to preempt a sequence.
        """

    def match(self, tokens: Tokens, lora: Adapters = ()) -> tuple[int, int]:
        """Return the sequence that can be forked after the longest prefix of `tokens`, and its length; or (-1, 0)."""
        return self.tree.match(tokens, lora, self._llama.least_prefix)

    @abstractmethod
    def longest_shared_prefix(self, tokens: Tokens, lora: Adapters = ()) -> tuple[int, int]:
        """Return the sequence that shares the longest prefix of `tokens`, and the prefix's length; or (-1, 0)."""

    @abstractmethod
    def admit(self, tokens: Tokens, answer: int, lora: Adapters = (), *, shares: bool = True) -> tuple[int, int] | None:
        """Admit a sequence that will prefill `tokens` and then make up to `answer` tokens, with `lora`.

        Returns its id and how many tokens it shares with others (0 unless it `shares`); None if there is no place now.
        """

    def retry_admission(self) -> None:
        """Let `admit` try again, because another sequence is the first to be admitted now."""
        self._admission_blocked = False

    def note_read(self, seconds: float) -> None:  # noqa: B027 (a split cache reads nothing of finished prompts)
        """Record that steps have spent `seconds` on reading each cell of a pool."""

    def checkpoint(self, seq: int) -> None:  # noqa: B027 (any prefix of a sequence can be forked as long as it is held)
        """Retain what a live sequence holds now, where it can be forked only at its end."""

    @abstractmethod
    def release(self, seq: int, computed: int, answer: Tokens = NO_TOKENS) -> None:
        """Free the slot of a sequence. Its `computed` prompt tokens are retained if there is room and no other copy.

        `answer` are the tokens after these in the cache. They are retained, too, if they cannot be removed.
        """

    def retained_prefixes(self) -> Iterator[tuple[int, Adapters, Tokens]]:
        """Yield the retained sequences, each with its adapters and tokens."""
        for seq in self._retained:
            yield seq, *self.tree.content(seq)

    def insert_prefix(self, tokens: Tokens, lora: Adapters, fill: Callable[[int], bool], cells: int = 0) -> bool:
        """Retain a prefix like a finished prompt, if `fill` puts its cells into an empty sequence and returns True.

        Others are evicted for it. `cells` is how many cells `fill` needs, if these are more than the tokens.
        """
        # the last free sequence, so that those that are admitted later are adjacent
        if not self._make_room(max(cells, len(tokens))) or not fill(self._free[-1]):
            return False
        seq = self._free.pop()
        self.tree.start(seq, lora)
        self.tree.extend(seq, tokens)
        self._keep(seq, len(tokens))
        return True

    def preempt(self, seq: int) -> None:
        """Take away the slot of a sequence, and the cells that it shares with no other."""
        del self._live[seq]
        self._remove(seq)

    def cells_freed_by(self, seq: int) -> int:
        """Return how many cells, held or reserved, preempting a live sequence would free."""
        need = self._live[seq]
        return self.tree.exclusive(seq) + need.to_compute + need.answer_cells(self._llama.held(seq))

    def mark_computed(self, seq: int, tokens: Tokens) -> None:
        """Record that the next prefill tokens of a sequence are in the cache."""
        self.tree.extend(seq, tokens)
        self._live[seq].computed += len(tokens)

    def _begin(self, seq: int, source: int, reused: int, lora: Adapters) -> None:
        if not reused:
            self.tree.start(seq, lora)
            return
        self.tree.fork(source, seq, reused)
        self._llama.fork(source, seq, reused)
        if source in self._retained:
            self._keep(source, self._retained[source])

    def _keep(self, seq: int, length: int) -> None:
        # Retains a sequence, as the one that was used last.
        self._retained.pop(seq, None)
        self._retained[seq] = length
        self._inflation_at_use[seq] = self._inflation

    def _victim(self, spared: int = -1, *, frees_cells: bool = False) -> int | None:
        # The retained sequence, other than `spared`, that is evicted first; of equals, the one that was used least
        # recently.
        candidates = (seq for seq in self._retained if seq != spared and (not frees_cells or self.tree.exclusive(seq)))
        return min(candidates, key=self._worth, default=None)

    def _worth(self, seq: int) -> float:
        return self._inflation_at_use[seq] + self._value(seq)

    @abstractmethod
    def _value(self, seq: int) -> float:
        """Return the seconds to compute again what would be lost with a sequence, per byte that it takes."""

    def _seconds_of(self, seq: int, lost: int) -> float:
        length = self._retained.get(seq, self._llama.held(seq))
        return self._seconds(length - lost, lost)

    def _make_room(self, cells: int) -> bool:
        # Evicts until another sequence with this number of cells can be retained. Returns whether it can.
        if not self._free and (victim := self._victim()) is not None:
            self._evict(victim)
        return bool(self._free)

    def _is_held_by_another(self, seq: int) -> bool:
        # 1: a sequence computes the last token of its prompt itself, so that cell is never shared
        return self.tree.exclusive(seq) <= 1

    def _evict(self, seq: int) -> None:
        self._inflation = max(self._inflation, self._worth(seq))
        self._forget(seq)

    def _forget(self, seq: int) -> None:
        del self._retained[seq], self._inflation_at_use[seq]
        self._remove(seq)

    def _remove(self, seq: int) -> None:
        self.tree.drop(seq)
        self._llama.truncate(seq, 0)
        bisect.insort(self._free, seq)


class PooledSlots(Slots):
    """The sequences of one pool.

    Finished prompts are retained while there is room, and until reading their cells has cost more than they are worth.
    """

    def __init__(self, llama: Llama, slots: int, seconds: PrefillSeconds) -> None:
        super().__init__(llama, slots, seconds)
        self._retain = llama.cells - ANSWER_RESERVE if llama.can_fork else 0
        self._read_seconds = 0.0  # spent on each cell so far
        self._read_seconds_at_use: dict[int, float] = {}
        self._spare = 0  # at least this many cells are free: counting them in every step takes too long

    @property
    def pooled_cells(self) -> int:
        return self.tree.cells + sum(need.answer_cells(self._llama.held(seq)) for seq, need in self._live.items())

    @property
    def used_cells(self) -> int:
        live = self._live.items()
        soon = sum(min(ANSWER_RESERVE, need.answer - need.answer_cells(self._llama.held(seq))) for seq, need in live)
        return self._occupied_cells + soon

    def available_cells(self, cells: int) -> int:
        if cells > self._spare:
            self._spare = self._llama.cells - self._occupied_cells
        if cells > self._spare:
            return min(cells, self._spare + self._retained_cells)
        return cells

    @property
    def _retained_cells(self) -> int:
        return sum(map(self.tree.exclusive, self._retained))

    @property
    def _occupied_cells(self) -> int:
        # unlike `used_cells`, without those that are reserved for answers
        live = self._live.items()
        return self.tree.cells + sum(need.to_compute + need.answer_cells(self._llama.held(seq)) for seq, need in live)

    def note_read(self, seconds: float) -> None:
        self._read_seconds += seconds
        for seq in tuple(self._retained):
            own = self.tree.exclusive(seq)
            read = self._read_seconds - self._read_seconds_at_use[seq]
            if own and read * own > RETURNING * self._seconds_of(seq, own):
                self._forget(seq)

    def _keep(self, seq: int, length: int) -> None:
        super()._keep(seq, length)
        self._read_seconds_at_use[seq] = self._read_seconds

    def reserve_cells(self, cells: int) -> bool:
        if cells > self._spare:
            self._spare = self._llama.cells - self._occupied_cells
        while cells > self._spare and (victim := self._victim(frees_cells=True)) is not None:
            before = self.tree.cells
            self._evict(victim)
            self._spare += before - self.tree.cells
        if cells > self._spare:
            return False
        self._spare -= cells
        return True

    def longest_shared_prefix(self, tokens: Tokens, lora: Adapters = ()) -> tuple[int, int]:
        # Not the last token, whose logits are needed.
        return self.match(tokens[:-1], lora) if self._llama.can_fork else (-1, 0)

    def admit(self, tokens: Tokens, answer: int, lora: Adapters = (), *, shares: bool = True) -> tuple[int, int] | None:
        if self.full or self._admission_blocked:
            return None
        source, reused = self.longest_shared_prefix(tokens, lora) if shares else (-1, 0)
        if not self._free:
            victim = self._victim(source)
            if victim is None:
                return None
            self._evict(victim)
        seq = self._free.pop(0)
        self._begin(seq, source, reused, lora)
        need = len(tokens) - reused + min(ANSWER_RESERVE, answer) + self.used_cells - self._occupied_cells
        # If evicting all finished prompts would not make enough room, none of them is evicted.
        hopeless = bool(self._live) and self.available_cells(need) < need
        fits = not hopeless and self.reserve_cells(need)
        self._spare = 0
        if not fits:
            self._remove(seq)
            self._admission_blocked = True  # until a sequence leaves: a retry in every step would cost too much
            return None
        self._live[seq] = CellReservation(len(tokens), answer, reused)
        self._evict_surplus()
        return seq, reused

    def _evict_surplus(self) -> None:
        # There will be no cells for these prompts when the live sequences finish, and until then every step would
        # read them.
        most = self._retain - sum(need.to_compute for need in self._live.values())
        while self.tree.cells > most and (victim := self._victim(frees_cells=True)) is not None:
            self._evict(victim)

    def _make_room(self, cells: int) -> bool:
        if cells > self._retain or self.available_cells(cells) < cells:
            return False
        while self._retained_cells + cells > self._retain and (victim := self._victim(frees_cells=True)) is not None:
            self._evict(victim)
        return self.reserve_cells(cells) and super()._make_room(cells)

    def preempt(self, seq: int) -> None:
        super().preempt(seq)
        self._admission_blocked = False

    def release(self, seq: int, computed: int, answer: Tokens = NO_TOKENS) -> None:
        del self._live[seq]
        self._admission_blocked = False
        if not self._retain or self._is_held_by_another(seq):
            self._remove(seq)
            return
        self._llama.truncate(seq, computed)
        self._keep(seq, computed)
        self._evict_until_within_limit()

    def _value(self, seq: int) -> float:
        lost = self.tree.exclusive(seq)
        return self._seconds_of(seq, lost) / (self._llama.cell_bytes * lost) if lost else 0.0

    def _evict_until_within_limit(self) -> None:
        while self._retained_cells > self._retain and (victim := self._victim(frees_cells=True)) is not None:
            self._evict(victim)
