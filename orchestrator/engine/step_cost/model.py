"""Predict how long a decode step takes, from measured times corrected by observations. Pure.

A step is one call of llama_decode with `tokens` query tokens of `sequences` sequences, which attend to `cells` KV cells
(summed over the tokens). Its width is the number of sequences that decode one token each. Times are in seconds.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import inf
from statistics import median
from typing import NamedTuple

# Measured step sizes, in tokens, if slots, context and time allow. Matrix products use tiles of 4 or more rows and
# compute the rest row by row: a step one token short of a full tile may take a third longer. Hence whole tiles, and one
# less.
SIZES = (1, 2, 3, 4, 7, 8, 11, 12, 15, 16, 31, 32, 63, 64)

MAX_PADDING = 3  # padding tokens that may fill a tile

NOISE = 0.02  # relative error of measurements; smaller differences count as equal

# The gain in tokens per second, as a fraction, that justifies leaving sequences out of a step. Those left out wait,
# finish later, and no longer find their cells in the processor's caches.
MIN_BATCHING_GAIN = 0.1

_MAX_TOKEN_RATIO = 4  # the most that a token of any step takes, in steps of one token

_LEARNING_RATE = 0.1  # fraction of an error corrected at once: a point remembers about ten observations

# The fraction of a correction that applies to all points, not only to those next to the observed size. Most errors come
# from a slower machine or a deeper cache and concern all steps; otherwise unused sizes would look better or worse than
# used ones. Steps without drafts do not correct the points for drafts: only tried drafts show how the two compare.
_SHARED_CORRECTION = 0.75

# Assumed without measurements: n tokens take 0.7 + 0.3 n steps of one token, a prompt token takes 0.2. Wide steps and
# drafts then look worth trying, which shows their real cost.
_ASSUMED_FIRST, _ASSUMED_TOKEN, _ASSUMED_PREFILL = 0.7, 0.3, 0.2

# Implausible: a step of n tokens that takes longer than n single steps by more than this factor, ...
_MAX_PER_TOKEN = 1.5

_MIN_STEP = 0.4  # ... or less than this fraction of a step with fewer tokens.

# The least cost of a cell, as a fraction of a step of one token. Corrections are relative, so a cost of 0 could never
# grow, and sequences would be blamed for the cost of cells.
_MIN_PER_CELL = 1e-4


@dataclass(frozen=True, slots=True)
class Points:
    """How long steps of some sizes take.

    Raises ValueError if the sizes do not rise from 1, or a time is missing or not positive and finite.
    """

    sizes: tuple[int, ...]  # tokens
    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        if self.sizes[:1] != (1,) or any(low >= high for low, high in pairwise(self.sizes)):
            raise ValueError(f"the sizes are {self.sizes}; accepted: rising from 1")
        if len(self.seconds) != len(self.sizes) or not all(0 < value < inf for value in self.seconds):
            raise ValueError(f"the times are {self.seconds}; accepted: a positive number for each of {self.sizes}")

    def place(self, size: int) -> tuple[int, float, int]:
        """Return the index of the last point up to `size`, the way to the next (0 to 1), and the tokens beyond."""
        at = bisect_right(self.sizes, size) - 1
        if at + 1 == len(self.sizes):
            return at, 0.0, size - self.sizes[at]
        low, high = self.sizes[at : at + 2]
        return at, (size - low) / (high - low), 0


@dataclass(frozen=True)
class StepCostModel:
    """The cost of a step.

    Raises ValueError if `decode` and `verify` start with different times, or a cost is not a positive finite number.
    """

    decode: Points  # one token for each of n sequences, nearly empty cache
    verify: Points  # n tokens of one sequence, as in draft verification, nearly empty cache
    prefill: float  # seconds per additional token in a large batch
    per_cell: float  # seconds per query token and attended cell; may be 0
    pads: bool = False  # whether the engine pads steps with unused sequences if a wider step is faster

    def __post_init__(self) -> None:
        if self.decode.seconds[0] != self.verify.seconds[0]:
            raise ValueError("a step of one token has two different times")
        if not (0 < self.prefill < inf and 0 <= self.per_cell < inf):
            raise ValueError(f"prefill is {self.prefill} and per_cell {self.per_cell}; accepted: positive numbers")

    @classmethod
    def assumed(cls, seconds: float, *, most: int = SIZES[-1], pads: bool = False) -> "StepCostModel":
        """Return assumed costs, given only the time of a step of one token.

        `most` is the engine's widest step, in sequences.
        """
        widths = tuple(sorted({min(size, most) for size in SIZES}))
        times = [
            tuple(seconds * (_ASSUMED_FIRST + _ASSUMED_TOKEN * size) for size in sizes) for sizes in (widths, SIZES)
        ]
        points = Points(widths, (seconds, *times[0][1:])), Points(SIZES, (seconds, *times[1][1:]))
        return cls(*points, seconds * _ASSUMED_PREFILL, _MIN_PER_CELL * seconds, pads)

    def implausible(self, *, most: int) -> str | None:
        """Return why no machine can behave like this, or None.

        `most` is the engine's widest step, in sequences.
        """
        first = self.verify.seconds[0]
        # This happens if there was no time to measure more.
        if most > 1 and len(self.decode.sizes) == 1:
            return "only steps of one token were measured"
        for points in (self.decode, self.verify):
            longest = 0.0
            for size, seconds in zip(points.sizes, points.seconds, strict=True):
                if seconds > _MAX_PER_TOKEN * size * first:
                    return f"a step of {size} tokens took {seconds / first:.1f} times as long as one of a single token"
                if seconds < _MIN_STEP * longest:
                    return f"a step of {size} tokens took {seconds / longest:.2f} of the time of a smaller one"
                longest = max(longest, seconds)
        if self.prefill > _MAX_PER_TOKEN * first or self.per_cell > first:
            return f"a prompt token takes {self.prefill} s and a cell {self.per_cell} s, a whole step {first} s"
        return None

    def seconds(self, tokens: int, sequences: int, cells: int = 0) -> float:
        """Return the expected time of a step; `tokens` >= `sequences` >= 1.

        Linear between points, then `prefill` per token. With one token per sequence: the time of the padded step.
        """
        if tokens == sequences:
            width = self.padded_width(sequences, cells) if self.pads else sequences
            return self._decode_seconds(width) + self.per_cell * cells * width / sequences
        # The excess of `decode` over `verify` is due to the number of sequences, even if they have further tokens.
        return self._verify_seconds(tokens) + self._spread(sequences) + self.per_cell * cells

    def prompt_seconds(self, position: int, count: int) -> float:
        """Return the expected time to compute `count` tokens of a prompt, the first at `position`."""
        return self.prefill * count + self.per_cell * attended_cells(position, count)

    def is_short(self, tokens: int, cells: int) -> bool:
        """Return whether a step certainly takes less than a second; many times faster than `seconds`."""
        return _MAX_TOKEN_RATIO * tokens * self.verify.seconds[0] + self.per_cell * cells < 1.0

    def padded_width(self, sequences: int, cells: int = 0) -> int:
        """Return the fastest width for `sequences` decoding sequences, at most `MAX_PADDING` more.

        They attend to `cells` cells, and padding is assumed to attend to as many per token.
        """
        best, most = sequences, self.decode.sizes[-1]
        if not self.pads or sequences >= most:
            return best
        deep = self.per_cell * cells / sequences
        least = (self._decode_seconds(sequences) + deep * sequences) * (1 - NOISE)
        for width in range(sequences + 1, min(sequences + MAX_PADDING, most) + 1):
            seconds = self._decode_seconds(width) + deep * width
            if seconds < least:
                best, least = width, seconds
        return best

    def padding_seconds(self, sequences: int, padded: int) -> float:
        """Return how much longer a padded step takes than necessary."""
        if not padded:
            return 0.0
        return max(0.0, self._decode_seconds(sequences + padded) - self._decode_seconds(self.padded_width(sequences)))

    def observed(self, tokens: int, sequences: int, seconds: float, cells: int = 0) -> "StepCostModel":
        """Return the model corrected by a step that took `seconds`.

        The nearest points, `prefill` and `per_cell` get a fraction of the error by their share of the time (normalised
        least mean squares on relative values), so steps at different depths separate the cost of depth.
        """
        plain = tokens == sequences
        points = self.decode if plain else self.verify
        at, way, beyond = points.place(tokens)
        near = points.seconds[at : at + 2] if way else (points.seconds[at], 0.0)
        per_cell = max(self.per_cell, _MIN_PER_CELL * self.verify.seconds[0])
        shares = (near[0] * (1 - way), near[1] * way, self.prefill * beyond, per_cell * cells)
        expected = sum(shares)
        error = seconds - expected - (0.0 if plain else self._spread(sequences))
        # Limited to the whole prediction: the time of a suspended process says nothing.
        error = max(-expected, min(error, expected))
        common = 1 + _SHARED_CORRECTION * _LEARNING_RATE * error / expected
        error /= sum(share * share for share in shares)
        low, high, prefill, deep = (_LEARNING_RATE * error * share for share in shares)
        factors = [common] * len(points.seconds)
        factors[at] += (1 - _SHARED_CORRECTION) * low
        if way:
            factors[at + 1] += (1 - _SHARED_CORRECTION) * high
        times = [value * factor for value, factor in zip(points.seconds, factors, strict=True)]
        first, learned = times[0], Points(points.sizes, tuple(times))
        unobserved = self.verify if plain else self.decode
        scale = 1.0 if plain else common
        unobserved = Points(unobserved.sizes, (first, *(value * scale for value in unobserved.seconds[1:])))
        decode, verify = (learned, unobserved) if plain else (unobserved, learned)
        return StepCostModel(decode, verify, self.prefill * (1 + prefill), per_cell * (1 + deep), self.pads)

    def faded(self, measured: "StepCostModel", part: float) -> "StepCostModel":
        """Return the model with `verify` moved by the fraction `part` towards the `measured` shape."""
        scale = self.verify.seconds[0] / measured.verify.seconds[0]
        pairs = zip(self.verify.seconds, measured.verify.seconds, strict=True)
        times = tuple(seconds + part * (scale * before - seconds) for seconds, before in pairs)
        return replace(self, verify=replace(self.verify, seconds=(self.verify.seconds[0], *times[1:])))

    @cached_property
    def least_growth(self) -> float:
        # The least seconds that one more token can add to a step; negative if a larger step is faster.
        sizes, times = self.verify.sizes, self.verify.seconds
        slopes = [(times[at + 1] - times[at]) / (sizes[at + 1] - sizes[at]) for at in range(len(sizes) - 1)]
        return min([self.prefill, *slopes])

    @cached_property
    def least_per_token(self) -> tuple[float, float]:
        """The least seconds per token in an empty cache: one token per sequence, and any step."""
        plain = min(seconds / size for size, seconds in zip(self.decode.sizes, self.decode.seconds, strict=True))
        verified = min(seconds / size for size, seconds in zip(self.verify.sizes, self.verify.seconds, strict=True))
        return plain, min(plain, verified, self.prefill)

    @cached_property
    def _times_by_width(self) -> dict[int, float]:
        # A cache: `_decode_seconds` is called for the same few widths in every step.
        return {}

    def _decode_seconds(self, sequences: int) -> float:
        times = self._times_by_width
        if sequences not in times:
            times[sequences] = self._interpolate(self.decode, sequences)
        return times[sequences]

    def _verify_seconds(self, tokens: int) -> float:
        return self._interpolate(self.verify, tokens)

    def _spread(self, sequences: int) -> float:
        # How much longer a step takes for this many sequences than for as many tokens of one sequence.
        return max(0.0, self._decode_seconds(sequences) - self._verify_seconds(sequences))

    def _interpolate(self, points: Points, size: int) -> float:
        at, way, beyond = points.place(size)
        times = points.seconds
        if way:
            return times[at] + way * (times[at + 1] - times[at])
        return times[at] + beyond * self.prefill


class StepShare(NamedTuple):
    work: float  # the step's time, divided by tokens
    alone: float  # without the other sequences
    packed: float  # in the steps with most tokens per second


def divide_step(costs: StepCostModel, seconds: float, parts: Sequence[tuple[int, int]]) -> list[StepShare]:
    """Return the share of each sequence in a step that took `seconds`.

    `parts` has the tokens of each and the cells they attend to.
    """
    tokens = cells = 0
    for count, attended in parts:
        tokens += count
        cells += attended
    # A slow machine, or a model that is off by a constant factor, changes all three times alike.
    factor = seconds / costs.seconds(tokens, len(parts), cells)
    first, per_cell = costs.decode.seconds[0], costs.per_cell
    least, least_of_many = costs.least_per_token
    shares = []
    for count, attended in parts:
        deep = per_cell * attended
        alone = first + deep if count == 1 else costs.seconds(count, 1, attended)
        packed = (least if count == 1 else least_of_many) * count + deep
        shares.append(StepShare(seconds * count / tokens, factor * alone, factor * min(packed, alone)))
    return shares


def attended_cells(position: int, count: int) -> int:
    """Return how many cells `count` tokens of a sequence attend to in total, the first at `position`."""
    return count * position + count * (count + 1) // 2


def best_decode_width(costs: StepCostModel, depths: Sequence[int]) -> int:
    """Return how many sequences to decode in one step for the most tokens per second; 0 for none.

    `depths` are their cells, highest priority first. The result is the widest step that is fast enough (`enough_rate`).
    """
    # More is not always faster: two sequences in a step may take longer than one after the other.
    rates = []
    cells = 0
    for width, depth in enumerate(depths, 1):
        cells += depth
        rates.append(width / costs.seconds(width, width, cells))
    if not rates:
        return 0
    enough = enough_rate(max(rates), rates[0])
    return max(width for width, rate in enumerate(rates, 1) if rate >= enough)


def enough_rate(best: float, alone: float) -> float:
    """Return the tokens per second at which a step leaves no sequence out, given the best narrower rate."""
    return max(best * (1 - MIN_BATCHING_GAIN), alone * (1 - NOISE))


def wasteful_widths(times: Mapping[int, Sequence[float]]) -> list[int]:
    """Return the widths that are slow enough to prefer a narrower one, and those narrower ones.

    `times` are the measured seconds by width, with at least one of width 1.
    """
    rates = {size: size / median(seconds) for size, seconds in times.items() if seconds}
    widths: set[int] = set()
    for size, rate in rates.items():
        best = max((width for width in rates if width <= size), key=rates.__getitem__)
        if rate < enough_rate(rates[best], rates[1]):
            widths |= {best, size}
    return sorted(widths)


def round_robin(width: int, waited: Sequence[int]) -> list[int]:
    """Return the indices of the `width` (at least 1) sequences that decode now.

    `waited` counts the skipped steps of each, highest priority first. The last place goes to the longest waiting, so
    none waits more than len(waited) - width steps.
    """
    if width >= len(waited):
        return list(range(len(waited)))
    return [*range(width - 1), max(range(width - 1, len(waited)), key=waited.__getitem__)]
