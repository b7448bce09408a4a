"""Decide who may enter a split KV cache, in which stream, and which finished prompts stay in the streams left over."""

from orchestrator.engine.kv.slots import CellReservation, Slots
from orchestrator.engine.llama import Llama, Tokens

MIN_RETAINED_CELLS = 32
"""A finished prompt that would keep fewer cells than this is not kept: computing it again is as cheap."""

CELLS_COPIED_PER_TOKEN = 64
"""A fork copies a whole stream, which takes about as long as to compute one in so many of its cells."""


class StreamSlots(Slots):
    """The sequences of one context, each in a stream of its own that is long enough for the longest.

    The lowest free stream is taken first, so that those in use lie side by side, as decoding them together needs.
    """

    def __init__(self, llama: Llama, slots: int) -> None:
        super().__init__(llama, slots)
        self.min_shared_tokens = max(MIN_RETAINED_CELLS, llama.context_limit // CELLS_COPIED_PER_TOKEN)

    @property
    def used_cells(self) -> int:
        """Cells held, or promised to sequences that are live."""
        held = {seq: self._llama.held(seq) for seq in range(self._llama.sequences)}
        live = self._live.items()
        return sum(held.values()) + sum(one.to_come + one.answer - one.said(held[seq]) for seq, one in live)

    def available_cells(self, wanted: int) -> int:
        """Return `wanted`: every sequence has a stream that is long enough for it."""
        return wanted

    def reserve_cells(self, cells: int) -> bool:
        """Return True, for the same reason."""
        return True

    def longest_shared_prefix(self, head: Tokens) -> tuple[int, int]:
        """Return the sequence that holds the longest beginning of a head, and its length; (-1, 0) for none worth it.

        The last token is never shared: its logits are needed.
        """
        source, length = self.tree.match(head[:-1])
        return (source, length) if length >= self.min_shared_tokens else (-1, 0)

    def admit(self, head: Tokens, answer: int) -> tuple[int, int] | None:
        """Give a sequence its place: (sequence id, tokens already there), or None when every slot is taken."""
        if self.full:
            return None
        source, reused = self.longest_shared_prefix(head)
        heir = self._reusable_in_place(source, reused)
        if heir is not None:
            seq = heir
            self._retained.pop(seq)
            self._shorten(seq, reused)
        else:
            seq = self._place(source)
            self._begin(seq, source, reused)
        self._live[seq] = CellReservation(len(head), answer, reused)
        return seq, reused

    def release(self, seq: int, computed: int) -> None:
        """Free a sequence's place. What it has computed of its head stays for others until its stream is needed."""
        del self._live[seq]
        if self.tree.exclusive(seq) < MIN_RETAINED_CELLS:
            self._remove(seq)
        else:
            self._llama.truncate(seq, computed)
            self._retained[seq] = computed

    def can_insert_prefix(self, length: int) -> bool:
        """Any stream that is free may keep what fits it."""
        return length <= self._llama.context_limit

    def _reusable_in_place(self, source: int, reused: int) -> int | None:
        """Return a finished prompt that can go on from the first `reused` tokens of `source` where it is, or None.

        That is one that loses nothing, or, where some prompt has to make way, the first of those that begin with them:
        it takes no copy.
        """
        if self._retained.get(source) == reused:
            return source
        if self._free or not reused:
            return None
        return next((seq for seq in self._retained if self.tree.common(seq, source) >= reused), None)

    def _place(self, source: int) -> int:
        """Return an empty stream: a free one, or that of the finished prompt that was used least recently."""
        if not self._free:
            self._evict(next(seq for seq in self._retained if seq != source))
        return self._free.pop(0)

    def _shorten(self, seq: int, length: int) -> None:
        spare = -1
        self.tree.fork(seq, spare, length)
        self.tree.drop(seq)
        self.tree.fork(spare, seq, length)
        self.tree.drop(spare)
        self._llama.truncate(seq, length)
