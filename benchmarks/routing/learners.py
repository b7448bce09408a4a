"""The learners that are compared: the policy and its variants, nearest neighbours, and MemRL as the paper has it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from benchmarks.routing.outcomes import Outcomes
from benchmarks.routing.stream import STRONG, WEAK, Floats
from memrl.episodes import Action, Neighbourhood, Outcome
from memrl.exploration import Budget, draw, epsilon_greedy
from memrl.policy import Policy, PolicyChoice, PolicySettings
from memrl.retrieval import RetrievalSettings, two_phase
from memrl.reward import Cost

ACTIONS = (Action("frontdoor", model="weak"), Action("frontdoor", model="strong"))
NAMED = dict(enumerate(ACTIONS))
NONE = Neighbourhood.of(())
COSTS = {ACTIONS[WEAK]: Cost(seconds=1.0, tokens=0.0), ACTIONS[STRONG]: Cost(seconds=2.0, tokens=0.0)}
SHARE = 0.5
"""The budget: which share of prompts may go to the strong model."""


class Seen:
    """The outcomes that were seen so far: what a memory holds, found by similarities that were computed before."""

    def __init__(self, data: Outcomes) -> None:
        self._similarities = data.similarities
        self._prompts = np.empty(2 * len(data.correct), dtype=np.intp)
        self._outcomes = np.empty(2 * len(data.correct))
        self._models = np.empty(2 * len(data.correct), dtype=np.intp)
        self._count = 0

    def add(self, prompt: int, model: int, outcome: float) -> None:
        """Remember an outcome."""
        place = self._count
        self._prompts[place], self._models[place], self._outcomes[place] = prompt, model, outcome
        self._count += 1

    def nearest(self, prompt: int, count: int) -> Neighbourhood:
        """Return the most similar ones, whatever model they are of, the nearest first."""
        similarities, places = self._nearest(prompt, np.arange(self._count), count)
        return Neighbourhood(
            ids=places.astype(np.int64),
            similarities=similarities,
            q=self._outcomes[places],
            counts=np.ones(len(places)),
            last_seen=np.zeros(len(places)),
            actions=self._models[places].astype(np.int64),
            named=NAMED,
        )

    def of_model(self, prompt: int, model: int, count: int) -> tuple[Floats, Floats]:
        """Return similarities and outcomes of a model's most similar ones, the nearest first."""
        similarities, places = self._nearest(prompt, np.flatnonzero(self._models[: self._count] == model), count)
        return similarities, self._outcomes[places]

    def _nearest(self, prompt: int, places: NDArray[np.intp], count: int) -> tuple[Floats, NDArray[np.intp]]:
        similarities = self._similarities[prompt][self._prompts[places]].astype(np.float64)
        if len(places) > count:
            best = np.argpartition(-similarities, count)[:count]
            places, similarities = places[best], similarities[best]
        order = np.argsort(-similarities, kind="stable")
        return similarities[order], places[order]


@dataclass(slots=True)
class PolicyLearner:
    """The policy as the router uses it, with the episodes of a memory."""

    data: Outcomes
    settings: PolicySettings
    rng: np.random.Generator
    retrieved: int = 200
    """How many episodes the memory returns; 0 for a policy without retrieval."""
    policy: Policy = field(init=False)
    seen: Seen = field(init=False)
    choices: list[PolicyChoice] = field(init=False, default_factory=list)
    last: tuple[int, Neighbourhood] = field(init=False, default=(-1, NONE))

    def __post_init__(self) -> None:
        """Begin without experience."""
        self.policy = Policy(self.data.vectors.shape[1], self.settings)
        self.seen = Seen(self.data)

    def predict(self, prompt: int) -> Floats:
        """Return the worth of both models."""
        situation, vector = self.data.situations[prompt], self.data.vectors[prompt]
        return np.array(
            [one.worth for one in self.policy.estimate(situation, vector, self._near(prompt), ACTIONS, COSTS)]
        )

    def choose(self, prompt: int) -> tuple[Floats, int]:
        """Return the worth of both models, and the policy's choice."""
        situation, vector = self.data.situations[prompt], self.data.vectors[prompt]
        choice = self.policy.choose(situation, vector, self._near(prompt), ACTIONS, COSTS, rng=self.rng)
        self.choices.append(choice)
        return np.array([one.worth for one in choice.estimates]), ACTIONS.index(choice.action)

    def learn(self, prompt: int, outcomes: Mapping[int, float]) -> None:
        """Let the policy observe outcomes, and then the memory."""
        self.policy.observe_all(
            self.data.situations[prompt],
            self.data.vectors[prompt],
            {ACTIONS[model]: Outcome(success=outcome, source="checker") for model, outcome in outcomes.items()},
            neighbours=self._near(prompt),
        )
        for model, outcome in outcomes.items():
            self.seen.add(prompt, model, outcome)

    def _near(self, prompt: int) -> Neighbourhood:
        """Return what is similar to a prompt. It is looked up once, before anything is learned of the prompt."""
        if self.retrieved and prompt != self.last[0]:
            self.last = prompt, self.seen.nearest(prompt, self.retrieved)
        return self.last[1]


@dataclass(slots=True)
class RuleOfNeighbours:
    """A learner that only asks similar outcomes, by a rule, and explores by epsilon-greedy within the same budget."""

    data: Outcomes
    rng: np.random.Generator
    rule: Callable[[Floats, Floats], float]
    """Returns the expected outcome of a model, from similarities and outcomes of its nearest ones."""
    count: int
    """How many of the nearest ones the rule is given."""
    epsilon: float = 0.1
    seen: Seen = field(init=False)
    budget: Budget = field(init=False)

    def __post_init__(self) -> None:
        """Begin without outcomes."""
        self.seen = Seen(self.data)
        self.budget = Budget(SHARE)

    def predict(self, prompt: int) -> Floats:
        """Return what the rule makes of the nearest outcomes of each model."""
        return np.array([self.rule(*self.seen.of_model(prompt, model, self.count)) for model in (WEAK, STRONG)])

    def choose(self, prompt: int) -> tuple[Floats, int]:
        """Return the prediction and the model that it leads to."""
        predicted = self.predict(prompt)
        gain = float(predicted[STRONG] - predicted[WEAK])
        best = STRONG if gain > self.budget.price else WEAK
        model = WEAK if self.budget.spent else draw(epsilon_greedy(best, 2, self.epsilon), self.rng)
        self.budget.note(gain, model == STRONG)
        return predicted, model

    def learn(self, prompt: int, outcomes: Mapping[int, float]) -> None:
        """Remember outcomes."""
        for model, outcome in outcomes.items():
            self.seen.add(prompt, model, outcome)


def mean(similarities: Floats, outcomes: Floats) -> float:
    """Return the mean outcome, with one imagined outcome of 0.5."""
    return float((outcomes.sum() + 0.5) / (len(outcomes) + 1))


def memrl(settings: RetrievalSettings) -> Callable[[Floats, Floats], float]:
    """Return the rule of MemRL: the mean Q of those that both of its phases choose."""

    def rule(similarities: Floats, outcomes: Floats) -> float:
        chosen = two_phase(similarities, outcomes, settings)
        return mean(similarities[chosen], outcomes[chosen])

    return rule
