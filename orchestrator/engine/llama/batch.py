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

    There are `capacity` rows for tokens of the caller, and `padding` more for padding tokens. `ends` are pairs of a
    sequence and the number of tokens that it will have in the cache, in the order in which they were added.
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
        """Remove all tokens from the batch."""
        self.size = self.outputs = 0
        self.ends.clear()

    def add_one(self, seq: int, pos: int, token: int) -> None:
        """Add one token whose logits are wanted. For a single token this is several times faster than `add`."""
        at = self.size
        self.token[at], self.pos[at], self.seq[at], self.logits[at] = token, pos, seq, 1
        self.size += 1
        self.outputs += 1
        self.ends.append((seq, pos + 1))

    def add(self, seq: int, pos: int, tokens: Sequence[int] | Tokens, outputs: int) -> None:
        """Add consecutive tokens of a sequence, the first at position `pos`. The last `outputs` of them get logits."""
        start, end = self.size, self.size + len(tokens)
        self.token[start:end] = tokens
        self.pos[start:end] = np.arange(pos, pos + len(tokens), dtype=np.int32)
        self.seq[start:end] = seq
        self.logits[start : end - outputs] = 0
        self.logits[end - outputs : end] = 1
        self.size = end
        self.outputs += outputs
        self.ends.append((seq, pos + len(tokens)))

    def pad(self, places: Iterable[tuple[int, int, int]]) -> None:
        """Add padding tokens without logits, at each (sequence, position, number of tokens)."""
        for seq, pos, count in places:
            self.add(seq, pos, (0,) * count, 0)

    def want_logits(self, multiple: int) -> npt.NDArray[np.int64]:
        """Have logits computed for a multiple of tokens in each micro-batch, and return which rows were wanted.

        From the first wanted token on all tokens get logits. The number of tokens and the size of micro-batches have to
        be multiples of `multiple`.
        """
        wanted = np.flatnonzero(self.logits[: self.size])
        start = int(wanted[0]) // multiple * multiple
        self.logits[start : self.size] = 1
        self.outputs = self.size - start
        return wanted - start

    def sort(self) -> None:
        """Sort the tokens by sequence, without changing their order within one. Rows of logits follow that order."""
        order = np.argsort(self.seq[: self.size], kind="stable")
        for array in (self.token, self.pos, self.seq, self.logits):
            array[: self.size] = array[order]

    def struct(self) -> lib.llama_batch:
        """Return the llama_batch, for llama_decode. It refers to the arrays of this object."""
        self._struct.n_tokens = self.size
        return self._struct
