"""Decide which sequences get a place in a split KV cache, and which finished prompts stay in the unused streams."""

from orchestrator.engine.kv.slots import CellReservation, Slots
from orchestrator.engine.llama import Llama, Tokens
from registry.options import Adapters

CELLS_COPIED_PER_TOKEN = 64
"""A fork copies a whole stream. Copying so many of its cells takes about as long as computing one token."""
MIN_SHARED_TOKENS = 32
"""However short streams are, a prefix of fewer tokens is not copied, since the copy is a call of its own."""


class StreamSlots(Slots):
    """The sequences of one context, each in a stream of its own that has cells for the longest sequence.

    The lowest free stream is taken first, so that the streams in use are adjacent, as decoding them together requires.
    """

    def __init__(self, llama: Llama, slots: int) -> None:
        super().__init__(llama, slots)
        self.min_shared_tokens = max(MIN_SHARED_TOKENS, llama.context_limit // CELLS_COPIED_PER_TOKEN)

    @property
    def used_cells(self) -> int:
        """How many cells are held, or reserved for live sequences."""
        held = {seq: self._llama.held(seq) for seq in range(self._llama.sequences)}
        live = self._live.items()
        return sum(held.values()) + sum(one.to_compute + one.answer - one.answer_cells(held[seq]) for seq, one in live)

    def available_cells(self, wanted: int) -> int:
        """Return `wanted`, because every sequence has a stream that is long enough for it."""
        return wanted

    def reserve_cells(self, cells: int) -> bool:
        """Return True, for the same reason."""
        return True

    def longest_shared_prefix(self, tokens: Tokens, lora: Adapters = ()) -> tuple[int, int]:
        """Return the sequence that holds the longest prefix of `tokens`, and the prefix's length.

        Returns (-1, 0) if no prefix is long enough to be worth the copy. The last token is never shared, because its
        logits are needed.
        """
        source, length = self.tree.match(tokens[:-1], lora)
        return (source, length) if length >= self.min_shared_tokens else (-1, 0)

    def admit(self, tokens: Tokens, answer: int, lora: Adapters = (), *, shares: bool = True) -> tuple[int, int] | None:
        """Give a place to a sequence, as `Slots.admit` says, unless every slot is taken."""
        if self.full:
            return None
        in_place = self._take_over(tokens[:-1], lora) if shares else None
        if in_place is not None:
            seq, reused = in_place
            self._retained.pop(seq)
            self._shorten(seq, reused)
        else:
            source, reused = self.longest_shared_prefix(tokens, lora) if shares else (-1, 0)
            seq = self._empty_stream(source)
            self._begin(seq, source, reused, lora)
        self._live[seq] = CellReservation(len(tokens), answer, reused)
        return seq, reused

    def release(self, seq: int, computed: int) -> None:
        """Free the place of a sequence. The `computed` tokens of its prompt are retained until its stream is needed."""
        del self._live[seq]
        if self._is_held_by_another(seq):
            self._remove(seq)
        else:
            self._llama.truncate(seq, computed)
            self._retained[seq] = computed

    def can_insert_prefix(self, length: int) -> bool:
        """Return whether the prefix fits into a stream; any free stream may retain it."""
        return length <= self._llama.context_limit

    def _take_over(self, tokens: Tokens, lora: Adapters) -> tuple[int, int] | None:
        """Return the finished prompt whose stream a sequence can take over, and with how many of its first tokens, or
        None. So nothing is copied.

        It is one that holds these tokens and at most one more, as the same prompt does, whose last token is computed
        again. Where some finished prompt has to be evicted anyway, it is the least recently used one that begins with
        the longest prefix that is worth a copy; without such a prefix, it is the one that is evicted, of which the
        beginning stays, such as the system prompt.
        """
        source, reused = self.tree.match(tokens, lora)
        if source in self._retained and self._retained[source] - reused <= 1:
            return source, reused
        if self._free:
            return None
        if reused >= self.min_shared_tokens:
            held = ((seq, self.tree.held_of(tokens, seq, lora)) for seq in self._retained)
            return next((one for one in held if one[1] >= reused), None)
        oldest = next(iter(self._retained))
        reused = self.tree.held_of(tokens, oldest, lora)
        return (oldest, reused) if reused else None

    def _empty_stream(self, source: int) -> int:
        """Return an empty stream: a free one, or that of the least recently used finished prompt but `source`."""
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
