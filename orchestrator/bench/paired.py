"""Compare two series of rounds pair by pair. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

# 97.5 % quantiles of Student's t for 1, 2, ... degrees of freedom
_T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)

WIDEST = 1.06  # the largest high / low of an interval for which its ratio counts as known


@dataclass(frozen=True, slots=True)
class Ratio:
    """The median of paired ratios, and a 95 % interval of their geometric mean (Student's t on logarithms).

    The interval of a single pair is unbounded.
    """

    median: float
    low: float
    high: float
    rounds: int

    @property
    def known(self) -> bool:
        """Whether the interval is narrow enough: `high` at most `WIDEST` times `low`."""
        return self.high <= WIDEST * self.low


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return a 95 % interval of the mean (Student's t). That of a single value is unbounded.

    Raises ValueError if there are no values.
    """
    if not values:
        raise ValueError("no values have no mean")
    if len(values) == 1:
        return -math.inf, math.inf
    reach = _t95(len(values)) * stdev(values) / math.sqrt(len(values))
    centre = fmean(values)
    return centre - reach, centre + reach


def _t95(count: int) -> float:
    return _T95[min(count - 1, len(_T95)) - 1]


def ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Ratio:
    """Return the ratio of the first series to the second. Raises ValueError for unequal lengths or empty series."""
    if not numerators or len(numerators) != len(denominators):
        raise ValueError(f"{len(numerators)} and {len(denominators)} rounds cannot be paired")
    ratios = [top / bottom for top, bottom in zip(numerators, denominators, strict=True)]
    if len(ratios) == 1:
        return Ratio(ratios[0], 0.0, math.inf, 1)
    logarithms = [math.log(value) for value in ratios]
    low, high = mean_interval(logarithms)
    return Ratio(median(ratios), math.exp(low), math.exp(high), len(ratios))
