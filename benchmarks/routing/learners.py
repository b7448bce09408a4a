"""The learners that are compared: the policy and its variants, simpler methods, and MemRL as the paper has it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from benchmarks.routing.outcomes import Outcomes
from benchmarks.routing.stream import STRONG, WEAK, Floats
from orchestrator.memrl.episodes import Action, Neighbourhood, Outcome
from orchestrator.memrl.exploration import Budget, draw, epsilon_greedy
from orchestrator.memrl.head import Head, HeadSettings
from orchestrator.memrl.policy import Policy, PolicyChoice, PolicySettings, RetrievalSettings, two_phase
from orchestrator.memrl.reward import Cost
from orchestrator.memrl.router import NEIGHBOURS

ACTIONS = (Action("frontdoor", model="weak"), Action("frontdoor", model="strong"))
NAMED = dict(enumerate(ACTIONS))
NONE = Neighbourhood.of(())
COSTS = {ACTIONS[WEAK]: Cost(seconds=1.0, tokens=0.0), ACTIONS[STRONG]: Cost(seconds=2.0, tokens=0.0)}
SHARE = 0.5  # the budget: which share of prompts may go to the strong model


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
            weights=np.ones(len(places)),
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
    retrieved: int = NEIGHBOURS  # how many episodes the memory returns; 0 for a policy without retrieval
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
            [estimate.worth for estimate in self.policy.estimate(situation, vector, self._near(prompt), ACTIONS, COSTS)]
        )

    def choose(self, prompt: int) -> tuple[Floats, int]:
        """Return the worth of both models, and the policy's choice."""
        situation, vector = self.data.situations[prompt], self.data.vectors[prompt]
        choice = self.policy.choose(situation, vector, self._near(prompt), ACTIONS, COSTS, rng=self.rng)
        self.choices.append(choice)
        return np.array([estimate.worth for estimate in choice.estimates]), ACTIONS.index(choice.action)

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
    # Returns the expected outcome of a model, from similarities and outcomes of its nearest ones.
    rule: Callable[[Floats, Floats], float]
    count: int  # how many of the nearest ones the rule is given
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
        return chosen_within(self.budget, self.predict(prompt), self.epsilon, self.rng)

    def learn(self, prompt: int, outcomes: Mapping[int, float]) -> None:
        """Remember outcomes."""
        for model, outcome in outcomes.items():
            self.seen.add(prompt, model, outcome)


@dataclass(slots=True)
class Drawn:
    """A router that draws what it predicts and chooses; half of its choices are the strong model."""

    rng: np.random.Generator

    def predict(self, prompt: int) -> Floats:
        """Return numbers that have nothing to do with the prompt."""
        return self.rng.random(2)

    def choose(self, prompt: int) -> tuple[Floats, int]:
        """Return such numbers, and the model with the higher one."""
        predicted = self.predict(prompt)
        return predicted, int(predicted.argmax())

    def learn(self, prompt: int, outcomes: Mapping[int, float]) -> None:
        """Learn nothing."""


@dataclass(slots=True)
class LogisticOnText:
    """An online logistic model for each model on the hashed n-grams of the text, and on nothing else."""

    data: Outcomes
    rng: np.random.Generator
    epsilon: float = 0.1
    budget: Budget = field(init=False)
    head: Head = field(init=False)

    def __post_init__(self) -> None:
        """Begin without outcomes."""
        self.budget = Budget(SHARE)
        width = self.data.vectors.shape[1]
        self.head = Head(1 + width, width, HeadSettings(own=1.0, shared=0.0, bayes=0.0))

    def predict(self, prompt: int) -> Floats:
        """Return the probability that each model is right."""
        return self.head.predict(self._features(prompt), ACTIONS)[0]

    def choose(self, prompt: int) -> tuple[Floats, int]:
        """Return the prediction and the model that it leads to."""
        return chosen_within(self.budget, self.predict(prompt), self.epsilon, self.rng)

    def learn(self, prompt: int, outcomes: Mapping[int, float]) -> None:
        """Take in outcomes."""
        for model, outcome in outcomes.items():
            self.head.update(self._features(prompt), ACTIONS[model], outcome)

    def _features(self, prompt: int) -> Floats:
        return np.concatenate(((1.0,), self.data.vectors[prompt]))


@dataclass(slots=True)
class MeanOfSubject:
    """A learner that is told the subject of each prompt, which no router knows, and predicts its mean outcome."""

    data: Outcomes
    rng: np.random.Generator
    epsilon: float = 0.1
    imagined: float = 5.0  # the weight, in outcomes, of the mean over all subjects against a subject's own
    budget: Budget = field(init=False)
    # Of each subject, and of all under the name "": the sum of outcomes and their number, shape (2, models).
    sums: dict[str, Floats] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Begin without outcomes."""
        self.budget = Budget(SHARE)

    def predict(self, prompt: int) -> Floats:
        """Return the mean outcome of each model in the prompt's subject, shrunk to that over all subjects."""
        right, seen = self._of("")
        usual = (right + 0.5) / (seen + 1.0)
        right, seen = self._of(self.data.subjects[prompt])
        shrunk: Floats = (right + self.imagined * usual) / (seen + self.imagined)
        return shrunk

    def choose(self, prompt: int) -> tuple[Floats, int]:
        """Return the prediction and the model that it leads to."""
        return chosen_within(self.budget, self.predict(prompt), self.epsilon, self.rng)

    def learn(self, prompt: int, outcomes: Mapping[int, float]) -> None:
        """Take in outcomes."""
        for model, outcome in outcomes.items():
            for name in ("", self.data.subjects[prompt]):
                self._of(name)[:, model] += outcome, 1.0

    def _of(self, name: str) -> Floats:
        return self.sums.setdefault(name, np.zeros((2, 2)))


def chosen_within(budget: Budget, predicted: Floats, epsilon: float, rng: np.random.Generator) -> tuple[Floats, int]:
    """Return a prediction and the model that it leads to within a budget, by epsilon-greedy."""
    gain = float(predicted[STRONG] - predicted[WEAK])
    best = STRONG if gain > budget.price else WEAK
    model = WEAK if budget.spent else draw(epsilon_greedy(best, 2, epsilon), rng)
    budget.note(gain, model == STRONG)
    return predicted, model


def mean(similarities: Floats, outcomes: Floats) -> float:
    """Return the mean outcome, with one imagined outcome of 0.5."""
    return float((outcomes.sum() + 0.5) / (len(outcomes) + 1))


def memrl(settings: RetrievalSettings) -> Callable[[Floats, Floats], float]:
    """Return the rule of MemRL: the mean Q of those that both of its phases choose."""

    def rule(similarities: Floats, outcomes: Floats) -> float:
        chosen = two_phase(similarities, outcomes, settings)
        return mean(similarities[chosen], outcomes[chosen])

    return rule
