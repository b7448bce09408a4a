"""Hold the tokens of one step in the arrays of a llama_batch."""

import ctypes
from collections.abc import Iterable, Sequence

import llama_cpp.llama_cpp as lib
import numpy as np
import numpy.typing as npt

Tokens = npt.NDArray[np.int32]


def as_tokens(tokens: Sequence[int]) -> Tokens:
    """Return an array of tokens."""
    return np.asarray(tokens, dtype=np.int32)


class Batch:
    """The arrays of a llama_batch, reused for every step: token, position, sequence and whether logits are wanted.

    `capacity` is for the caller's tokens; `padding` more rows are there for tokens that nobody asked for. `ends` are
    (sequence, tokens it holds when the batch is computed), in the order in which they were added.
    """

    def __init__(self, capacity: int, padding: int) -> None:
        size = capacity + padding
        self.capacity = capacity
        self.padding = padding
        self.token = np.zeros(size, np.int32)
        self.pos = np.zeros(size, np.int32)
        self.seq = np.zeros(size, np.int32)
        self.logits = np.zeros(size, np.int8)
        self.size = 0
        self.outputs = 0
        self.ends: list[tuple[int, int]] = []
        self._one = np.ones(size, np.int32)
        self._seq_pointers = self.seq.ctypes.data + np.arange(size, dtype=np.uint64) * 4
        int32 = ctypes.POINTER(ctypes.c_int32)
        self._struct = lib.llama_batch(
            token=self.token.ctypes.data_as(int32),
            pos=self.pos.ctypes.data_as(int32),
            n_seq_id=self._one.ctypes.data_as(int32),
            seq_id=ctypes.cast(ctypes.c_void_p(self._seq_pointers.ctypes.data), ctypes.POINTER(int32)),
            logits=self.logits.ctypes.data_as(ctypes.POINTER(ctypes.c_int8)),
        )

    def clear(self) -> None:
        """Start over with no tokens."""
        self.size = self.outputs = 0
        self.ends.clear()

    def add_one(self, seq: int, pos: int, token: int) -> None:
        """Add a token whose logits are wanted, as most are: several times faster than `add`."""
        at = self.size
        self.token[at], self.pos[at], self.seq[at], self.logits[at] = token, pos, seq, 1
        self.size += 1
        self.outputs += 1
        self.ends.append((seq, pos + 1))

    def add(self, seq: int, pos: int, tokens: Sequence[int] | Tokens, outputs: int) -> None:
        """Add tokens that follow each other. The logits of the last `outputs` of them are wanted: as many rows."""
        start, end = self.size, self.size + len(tokens)
        self.token[start:end] = tokens
        self.pos[start:end] = np.arange(pos, pos + len(tokens), dtype=np.int32)
        self.seq[start:end] = seq
        self.logits[start : end - outputs] = 0
        self.logits[end - outputs : end] = 1
        self.size = end
        self.outputs += outputs
        self.ends.append((seq, pos + len(tokens)))

    def pad(self, places: Iterable[tuple[int, int]], count: int) -> None:
        """Add `count` tokens that nobody asked for at each (sequence, position)."""
        for seq, pos in places:
            self.add(seq, pos, (0,) * count, 0)

    def sort(self) -> None:
        """Put the sequences in order, each with its tokens as they are. So are the rows of their logits."""
        order = np.argsort(self.seq[: self.size], kind="stable")
        for array in (self.token, self.pos, self.seq, self.logits):
            array[: self.size] = array[order]

    def struct(self) -> lib.llama_batch:
        """Return what llama_decode takes."""
        self._struct.n_tokens = self.size
        return self._struct
