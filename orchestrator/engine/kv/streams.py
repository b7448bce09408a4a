"""Admit sequences to a split KV cache, and choose which finished prompts stay in the unused streams."""

from collections import Counter
from collections.abc import Iterable, Mapping

from orchestrator.engine.kv.slots import ANSWER_RESERVE, NO_TOKENS, RETURNING, CellReservation, PrefillSeconds, Slots
from orchestrator.engine.llama import Llama, Tokens
from orchestrator.engine.worker.batching import gap_streams
from orchestrator.registry.options import Adapters

# A fork copies a whole stream. Copying this many cells takes about as long as computing one token.
CELLS_COPIED_PER_TOKEN = 64
# However short the streams, a shorter prefix is not copied, because the copy is a call of its own.
MIN_SHARED_TOKENS = 32


class StreamSlots(Slots):
    """The sequences of one context, each in a stream that has cells for the longest sequence.

    Only adjacent streams can be decoded together. So of the free streams a sequence gets the one that leaves the
    fewest gaps between those that are live, and of the finished prompts the one that costs least is evicted: what it
    takes to compute it again, should it return, and to pad the gaps.
    """

    def __init__(self, llama: Llama, slots: int, seconds: PrefillSeconds) -> None:
        super().__init__(llama, slots, seconds)
        self.min_shared_tokens = max(MIN_SHARED_TOKENS, llama.context_limit // CELLS_COPIED_PER_TOKEN)

    @property
    def used_cells(self) -> int:
        cells = {seq: self._llama.held(seq) for seq in range(self._llama.sequences)}
        live = self._live.items()
        return sum(cells.values()) + sum(
            need.to_compute + need.answer - need.answer_cells(cells[seq]) for seq, need in live
        )

    def cells_by(self, owners: Mapping[int, str]) -> Counter[str]:
        counts: Counter[str] = Counter()
        for seq, owner in owners.items():
            counts[owner] += self._llama.held(seq)
        return counts

    @property
    def finished_cells(self) -> int:
        return sum(map(self._llama.held, self._retained))

    def available_cells(self, cells: int) -> int:
        return cells  # each stream is long enough for its sequence

    def reserve_cells(self, cells: int) -> bool:
        return True  # for the same reason

    def longest_shared_prefix(self, tokens: Tokens, lora: Adapters = ()) -> tuple[int, int]:
        source, length = self.match(tokens[:-1], lora)
        # Copying a shorter prefix is not worth it.
        return (source, length) if length >= self.min_shared_tokens else (-1, 0)

    def admit(self, tokens: Tokens, answer: int, lora: Adapters = (), *, shares: bool = True) -> tuple[int, int] | None:
        if self.full:
            return None
        in_place = self._take_over(tokens[:-1], answer, lora) if shares else None
        if in_place is not None:
            seq, reused = in_place
            del self._retained[seq], self._inflation_at_use[seq]
            self._shorten(seq, reused)
        else:
            source, reused = self.longest_shared_prefix(tokens, lora) if shares else (-1, 0)
            seq = self._empty_stream(answer, source)
            self._begin(seq, source, reused, lora)
        self._live[seq] = CellReservation(len(tokens), answer, reused)
        return seq, reused

    def release(self, seq: int, computed: int, answer: Tokens = NO_TOKENS) -> None:
        del self._live[seq]
        if self._is_held_by_another(seq):
            self._remove(seq)
        else:
            self._llama.truncate(seq, computed)
            self._keep(seq, computed)

    def _make_room(self, cells: int) -> bool:
        return cells <= self._llama.context_limit and super()._make_room(cells)

    def _take_over(self, tokens: Tokens, answer: int, lora: Adapters) -> tuple[int, int] | None:
        """Return a finished prompt whose stream can be reused without a copy, and how many tokens stay; or None."""
        source, reused = self.match(tokens, lora)
        # The same prompt came again: all but its last token is there.
        if source in self._retained and self._retained[source] - reused <= 1:
            return source, reused
        if self._free:
            return None
        # A finished prompt has to be evicted anyway: the cheapest one with the longest prefix worth a copy.
        if reused >= self.min_shared_tokens:
            held = [(seq, self._reusable(tokens, seq, lora)) for seq in self._retained]
            longest = {seq: length for seq, length in held if length >= reused}
            seq = self._cheapest(longest, answer)
            return None if seq is None else (seq, longest[seq])
        # Without such a prefix, keep at least the start of the one that is evicted, such as its system prompt.
        victim = self._cheapest(self._retained, answer)
        reused = 0 if victim is None else self._reusable(tokens, victim, lora)
        return (victim, reused) if victim is not None and reused else None

    def _reusable(self, tokens: Tokens, seq: int, lora: Adapters) -> int:
        length = self.tree.held_of(tokens, seq, lora)
        return length if length >= self._llama.least_prefix(seq) else 0

    def _empty_stream(self, answer: int, source: int) -> int:
        if not self._free:
            victim = self._cheapest((seq for seq in self._retained if seq != source), answer)
            assert victim is not None, "there are as many streams as slots"
            self._evict(victim)
        seq = min(self._free, key=self._gaps_with)
        self._free.remove(seq)
        return seq

    def _cheapest(self, finished: Iterable[int], answer: int) -> int | None:
        """Return the finished prompt whose stream costs least to give to a sequence that writes up to `answer` tokens.

        Of equals, it is the one that was used least recently, if they are given in the order of their last use.
        """

        def seconds(seq: int) -> float:
            padding = self._gaps_with(seq) * min(answer, ANSWER_RESERVE)
            return RETURNING * self._worth(seq) * self._stream_bytes + self._seconds(0, padding)

        return min(finished, key=seconds, default=None)

    def _gaps_with(self, seq: int) -> int:
        return gap_streams((*self._live, seq))

    @property
    def _stream_bytes(self) -> int:
        return self._llama.cell_bytes * self._llama.context_limit

    def _value(self, seq: int) -> float:
        # Its stream has as many cells, however few it holds.
        return self._seconds_of(seq, self.tree.exclusive(seq)) / self._stream_bytes

    def _shorten(self, seq: int, length: int) -> None:
        spare = -1
        self.tree.fork(seq, spare, length)
        self.tree.drop(seq)
        self.tree.fork(spare, seq, length)
        self.tree.drop(spare)
        self._llama.truncate(seq, length)
