"""Compare routers on past choices: what each would have earned, from the journal alone, with 95 % intervals.

A choice with the memory's advice has its candidates with their expectations and probabilities, and its outcome. So
another router can be judged by choices that it did not make (`memrl.evaluation`), if its actions were tried at all:
`effective` says how many choices an estimate is worth.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from orchestrator.errors import InputError, Problem
from orchestrator.memrl.episodes import Action
from orchestrator.memrl.evaluation import ESTIMATORS, Estimated, Log, difference
from orchestrator.memrl.lessons import Key, Lesson, lessons_of
from orchestrator.memrl.reward import Prices, cost_of
from orchestrator.memrl.router import CONFIDENT, named
from orchestrator.task.events import AdviceEstimate, AttemptStarted, Event, RouteAdvice

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
        raise InputError(Problem("ROUTER", f"there is none named {router!r}", ", ".join(ROUTERS)))
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
