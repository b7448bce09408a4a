"""Choose context, slots and KV types for a model so that it fits into memory. Pure.

A model gets half of the free memory, so that others fit too, or all of it if half is too little for a useful context.
The context is the model's training context if a few sequences of that length fit; more slots get the rest.
"""

import itertools
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.registry import architectures
from orchestrator.registry.checks import why_not_drafted
from orchestrator.registry.gguf import GgufHeader
from orchestrator.registry.memory import MemoryEstimate, estimate, estimate_draft, size
from orchestrator.registry.options import (
    MAX_CELLS,
    MAX_CONTEXT,
    QUANTISED_BLOCK,
    KvType,
    LoadOptions,
    MtpOptions,
    PromptLookupOptions,
)

WORTH_HAVING: Final = 4096  # below this context, prefer fewer slots, and then a quantised cache
FEW_SLOTS: Final = (4, 2, 1)  # tried in this order before the context is made shorter
MOST_SLOTS: Final = 16
STEP: Final = 256  # a shortened context is a multiple of this
MOST_OF: Final = 0.9  # the part of its context that a model keeps if states are kept for drafts
# Which part of the weights the states of all slots may be then. With 0.08, 0.29 and 1.0, a step of 16 sequences that
# drafts nothing takes 2, 5 and 12 % longer (generated models with the layers of Qwen 3.5).
LARGEST_STATES: Final = 0.15
SMALLEST: Final = 64  # the shortest context, in tokens
Need = Callable[[LoadOptions], MemoryEstimate]  # the memory of a model loaded with these options


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """The memory for models: `budget` bytes in all, of which HOT models always hold `hot`."""

    budget: int
    hot: int = 0

    @property
    def free(self) -> int:
        """Bytes for another model next to the HOT ones."""
        return max(0, self.budget - self.hot)

    def __str__(self) -> str:
        note = f" ({size(self.budget)}, of which HOT models keep {size(self.hot)})" if self.hot else ""
        return f"{size(self.free)}{note}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """How a model can be loaded so that it fits into memory."""

    options: LoadOptions  # `context`, `slots`, KV types and drafts are chosen
    memory: MemoryEstimate  # with the draft model
    short: int = 0  # missing bytes even so

    @property
    def context(self) -> int:
        """Tokens per sequence."""
        assert self.options.context is not None, "a context was chosen"
        return self.options.context

    @property
    def drafts(self) -> bool:
        """Whether tokens are drafted."""
        return self.options.prompt_lookup is not None


def fit(
    header: GgufHeader,
    room: Room,
    draft: GgufHeader | None = None,
    *,
    batch_invariant: bool = False,
    embeds: bool = False,
) -> Fit:
    """Return how to load a model, with its draft model, into the room.

    The context is at most the training context. A model that `embeds` makes vectors of texts. Drafts are left out if
    the states that recurrent layers keep for them would leave much less context or less than a few slots, or are so
    large that steps with many sequences would take longer.
    """
    plain = _fit(header, room, draft, LoadOptions(batch_invariant=batch_invariant), embeds=embeds)
    if embeds or why_not_drafted(header) is not None:
        return plain
    mtp = MtpOptions() if architectures.why_no_mtp(header.architecture, header.mtp_heads) is None else None
    drafts = LoadOptions(batch_invariant=batch_invariant, prompt_lookup=PromptLookupOptions(), mtp=mtp)
    drafting = _fit(header, room, draft, drafts)
    if header.architecture not in architectures.ROLLS_BACK:
        return drafting
    slots, same_type = drafting.options.slots, drafting.options.kv_type_k == plain.options.kv_type_k
    has_room = same_type and drafting.context >= MOST_OF * plain.context and not drafting.short
    has_room &= slots >= min(FEW_SLOTS[0], plain.options.slots)
    is_quick = slots * header.state_bytes <= LARGEST_STATES * header.weight_bytes
    return drafting if has_room and is_quick and drafts.rollback else plain


def _fit(header: GgufHeader, room: Room, draft: GgufHeader | None, base: LoadOptions, *, embeds: bool = False) -> Fit:
    def need(options: LoadOptions) -> MemoryEstimate:
        own = estimate(header, options, embeds=embeds)
        return own if draft is None else own + estimate_draft(draft, options)

    def options(kv_type: KvType, slots: int, context: int) -> LoadOptions:
        return replace(base, context=context, slots=slots, kv_type_k=kv_type, kv_type_v=kv_type)

    ceiling = max(1, min(header.context_length, MAX_CONTEXT))
    kv_types = tuple(_kv_types(header))
    for limit, kv_type, slots in itertools.product((room.free // 2, room.free), kv_types, FEW_SLOTS):
        fitting = _within(need, limit, options(kv_type, slots, ceiling))
        if fitting is not None and fitting.context >= min(ceiling, WORTH_HAVING):
            return fitting
    least = _within(need, room.free, options(kv_types[-1], 1, ceiling))
    if least is not None and least.context >= min(ceiling, SMALLEST):
        return least
    smallest = options(kv_types[-1], 1, min(ceiling, SMALLEST))
    memory = need(smallest)
    return Fit(options=smallest, memory=memory, short=max(0, memory.total - room.free))


def _within(need: Need, limit: int, options: LoadOptions) -> Fit | None:
    def fits(context: int, slots: int) -> bool:
        return need(replace(options, context=context, slots=slots)).total <= limit

    slots = options.slots
    # The longest context first, then more slots.
    context = _longest(lambda tokens: fits(tokens, slots), min(options.context or MAX_CONTEXT, MAX_CELLS // slots))
    if not context:
        return None
    more = (n for n in range(slots, MOST_SLOTS) if (n + 1) * context > MAX_CELLS or not fits(context, n + 1))
    best = replace(options, context=context, slots=next(more, MOST_SLOTS))
    return Fit(options=best, memory=need(best))


def _kv_types(header: GgufHeader) -> Iterator[KvType]:
    yield "f16"  # the faster one first
    if header.key_length and not (header.key_length % QUANTISED_BLOCK or header.value_length % QUANTISED_BLOCK):
        yield "q8_0"


def _longest(fits: Callable[[int], bool], most: int) -> int:
    # A multiple of STEP if below `most`; 0 if nothing fits.
    longest = bisect_left(range(1, most + 1), True, key=lambda tokens: not fits(tokens))
    return longest if longest in (0, most) or longest < STEP else longest // STEP * STEP
