"""Say how many rounds of pairs are enough. Pure."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.bench.paired import Ratio, ratio

__all__ = ["Ratio", "Rounds", "ratio"]


@dataclass(frozen=True, slots=True)
class Rounds:
    """How many rounds are measured: at least `least`, and more where the machine is noisy.

    Rounds go on until every ratio is known, up to `most`, and none begins after `seconds`. So the rounds end by how
    well the ratios are known, never by what they are.
    """

    least: int
    most: int
    seconds: float = math.inf

    def enough(self, number: int, seconds: float, ratios: Iterable[Ratio]) -> bool:
        """Return whether `number` rounds that took `seconds` and gave these ratios are enough."""
        if number < self.least:
            return False
        return number >= self.most or seconds >= self.seconds or all(each.known for each in ratios)
