"""Choose the layout of the KV cache: a stream of cells for each sequence, or a pool that all sequences share.

Streams suit unrelated texts; a pool suits many texts with the same long prefix. The engine changes its layout when the
change would have paid: see `docs/adr/0012-the-cache-is-laid-out-for-what-comes.md`. Pure: no clock, no model.
"""

from dataclasses import dataclass

from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.step_cost.model import StepCostModel
from orchestrator.registry.options import FlashAttention

# A step for several sequences takes about as long as reading the pool this many times.
_PASSES = 2
# With many sequences, a step takes as long as reading the pool once for this many of them.
_TILE = 8
# A layout that is slower by at most this fraction counts as equally good: no more is known for certain.
_TOLERANCE = 0.05
_LEARNING_RATE = 0.1  # the fraction of an observed error that is corrected at once
# A cache of at most this many cells starts as a pool: reading cells in vain is cheap then, but padding and steps of
# their own for prompts cost as much as with a larger cache.
_FEW_CELLS = 8192
# Limits the observed cost of a pool, relative to the assumed one, in both directions: the process may have been
# suspended.
_MAX_COST_RATIO = 8.0


@dataclass(frozen=True, slots=True)
class AttentionReads:
    """The cells that one decode step reads."""

    width: int  # sequences that decode
    stream_cells: int  # cells that are read with streams, summed over the sequences
    pool_cells: int  # cells that a pool holds: shared ones count once, finished prompts included

    @property
    def pool_read_cells(self) -> float:
        """How many cells of streams take as long to read as the pool, before anything is learned."""
        return self.pool_cells * pool_passes(self.width)


def pool_passes(width: int) -> float:
    """Return how often a step for `width` sequences reads each cell of a pool, before anything is learned."""
    return min(width, max(_PASSES, width / _TILE))


class CacheLayout:
    """The layout in use, and how much time the other one would have saved."""

    def __init__(self, *, split: bool) -> None:
        self.split = split  # whether the cells are split into streams
        # Estimated seconds lost to the other layout. Falls, down to 0, while the other one would be slower.
        self.regret = 0.0
        self.pool_cost_ratio = 1.0  # what reading a pool costs, relative to `pool_passes`
        self._padding_share = 0.0  # the fraction of a step's time that padding took with streams

    def record(
        self, reads: AttentionReads, seconds: float, streams: StepCostModel, count: int = 1, padded: int = 0
    ) -> float:
        """Account for `count` steps of `seconds` and `padded` streams each; `streams` is the cost of such steps.

        Returns the seconds that the other layout would have saved in each; negative if it would have taken longer.
        """
        # Nothing is learned about a pool while the cost of a cell is unknown.
        if streams.per_cell and not self.split:
            self._learn(reads, seconds, streams)
        longer = streams.per_cell * (reads.stream_cells - self.pool_cost_ratio * reads.pool_read_cells)
        if self.split:
            padding = min(seconds, streams.padding_seconds(reads.width, padded))
            self._padding_share += _LEARNING_RATE * (padding / seconds - self._padding_share)
            saved = longer + padding
        else:
            saved = -longer - self._padding_share * seconds
        self.regret = max(0.0, self.regret + count * (saved - _TOLERANCE * seconds))
        return saved

    def change_is_due(self, change_seconds: float) -> bool:
        """Return whether a change, which takes `change_seconds`, would have paid by now."""
        # Waiting this long never loses more than the change itself costs.
        return self.regret > change_seconds

    def change(self) -> None:
        """Record that the other layout is in use now."""
        self.split = not self.split
        self.regret = 0.0

    def _learn(self, reads: AttentionReads, seconds: float, streams: StepCostModel) -> None:
        # what goes beyond the time with an empty cache is spent on reading the pool
        longer = seconds - streams.seconds(reads.width, reads.width)
        ratio = longer / (streams.per_cell * reads.pool_read_cells)
        limited = max(1 / _MAX_COST_RATIO, min(ratio, _MAX_COST_RATIO))
        self.pool_cost_ratio += _LEARNING_RATE * (limited - self.pool_cost_ratio)


def layout_may_change(spec: EngineSpec, attention: FlashAttention) -> bool:
    """Return whether an engine with these settings may change its layout while it runs."""
    settled = spec.batch_invariant or spec.cells is not None or spec.split is not None
    # Without flash attention, scores are kept, whose memory depends on the layout. The layout of a draft model
    # follows the target's. With a single slot, both layouts read the same cells.
    return not settled and attention != "off" and spec.speculation is None and spec.slots > 1


def begins_as_pool(spec: EngineSpec, attention: FlashAttention, context: int) -> bool:
    """Return whether the cells start as a pool, if the model supports both. Sequences have `context` tokens."""
    return layout_may_change(spec, attention) and context * spec.slots <= _FEW_CELLS
