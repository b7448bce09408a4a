"""Remember which prompt prefixes an engine has seen, as hashes of blocks.

Asking the engine itself costs a round trip per request and replica.
"""

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from orchestrator.engine.contract import Message, OfferedTool
from orchestrator.registry.options import Adapters

BLOCK: Final = 256  # Characters; a shorter prefix saves no time.
MAX_BLOCKS: Final = 256  # blocks hashed per prompt
MAX_REMEMBERED: Final = 4096  # blocks remembered per engine

PrefixHashes = tuple[bytes, ...]


def hash_prefixes(messages: Sequence[Message], lora: Adapters = (), tools: Sequence[OfferedTool] = ()) -> PrefixHashes:
    """Return a hash for each whole block at the start of a prompt, which covers all blocks before it."""
    text = "\0".join("\0".join((message.role, *message.texts)) for message in messages)
    # Prompts with different adapters share nothing, nor do those with different tools, which most chat templates put
    # first.
    digest = "".join(map(repr, filter(None, (lora, tuple(tools))))).encode("utf-8", "surrogatepass")
    hashes: list[bytes] = []
    for start in range(0, min(len(text) - BLOCK + 1, MAX_BLOCKS * BLOCK), BLOCK):
        block = text[start : start + BLOCK].encode("utf-8", "surrogatepass")
        digest = blake2b(digest + block, digest_size=8).digest()
        hashes.append(digest)
    return tuple(hashes)


class SeenPrefixes:
    """The blocks that one engine has seen. The least recently seen are forgotten first."""

    def __init__(self) -> None:
        # Prompts start with system prompt, persona and inputs, so an engine probably still holds the last blocks.
        self._seen: OrderedDict[bytes, None] = OrderedDict()

    def match(self, hashes: PrefixHashes) -> int:
        """Return how many blocks at the start have been seen."""
        return next((number for number, prefix in enumerate(hashes) if prefix not in self._seen), len(hashes))

    def add(self, hashes: PrefixHashes) -> None:
        for prefix in reversed(hashes):  # so that the beginning of a prompt is forgotten after its end
            self._seen[prefix] = None
            self._seen.move_to_end(prefix)
        while len(self._seen) > MAX_REMEMBERED:
            self._seen.popitem(last=False)
