"""Predict how long a decode step takes, from points measured on this machine and corrected by what is observed.

A step computes `tokens` query tokens of `sequences` sequences, which attend to `cells` cells of the KV cache, summed
over the query tokens. Times are in seconds. Pure: no clock, no files.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import inf

SIZES = (1, 2, 3, 4, 7, 8, 11, 12, 15, 16, 31, 32, 63, 64)
"""The steps to measure, in tokens, as far as slots, context and time allow. Matrix products go by tiles of 4 or more
rows, and what is left of a tile goes row by row: a step with one token less than a tile may take a third longer."""

MAX_PADDING = 3
"""A step is filled with at most so many tokens that nobody asked for."""

NOISE = 0.02
"""Measurements are no better than this: a smaller difference is none."""

WORTH_WAITING = 0.1
"""Sequences are left out of a step only if so much more of the others' tokens are made: they would wait, end later than
the others, and what runs in turns is in no cache."""

_SURELY = 4
"""No token of a step takes so many times as long as one alone."""

_RATE = 0.1
"""The share of an observed error that is corrected at once; the memory is about ten observations a point."""

_COMMON = 0.75
"""The part of what a step teaches about points that counts for all of them: mostly the machine is slower, or the cache
deeper, for all kinds of steps. Else what is done would look bad beside all that is not, or good. But what steps without
drafts teach does not count for those with drafts: how the two compare shows only where some are tried."""

_ASSUMED_FIRST, _ASSUMED_TOKEN, _ASSUMED_PREFILL = 0.7, 0.3, 0.2
"""What a step of n tokens is assumed to take where nothing was measured: 0.7 + 0.3 n times as long as a step of one
token, and 0.2 times as long for a prompt token. With these, wide steps and drafts look worth a try, and trying them
tells the truth."""

_DEAREST_TOKEN = 1.5
"""A measured step of n tokens is not believed if it took longer than n single steps by more than this factor, ..."""

_LEAST_STEP = 0.4
"""... or less time than this part of a measured step with fewer tokens."""

_LEAST_PER_CELL = 1e-4
"""The least cost of a cell that is assumed and learned, relative to a step of one token: relative corrections never
leave 0, and what is known of no cell would be put down to the number of sequences."""


@dataclass(frozen=True, slots=True)
class Points:
    """How long steps of some `sizes` in tokens took. Sizes rise from 1. Raises ValueError for anything else."""

    sizes: tuple[int, ...]
    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        if self.sizes[:1] != (1,) or any(low >= high for low, high in pairwise(self.sizes)):
            raise ValueError(f"the sizes are {self.sizes}; accepted: rising from 1")
        if len(self.seconds) != len(self.sizes) or not all(0 < value < inf for value in self.seconds):
            raise ValueError(f"the times are {self.seconds}; accepted: a positive number for each of {self.sizes}")

    def place(self, size: int) -> tuple[int, float, int]:
        """Return the point at or below `size` (at least 1), the part of the way to the next, and the tokens beyond
        the last."""
        at = bisect_right(self.sizes, size) - 1
        if at + 1 == len(self.sizes):
            return at, 0.0, size - self.sizes[at]
        low, high = self.sizes[at : at + 2]
        return at, (size - low) / (high - low), 0


@dataclass(frozen=True)
class StepCostModel:
    """What a step costs.

    `many` are steps with one token for each of n sequences, `one` steps with n tokens of one sequence, both in a
    nearly empty cache; their first points are the same. `prefill` is what a token more costs in a large batch, and
    `per_cell` what a query token costs for every cell it attends to. `pads` says whether the engine computes tokens
    that nobody asked for, in sequences beside, where a wider step takes less time.
    """

    many: Points
    one: Points
    prefill: float
    per_cell: float
    pads: bool = False

    def __post_init__(self) -> None:
        if self.many.seconds[0] != self.one.seconds[0]:
            raise ValueError("a step of one token has two different times")
        if not (0 < self.prefill < inf and 0 <= self.per_cell < inf):
            raise ValueError(f"prefill is {self.prefill} and per_cell {self.per_cell}; accepted: positive numbers")

    @classmethod
    def assumed(cls, seconds: float, *, most: int = SIZES[-1], pads: bool = False) -> "StepCostModel":
        """Return what is assumed of a model of which nothing is known but that a step of one token takes `seconds`.

        `most` is the widest step that the engine can compute, in sequences.
        """
        many = tuple(sorted({min(size, most) for size in SIZES}))
        times = [tuple(seconds * (_ASSUMED_FIRST + _ASSUMED_TOKEN * size) for size in sizes) for sizes in (many, SIZES)]
        points = Points(many, (seconds, *times[0][1:])), Points(SIZES, (seconds, *times[1][1:]))
        return cls(*points, seconds * _ASSUMED_PREFILL, _LEAST_PER_CELL * seconds, pads)

    def implausible(self, *, most: int) -> str | None:
        """Return why this cannot be what a machine does, or None if it can.

        `most` is the widest step that the engine can compute, in sequences: a cost model that knows single steps only,
        on an engine that can compute several sequences, was measured when there was no time for more.
        """
        first = self.one.seconds[0]
        if most > 1 and len(self.many.sizes) == 1:
            return "only steps of one token were measured"
        for points in (self.many, self.one):
            longest = 0.0
            for size, seconds in zip(points.sizes, points.seconds, strict=True):
                if seconds > _DEAREST_TOKEN * size * first:
                    return f"a step of {size} tokens took {seconds / first:.1f} times as long as one of a single token"
                if seconds < _LEAST_STEP * longest:
                    return f"a step of {size} tokens took {seconds / longest:.2f} of the time of a smaller one"
                longest = max(longest, seconds)
        if self.prefill > _DEAREST_TOKEN * first or self.per_cell > first:
            return f"a prompt token takes {self.prefill} s and a cell {self.per_cell} s, a whole step {first} s"
        return None

    def seconds(self, tokens: int, sequences: int, cells: int = 0) -> float:
        """Return the expected time of a step; `tokens` is at least `sequences`, which is at least 1.

        Between points it is linear, beyond the last a token costs `prefill`. With one token for each sequence it is
        the time of the padded step. What `many` costs more than `one` is put down to the number of sequences,
        whether they have further tokens or not.
        """
        if tokens == sequences:
            width = self.padded_width(sequences, cells)
            return self._of_many(width) + self.per_cell * cells * width / sequences
        return self._of_one(tokens) + self._spread(sequences) + self.per_cell * cells

    def is_short(self, tokens: int, cells: int) -> bool:
        """Return whether a step takes less than a second for sure. To say how long takes many times as long."""
        return _SURELY * tokens * self.one.seconds[0] + self.per_cell * cells < 1.0

    def padded_width(self, sequences: int, cells: int = 0) -> int:
        """Return how many sequences to compute, a token each, where so many decode: up to `MAX_PADDING` more.

        Those are taken to be as deep as the others, which attend to `cells`.
        """
        best, most = sequences, self.many.sizes[-1]
        if not self.pads or sequences >= most:
            return best
        deep = self.per_cell * cells / sequences
        least = (self._of_many(sequences) + deep * sequences) * (1 - NOISE)
        for width in range(sequences + 1, min(sequences + MAX_PADDING, most) + 1):
            seconds = self._of_many(width) + deep * width
            if seconds < least:
                best, least = width, seconds
        return best

    def observed(self, tokens: int, sequences: int, seconds: float, cells: int = 0) -> "StepCostModel":
        """Return the cost model after a step of this kind took `seconds`.

        A part of the error goes to the points next to the step's size, to `prefill` for tokens beyond the last one, and
        to `per_cell`, each by its share of the time (normalised least mean squares on relative values). So steps at
        different depths part what is due to depth from what is not. Most of what goes to points goes to all of `many`,
        and with drafts to all of both sets. An error counts as at most the whole prediction: a process that was
        suspended says nothing about the model.
        """
        apart = tokens == sequences
        points = self.many if apart else self.one
        at, way, beyond = points.place(tokens)
        near = points.seconds[at : at + 2] if way else (points.seconds[at], 0.0)
        per_cell = max(self.per_cell, _LEAST_PER_CELL * self.one.seconds[0])
        shares = (near[0] * (1 - way), near[1] * way, self.prefill * beyond, per_cell * cells)
        known = sum(shares)
        error = seconds - known - (0.0 if apart else self._spread(sequences))
        error = max(-known, min(error, known))
        common = 1 + _COMMON * _RATE * error / known
        error /= sum(share * share for share in shares)
        low, high, prefill, deep = (_RATE * error * share for share in shares)
        factors = [common] * len(points.seconds)
        factors[at] += (1 - _COMMON) * low
        if way:
            factors[at + 1] += (1 - _COMMON) * high
        times = [value * factor for value, factor in zip(points.seconds, factors, strict=True)]
        first, learned = times[0], Points(points.sizes, tuple(times))
        other = self.one if apart else self.many
        beside = 1.0 if apart else common
        other = Points(other.sizes, (first, *(value * beside for value in other.seconds[1:])))
        many, one = (learned, other) if apart else (other, learned)
        return StepCostModel(many, one, self.prefill * (1 + prefill), per_cell * (1 + deep), self.pads)

    def faded(self, measured: "StepCostModel", part: float) -> "StepCostModel":
        """Return the cost model with the shape of `one` a `part` of the way back to what was `measured`."""
        scale = self.one.seconds[0] / measured.one.seconds[0]
        pairs = zip(self.one.seconds, measured.one.seconds, strict=True)
        times = tuple(seconds + part * (scale * before - seconds) for seconds, before in pairs)
        return replace(self, one=replace(self.one, seconds=(self.one.seconds[0], *times[1:])))

    @cached_property
    def least_growth(self) -> float:
        """The least that a token more can cost, wherever the step is on the cost model; below 0 where the cost model
        falls."""
        sizes, times = self.one.sizes, self.one.seconds
        slopes = [(times[at + 1] - times[at]) / (sizes[at + 1] - sizes[at]) for at in range(len(sizes) - 1)]
        return min([self.prefill, *slopes])

    @cached_property
    def _widths(self) -> dict[int, float]:
        """The times of steps for so many sequences, as far as they were asked for: the same few, step after step."""
        return {}

    def _of_many(self, sequences: int) -> float:
        times = self._widths
        if sequences not in times:
            times[sequences] = self._read(self.many, sequences)
        return times[sequences]

    def _of_one(self, tokens: int) -> float:
        return self._read(self.one, tokens)

    def _spread(self, sequences: int) -> float:
        """Return what a step for so many sequences takes more than one of as many tokens of a single sequence."""
        return max(0.0, self._of_many(sequences) - self._of_one(sequences))

    def _read(self, points: Points, size: int) -> float:
        at, way, beyond = points.place(size)
        times = points.seconds
        if way:
            return times[at] + way * (times[at + 1] - times[at])
        return times[at] + beyond * self.prefill


def attended_cells(position: int, count: int) -> int:
    """Return how many cells `count` tokens of one sequence attend to in all, the first of them at `position`."""
    return count * position + count * (count + 1) // 2


def best_decode_width(costs: StepCostModel, depths: Sequence[int]) -> int:
    """Return how many running sequences to decode in one step, so that most tokens are made per second.

    `depths` are the cells each holds, the most urgent first. It is not always all: two in a step can take longer than
    one after the other. It is the widest that is not slower than that, and not much slower than the best.
    """
    rates = []
    cells = 0
    for width, depth in enumerate(depths, 1):
        cells += depth
        rates.append(width / costs.seconds(width, width, cells))
    if not rates:
        return 0
    enough = max(max(rates) * (1 - WORTH_WAITING), rates[0] * (1 - NOISE))
    return max(width for width, rate in enumerate(rates, 1) if rate >= enough)


def round_robin(width: int, waited: Sequence[int]) -> list[int]:
    """Return which running sequences decode now, `width` of them, at least 1.

    `waited` says for each how many steps it has been left out, the most urgent first. All places but one go to the
    most urgent; the last goes round among the others, so that each of them comes after at most len - width steps.
    """
    if width >= len(waited):
        return list(range(len(waited)))
    return [*range(width - 1), max(range(width - 1, len(waited)), key=waited.__getitem__)]
