"""Remember the prompts of an engine, to predict how much of the next one its cache holds.

Unlike the prefix tree, it remembers what the cache has lost. Prompts are remembered as digests of blocks of tokens.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from orchestrator.engine.kv.prefix_tree import Tokens
from orchestrator.registry.options import Adapters
from orchestrator.task.reuse import BLOCK, DIGEST_BYTES, LEAST, MOST_BLOCKS, LossCause, Reuse, compare

Blocks = Sequence[bytes]
_Value = TypeVar("_Value")


def block_digests(tokens: Tokens, lora: Adapters = ()) -> Blocks:
    """Return for each whole block a digest of the adapters and of all tokens up to the end of the block."""
    digest = repr(lora).encode("utf-8", "surrogatepass") if lora else b""
    data, size = tokens.tobytes(), BLOCK * tokens.itemsize
    digests = []
    for start in range(0, len(data) - size + 1, size):
        digest = blake2b(digest + data[start : start + size], digest_size=DIGEST_BYTES).digest()
        digests.append(digest)
    return digests


class PromptHistory:
    """The prompts that one engine has had, by the numbers of their sequences.

    `is_control`, of shape (vocabulary,), tells which tokens surround messages. Without it no message is recognised
    behind another text.
    """

    def __init__(self, is_control: npt.NDArray[np.bool_] | None = None) -> None:
        self._is_control = is_control
        self._live: dict[int, Blocks] = {}  # by number, prompts of sequences in the cache
        self._computed: OrderedDict[bytes, int] = OrderedDict()  # blocks, and the number of the layout at that time
        self._asked: OrderedDict[bytes, int] = OrderedDict()  # other blocks, and the sequence that was to compute them
        self._messages: OrderedDict[bytes, None] = OrderedDict()  # blocks that count from the start of their message
        self._layout = 0

    def note(self, tokens: Tokens, lora: Adapters = ()) -> None:
        """Record tokens that are in the cache now."""
        self._note_computed(block_digests(tokens, lora))

    def forget_cells(self) -> None:
        """Record that the cache is emptied for another layout. No sequence is in it."""
        self._layout += 1

    def enter(
        self, number: int, prompt: Tokens, lora: Adapters, *, cached: int, held: int, obstacle: LossCause
    ) -> tuple[Reuse, Blocks]:
        """Record that a sequence enters the cache; return what was expected of the cache, and the prompt's blocks.

        The sequence starts with `cached` tokens of others. The cache holds its first `held` tokens, of which it cannot
        use more for the reason `obstacle`.
        """
        blocks = block_digests(prompt, lora)
        # The last token is always computed, since its logits are needed.
        causes = list(self._causes(blocks[: (len(prompt) - 1) // BLOCK], held, obstacle))
        reuse = compare(cached, causes)
        if repeated := self._note_messages(prompt[:-1], lora, max(cached, BLOCK * len(causes))):
            reuse += Reuse(repeated, {"prompt differs": repeated})
        self._live[number] = blocks
        _note(self._asked, (block for block in reversed(blocks) if block not in self._computed), number)
        return reuse, blocks

    def leave(self, number: int, computed: int) -> None:
        """Record that a sequence leaves the cache, after the first `computed` tokens of its prompt were computed."""
        self._note_computed(self._live.pop(number, ())[: computed // BLOCK])

    def _causes(self, blocks: Blocks, held: int, obstacle: LossCause) -> Iterator[LossCause]:
        for end, block in enumerate(blocks, 1):
            if (layout := self._computed.get(block)) is not None:
                cause: LossCause = "evicted" if layout == self._layout else "layout changed"
            elif (owner := self._asked.get(block)) is not None:
                cause = "too short" if owner in self._live else "cancelled"
            else:
                return
            yield obstacle if BLOCK * end <= held else cause

    def _note_computed(self, blocks: Blocks) -> None:
        for block in blocks:
            self._asked.pop(block, None)
        _note(self._computed, reversed(blocks), self._layout)

    def _note_messages(self, tokens: Tokens, lora: Adapters, start: int) -> int:
        # Returns how many tokens from `start` on are those of earlier messages, at the start of a message.
        new = [(first, end) for first, end in _messages(tokens, self._is_control) if end > start]
        messages = {first: block_digests(tokens[first:end], lora) for first, end in new}
        same = [
            BLOCK * next((at for at, block in enumerate(blocks) if block not in self._messages), len(blocks))
            for first, blocks in messages.items()
            if first >= start
        ]
        for blocks in messages.values():
            _note(self._messages, reversed(blocks), None)
        return sum(count for count in same if count >= LEAST)


def _messages(tokens: Tokens, is_control: npt.NDArray[np.bool_] | None) -> Iterable[tuple[int, int]]:
    # The start and the end of each text between control tokens.
    if is_control is None or not len(tokens):
        return ()
    edges = np.flatnonzero(np.diff(is_control[tokens].astype(np.int8), prepend=1, append=1)).tolist()
    return zip(edges[::2], edges[1::2], strict=True)


def _note(blocks: OrderedDict[bytes, _Value], more: Iterable[bytes], value: _Value) -> None:
    # The start of a prompt comes last, so that it is forgotten after its end.
    for block in more:
        blocks[block] = value
        blocks.move_to_end(block)
    while len(blocks) > MOST_BLOCKS:
        blocks.popitem(last=False)
