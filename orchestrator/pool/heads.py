"""Remember which beginnings of prompts an engine has seen, as hashes of their blocks.

An engine knows exactly what it holds, but asking it would cost a round trip for each request and replica. Prompts
begin with system prompt, persona and inputs, so blocks of text that were seen lately are a good guess.
"""

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from orchestrator.engine.contract import Message

BLOCK: Final = 256
"""Characters of a block, about as many as a prefix needs to be worth looking for."""
MAX_BLOCKS: Final = 256
MAX_REMEMBERED: Final = 4096

Heads = tuple[bytes, ...]


def heads_of(messages: Sequence[Message]) -> Heads:
    """Return a hash for each whole block that the prompt begins with; each also stands for all blocks before it."""
    text = "\0".join(f"{role}\0{content}" for role, content in messages)
    digest = b""
    heads: list[bytes] = []
    for start in range(0, min(len(text) - BLOCK + 1, MAX_BLOCKS * BLOCK), BLOCK):
        block = text[start : start + BLOCK].encode("utf-8", "surrogatepass")
        digest = blake2b(digest + block, digest_size=8).digest()
        heads.append(digest)
    return tuple(heads)


class SeenHeads:
    """The blocks that one engine has seen, the least recently seen forgotten first."""

    def __init__(self) -> None:
        self._seen: OrderedDict[bytes, None] = OrderedDict()

    def match(self, heads: Heads) -> int:
        """Return how many blocks a prompt has in common with those seen, from its beginning."""
        return next((number for number, head in enumerate(heads) if head not in self._seen), len(heads))

    def add(self, heads: Heads) -> None:
        """Note a prompt that the engine is given."""
        for head in reversed(heads):  # so that the beginning of a prompt is forgotten after its end
            self._seen[head] = None
            self._seen.move_to_end(head)
        while len(self._seen) > MAX_REMEMBERED:
            self._seen.popitem(last=False)
