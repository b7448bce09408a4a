"""Search the settings with which something is fastest, by paired measurements within a limited time.

One dimension after the other is searched by successive halving (Jamieson & Talwalkar, AISTATS 2016): all choices are
measured in a few rounds, the better half in twice as many, and so on. The best choice stays while the next dimension is
searched. Whatever comes out was chosen for having been fast, partly by luck. So it is measured once more against the
present settings, in rounds that nothing was chosen by, and counts only if it is faster with a certainty of 95 %. What
measures is handed in; everything else here is pure.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Final, Protocol

from procedures.errors import StepFailed
from procedures.paired import Ratio, ratio

Setting = Mapping[str, Any]
"""Values by key; None stands for a key that is removed. Keys that are not there keep the present value."""

SEARCH_SHARE: Final = 0.6
"""Which share of the time the search may take. The rest is for the measurement that decides."""
FIRST_ROUNDS: Final = 2
PROMISING: Final = 1.01
"""By how much a choice has to be faster in the search to be kept."""
LEAST_ROUNDS: Final = 6
MOST_ROUNDS: Final = 24


@dataclass(frozen=True, slots=True)
class Dimension:
    """What is searched: the choices for one setting."""

    name: str
    choices: tuple[Setting, ...]
    exact: bool = True
    """Whether answers have to stay the same with every choice."""
    refused: str = ""
    """Why there are no choices."""


@dataclass(frozen=True, slots=True)
class Compared:
    """Some rounds in which two settings were measured."""

    ratios: tuple[float, ...]
    """For each round, how many times as fast the other setting was as the present one."""
    differing: int
    """How many answers at temperature 0 were not the same."""
    answers: int
    """How many were compared."""
    seconds: float
    """How long the rounds took."""
    loading: float = 0.0
    """How many seconds passed besides, until both settings were ready."""


class Comparison(Protocol):
    """Measures one setting against another one, round by round."""

    def why_refused(self, setting: Setting) -> str:
        """Return why a setting is impossible; empty if it is possible."""

    async def compare(self, present: Setting, other: Setting, rounds: int) -> Compared:
        """Measure two settings in turns. Raises StepFailed for one that cannot be used after all."""


@dataclass(slots=True)
class TriedSetting:
    """A choice that was looked at."""

    dimension: str
    setting: Setting
    """The whole setting that it made: the best ones of the dimensions before, and the choice."""
    choice: Setting
    ratios: list[float] = field(default_factory=list)
    """For each round, how many times as fast it was as without the choice."""
    differing: int = 0
    answers: int = 0
    refused: str = ""
    """Why it was not taken into account; empty if it was."""

    @property
    def faster(self) -> float:
        """How many times as fast it was: the geometric mean; 0 if it was refused or not measured."""
        return 0.0 if self.refused or not self.ratios else math.exp(fmean(map(math.log, self.ratios)))


@dataclass(frozen=True, slots=True)
class TuningResult:
    """What the search has found."""

    setting: Setting
    """The better setting; empty if none is certain to be faster."""
    ratio: Ratio | None
    """How many times as fast it is as the present one, by the last measurement; None where there was none."""
    told: str
    """The result of the search in one sentence."""
    tried: tuple[TriedSetting, ...]


async def search(
    dimensions: Sequence[Dimension],
    comparison: Comparison,
    seconds: float,
    clock: Callable[[], float],
    tried: list[TriedSetting] | None = None,
) -> TuningResult:
    """Search the fastest setting. `clock` returns seconds. It may take a little longer than `seconds`.

    What is looked at is added to `tried` at once, so that the caller has it even if the search is ended from outside.
    """
    one = _Search(comparison, clock, clock() + seconds, seconds, [] if tried is None else tried)
    best: Setting = {}
    for number, dimension in enumerate(dimensions):
        left = one.begun + SEARCH_SHARE * seconds - clock()
        best = await one.dimension(dimension, best, clock() + max(0.0, left) / (len(dimensions) - number))
    return await one.confirm(best, [dimension for dimension in dimensions if not dimension.exact])


class _Search:
    def __init__(
        self,
        comparison: Comparison,
        clock: Callable[[], float],
        until: float,
        seconds: float,
        tried: list[TriedSetting],
    ) -> None:
        self._comparison = comparison
        self._clock = clock
        self._until = until
        self.begun = until - seconds
        self._tried = tried
        self._round_seconds = 0.0
        """The longest that a round has taken."""
        self._loading = 0.0
        """The longest that it has taken until settings were ready."""

    async def dimension(self, dimension: Dimension, best: Setting, until: float) -> Setting:
        """Return the best setting with the best choice of a dimension, and without one if none is better."""
        if dimension.refused:
            self._tried.append(TriedSetting(dimension.name, best, {}, refused=dimension.refused))
        alive, rounds = self._possible(dimension, best), FIRST_ROUNDS
        measured: list[TriedSetting] = []
        while alive:
            for one in alive:
                if self._clock() >= until:
                    if not one.ratios:
                        one.refused = "there was no time to measure it"
                    continue
                await self._measure(one, best, rounds, exact=dimension.exact)
            measured = sorted((one for one in alive if one.faster), key=lambda one: -one.faster)
            alive = [one for one in measured if one.faster > 1.0][: max(1, len(alive) // 2)]
            if len(alive) <= 1 or self._clock() >= until:
                break
            rounds *= 2
        return measured[0].setting if measured and measured[0].faster >= PROMISING else best

    def _possible(self, dimension: Dimension, best: Setting) -> list[TriedSetting]:
        found = []
        for choice in dimension.choices:
            one = TriedSetting(dimension.name, {**best, **choice}, choice)
            one.refused = self._comparison.why_refused(one.setting)
            self._tried.append(one)
            if not one.refused:
                found.append(one)
        return found

    async def _measure(self, one: TriedSetting, best: Setting, rounds: int, *, exact: bool) -> None:
        try:
            compared = await self._comparison.compare(best, one.setting, rounds)
        except StepFailed as error:
            one.refused = str(error)
            return
        self._round_seconds = max(self._round_seconds, compared.seconds / rounds)
        self._loading = max(self._loading, compared.loading)
        one.ratios += compared.ratios
        one.differing += compared.differing
        one.answers += compared.answers
        if exact and one.differing:
            one.refused = f"{one.differing} of {one.answers} answers at temperature 0 differ from the present ones"

    async def confirm(self, best: Setting, inexact: Sequence[Dimension]) -> TuningResult:
        """Measure the best setting against the present one, and return it if it is certain to be faster."""
        tried = tuple(self._tried)
        if not best:
            return TuningResult({}, None, "no other setting was faster than the present one", tried)
        left = self._until - self._clock() - 2 * self._loading  # the present setting may have to be loaded again too
        rounds = int(left / self._round_seconds)
        if rounds < LEAST_ROUNDS:
            missing = LEAST_ROUNDS * self._round_seconds - left
            what = f"the time was over before a faster setting was certain; about {missing:.0f} s more are needed"
            return TuningResult({}, None, what, tried)
        try:
            compared = await self._comparison.compare({}, best, min(rounds, MOST_ROUNDS))
        except StepFailed as error:
            return TuningResult({}, None, f"the measurement that decides has failed: {error}", tried)
        found = ratio(compared.ratios, [1.0] * len(compared.ratios))
        said = f"{found.median:.2f} times as fast (95 %: {found.low:.2f} to {found.high:.2f}, {found.rounds} rounds)"
        changes_answers = any(key in best for one in inexact for choice in one.choices for key in choice)
        if compared.differing and not changes_answers:
            what = f"{compared.differing} of {compared.answers} answers at temperature 0 differ from the present ones"
            return TuningResult({}, found, f"the best setting was {said}, but {what}", tried)
        if found.low <= 1.0:
            return TuningResult({}, found, f"the best setting was {said}, which is not certain to be faster", tried)
        return TuningResult(best, found, f"the settings are {said}", tried)
