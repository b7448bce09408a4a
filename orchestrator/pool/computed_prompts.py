"""Remember which engine of a model has computed which prompts, since an engine knows only its own."""

import asyncio
import dataclasses
from collections import OrderedDict

from orchestrator.engine.client.engine import Completion
from orchestrator.task.events import Usage
from orchestrator.task.reuse import BLOCK, DIGEST_BYTES, MOST_BLOCKS, LossCause, with_other_engine


class ComputedPrompts:
    """The blocks of the prompts that the engines of one model have answered. The oldest are forgotten first."""

    def __init__(self) -> None:
        # `EngineHandle.died` stands for the engine: it is enough to compare engines and to see whether one has ended.
        self._engines: OrderedDict[bytes, asyncio.Event] = OrderedDict()

    def note(self, engine: asyncio.Event, *prompts: bytes) -> None:
        """Record prompts, as in `Completion.prompt_blocks`, that the engine whose `died` is `engine` has computed."""
        for blocks in map(_blocks, prompts):
            for block in reversed(blocks):  # the start of a prompt comes last, so that it is forgotten after its end
                self._engines[block] = engine
                self._engines.move_to_end(block)
        while len(self._engines) > MOST_BLOCKS:
            self._engines.popitem(last=False)

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
