"""Compare routers on past choices: what each would have earned, from the journal alone, with 95 % intervals.

A choice with the memory's advice has its candidates with their expectations and probabilities, and its outcome. So
another router can be judged by choices that it did not make (off-policy), if its actions were tried at all:
`effective` says how many choices an estimate is worth.

IPS weights each reward by how much more probable the other router makes the action (Horvitz & Thompson, 1952);
self-normalised IPS has less variance (Swaminathan & Joachims, NeurIPS 2015); the doubly robust estimate also uses a
reward model (Dudik, Langford & Li, ICML 2011). Intervals: bootstrap percentiles (Efron, 1979).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from orchestrator.errors import InputError, Problem
from orchestrator.memrl.episodes import Action
from orchestrator.memrl.lessons import Key, Lesson, lessons_of
from orchestrator.memrl.reward import Prices, cost_of
from orchestrator.memrl.router import CONFIDENT, named
from orchestrator.task.events import AdviceEstimate, AttemptStarted, Event, RouteAdvice

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """One number for each logged choice, shape (choices,)."""

    rewards: Floats
    propensities: Floats  # of the logged action when it was drawn
    targets: Floats  # the probability that the other router gives the logged action
    predicted: Floats  # the reward that a model predicts for the logged action
    expected: Floats  # its mean prediction over all actions, weighted by the other router's probabilities

    def __post_init__(self) -> None:
        """Raise ValueError for empty arrays, different lengths, or numbers that are not probabilities."""
        sizes = {len(array) for array in self._arrays()}
        if len(sizes) != 1 or sizes == {0}:
            raise ValueError(f"the arrays of a log have the lengths {sorted(sizes)}; accepted: the same one, not 0")
        if not all(np.isfinite(array).all() for array in self._arrays()):
            raise ValueError("a log holds numbers that are not finite")
        if self.propensities.min() <= 0 or self.propensities.max() > 1:
            raise ValueError("a propensity is not above 0 and at most 1")
        if self.targets.min() < 0 or self.targets.max() > 1:
            raise ValueError("a probability of the other router is not from 0 to 1")

    def _arrays(self) -> tuple[Floats, ...]:
        return self.rewards, self.propensities, self.targets, self.predicted, self.expected

    @property
    def weights(self) -> Floats:
        return self.targets / self.propensities


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimated:
    """A mean reward, or the difference of two, with its 95 % interval."""

    value: float
    low: float
    high: float
    effective: float  # the effective number of choices: (sum of weights)^2 / sum of squared weights (Kish, 1965)


def ips(log: Log, rng: np.random.Generator, resamples: int = 1000) -> Estimated:
    return _bootstrap(_ips_terms(log), None, log.weights, rng, resamples)


def self_normalised(log: Log, rng: np.random.Generator, resamples: int = 1000) -> Estimated:
    """Return the self-normalised estimate, or that of IPS if the other router never does what was logged."""
    if not log.weights.any():
        return ips(log, rng, resamples)
    return _bootstrap(_ips_terms(log), log.weights, log.weights, rng, resamples)


def doubly_robust(log: Log, rng: np.random.Generator, resamples: int = 1000) -> Estimated:
    return _bootstrap(_robust_terms(log), None, log.weights, rng, resamples)


def difference(router: Log, baseline: Log, rng: np.random.Generator, resamples: int = 1000) -> Estimated:
    """Return by how much `router` earns more than `baseline`, doubly robust, on the same logged choices.

    `effective` is the smaller of the two. Raises ValueError if the logs have different lengths.
    """
    if len(router.rewards) != len(baseline.rewards):
        raise ValueError(
            f"the logs have {len(router.rewards)} and {len(baseline.rewards)} choices; accepted: the same ones"
        )
    terms = _robust_terms(router) - _robust_terms(baseline)
    estimated = _bootstrap(terms, None, router.weights, rng, resamples)
    effective = min(estimated.effective, _effective(baseline.weights))
    return Estimated(value=estimated.value, low=estimated.low, high=estimated.high, effective=effective)


ESTIMATORS: dict[str, Callable[[Log, np.random.Generator], Estimated]] = {
    "ips": ips,
    "self-normalised": self_normalised,
    "doubly robust": doubly_robust,
}


def _ips_terms(log: Log) -> Floats:
    return log.weights * log.rewards


def _robust_terms(log: Log) -> Floats:
    return log.expected + log.weights * (log.rewards - log.predicted)


def _bootstrap(
    terms: Floats, divisors: Floats | None, weights: Floats, rng: np.random.Generator, resamples: int
) -> Estimated:
    # percentiles of the mean, or of sum(terms) / sum(divisors), over resampled choices
    count = len(terms)
    means = np.empty(resamples)
    for place in range(resamples):
        drawn = rng.integers(0, count, count)
        means[place] = _ratio(terms[drawn], None if divisors is None else divisors[drawn])
    low, high = np.nanpercentile(means, (2.5, 97.5))
    return Estimated(value=_ratio(terms, divisors), low=float(low), high=float(high), effective=_effective(weights))


def _ratio(terms: Floats, divisors: Floats | None) -> float:
    if divisors is None:
        return float(terms.mean())
    whole = float(divisors.sum())
    return float(terms.sum()) / whole if whole > 0 else float("nan")


def _effective(weights: NDArray[Any]) -> float:
    squares = float((weights * weights).sum())
    return float(weights.sum()) ** 2 / squares if squares > 0 else 0.0


# Outcomes of less weight, such as those that nothing has checked, are left out.
LEAST_WEIGHT: Final = 0.3
# The rules; the memory's advice where it was sure; its best candidate, sure or not; any candidate, all alike.
ROUTERS: Final = ("rules", "memory", "best", "random")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedChoice:
    key: Key
    taken: Action
    propensity: float
    reward: float  # success times quality of the task's result, less the cost
    advice: RouteAdvice

    def probabilities(self, router: str) -> dict[Action, float]:
        """Return the probability of each candidate under one of `ROUTERS`."""
        actions = [action_of(candidate) for candidate in self.advice.estimates]
        if router == "random":
            return dict.fromkeys(actions, 1.0 / len(actions))
        advised = Action(
            self.advice.role, self.advice.persona, self.advice.model, self.advice.thinking, self.advice.mode
        )
        ruled = next((candidate for candidate in actions if named(candidate) == self.advice.rules), self.taken)
        sure = router == "best" or (router == "memory" and self.advice.confidence >= CONFIDENT)
        return {action: float(action == (advised if sure else ruled)) for action in {*actions, self.taken}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What a router would have earned, next to the real earnings."""

    router: str
    choices: int
    logged: float  # mean reward of the choices that were made
    estimates: Mapping[str, Estimated]  # mean reward of the router, by estimator
    over_rules: Estimated  # how much more than the rules would have earned, doubly robust


def action_of(estimate: AdviceEstimate) -> Action:
    return Action(estimate.role, estimate.persona, estimate.model, estimate.thinking, estimate.mode)


def choices_of(events: Sequence[Event], judge_weight: float = 0.2) -> list[LoggedChoice]:
    """Return the choices of an ended run that the memory advised on and whose outcomes say something."""
    advices = {(event.step, event.number): event.advice for event in events if isinstance(event, AttemptStarted)}
    lessons, _ = lessons_of(events, judge_weight)
    choices = []
    for lesson in lessons:
        advice = advices.get((lesson.key[1], lesson.key[2]))
        # A choice that a user forced was not drawn, so no propensity says how to weigh it.
        if advice is not None and advice.estimates and _says_something(lesson):
            worth, price = lesson.outcome.worth or 0.0, Prices().of(cost_of(lesson.outcome))
            choices.append(
                LoggedChoice(
                    key=lesson.key,
                    taken=lesson.action,
                    propensity=lesson.propensity,
                    reward=worth - price,
                    advice=advice,
                )
            )
    return choices


def evaluate(router: str, choices: Iterable[LoggedChoice], seed: int = 0) -> Evaluation:
    """Return what a router would have earned. Raises InputError for an unknown router, or without choices. Pure."""
    logged = list(choices)
    if router not in ROUTERS:
        raise InputError(Problem("ROUTER", f"{router!r} was not found", ", ".join(ROUTERS)))
    if not logged:
        problem = "the journal has no choice that the memory advised on and whose outcome was checked or rated"
        raise InputError(Problem("ROUTER", problem, "another try after some runs with gates, or with ratings"))
    log, rules, rng = _log(logged, router), _log(logged, "rules"), np.random.default_rng(seed)
    return Evaluation(
        router=router,
        choices=len(logged),
        logged=float(np.mean([choice.reward for choice in logged])),
        estimates={name: estimator(log, rng) for name, estimator in ESTIMATORS.items()},
        over_rules=difference(log, rules, rng),
    )


def _says_something(lesson: Lesson) -> bool:
    return lesson.drawn and lesson.outcome.success is not None and lesson.outcome.weight >= LEAST_WEIGHT


def _log(choices: Sequence[LoggedChoice], router: str) -> Log:
    targets = [choice.probabilities(router) for choice in choices]
    return Log(
        rewards=np.array([choice.reward for choice in choices]),
        propensities=np.array([choice.propensity for choice in choices]),
        targets=np.array([target.get(choice.taken, 0.0) for choice, target in zip(choices, targets, strict=True)]),
        predicted=np.array([_predicted(choice)(choice.taken) for choice in choices]),
        expected=np.array(
            [
                sum(chance * _predicted(choice)(action) for action, chance in target.items())
                for choice, target in zip(choices, targets, strict=True)
            ]
        ),
    )


def _predicted(choice: LoggedChoice) -> Callable[[Action], float]:
    # The mean of all for an action without an estimate.
    values = {action_of(estimate): estimate.value for estimate in choice.advice.estimates}
    mean = sum(values.values()) / len(values)
    return lambda action: values.get(action, mean)
