"""Decide who may enter a common pool of KV cells, from which shared prefix, and which finished prompts stay in it.

Whoever enters has room for all of its prompt and its answer, so the cache never runs out in the middle.
"""

import bisect
from abc import ABC, abstractmethod
from collections import OrderedDict
from dataclasses import dataclass

from orchestrator.engine.llama import Llama, Tokens
from orchestrator.engine.prefix import PrefixTree

WORTH_KEEPING = 16
"""A finished prompt that would keep fewer cells than this is not kept: computing it again is as cheap."""


@dataclass(slots=True)
class Claim:
    """What a live sequence will still take: prompt tokens to be computed, and its whole answer."""

    prompt: int
    answer: int

    @property
    def cells(self) -> int:
        """Both together."""
        return self.prompt + self.answer


class Slots(ABC):
    """The sequences of one context: who is in it, and what is kept for those to come."""

    def __init__(self, llama: Llama, slots: int) -> None:
        self.tree = PrefixTree()
        self._llama = llama
        self._slots = slots
        self._free = list(range(llama.sequences))
        self._live: dict[int, Claim] = {}
        self._retained: OrderedDict[int, int] = OrderedDict()

    @property
    def retained(self) -> int:
        """How many finished prompts are kept."""
        return len(self._retained)

    @property
    def full(self) -> bool:
        """Whether every slot is taken."""
        return len(self._live) >= self._slots

    @property
    @abstractmethod
    def used_cells(self) -> int:
        """Cells held or promised."""

    @abstractmethod
    def shared(self, prompt: Tokens) -> tuple[int, int]:
        """Return the sequence that holds the longest beginning of a prompt, and its length; (-1, 0) for none.

        The last token is never shared: its logits are needed.
        """

    @abstractmethod
    def enter(self, prompt: Tokens, answer: int) -> tuple[int, int] | None:
        """Give a sequence its place: (sequence id, tokens already there), or None when there is no room now."""

    @abstractmethod
    def leave(self, seq: int, computed: int) -> None:
        """Free a sequence's place. What it has computed of its prompt stays for others, as long as there is room."""

    def computed(self, seq: int, tokens: Tokens) -> None:
        """Note that a chunk of the prompt is in the cache now."""
        self.tree.extend(seq, tokens)
        self._live[seq].prompt -= len(tokens)

    def _begin(self, seq: int, source: int, reused: int) -> None:
        """Let an empty sequence begin with what it shares."""
        if not reused:
            self.tree.start(seq)
            return
        self.tree.fork(source, seq, reused)
        self._llama.fork(source, seq, reused)
        if source in self._retained:
            self._retained.move_to_end(source)

    def _forget(self, seq: int) -> None:
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
        self._retain = retain if llama.can_share else 0
        self._stuck = False

    @property
    def used_cells(self) -> int:
        """Cells held or promised."""
        return self.tree.cells + sum(claim.cells for claim in self._live.values())

    def shared(self, prompt: Tokens) -> tuple[int, int]:
        """Return the sequence that holds the longest beginning of a prompt, and its length; (-1, 0) for none."""
        return self.tree.match(prompt[:-1]) if self._llama.can_share else (-1, 0)

    def enter(self, prompt: Tokens, answer: int) -> tuple[int, int] | None:
        """Give a sequence its place: (sequence id, tokens already there), or None when there is no room now."""
        if self.full or self._stuck:
            return None
        source, reused = self.shared(prompt)
        if not self._free:
            oldest = next((seq for seq in self._retained if seq != source), None)
            if oldest is None:
                return None
            self._forget(oldest)
        seq = self._free.pop(0)
        self._begin(seq, source, reused)
        need = len(prompt) - reused + answer
        while self.used_cells + need > self._llama.cells and self._retained:
            self._forget(next(iter(self._retained)))
        if self.used_cells + need > self._llama.cells:
            self._remove(seq)
            self._stuck = True  # until someone leaves: trying again would cost as much at every step
            return None
        self._live[seq] = Claim(len(prompt) - reused, answer)
        return seq, reused

    def leave(self, seq: int, computed: int) -> None:
        """Free a sequence's place. What it has computed of its prompt stays for others, as long as there is room."""
        del self._live[seq]
        self._stuck = False
        if not self._retain or self.tree.exclusive(seq) < WORTH_KEEPING:
            self._remove(seq)
            return
        self._llama.truncate(seq, computed)
        self._retained[seq] = computed
        while sum(map(self.tree.exclusive, self._retained)) > self._retain:
            self._forget(next(iter(self._retained)))
