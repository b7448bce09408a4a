"""Choose context, slots and KV types for a model by the memory that there is. Pure.

A model gets half of the room, so that others fit beside it, or all of it where half is too little for a context that is
worth having. Within that the context is as long as the model was made for, if a few sequences of it fit; what is left
goes into more sequences.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from registry.forms import MAX_CELLS, MAX_CONTEXT, CacheType
from registry.gguf import GgufHeader
from registry.memory import MemoryEstimate, estimate, size

WORTH_HAVING: Final = 4096
"""Tokens of context below which fewer sequences, and then a quantised cache, are the lesser evil."""
FEW_SLOTS: Final = (4, 2, 1)
MOST_SLOTS: Final = 16
STEP: Final = 256
SMALLEST: Final = 64
QUANTISED_BLOCK: Final = 32
Need = Callable[[int, int, CacheType], MemoryEstimate]
"""What a model takes with so many tokens of context, so many slots, and this type of cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """The memory that models may take: `budget` bytes together, of which HOT models keep `hot`."""

    budget: int
    hot: int = 0

    @property
    def free(self) -> int:
        """Bytes that another model can have when only HOT ones are loaded."""
        return max(0, self.budget - self.hot)

    def __str__(self) -> str:
        kept = f" ({size(self.budget)}, of which HOT models keep {size(self.hot)})" if self.hot else ""
        return f"{size(self.free)}{kept}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """How a model can be loaded: tokens of a sequence, sequences, the type of the KV cache, and the memory it takes.

    `short` is how many bytes are missing even for that.
    """

    context: int
    slots: int
    kv_type: CacheType
    memory: MemoryEstimate
    short: int = 0


def fit(
    header: GgufHeader,
    room: Room,
    draft: GgufHeader | None = None,
    *,
    batch_invariant: bool = False,
    embeds: bool = False,
) -> Fit:
    """Return how to load a model in the room that there is, with the one that drafts for it.

    It is never more than the model was made for. `batch_invariant` and `embeds` are as `estimate` has them.
    """

    def need(context: int, slots: int, kv_type: CacheType) -> MemoryEstimate:
        own = estimate(
            header,
            context=context,
            slots=slots,
            key_type=kv_type,
            value_type=kv_type,
            batch_invariant=batch_invariant,
            embeds=embeds,
        )
        return own if draft is None else own + estimate(draft, context=context, slots=max(slots, 1 + batch_invariant))

    ceiling = max(1, min(header.context_length, MAX_CONTEXT))
    kv_types = tuple(_kv_types(header))
    for limit, kv_type, slots in itertools.product((room.free // 2, room.free), kv_types, FEW_SLOTS):
        found = _within(need, limit, kv_type, slots, ceiling)
        if found is not None and found.context >= min(ceiling, WORTH_HAVING):
            return found
    least = _within(need, room.free, kv_types[-1], 1, ceiling)
    if least is not None and least.context >= min(ceiling, SMALLEST):
        return least
    context = min(ceiling, SMALLEST)
    memory = need(context, 1, kv_types[-1])
    return Fit(context=context, slots=1, kv_type=kv_types[-1], memory=memory, short=max(0, memory.total - room.free))


def _within(need: Need, limit: int, kv_type: CacheType, slots: int, ceiling: int) -> Fit | None:
    """Return the longest context for so many slots within `limit` bytes, and more slots if there is room for them."""

    def fits(context: int, slots: int) -> bool:
        return need(context, slots, kv_type).total <= limit

    context = _longest(lambda tokens: fits(tokens, slots), min(ceiling, MAX_CELLS // slots))
    if not context:
        return None
    more = (n for n in range(slots, MOST_SLOTS) if (n + 1) * context > MAX_CELLS or not fits(context, n + 1))
    most = next(more, MOST_SLOTS)
    return Fit(context=context, slots=most, kv_type=kv_type, memory=need(context, most, kv_type))


def _kv_types(header: GgufHeader) -> Iterator[CacheType]:
    """Yield the types of KV cache to try, the quicker one first."""
    yield "f16"
    if header.key_length and not (header.key_length % QUANTISED_BLOCK or header.value_length % QUANTISED_BLOCK):
        yield "q8_0"


def _longest(fits: Callable[[int], bool], most: int) -> int:
    """Return the longest context that fits, in whole steps if that is less than `most`; 0 if there is none."""
    found, too_long = 0, most + 1
    while too_long - found > 1:
        middle = (found + too_long) // 2
        if fits(middle):
            found = middle
        else:
            too_long = middle
    return found if found in (0, most) or found < STEP else found // STEP * STEP
