"""Remember which prompt prefixes an engine has seen, as hashes of their blocks.

An engine knows exactly what it holds, but asking it would cost a round trip for each request and replica. Prompts
begin with system prompt, persona and inputs, so an engine probably holds the blocks that it has seen lately.
"""

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from orchestrator.engine.contract import Message, OfferedTool
from registry.options import Adapters

BLOCK: Final = 256
"""How many characters a block has: about as many as a prefix must have to save time."""
MAX_BLOCKS: Final = 256
"""How many blocks of a prompt are hashed at most."""
MAX_REMEMBERED: Final = 4096
"""How many blocks are remembered for one engine."""

PrefixHashes = tuple[bytes, ...]


def hash_prefixes(messages: Sequence[Message], lora: Adapters = (), tools: Sequence[OfferedTool] = ()) -> PrefixHashes:
    """Return a hash for each whole block at the beginning of a prompt. A hash covers all blocks before it, too.

    `lora` are the adapters that the prompt is computed with, since prompts with different ones share nothing. Neither
    do those with different `tools`, which most chat templates put before all messages.
    """
    text = "\0".join("\0".join((message.role, *message.texts)) for message in messages)
    digest = "".join(map(repr, filter(None, (lora, tuple(tools))))).encode("utf-8", "surrogatepass")
    hashes: list[bytes] = []
    for start in range(0, min(len(text) - BLOCK + 1, MAX_BLOCKS * BLOCK), BLOCK):
        block = text[start : start + BLOCK].encode("utf-8", "surrogatepass")
        digest = blake2b(digest + block, digest_size=8).digest()
        hashes.append(digest)
    return tuple(hashes)


class SeenPrefixes:
    """The blocks that one engine has seen. The least recently seen ones are forgotten first."""

    def __init__(self) -> None:
        self._seen: OrderedDict[bytes, None] = OrderedDict()

    def match(self, hashes: PrefixHashes) -> int:
        """Return how many blocks at the beginning of a prompt have been seen."""
        return next((number for number, prefix in enumerate(hashes) if prefix not in self._seen), len(hashes))

    def add(self, hashes: PrefixHashes) -> None:
        """Note the blocks of a prompt that is sent to the engine."""
        for prefix in reversed(hashes):  # so that the beginning of a prompt is forgotten after its end
            self._seen[prefix] = None
            self._seen.move_to_end(prefix)
        while len(self._seen) > MAX_REMEMBERED:
            self._seen.popitem(last=False)
