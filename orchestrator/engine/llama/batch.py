"""Hold the tokens of one step in the arrays of a llama_batch."""

import ctypes
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

import orchestrator.engine.llama.binding as lib

Tokens = npt.NDArray[np.int32]


def as_tokens(tokens: Sequence[int]) -> Tokens:
    return np.asarray(tokens, dtype=np.int32)


def floats_at(address: int, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """Return an array of llama.cpp's own memory, which changes and ends with it."""
    return np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_float)), shape=shape)


def ints_at(address: int, count: int) -> Tokens:
    """Return an array of llama.cpp's own memory, as `floats_at`."""
    return np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_int32)), shape=(count,))


class RowsView:
    """Arrays of shape (`most`, `width`) of llama.cpp's memory, which seldom moves.

    Making one takes about as long as all else that Python does for a step of a small model.
    """

    def __init__(self, most: int, width: int) -> None:
        self._shape = most, width
        self._address = 0
        self.view = np.empty((0, width), np.float32)  # the last one

    def of(self, address: int) -> npt.NDArray[np.float32]:
        """Return the array at an address."""
        if address != self._address:
            self._address, self.view = address, floats_at(address, self._shape)
        return self.view


class Batch:
    """The arrays of a llama_batch, reused for every step, of `capacity` rows and `padding` rows for padding tokens.

    With a `twin`, each token also belongs to the sequence whose number is greater by that. With a `width`, each token
    has a row of that length in `states`, which a head reads; its encoder reads nothing else, so `has_tokens` is false.
    """

    def __init__(self, capacity: int, padding: int, twin: int = 0, width: int = 0, *, has_tokens: bool = True) -> None:
        size = capacity + padding
        self.capacity = capacity
        self.padding = padding
        self.token = np.zeros(size, np.int32)
        self.pos = np.zeros(size, np.int32)
        self._numbers = np.zeros((size, 2 if twin else 1), np.int32)
        self.seq = self._numbers[:, 0]
        self.logits = np.zeros(size, np.int8)
        self.states = np.zeros((size, width), np.float32)
        self.size = 0
        self.outputs = 0
        # Pairs of a sequence and its number of tokens in the cache after the step, in the order of additions.
        self.ends: list[tuple[int, int]] = []
        self._twin = twin
        self._counts = np.full(size, self._numbers.shape[1], np.int32)
        # llama.cpp wants a pointer to each row's sequences.
        self._seq_pointers = self._numbers.ctypes.data + np.arange(size, dtype=np.uint64) * self._numbers.strides[0]
        int32 = ctypes.POINTER(ctypes.c_int32)
        self._struct = lib.llama_batch(
            token=self.token.ctypes.data_as(int32),
            pos=self.pos.ctypes.data_as(int32),
            n_seq_id=self._counts.ctypes.data_as(int32),
            seq_id=ctypes.cast(ctypes.c_void_p(self._seq_pointers.ctypes.data), ctypes.POINTER(int32)),
            logits=self.logits.ctypes.data_as(ctypes.POINTER(ctypes.c_int8)),
        )
        if not has_tokens:
            self._struct.token = None
        if width:
            self._struct.embd = self.states.ctypes.data_as(ctypes.POINTER(ctypes.c_float))

    def clear(self) -> None:
        self.size = self.outputs = 0
        self.ends.clear()

    def add_one(self, seq: int, pos: int, token: int) -> None:
        """Add one token with logits. Several times faster than `add` for a single token."""
        at = self.size
        self.token[at], self.pos[at], self.seq[at], self.logits[at] = token, pos, seq, 1
        self.size += 1
        self.outputs += 1
        self.ends.append((seq, pos + 1))

    def add(self, seq: int, pos: int, tokens: Sequence[int] | Tokens, outputs: int) -> None:
        """Add consecutive tokens of a sequence from position `pos` on. The last `outputs` of them get logits."""
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
        """Give logits to a multiple of tokens in each micro-batch, and return the rows that had them before.

        All tokens from the first such row on get logits. The number of tokens and the size of micro-batches must be
        multiples of `multiple`.
        """
        rows = np.flatnonzero(self.logits[: self.size])
        start = int(rows[0]) // multiple * multiple
        self.logits[start : self.size] = 1
        self.outputs = self.size - start
        return rows - start

    def sort(self) -> None:
        """Sort the tokens by sequence, stably. Rows of logits follow that order."""
        order = np.argsort(self.seq[: self.size], kind="stable")
        for array in (self.token, self.pos, self.seq, self.logits):
            array[: self.size] = array[order]

    def struct(self) -> lib.llama_batch:
        """Return the llama_batch for llama_decode. It refers to the arrays of this object."""
        if self._twin:
            np.add(self.seq[: self.size], self._twin, out=self._numbers[: self.size, 1])
        self._struct.n_tokens = self.size
        return self._struct
