"""Choose where KV cells lie: in streams, one for each sequence, or in a pool that all share.

A step reads each stream for its own sequence. A pool it reads whole for every sequence, but a beginning that many share
lies there once, and passes the processor's caches once for many of them. So streams are faster for texts that have
little in common, and a pool for many that begin with the same document. Which of them come is known only when they
have come: an engine changes from one to the other when that would have paid by now.
`docs/adr/0012-the-cache-is-laid-out-for-what-comes.md` has figures. Pure: no clock, no model.
"""

from dataclasses import dataclass

from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.step_cost.model import StepCostModel
from registry.options import FlashAttention

_PASSES = 2
"""A step for several sequences takes about as long as if it read the pool so often, ..."""
_TILE = 8
"""... or once for so many sequences, where there are many of them."""
_CLEARLY = 0.05
"""A layout that takes no more than so much longer is as good as the other one, for no more is known."""
_LEARNED = 0.1
"""The part of an observed error that is corrected at once."""
_FAR_OFF = 8.0
"""What is learned of a pool is at most so many times what was assumed, or so small a part: a process that was suspended
says nothing."""


@dataclass(frozen=True, slots=True)
class AttentionReads:
    """What a step that decodes `width` sequences reads: `attended` cells, summed over the sequences, in streams; in a
    pool the `held` ones, where shared cells count once and those kept for others count too."""

    width: int
    stream_cells: int
    pool_cells: int

    @property
    def pool_read_cells(self) -> float:
        """As how many cells of streams those of a pool count before anything is learned."""
        return self.pool_cells * min(self.width, max(_PASSES, self.width / _TILE))


class CacheLayout:
    """How the cells lie now, `split` into streams or not, and what that has cost.

    `regret` are the seconds that decoding took longer than it would have with the other layout, as well as can be told;
    while the other one would be slower, it goes back to 0.
    """

    def __init__(self, *, split: bool) -> None:
        self.split = split
        self.regret = 0.0
        self._pool_cost_ratio = 1.0

    def record(self, reading: AttentionReads, seconds: float, streams: StepCostModel, count: int = 1) -> None:
        """Account for `count` steps like this one, which took `seconds`. `streams` is what steps cost with streams."""
        if not streams.per_cell:
            return
        if not self.split:
            self._learn(reading, seconds, streams)
        longer = streams.per_cell * (reading.stream_cells - self._pool_cost_ratio * reading.pool_read_cells)
        clearly = (longer if self.split else -longer) - _CLEARLY * seconds
        self.regret = max(0.0, self.regret + count * clearly)

    def due(self, change_seconds: float) -> bool:
        """Return whether to change, when that takes so long.

        Who waits until it would have paid never loses more by waiting than by the change itself.
        """
        return self.regret > change_seconds

    def change(self) -> None:
        """Go over to the other layout."""
        self.split = not self.split
        self.regret = 0.0

    def _learn(self, reading: AttentionReads, seconds: float, streams: StepCostModel) -> None:
        """Learn how many times as dear as assumed it is to read a pool, from what a step took longer than without."""
        longer = seconds - streams.seconds(reading.width, reading.width)
        seen = longer / (streams.per_cell * reading.pool_read_cells)
        self._pool_cost_ratio += _LEARNED * (max(1 / _FAR_OFF, min(seen, _FAR_OFF)) - self._pool_cost_ratio)


def layout_may_change(spec: EngineSpec, attention: FlashAttention) -> bool:
    """Return whether an engine with these settings may choose its layout while it runs.

    Not where a setting says which it is, nor with scores of attention kept, which take memory by the layout, nor with a
    draft model, whose cells lie as its target's. A single sequence reads as much in both.
    """
    settled = spec.batch_invariant or spec.cells is not None or spec.split is not None
    return not settled and attention != "off" and spec.speculation is None and spec.slots > 1
