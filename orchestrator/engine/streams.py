"""Decide who may enter a split KV cache, in which stream, and which finished prompts stay in the streams left over."""

import bisect
from collections import OrderedDict

from orchestrator.engine.llama import Llama, Tokens
from orchestrator.engine.prefix import PrefixTree

WORTH_COPYING = 32
"""A shared beginning shorter than this is computed again: a fork copies a whole stream."""


class StreamSlots:
    """The sequences of one context, each in a stream of its own that is long enough for the longest.

    The lowest free stream is taken first, so that those in use lie side by side, as decoding them together needs.
    """

    def __init__(self, llama: Llama, slots: int) -> None:
        self.tree = PrefixTree()
        self._llama = llama
        self._slots = slots
        self._free = list(range(llama.sequences))
        self._live: dict[int, int] = {}
        self._retained: OrderedDict[int, int] = OrderedDict()

    @property
    def used_cells(self) -> int:
        """Cells held or promised."""
        return sum(self._live.values()) + sum(self._retained.values())

    @property
    def retained(self) -> int:
        """How many finished prompts are kept."""
        return len(self._retained)

    @property
    def full(self) -> bool:
        """Whether every slot is taken."""
        return len(self._live) >= self._slots

    def shared(self, prompt: Tokens) -> tuple[int, int]:
        """Return the sequence that holds the longest beginning of a prompt, and its length; (-1, 0) for none worth it.

        The last token is never shared: its logits are needed.
        """
        source, length = self.tree.match(prompt[:-1])
        return (source, length) if length >= WORTH_COPYING else (-1, 0)

    def enter(self, prompt: Tokens, answer: int) -> tuple[int, int] | None:
        """Give a sequence its place: (sequence id, tokens already there), or None when every slot is taken."""
        if self.full:
            return None
        source, reused = self.shared(prompt)
        if self._retained.get(source) == reused or (not self._free and [*self._retained] == [source]):
            seq = source  # nothing that it holds is lost, or there is no other place
            self._retained.pop(source)
            self._shorten(seq, reused)
        else:
            seq = self._place(source)
            if reused:
                self.tree.fork(source, seq, reused)
                self._llama.fork(source, seq, reused)
            else:
                self.tree.start(seq)
        if source in self._retained:
            self._retained.move_to_end(source)
        self._live[seq] = len(prompt) + answer
        return seq, reused

    def computed(self, seq: int, tokens: Tokens) -> None:
        """Note that a chunk of the prompt is in the cache now."""
        self.tree.extend(seq, tokens)

    def leave(self, seq: int, computed: int) -> None:
        """Free a sequence's place. What it has computed of its prompt stays for others until its stream is needed."""
        del self._live[seq]
        if self.tree.exclusive(seq) < WORTH_COPYING:
            self._remove(seq)
        else:
            self._llama.truncate(seq, computed)
            self._retained[seq] = computed

    def _place(self, source: int) -> int:
        """Return an empty stream: a free one, or that of the finished prompt that was used least recently."""
        if not self._free:
            oldest = next(seq for seq in self._retained if seq != source)
            del self._retained[oldest]
            self._remove(oldest)
        return self._free.pop(0)

    def _shorten(self, seq: int, length: int) -> None:
        spare = -1
        self.tree.fork(seq, spare, length)
        self.tree.drop(seq)
        self.tree.fork(spare, seq, length)
        self.tree.drop(spare)
        self._llama.truncate(seq, length)

    def _remove(self, seq: int) -> None:
        self.tree.drop(seq)
        self._llama.truncate(seq, 0)
        bisect.insort(self._free, seq)
