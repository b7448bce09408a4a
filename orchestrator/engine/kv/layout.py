"""Choose the layout of the KV cache: a stream of cells for each sequence, or a pool of cells that all share.

With streams, a step reads for each sequence only that sequence's cells. A pool is read as a whole for every sequence,
but a prefix that many sequences share is there once, and is read from the processor's caches for many of them. So
streams are faster for texts that have little in common, and a pool for many texts that begin with the same document.
Streams between those of running sequences have to be padded, and prompts are computed in steps of their own, which
costs most where arithmetic bounds a step: with small models, and with short texts that end at different times.
Which of them come is not known in advance: an engine changes its layout when the change would have paid by now.
`docs/adr/0012-the-cache-is-laid-out-for-what-comes.md` has figures. Pure: no clock, no model.
"""

from dataclasses import dataclass

from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.step_cost.model import StepCostModel
from registry.options import FlashAttention

_PASSES = 2
"""A step for several sequences takes about as long as if it read the pool this many times."""
_TILE = 8
"""Where many sequences decode, a step takes as long as if it read the pool once for this many sequences."""
_TOLERANCE = 0.05
"""A layout that takes longer by at most this fraction counts as equally good, since no more is known for certain."""
_LEARNING_RATE = 0.1
"""The fraction of an observed error that is corrected at once."""
_FEW_CELLS = 8192
"""A cache of at most so many cells begins as a pool. To read more of it than needed takes little time, while padding
and steps of their own for prompts take as much as with a larger one."""
_MAX_COST_RATIO = 8.0
"""The observed cost of a pool is limited to this many times what was assumed, and to that fraction of it: a process
that was suspended says nothing."""


@dataclass(frozen=True, slots=True)
class AttentionReads:
    """The cells that a step reads when it decodes one token for each of several sequences."""

    width: int
    """How many sequences decode."""
    stream_cells: int
    """The cells that are read with streams, summed over the sequences."""
    pool_cells: int
    """The cells that are held in a pool, where shared cells count once, including those of finished prompts."""

    @property
    def pool_read_cells(self) -> float:
        """How many cells of streams take as long to read as the pool, before anything is learned."""
        return self.pool_cells * min(self.width, max(_PASSES, self.width / _TILE))


class CacheLayout:
    """The layout that is in use, and how much time the other one would have saved."""

    def __init__(self, *, split: bool) -> None:
        self.split = split
        """Whether the cells are split into streams."""
        self.regret = 0.0
        """The estimated seconds by which decoding took longer than it would have with the other layout. It falls,
        down to 0, while the other layout would be slower."""
        self._pool_cost_ratio = 1.0
        self._padding_share = 0.0
        """The fraction of a step's time that padding took while the cells were split."""

    def record(
        self, reads: AttentionReads, seconds: float, streams: StepCostModel, count: int = 1, padded: int = 0
    ) -> None:
        """Account for `count` steps like this one, which took `seconds`, with so many `padded` streams.

        `streams` is what steps cost with streams. Of a pool nothing is learned while it does not know what a cell
        costs.
        """
        if streams.per_cell and not self.split:
            self._learn(reads, seconds, streams)
        longer = streams.per_cell * (reads.stream_cells - self._pool_cost_ratio * reads.pool_read_cells)
        if self.split:
            padding = min(seconds, streams.padding_seconds(reads.width, padded))
            self._padding_share += _LEARNING_RATE * (padding / seconds - self._padding_share)
            saved = longer + padding
        else:
            saved = -longer - self._padding_share * seconds
        self.regret = max(0.0, self.regret + count * (saved - _TOLERANCE * seconds))

    def change_is_due(self, change_seconds: float) -> bool:
        """Return whether to change the layout when the change takes so long.

        Waiting until the change would have paid never loses more than the change itself costs.
        """
        return self.regret > change_seconds

    def change(self) -> None:
        """Note that the other layout is in use now."""
        self.split = not self.split
        self.regret = 0.0

    def _learn(self, reads: AttentionReads, seconds: float, streams: StepCostModel) -> None:
        """Learn how much more than assumed it costs to read a pool, from the time beyond that of an empty cache."""
        longer = seconds - streams.seconds(reads.width, reads.width)
        seen = longer / (streams.per_cell * reads.pool_read_cells)
        limited = max(1 / _MAX_COST_RATIO, min(seen, _MAX_COST_RATIO))
        self._pool_cost_ratio += _LEARNING_RATE * (limited - self._pool_cost_ratio)


def layout_may_change(spec: EngineSpec, attention: FlashAttention) -> bool:
    """Return whether an engine with these settings may change its layout while it runs.

    It may not if a setting decides the layout, if scores of attention are kept, whose memory depends on the layout, or
    if there is a draft model, whose layout follows the target's. With a single slot, both layouts read the same cells.
    """
    settled = spec.batch_invariant or spec.cells is not None or spec.split is not None
    return not settled and attention != "off" and spec.speculation is None and spec.slots > 1


def begins_as_pool(spec: EngineSpec, attention: FlashAttention, context: int) -> bool:
    """Return whether the cells of an engine with sequences of `context` tokens are a pool at first, if it may choose.

    A model with a sliding window, or with a state in place of cells, has no choice.
    """
    return layout_may_change(spec, attention) and context * spec.slots <= _FEW_CELLS
