"""Say how many rounds of pairs are enough. Pure."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.bench.paired import Ratio, ratio

__all__ = ["Ratio", "Rounds", "ratio"]


@dataclass(frozen=True, slots=True)
class Rounds:
    """How many rounds are measured: at least `least`, and more where the machine is noisy.

    Rounds continue until every ratio is precise enough, up to `most`, and none starts after `seconds`. So the end
    depends on how precise the ratios are, never on their values.
    """

    least: int
    most: int
    seconds: float = math.inf

    def enough(self, number: int, seconds: float, ratios: Iterable[Ratio]) -> bool:
        """Return whether `number` rounds that took `seconds` and gave these ratios are enough."""
        if number < self.least:
            return False
        return number >= self.most or seconds >= self.seconds or all(each.known for each in ratios)
