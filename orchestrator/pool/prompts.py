"""Which engine has computed the starts of which prompts.

`SeenPrefixes` compares texts, before a request has an engine, since asking engines costs a round trip each.
`ComputedPrompts` compares tokens, after the answer, since an engine knows only the prompts that it has computed itself.
"""

import asyncio
import dataclasses
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final, TypeVar

from orchestrator.engine.client.engine import Completion
from orchestrator.engine.contract import Message, OfferedTool, texts_of
from orchestrator.registry.options import Adapters
from orchestrator.task.events import Usage
from orchestrator.task.reuse import BLOCK, DIGEST_BYTES, MOST_BLOCKS, LossCause, with_other_engine

PREFIX_BLOCK: Final = 256  # characters; a shorter prefix saves no time
MAX_PREFIX_BLOCKS: Final = 256  # hashed per prompt
MAX_REMEMBERED: Final = 4096  # blocks per engine

PrefixHash = bytes
PrefixHashes = tuple[PrefixHash, ...]
_Value = TypeVar("_Value")


def hash_prefixes(messages: Sequence[Message], lora: Adapters = (), tools: Sequence[OfferedTool] = ()) -> PrefixHashes:
    """Return a hash for each whole block at the start of a prompt, which covers all blocks before it."""
    text = "\0".join("\0".join((message.role, *texts_of([message]))) for message in messages)
    # Prompts with different adapters share nothing, nor do those with different tools, which most chat templates put
    # first.
    digest = "".join(map(repr, filter(None, (lora, tuple(tools))))).encode("utf-8", "surrogatepass")
    hashes: list[PrefixHash] = []
    for start in range(0, min(len(text) - PREFIX_BLOCK + 1, MAX_PREFIX_BLOCKS * PREFIX_BLOCK), PREFIX_BLOCK):
        block = text[start : start + PREFIX_BLOCK].encode("utf-8", "surrogatepass")
        digest = blake2b(digest + block, digest_size=8).digest()
        hashes.append(digest)
    return tuple(hashes)


class SeenPrefixes:
    """The blocks of text of one engine's prompts. The least recently used are forgotten first."""

    def __init__(self) -> None:
        # Prompts start with system prompt, persona and inputs, so an engine probably still holds the last blocks.
        self._blocks: OrderedDict[PrefixHash, None] = OrderedDict()

    def match(self, hashes: PrefixHashes) -> int:
        """Return how many blocks at the start of a prompt the engine has computed."""
        return next((number for number, block in enumerate(hashes) if block not in self._blocks), len(hashes))

    def add(self, hashes: PrefixHashes) -> None:
        _remember(self._blocks, hashes, None, MAX_REMEMBERED)


class ComputedPrompts:
    """Which engine of a model has last computed which blocks of tokens. The least recently used are forgotten first."""

    def __init__(self) -> None:
        # `EngineHandle.died` stands for the engine: it is enough to compare engines and to see whether one has ended.
        self._engines: OrderedDict[bytes, asyncio.Event] = OrderedDict()

    def note(self, engine: asyncio.Event, *prompts: bytes) -> None:
        """Record prompts, as in `Completion.prompt_blocks`, that the engine whose `died` is `engine` has computed."""
        for prompt in prompts:
            _remember(self._engines, _blocks(prompt), engine, MOST_BLOCKS)

    def compare(self, completion: Completion, engine: asyncio.Event) -> Usage:
        """Record an answer of the engine whose `died` is `engine`.

        Returns the usage, with the tokens that were expected in the cache only because another engine had them.
        """
        usage, blocks = completion.usage, _blocks(completion.prompt_blocks)
        other, shared = None, 0
        for end, block in enumerate(blocks[: (usage.prompt_tokens - 1) // BLOCK], 1):
            if (last := self._engines.get(block)) is None:
                break
            if last is not engine:
                other, shared = last, end
        self.note(engine, completion.prompt_blocks)
        if other is None:
            return usage
        cause: LossCause = "engine restarted" if other.is_set() else "other engine"
        reuse = with_other_engine(usage.reuse, usage.cached_tokens, usage.prompt_tokens, shared, cause)
        return dataclasses.replace(usage, reuse=reuse)


def _blocks(digests: bytes) -> list[bytes]:
    return [digests[at : at + DIGEST_BYTES] for at in range(0, len(digests), DIGEST_BYTES)]


def _remember(blocks: OrderedDict[bytes, _Value], prompt: Sequence[bytes], value: _Value, most: int) -> None:
    for block in reversed(prompt):  # the start of a prompt comes last, so that it is forgotten after its end
        blocks[block] = value
        blocks.move_to_end(block)
    while len(blocks) > most:
        blocks.popitem(last=False)
