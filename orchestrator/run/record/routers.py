"""Compare routers on past choices: what each would have earned, from the journal alone, with 95 % intervals.

A choice that the memory advised on has its candidates with what was expected of them at that time, how probable each
was, and how it turned out. So another router can be judged by choices that it did not make (`memrl.evaluation`), as far
as its actions were tried at all: `effective` says how many choices an estimate is worth.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from memrl.episodes import Action
from memrl.evaluation import ESTIMATORS, Estimated, Log, difference
from memrl.reward import Prices, cost_of
from orchestrator.errors import InputError, Problem
from orchestrator.run.record.lessons import Key, Lesson, lessons_of
from orchestrator.run.routing.hybrid import CONFIDENT, named
from orchestrator.task.events import AdviceEstimate, AttemptStarted, Event, RouteAdvice

LEAST_WEIGHT: Final = 0.3
"""Outcomes that count less, such as those that nothing has checked, are left out."""
ROUTERS: Final = ("rules", "memory", "best", "random")
"""What `memory evaluate` knows: the rules; what the memory advised at that time, where it was sure; what it held to be
best, sure or not; and any candidate, all alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedChoice:
    """A choice with its candidates and its outcome."""

    key: Key
    taken: Action
    propensity: float
    reward: float
    """The success times the quality of the task's result, less what it cost."""
    advice: RouteAdvice

    def probabilities(self, router: str) -> dict[Action, float]:
        """Return how probable a router of `ROUTERS` makes each candidate."""
        actions = [action_of(one) for one in self.advice.estimates]
        if router == "random":
            return dict.fromkeys(actions, 1.0 / len(actions))
        advised = Action(
            self.advice.role, self.advice.persona, self.advice.model, self.advice.thinking, self.advice.mode
        )
        ruled = next((one for one in actions if named(one) == self.advice.rules), self.taken)
        sure = router == "best" or (router == "memory" and self.advice.confidence >= CONFIDENT)
        return {action: float(action == (advised if sure else ruled)) for action in {*actions, self.taken}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What a router would have earned, beside what was really earned."""

    router: str
    choices: int
    logged: float
    """The mean reward of the choices that were made."""
    estimates: Mapping[str, Estimated]
    """The mean reward of the router, by estimator."""
    over_rules: Estimated
    """By how much that is more than the rules would have earned, doubly robust."""


def action_of(estimate: AdviceEstimate) -> Action:
    """Return the action that an estimate is about."""
    return Action(estimate.role, estimate.persona, estimate.model, estimate.thinking, estimate.mode)


def choices_of(events: Sequence[Event], judge_weight: float = 0.2) -> list[LoggedChoice]:
    """Return the choices of a run that has ended which the memory advised on, and whose outcomes say something.

    Choices that a user forced are left out: nobody drew them, so no propensity says how to weigh them.
    """
    advices = {(one.step, one.number): one.advice for one in events if isinstance(one, AttemptStarted)}
    lessons, _ = lessons_of(events, judge_weight)
    found = []
    for lesson in lessons:
        advice = advices.get((lesson.key[1], lesson.key[2]))
        if advice is not None and advice.estimates and _says_something(lesson):
            worth, price = lesson.outcome.worth or 0.0, Prices().of(cost_of(lesson.outcome))
            found.append(
                LoggedChoice(
                    key=lesson.key,
                    taken=lesson.action,
                    propensity=lesson.propensity,
                    reward=worth - price,
                    advice=advice,
                )
            )
    return found


def evaluate(router: str, choices: Iterable[LoggedChoice], seed: int = 0) -> Evaluation:
    """Return what a router would have earned. Raises InputError for an unknown router, or without choices. Pure."""
    logged = list(choices)
    if router not in ROUTERS:
        raise InputError(Problem("ROUTER", f"there is none named {router!r}", ", ".join(ROUTERS)))
    if not logged:
        what = "the journal has no choice that the memory advised on and whose outcome was checked or rated"
        raise InputError(Problem("ROUTER", what, "another try after some runs with gates, or with ratings"))
    log, rules, rng = _log(logged, router), _log(logged, "rules"), np.random.default_rng(seed)
    return Evaluation(
        router=router,
        choices=len(logged),
        logged=float(np.mean([one.reward for one in logged])),
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
        targets=np.array([target.get(one.taken, 0.0) for one, target in zip(choices, targets, strict=True)]),
        predicted=np.array([_predicted(choice)(choice.taken) for choice in choices]),
        expected=np.array(
            [
                sum(chance * _predicted(choice)(action) for action, chance in target.items())
                for choice, target in zip(choices, targets, strict=True)
            ]
        ),
    )


def _predicted(choice: LoggedChoice) -> Callable[[Action], float]:
    """Return what says which reward was expected of an action; the mean of all for one without an estimate."""
    values = {action_of(one): one.value for one in choice.advice.estimates}
    mean = sum(values.values()) / len(values)
    return lambda action: values.get(action, mean)
