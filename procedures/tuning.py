"""Search the fastest settings by paired measurements within a limited time. Pure, but for what measures.

Dimensions are searched one after the other by successive halving (Jamieson & Talwalkar, AISTATS 2016): all choices in a
few rounds, the better half in twice as many, and so on. The best choice stays for the next dimension. A winner was
chosen partly by luck, so it is measured again against the present settings, and counts only if it is faster with a
certainty of 95 %.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Final, Protocol

from orchestrator.bench.paired import Ratio, ratio
from orchestrator.procedures.errors import StepFailed

Setting = Mapping[str, Any]  # values by key; None removes a key; missing keys keep the present value

SEARCH_SHARE: Final = 0.6  # of the time, for the search; the rest is for the deciding measurement
FIRST_ROUNDS: Final = 2
PROMISING: Final = 1.01  # how many times as fast a choice must be in the search to be kept
LEAST_ROUNDS: Final = 6
MOST_ROUNDS: Final = 24


@dataclass(frozen=True, slots=True)
class Dimension:
    """The choices for one setting."""

    name: str
    choices: tuple[Setting, ...]
    exact: bool = True  # answers must stay the same with every choice
    refused: str = ""  # why there are no choices


@dataclass(frozen=True, slots=True)
class Compared:
    """The result of rounds that measured two settings."""

    ratios: tuple[float, ...]  # per round: speed of the other setting / speed of the present one
    differing: int  # number of answers at temperature 0 that were not the same
    answers: int  # number of compared answers
    seconds: float  # of the rounds
    loading: float = 0.0  # extra seconds until both settings were ready


class Comparison(Protocol):
    """Measures one setting against another one, in rounds."""

    def why_refused(self, setting: Setting) -> str:
        """Return why a setting is impossible; empty if it is possible."""

    async def compare(self, present: Setting, other: Setting, rounds: int) -> Compared:
        """Measure two settings in turns. Raises StepFailed if one cannot be used after all."""


@dataclass(slots=True)
class TriedSetting:
    dimension: str
    setting: Setting  # the best setting of the earlier dimensions, with the choice
    choice: Setting
    ratios: list[float] = field(default_factory=list)  # per round: speed with the choice / speed without it
    differing: int = 0
    answers: int = 0
    refused: str = ""  # why it was left out; empty if it was not

    @property
    def faster(self) -> float:
        """The geometric mean of the ratios; 0 if it was refused or not measured."""
        return 0.0 if self.refused or not self.ratios else math.exp(fmean(map(math.log, self.ratios)))


@dataclass(frozen=True, slots=True)
class TuningResult:
    setting: Setting  # the better setting; empty if none is certain to be faster
    ratio: Ratio | None  # to the present setting, by the last measurement; None if there was none
    told: str  # the result in one sentence
    tried: tuple[TriedSetting, ...]


async def search(
    dimensions: Sequence[Dimension],
    comparison: Comparison,
    seconds: float,
    clock: Callable[[], float],
    tried: list[TriedSetting] | None = None,
) -> TuningResult:
    """Search the fastest setting, for a little more than `seconds` at most. `clock` returns seconds.

    Choices are added to `tried` at once, so the caller has them even if the search is cancelled.
    """
    begun = clock()
    search_run = _Search(comparison, clock, begun + seconds, [] if tried is None else tried)
    best: Setting = {}
    for number, dimension in enumerate(dimensions):
        remaining = begun + SEARCH_SHARE * seconds - clock()
        best = await search_run.dimension(dimension, best, clock() + max(0.0, remaining) / (len(dimensions) - number))
    return await search_run.confirm(best, [dimension for dimension in dimensions if not dimension.exact])


@dataclass(slots=True, eq=False)
class _Search:
    comparison: Comparison
    clock: Callable[[], float]
    until: float
    tried: list[TriedSetting]
    round_seconds: float = 0.0  # the longest round
    loading: float = 0.0  # the longest time until settings were ready

    async def dimension(self, dimension: Dimension, best: Setting, until: float) -> Setting:
        # `best` if no choice is better
        if dimension.refused:
            self.tried.append(TriedSetting(dimension.name, best, {}, refused=dimension.refused))
        alive, rounds = self._possible(dimension, best), FIRST_ROUNDS
        measured: list[TriedSetting] = []
        while alive:
            for candidate in alive:
                if self.clock() >= until:
                    if not candidate.ratios:
                        candidate.refused = "there was no time to measure it"
                    continue
                await self._measure(candidate, best, rounds, exact=dimension.exact)
            measured = sorted(
                (candidate for candidate in alive if candidate.faster), key=lambda candidate: -candidate.faster
            )
            alive = [candidate for candidate in measured if candidate.faster > 1.0][: max(1, len(alive) // 2)]
            if len(alive) <= 1 or self.clock() >= until:
                break
            rounds *= 2
        return measured[0].setting if measured and measured[0].faster >= PROMISING else best

    def _possible(self, dimension: Dimension, best: Setting) -> list[TriedSetting]:
        possible = []
        for choice in dimension.choices:
            candidate = TriedSetting(dimension.name, {**best, **choice}, choice)
            candidate.refused = self.comparison.why_refused(candidate.setting)
            self.tried.append(candidate)
            if not candidate.refused:
                possible.append(candidate)
        return possible

    async def _measure(self, candidate: TriedSetting, best: Setting, rounds: int, *, exact: bool) -> None:
        try:
            compared = await self.comparison.compare(best, candidate.setting, rounds)
        except StepFailed as error:
            candidate.refused = str(error)
            return
        self.round_seconds = max(self.round_seconds, compared.seconds / rounds)
        self.loading = max(self.loading, compared.loading)
        candidate.ratios += compared.ratios
        candidate.differing += compared.differing
        candidate.answers += compared.answers
        if exact and candidate.differing:
            candidate.refused = (
                f"{candidate.differing} of {candidate.answers} answers at temperature 0 differ from the present ones"
            )

    async def confirm(self, best: Setting, inexact: Sequence[Dimension]) -> TuningResult:
        # returned only if it is certain to be faster
        tried = tuple(self.tried)
        if not best:
            return TuningResult({}, None, "no other setting was faster than the present one", tried)
        rest = self.until - self.clock() - 2 * self.loading  # the present setting may have to be loaded again too
        rounds = int(rest / self.round_seconds)
        if rounds < LEAST_ROUNDS:
            missing = LEAST_ROUNDS * self.round_seconds - rest
            problem = f"the time was over before a faster setting was certain; about {missing:.0f} s more are needed"
            return TuningResult({}, None, problem, tried)
        try:
            compared = await self.comparison.compare({}, best, min(rounds, MOST_ROUNDS))
        except StepFailed as error:
            return TuningResult({}, None, f"the measurement that decides has failed: {error}", tried)
        gain = ratio(compared.ratios, [1.0] * len(compared.ratios))
        summary = f"{gain.median:.2f} times as fast (95 %: {gain.low:.2f} to {gain.high:.2f}, {gain.rounds} rounds)"
        changes_answers = any(key in best for dimension in inexact for choice in dimension.choices for key in choice)
        if compared.differing and not changes_answers:
            problem = (
                f"{compared.differing} of {compared.answers} answers at temperature 0 differ from the present ones"
            )
            return TuningResult({}, gain, f"the best setting was {summary}, but {problem}", tried)
        if gain.low <= 1.0:
            return TuningResult({}, gain, f"the best setting was {summary}, which is not certain to be faster", tried)
        return TuningResult(best, gain, f"the settings are {summary}", tried)
