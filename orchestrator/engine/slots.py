"""Decide who may enter a common pool of KV cells, from which shared prefix, and which finished prompts stay in it.

Whoever enters has room for all of its prompt and its answer, so the cache never runs out in the middle.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Protocol

from orchestrator.engine.llama import Llama, Tokens
from orchestrator.engine.prefix import PrefixTree

WORTH_KEEPING = 16
"""A finished prompt that would keep fewer cells than this is not kept: computing it again is as cheap."""


class Slots(Protocol):
    """The sequences of one context: who is in it, and what is kept for those to come."""

    @property
    def used_cells(self) -> int:
        """Cells held or promised."""

    @property
    def retained(self) -> int:
        """How many finished prompts are kept."""

    @property
    def full(self) -> bool:
        """Whether every slot is taken."""

    def shared(self, prompt: Tokens) -> tuple[int, int]:
        """Return the sequence that holds the longest beginning of a prompt, and its length; (-1, 0) for none.

        The last token is never shared: its logits are needed.
        """

    def enter(self, prompt: Tokens, answer: int) -> tuple[int, int] | None:
        """Give a sequence its place: (sequence id, tokens already there), or None when there is no room now."""

    def computed(self, seq: int, tokens: Tokens) -> None:
        """Note that a chunk of the prompt is in the cache now."""

    def leave(self, seq: int, computed: int) -> None:
        """Free a sequence's place. What it has computed of its prompt stays for others, as long as there is room."""


@dataclass(slots=True)
class Claim:
    """What a live sequence will still take: prompt tokens to be computed, and its whole answer."""

    prompt: int
    answer: int


class PooledSlots:
    """The sequences of one pool. `retain` is the most cells that finished prompts may keep to themselves."""

    def __init__(self, llama: Llama, slots: int, retain: int) -> None:
        self.tree = PrefixTree()
        self._llama = llama
        self._retain = retain if llama.can_share else 0
        self._slots = slots
        self._free = list(range(llama.sequences))[::-1]
        self._live: dict[int, Claim] = {}
        self._retained: OrderedDict[int, None] = OrderedDict()
        self._stuck = False

    @property
    def used_cells(self) -> int:
        """Cells held or promised."""
        return self.tree.cells + sum(claim.prompt + claim.answer for claim in self._live.values())

    @property
    def retained(self) -> int:
        """How many finished prompts are kept."""
        return len(self._retained)

    @property
    def full(self) -> bool:
        """Whether every slot is taken."""
        return len(self._live) >= self._slots

    def shared(self, prompt: Tokens) -> tuple[int, int]:
        """Return the sequence that holds the longest beginning of a prompt, and its length; (-1, 0) for none.

        The last token is never shared: its logits are needed.
        """
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
        seq = self._free.pop()
        if reused:
            self.tree.fork(source, seq, reused)
            self._llama.fork(source, seq, reused)
            if source in self._retained:
                self._retained.move_to_end(source)
        else:
            self.tree.start(seq)
        need = len(prompt) - reused + answer
        while self.used_cells + need > self._llama.cells and self._retained:
            self._forget(next(iter(self._retained)))
        if self.used_cells + need > self._llama.cells:
            self._remove(seq)
            self._stuck = True  # until someone leaves: trying again would cost as much at every step
            return None
        self._live[seq] = Claim(len(prompt) - reused, answer)
        return seq, reused

    def computed(self, seq: int, tokens: Tokens) -> None:
        """Note that a chunk of the prompt is in the cache now."""
        self.tree.extend(seq, tokens)
        self._live[seq].prompt -= len(tokens)

    def leave(self, seq: int, computed: int) -> None:
        """Free a sequence's place. What it has computed of its prompt stays for others, as long as there is room."""
        del self._live[seq]
        self._stuck = False
        if not self._retain or self.tree.exclusive(seq) < WORTH_KEEPING:
            self._remove(seq)
            return
        self._llama.truncate(seq, computed)
        self._retained[seq] = None
        while sum(map(self.tree.exclusive, self._retained)) > self._retain:
            self._forget(next(iter(self._retained)))

    def _forget(self, seq: int) -> None:
        del self._retained[seq]
        self._remove(seq)

    def _remove(self, seq: int) -> None:
        self.tree.drop(seq)
        self._llama.truncate(seq, 0)
        self._free.append(seq)
