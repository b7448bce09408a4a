"""Predict how long a decode step takes, from times measured on this machine and corrected by what is observed.

A step is one call of llama_decode. It computes `tokens` query tokens of `sequences` sequences, which attend to `cells`
cells of the KV cache, summed over the query tokens. The width of a step is the number of sequences that decode in it,
one token each. Times are in seconds. Pure: no clock, no files.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import inf
from statistics import median
from typing import NamedTuple

SIZES = (1, 2, 3, 4, 7, 8, 11, 12, 15, 16, 31, 32, 63, 64)
"""The sizes of steps to measure, in tokens, as far as slots, context and time allow. Matrix products are computed in
tiles of 4 or more rows, and the rows that fill no tile are computed one by one: a step with one token less than a whole
tile may take a third longer than one that fills it. So the sizes are whole tiles, and one token less."""

MAX_PADDING = 3
"""The most padding tokens that are added to a step to fill a tile."""

NOISE = 0.02
"""The relative error of measurements: times that differ by less count as equal."""

MIN_BATCHING_GAIN = 0.1
"""How much more tokens per second, as a fraction, a narrower step must make before sequences are left out of it. Those
left out wait, finish later than the others, and find none of their cells in the processor's caches."""

_MAX_TOKEN_RATIO = 4
"""No token of a step takes more than this many times as long as a step of one token."""

_LEARNING_RATE = 0.1
"""The fraction of an observed error that is corrected at once, so about ten observations of a point are remembered."""

_SHARED_CORRECTION = 0.75
"""The fraction of a correction that applies to all points and not only to those next to the observed size. Most errors
come from a machine that is slower, or a cache that is deeper, which concerns all kinds of steps; without this, the
sizes that are being used would look worse or better than those that are not. Steps without drafts do not correct the
points for drafts, though: how the two compare is only seen when drafts are tried."""

_ASSUMED_FIRST, _ASSUMED_TOKEN, _ASSUMED_PREFILL = 0.7, 0.3, 0.2
"""What is assumed where nothing was measured: a step of n tokens takes 0.7 + 0.3 n times as long as a step of one
token, and a prompt token 0.2 times as long. With these values wide steps and drafts look worth trying, and trying them
shows what they really cost."""

_MAX_PER_TOKEN = 1.5
"""A measured step of n tokens is implausible if it took longer than n single steps by more than this factor, ..."""

_MIN_STEP = 0.4
"""... or if it took less than this fraction of the time of a measured step with fewer tokens."""

_MIN_PER_CELL = 1e-4
"""The least cost of a cell that is assumed and learned, as a fraction of a step of one token. It is above 0 because
corrections are relative, so a cost of 0 could never grow, and the cost of cells would be attributed to sequences."""


@dataclass(frozen=True, slots=True)
class Points:
    """How long steps of some sizes took.

    Raises ValueError if the sizes do not rise from 1, or the times are not positive finite numbers, one for each size.
    """

    sizes: tuple[int, ...]
    """In tokens."""
    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        if self.sizes[:1] != (1,) or any(low >= high for low, high in pairwise(self.sizes)):
            raise ValueError(f"the sizes are {self.sizes}; accepted: rising from 1")
        if len(self.seconds) != len(self.sizes) or not all(0 < value < inf for value in self.seconds):
            raise ValueError(f"the times are {self.seconds}; accepted: a positive number for each of {self.sizes}")

    def place(self, size: int) -> tuple[int, float, int]:
        """Return where `size` (at least 1) lies between the points.

        The result is the index of the last point of at most that size, the fraction of the way from there to the next
        point, and the number of tokens by which `size` exceeds the last point.
        """
        at = bisect_right(self.sizes, size) - 1
        if at + 1 == len(self.sizes):
            return at, 0.0, size - self.sizes[at]
        low, high = self.sizes[at : at + 2]
        return at, (size - low) / (high - low), 0


@dataclass(frozen=True)
class StepCostModel:
    """What a step costs.

    Raises ValueError if `decode` and `verify` begin with different times, or a cost is not a positive finite number.
    """

    decode: Points
    """Steps that decode one token for each of n sequences, in a nearly empty cache."""
    verify: Points
    """Steps that compute n tokens of one sequence, as the verification of drafts does, in a nearly empty cache."""
    prefill: float
    """The seconds that one more token takes in a large batch."""
    per_cell: float
    """The seconds that a query token takes for every cell that it attends to; may be 0."""
    pads: bool = False
    """Whether the engine computes padding tokens in unused sequences where a wider step takes less time."""

    def __post_init__(self) -> None:
        if self.decode.seconds[0] != self.verify.seconds[0]:
            raise ValueError("a step of one token has two different times")
        if not (0 < self.prefill < inf and 0 <= self.per_cell < inf):
            raise ValueError(f"prefill is {self.prefill} and per_cell {self.per_cell}; accepted: positive numbers")

    @classmethod
    def assumed(cls, seconds: float, *, most: int = SIZES[-1], pads: bool = False) -> "StepCostModel":
        """Return what is assumed of a model of which it is only known that a step of one token takes `seconds`.

        `most` is the widest step that the engine can compute, in sequences.
        """
        widths = tuple(sorted({min(size, most) for size in SIZES}))
        times = [
            tuple(seconds * (_ASSUMED_FIRST + _ASSUMED_TOKEN * size) for size in sizes) for sizes in (widths, SIZES)
        ]
        points = Points(widths, (seconds, *times[0][1:])), Points(SIZES, (seconds, *times[1][1:]))
        return cls(*points, seconds * _ASSUMED_PREFILL, _MIN_PER_CELL * seconds, pads)

    def implausible(self, *, most: int) -> str | None:
        """Return why no machine can behave like this, or None if one can.

        `most` is the widest step that the engine can compute, in sequences. An engine with several sequences whose
        model knows only steps of one token was measured when there was no time for more.
        """
        first = self.verify.seconds[0]
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
        """Return the expected time of a step; `tokens` is at least `sequences`, which is at least 1.

        Between points the time is linear, and beyond the last one each token costs `prefill`. A step with one token for
        each sequence takes the time of the padded step. The time by which a step of `decode` exceeds one of `verify` is
        attributed to the number of sequences, whether they have further tokens or not.
        """
        if tokens == sequences:
            width = self.padded_width(sequences, cells) if self.pads else sequences
            return self._decode_seconds(width) + self.per_cell * cells * width / sequences
        return self._verify_seconds(tokens) + self._spread(sequences) + self.per_cell * cells

    def is_short(self, tokens: int, cells: int) -> bool:
        """Return whether a step certainly takes less than a second. This is many times faster than `seconds`."""
        return _MAX_TOKEN_RATIO * tokens * self.verify.seconds[0] + self.per_cell * cells < 1.0

    def padded_width(self, sequences: int, cells: int = 0) -> int:
        """Return the fastest width of a step for `sequences` decoding sequences: as many, or up to `MAX_PADDING` more.

        The sequences attend to `cells` cells together, and padding is taken to attend to as many per token.
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
        """Return how much longer a step for decoding sequences takes with so many padding tokens than it has to.

        Padding that makes a step faster costs nothing.
        """
        if not padded:
            return 0.0
        return max(0.0, self._decode_seconds(sequences + padded) - self._decode_seconds(self.padded_width(sequences)))

    def observed(self, tokens: int, sequences: int, seconds: float, cells: int = 0) -> "StepCostModel":
        """Return the model after a step of this kind took `seconds`.

        A fraction of the error goes to the points next to the step's size, to `prefill` for tokens beyond the last
        point, and to `per_cell`, to each by its share of the time (normalised least mean squares on relative values).
        Steps at different depths thus separate what is due to depth from what is not. Most of what goes to points goes
        to all points of `decode`, and for steps with drafts to all points of both sets. The error is limited to the
        whole prediction, because a process that was suspended says nothing about the model.
        """
        plain = tokens == sequences
        points = self.decode if plain else self.verify
        at, way, beyond = points.place(tokens)
        near = points.seconds[at : at + 2] if way else (points.seconds[at], 0.0)
        per_cell = max(self.per_cell, _MIN_PER_CELL * self.verify.seconds[0])
        shares = (near[0] * (1 - way), near[1] * way, self.prefill * beyond, per_cell * cells)
        known = sum(shares)
        error = seconds - known - (0.0 if plain else self._spread(sequences))
        error = max(-known, min(error, known))
        common = 1 + _SHARED_CORRECTION * _LEARNING_RATE * error / known
        error /= sum(share * share for share in shares)
        low, high, prefill, deep = (_LEARNING_RATE * error * share for share in shares)
        factors = [common] * len(points.seconds)
        factors[at] += (1 - _SHARED_CORRECTION) * low
        if way:
            factors[at + 1] += (1 - _SHARED_CORRECTION) * high
        times = [value * factor for value, factor in zip(points.seconds, factors, strict=True)]
        first, learned = times[0], Points(points.sizes, tuple(times))
        other = self.verify if plain else self.decode
        scale = 1.0 if plain else common
        other = Points(other.sizes, (first, *(value * scale for value in other.seconds[1:])))
        decode, verify = (learned, other) if plain else (other, learned)
        return StepCostModel(decode, verify, self.prefill * (1 + prefill), per_cell * (1 + deep), self.pads)

    def faded(self, measured: "StepCostModel", part: float) -> "StepCostModel":
        """Return the model with `verify` moved by the fraction `part` towards the shape that was `measured`."""
        scale = self.verify.seconds[0] / measured.verify.seconds[0]
        pairs = zip(self.verify.seconds, measured.verify.seconds, strict=True)
        times = tuple(seconds + part * (scale * before - seconds) for seconds, before in pairs)
        return replace(self, verify=replace(self.verify, seconds=(self.verify.seconds[0], *times[1:])))

    @cached_property
    def least_growth(self) -> float:
        """The least seconds that one more token of a sequence can add to a step of any size; negative where a larger
        step takes less time."""
        sizes, times = self.verify.sizes, self.verify.seconds
        slopes = [(times[at + 1] - times[at]) / (sizes[at + 1] - sizes[at]) for at in range(len(sizes) - 1)]
        return min([self.prefill, *slopes])

    @cached_property
    def least_per_token(self) -> tuple[float, float]:
        """The least seconds for each token of a step in an empty cache: of one that gives every sequence one token, and
        of any other."""
        plain = min(seconds / size for size, seconds in zip(self.decode.sizes, self.decode.seconds, strict=True))
        other = min(seconds / size for size, seconds in zip(self.verify.sizes, self.verify.seconds, strict=True))
        return plain, min(plain, other, self.prefill)

    @cached_property
    def _times_by_width(self) -> dict[int, float]:
        """The results of `_decode_seconds`, which is asked for the same few widths in every step."""
        return {}

    def _decode_seconds(self, sequences: int) -> float:
        times = self._times_by_width
        if sequences not in times:
            times[sequences] = self._interpolate(self.decode, sequences)
        return times[sequences]

    def _verify_seconds(self, tokens: int) -> float:
        return self._interpolate(self.verify, tokens)

    def _spread(self, sequences: int) -> float:
        """Return by how much a step for so many sequences exceeds one for as many tokens of a single sequence."""
        return max(0.0, self._decode_seconds(sequences) - self._verify_seconds(sequences))

    def _interpolate(self, points: Points, size: int) -> float:
        at, way, beyond = points.place(size)
        times = points.seconds
        if way:
            return times[at] + way * (times[at + 1] - times[at])
        return times[at] + beyond * self.prefill


class StepShare(NamedTuple):
    """What a step took of one of its sequences. Times are in seconds."""

    work: float
    """The step's time, divided by tokens among its sequences."""
    alone: float
    """What the same tokens would have taken without the other sequences."""
    packed: float
    """What the same tokens would have taken in the steps that make most tokens per second."""


def divide_step(costs: StepCostModel, seconds: float, parts: Sequence[tuple[int, int]]) -> list[StepShare]:
    """Return the share of each sequence in a step that took `seconds`.

    `parts` has for each sequence the tokens that the step computed for it, and the cells that these attend to. What the
    step took is compared with what the model expects of it, so that a machine which is slower for a while, or a model
    that is wrong by a constant factor, changes all three times alike.
    """
    tokens = cells = 0
    for count, attended in parts:
        tokens += count
        cells += attended
    factor = seconds / costs.seconds(tokens, len(parts), cells)
    one, per_cell = costs.decode.seconds[0], costs.per_cell
    least, least_of_many = costs.least_per_token
    shares = []
    for count, attended in parts:
        deep = per_cell * attended
        alone = one + deep if count == 1 else costs.seconds(count, 1, attended)
        packed = (least if count == 1 else least_of_many) * count + deep
        shares.append(StepShare(seconds * count / tokens, factor * alone, factor * min(packed, alone)))
    return shares


def attended_cells(position: int, count: int) -> int:
    """Return how many cells `count` tokens of one sequence attend to together, the first of them at `position`."""
    return count * position + count * (count + 1) // 2


def best_decode_width(costs: StepCostModel, depths: Sequence[int]) -> int:
    """Return how many running sequences to decode in one step so that most tokens are made per second; 0 for none.

    `depths` are the cells that each holds, those with the highest priority first. The result is not always all of
    them, because two sequences in a step may take longer than one after the other. It is the largest width that is not
    slower than one sequence alone, and not slower than the best width by more than `MIN_BATCHING_GAIN`.
    """
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
    """Return how many tokens a second a step has to make so that no sequence is left out of it.

    `best` is how many the best narrower step makes, and `alone` how many a step of one sequence makes.
    """
    return max(best * (1 - MIN_BATCHING_GAIN), alone * (1 - NOISE))


def wasteful_widths(times: Mapping[int, Sequence[float]]) -> list[int]:
    """Return the widths that make so few tokens a second that a narrower one is preferred, and those narrower ones.

    `times` are the seconds that steps of each width took, for width 1 at least once; there may be none of others.
    """
    rates = {size: size / median(some) for size, some in times.items() if some}
    found: set[int] = set()
    for size, rate in rates.items():
        best = max((one for one in rates if one <= size), key=rates.__getitem__)
        if rate < enough_rate(rates[best], rates[1]):
            found |= {best, size}
    return sorted(found)


def round_robin(width: int, waited: Sequence[int]) -> list[int]:
    """Return the indices of the `width` (at least 1) running sequences that decode now.

    `waited` says for each sequence how many steps it has been left out, those with the highest priority first. All
    places but one go to the highest priorities. The last place goes to the one of the others that has waited longest,
    so each of them decodes after at most len(waited) - width steps.
    """
    if width >= len(waited):
        return list(range(len(waited)))
    return [*range(width - 1), max(range(width - 1, len(waited)), key=waited.__getitem__)]
