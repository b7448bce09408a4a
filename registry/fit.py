"""Choose context, slots and KV types for a model so that it fits into memory. Pure.

A model gets half of the free memory, so that other models fit beside it; or all of it, if half is too little for a
useful context. Within that, the context is as long as the model was trained with, if a few sequences of that length
fit; the rest of the memory is used for more sequences.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from registry.gguf import GgufHeader
from registry.memory import MemoryEstimate, estimate, estimate_draft, size
from registry.options import MAX_CELLS, MAX_CONTEXT, KvType, LoadOptions

WORTH_HAVING: Final = 4096
"""Below so many tokens of context, fewer slots, and then a quantised cache, are chosen to get a longer context."""
FEW_SLOTS: Final = (4, 2, 1)
"""The numbers of slots that are tried, in this order, before the context is made shorter."""
MOST_SLOTS: Final = 16
STEP: Final = 256
"""A context that is shorter than the model's is a multiple of this."""
SMALLEST: Final = 64
"""The shortest context that is proposed, in tokens."""
QUANTISED_BLOCK: Final = 32
Need = Callable[[LoadOptions], MemoryEstimate]
"""Returns what a model takes when it is loaded with these options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """The memory for models: `budget` bytes for all of them together, of which HOT models always hold `hot`."""

    budget: int
    hot: int = 0

    @property
    def free(self) -> int:
        """The bytes that another model can get when only HOT models are loaded."""
        return max(0, self.budget - self.hot)

    def __str__(self) -> str:
        kept = f" ({size(self.budget)}, of which HOT models keep {size(self.hot)})" if self.hot else ""
        return f"{size(self.free)}{kept}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """How a model can be loaded so that it fits into memory."""

    options: LoadOptions
    """`context`, `slots` and the types of the KV cache were chosen."""
    memory: MemoryEstimate
    """What an engine takes with these options, with the model that drafts for it."""
    short: int = 0
    """How many bytes are missing even for that."""

    @property
    def context(self) -> int:
        """How many tokens one sequence may have."""
        assert self.options.context is not None, "a context was chosen"
        return self.options.context


def fit(
    header: GgufHeader,
    room: Room,
    draft: GgufHeader | None = None,
    *,
    batch_invariant: bool = False,
    embeds: bool = False,
) -> Fit:
    """Return how to load a model in the room that there is, with the one that drafts for it if there is one.

    The context is never longer than what the model was trained with. `batch_invariant` is the option of that name; a
    model that `embeds` makes vectors of texts.
    """

    def need(options: LoadOptions) -> MemoryEstimate:
        own = estimate(header, options, embeds=embeds)
        return own if draft is None else own + estimate_draft(draft, options)

    def options(kv_type: KvType, slots: int, context: int) -> LoadOptions:
        return LoadOptions(
            context=context, slots=slots, kv_type_k=kv_type, kv_type_v=kv_type, batch_invariant=batch_invariant
        )

    ceiling = max(1, min(header.context_length, MAX_CONTEXT))
    kv_types = tuple(_kv_types(header))
    for limit, kv_type, slots in itertools.product((room.free // 2, room.free), kv_types, FEW_SLOTS):
        found = _within(need, limit, options(kv_type, slots, ceiling))
        if found is not None and found.context >= min(ceiling, WORTH_HAVING):
            return found
    least = _within(need, room.free, options(kv_types[-1], 1, ceiling))
    if least is not None and least.context >= min(ceiling, SMALLEST):
        return least
    smallest = options(kv_types[-1], 1, min(ceiling, SMALLEST))
    memory = need(smallest)
    return Fit(options=smallest, memory=memory, short=max(0, memory.total - room.free))


def _within(need: Need, limit: int, options: LoadOptions) -> Fit | None:
    """Return the longest context that fits into `limit` bytes, and more slots if there is room for them.

    The context is at most that of `options`. None if not even one token fits.
    """

    def fits(context: int, slots: int) -> bool:
        return need(replace(options, context=context, slots=slots)).total <= limit

    slots = options.slots
    context = _longest(lambda tokens: fits(tokens, slots), min(options.context or MAX_CONTEXT, MAX_CELLS // slots))
    if not context:
        return None
    more = (n for n in range(slots, MOST_SLOTS) if (n + 1) * context > MAX_CELLS or not fits(context, n + 1))
    chosen = replace(options, context=context, slots=next(more, MOST_SLOTS))
    return Fit(options=chosen, memory=need(chosen))


def _kv_types(header: GgufHeader) -> Iterator[KvType]:
    """Yield the types of KV cache to try, the faster one first."""
    yield "f16"
    if header.key_length and not (header.key_length % QUANTISED_BLOCK or header.value_length % QUANTISED_BLOCK):
        yield "q8_0"


def _longest(fits: Callable[[int], bool], most: int) -> int:
    """Return the longest context up to `most` that fits; if it is below `most`, a multiple of STEP. 0 if none fits."""
    found, too_long = 0, most + 1
    while too_long - found > 1:
        middle = (found + too_long) // 2
        if fits(middle):
            found = middle
        else:
            too_long = middle
    return found if found in (0, most) or found < STEP else found // STEP * STEP
