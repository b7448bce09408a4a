"""Choose actions by what similar episodes and the head expect of them, less costs, with deliberate exploration.

A Policy does no I/O, reads no clock and draws only from the generator that it is given, so choices are reproducible.
Not thread-safe.

Similar episodes speak by MemRL's two phases and a shrunk mean. Phase one takes those above a similarity threshold,
phase two ranks them by (1 - weight) * z(similarity) + weight * z(Q) (MemRL: self-evolving agents via runtime
reinforcement learning on episodic memory, 2026). The paper shows the chosen episodes to a model; here they vote.
"""

import io
import json
import math
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from itertools import islice
from operator import add
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from orchestrator.memrl import exploration
from orchestrator.memrl.episodes import Action, Neighbour, Neighbourhood, Outcome, Replaced, Reward, Situation
from orchestrator.memrl.errors import MemrlError
from orchestrator.memrl.head import Calibrator, Features, FeatureSettings, Head, HeadSettings, logit_of, without_persona
from orchestrator.memrl.reward import Cost, Prices, Stage, cost_of, staged, teaches

Floats = NDArray[np.float64]

VOICES: Final = 5  # episodes named in an answer at most


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalSettings:
    threshold: float = 0.1  # least similarity of an episode (the paper's delta)
    candidates: int = 100  # episodes of an action that phase one keeps, most similar first (k1)
    chosen: int = 50  # of those, episodes that phase two keeps (k2)
    weight: float = 0.2  # weight of Q in phase two (lambda); similarity has the rest
    normalise: bool = True  # compare z-scores in phase two, not the numbers themselves
    sharpness: float = 4.0  # an episode weighs exp(-sharpness * (1 - similarity))
    shrinkage: float = 1.0  # episodes of similarity 1 that the prior is worth


class Voice(NamedTuple):
    episode: int
    similarity: float
    q: float
    weight: float  # part in the estimate, from 0 to 1; the rest is the prior's


@dataclass(frozen=True, slots=True)
class Retrieved:
    value: float  # expected reward, shrunk to the prior if few episodes speak
    support: float  # its weight, in outcomes in the same situation
    spoke: int  # episodes that took part
    voices: tuple[Voice, ...]  # the nearest ones, VOICES at most


def two_phase(similarities: Floats, values: Floats, settings: RetrievalSettings) -> NDArray[np.intp]:
    """Return the places of the episodes that both phases keep, highest score first.

    `similarities` and `values` (Q) have one number for each episode of one action.
    """
    above = np.flatnonzero(similarities > settings.threshold)
    first = above[np.argsort(-similarities[above], kind="stable")][: settings.candidates]
    near, worth = similarities[first], values[first]
    if settings.normalise:
        near, worth = _z(near), _z(worth)
    score = (1.0 - settings.weight) * near + settings.weight * worth
    return first[np.argsort(-score, kind="stable")][: settings.chosen]


def _z(numbers: Floats) -> Floats:
    if not len(numbers):
        return numbers
    away = numbers - float(numbers.sum()) / len(numbers)
    deviation = (float(away @ away) / len(numbers)) ** 0.5
    return away / deviation if deviation > 1e-9 else np.zeros_like(numbers)


def estimate(
    neighbours: Sequence[Neighbour], actions: Sequence[Action], priors: Sequence[float], settings: RetrievalSettings
) -> list[Retrieved]:
    """Return what neighbours say about each action. An action without neighbours has its prior and a support of 0."""
    around = neighbours if isinstance(neighbours, Neighbourhood) else Neighbourhood.of(neighbours)
    heard = _heard(around, actions, settings)
    own, places = heard.own, heard.places
    weights = around.weights[own] * np.exp(-settings.sharpness * (1.0 - around.similarities[own]))
    support = np.bincount(places, weights, len(actions))
    sums = np.bincount(places, weights * around.q[own], len(actions))
    whole = support + settings.shrinkage
    values = (sums + settings.shrinkage * np.array(priors)) / np.where(whole > 0, whole, 1.0)
    first = np.flatnonzero(heard.rank < VOICES)
    named, spoken = own[first], weights[first] / whole[places[first]]
    named_numbers = zip(
        around.ids[named].tolist(),
        around.similarities[named].tolist(),
        around.q[named].tolist(),
        spoken.tolist(),
        strict=True,
    )
    voices = map(Voice._make, named_numbers)
    return [
        Retrieved(value if spoke else before, worth, spoke, tuple(islice(voices, min(spoke, VOICES))))
        for before, value, worth, spoke in zip(
            priors, values.tolist(), support.tolist(), heard.spoke.tolist(), strict=True
        )
    ]


@dataclass(frozen=True, slots=True)
class _Heard:
    """The neighbours that speak, sorted by their action, then most similar first."""

    own: NDArray[np.intp]
    places: NDArray[np.intp]  # the action that each speaks for
    rank: NDArray[np.intp]  # how many more similar ones speak for the same action
    spoke: NDArray[np.intp]  # how many speak for each action: shape (actions,)

    @classmethod
    def of(cls, own: NDArray[np.intp], places: NDArray[np.intp], count: int) -> "_Heard":
        # `own` is sorted by `places`
        spoke = np.bincount(places, minlength=count)
        begins = spoke.cumsum() - spoke
        return cls(own, places, np.arange(len(own)) - begins[places], spoke)

    def only(self, mask: NDArray[np.bool_]) -> "_Heard":
        return self.of(self.own[mask], self.places[mask], len(self.spoke))


def _heard(around: Neighbourhood, actions: Sequence[Action], settings: RetrievalSettings) -> _Heard:
    place_by_action = {action: place for place, action in enumerate(actions)}
    occurrences = np.bincount(around.actions)
    numbers = np.flatnonzero(occurrences)
    place_of = np.full(len(occurrences), -1)
    place_of[numbers] = [place_by_action.get(around.named[number], -1) for number in numbers.tolist()]
    group = place_of[around.actions]
    able = np.flatnonzero((group >= 0) & (around.similarities > settings.threshold))
    able = able[np.lexsort((-around.similarities[able], group[able]))]
    heard = _Heard.of(able, group[able], len(actions))
    most = int(heard.spoke.max(initial=0))
    if most > settings.candidates:
        heard = heard.only(heard.rank < settings.candidates)
    return _second_phase(around, heard, settings) if most > settings.chosen else heard


def _second_phase(around: Neighbourhood, heard: _Heard, settings: RetrievalSettings) -> _Heard:
    mask = np.ones(len(heard.own), dtype=np.bool_)
    end = 0
    for spoke in heard.spoke.tolist():
        begin, end = end, end + spoke
        if spoke > settings.chosen:
            group = heard.own[begin:end]
            mask[begin:end] = False
            mask[begin + two_phase(around.similarities[group], around.q[group], settings)] = True
    return heard.only(mask)


_VERSION: Final = 2
CALIBRATION_RATE: Final = 0.05  # measured on the outcomes of two real models (`make bench-routing`)
_Means = tuple[float, float, float]  # mean reward, seconds and tokens
_NOTHING_KNOWN: Final[_Means] = (0.5, 0.0, 0.0)  # expected before the first outcome of any action


class LearnedStateError(MemrlError, ValueError):
    """The stored policy cannot be read or does not fit. The policy can learn again from the episodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplorationSettings:
    """How often another action than the best one is chosen, to learn about it."""

    method: Literal["epsilon", "thompson", "off"] = "epsilon"  # for task types that `by_type` does not name
    first: float = 0.1  # initial epsilon of a task type: the probability that any action is drawn, all alike
    least: float = 0.02  # epsilon falls no further; a lower `first` stays as it is
    halved_after: float = 200.0  # epsilon = first * halved_after / (halved_after + outcomes of the task type)
    # by task type ("" if none): Thompson sampling, or an initial epsilon that falls in the same way; 0 for never
    by_type: Mapping[str, float | Literal["thompson"]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySettings:
    """Defaults by `make bench-routing`."""

    features: FeatureSettings = field(default_factory=FeatureSettings)
    head: HeadSettings = field(default_factory=HeadSettings)
    retrieval: RetrievalSettings = field(default_factory=RetrievalSettings)
    exploration: ExplorationSettings = field(default_factory=ExplorationSettings)
    stage: Stage = field(default_factory=Stage)
    prices: Prices = field(default_factory=Prices)
    retrieval_part: float = 0.3  # largest share of similar episodes in the expected reward; the head has the rest
    retrieval_patience: float = 5.0  # support (episodes of similarity 1) at which they have half of that
    tolerance: float = 0.02  # for the confidence: an action within this of the best value is as good
    # share of choices that may take another action than the cheapest; None for all. A restart forgets the use.
    budget: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    action: Action
    value: float  # worth less price; the best action has the highest value
    worth: float  # expected reward, calibrated
    error: float  # standard error of the worth
    price: float  # in units of reward
    head: float  # expected reward by the head alone
    head_part: float  # share of the head in the worth, from 0 to 1
    retrieved: Retrieved  # expected reward by similar episodes alone


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChoice:
    action: Action
    propensity: float  # the exact probability that it was drawn with
    confidence: float  # probability that no value exceeds that of `best` by more than the tolerance
    explored: bool  # drawn although another action has a higher value
    best: Action  # highest value, within the budget
    estimates: tuple[Estimate, ...]  # in the order of the actions
    probabilities: tuple[float, ...]  # in the order of the actions


class Policy:
    def __init__(self, dimensions: int, settings: PolicySettings | None = None) -> None:
        """Start without experience. `dimensions` is the width of the embeddings."""
        self.settings = settings or PolicySettings()
        self.observed = 0  # outcomes that have taught something
        self._features = Features(dimensions, self.settings.features)
        self._head = Head(self._features.size, dimensions, self.settings.head)
        # One for all actions: one each would put the predictions that are compared on scales that drift apart.
        self._calibrator = Calibrator(rate=CALIBRATION_RATE)
        self._tallies: dict[tuple[str, ...], tuple[float, ...]] = {}
        budget = self.settings.budget
        self._budget = None if budget is None else exploration.Budget(budget)

    @property
    def dimensions(self) -> int:
        return self._features.dimensions

    def choose(
        self,
        situation: Situation,
        embedding: NDArray[Any],
        neighbours: Sequence[Neighbour],
        actions: Sequence[Action],
        costs: Mapping[Action, Cost] | None = None,
        *,
        rng: np.random.Generator,
        explore: bool | None = None,
    ) -> PolicyChoice:
        """Choose one of the actions.

        `explore` allows another action than the best one; None: unless somebody waits. An action without costs is
        expected to cost what it did before. Raises ValueError for no actions, duplicates, or an embedding of the wrong
        width.
        """
        if not actions or len(set(actions)) < len(actions):
            raise ValueError(f"{len(actions)} actions were given, {len(set(actions))} of them different ones")
        estimates = self.estimate(situation, embedding, neighbours, actions, costs)
        values = np.array([option.value for option in estimates])
        errors = np.array([option.error for option in estimates])
        spent, cheapest, gain = False, 0, 0.0
        if self._budget is not None:
            spent = self._budget.spent
            cheapest = min(range(len(actions)), key=lambda place: (estimates[place].price, place))
            dearer = np.arange(len(values)) != cheapest
            gain = float(values[dearer].max() - values[cheapest]) if dearer.any() else 0.0
            values -= np.where(dearer, self._budget.price, 0.0)
        best = cheapest if spent else int(values.argmax())
        may = not spent and (not situation.interactive if explore is None else explore)
        probabilities = self._probabilities(situation, values, errors, best) if may else None
        choice = best if probabilities is None else exploration.draw(probabilities, rng)
        near = exploration.near_best(values, errors, best, self.settings.tolerance)
        if self._budget is not None:
            self._budget.note(gain, choice != cheapest)
        return PolicyChoice(
            action=actions[choice],
            propensity=1.0 if probabilities is None else float(probabilities[choice]),
            confidence=near,
            explored=choice != best,
            best=actions[best],
            estimates=estimates,
            probabilities=tuple((np.eye(len(actions))[best] if probabilities is None else probabilities).tolist()),
        )

    def estimate(
        self,
        situation: Situation,
        embedding: NDArray[Any],
        neighbours: Sequence[Neighbour],
        actions: Sequence[Action],
        costs: Mapping[Action, Cost] | None = None,
    ) -> tuple[Estimate, ...]:
        """Return what is expected of each action. Changes and draws nothing."""
        features = self._features.of(situation, embedding)
        heads, known_by = self._head.predict(features, actions)
        means = self._means(situation, actions)
        spoken = estimate(neighbours, actions, [row[0] for row in means], self.settings.retrieval)
        expected = [_UNKNOWN] * len(actions) if costs is None else [costs.get(action, _UNKNOWN) for action in actions]
        return tuple(
            self._estimate(action, head, outcomes, retrieved, _filled(cost, mean))
            for action, head, outcomes, retrieved, cost, mean in zip(
                actions, heads.tolist(), known_by.tolist(), spoken, expected, means, strict=True
            )
        )

    def observe(
        self,
        situation: Situation,
        embedding: NDArray[Any],
        action: Action,
        outcome: Outcome,
        *,
        neighbours: Sequence[Neighbour] = (),
        replaced: Replaced | None = None,
    ) -> Reward | None:
        """Learn how an action turned out, and return its reward; None for an outcome that teaches nothing.

        Pass the neighbours from before memory learns of the outcome: calibration learns how right they and the head
        were. An outcome takes the place of what was `replaced`, and `observed` stays. Raises ValueError for an
        embedding of the wrong width or a success that is not from 0 to 1.
        """
        return self._learn(situation, embedding, {action: outcome}, neighbours, replaced)[action]

    def observe_all(
        self,
        situation: Situation,
        embedding: NDArray[Any],
        outcomes: Mapping[Action, Outcome],
        *,
        neighbours: Sequence[Neighbour] = (),
    ) -> dict[Action, Reward | None]:
        """Like `observe` for several actions in one situation.

        All are predicted before any is learned. One by one, each would be predicted with what the others taught about
        the same situation, and calibration would trust the head too much.
        """
        return self._learn(situation, embedding, outcomes, neighbours, None)

    def _learn(
        self,
        situation: Situation,
        embedding: NDArray[Any],
        outcomes: Mapping[Action, Outcome],
        neighbours: Sequence[Neighbour],
        replaced: Replaced | None,
    ) -> dict[Action, Reward | None]:
        rewards: dict[Action, Reward | None] = dict.fromkeys(outcomes)
        lessons = [(action, outcome) for action, outcome in outcomes.items() if teaches(outcome)]
        if not lessons:
            return rewards
        actions = [action for action, _ in lessons]
        settings = self.settings
        earned = [
            staged(outcome, self.observed + place, settings.stage, settings.prices)
            for place, (_, outcome) in enumerate(lessons)
        ]
        features = self._features.of(situation, embedding)
        heads = self._head.predict(features, actions)[0].tolist()
        means = [mean[0] for mean in self._means(situation, actions)]
        spoken = estimate(neighbours, actions, means, settings.retrieval)
        before = None if replaced is None else replace(replaced, reward=min(1.0, max(0.0, replaced.reward)))
        for (action, outcome), head, reward, retrieved in zip(lessons, heads, earned, spoken, strict=True):
            raw, _ = self._joined(head, retrieved)
            target = min(1.0, max(0.0, reward.total))
            self._calibrator.update(raw, target, outcome.weight, before)
            self._head.update(features, action, target, outcome.weight, before)
            self._count(situation, action, outcome, target, before)
            rewards[action] = reward
        if replaced is None:
            self._features.learn(situation)
            self.observed += len(lessons)
        return rewards

    def _estimate(self, action: Action, head: float, outcomes: float, retrieved: Retrieved, cost: Cost) -> Estimate:
        # `outcomes` is how many the head's prediction is worth
        raw, part = self._joined(head, retrieved)
        worth = self._calibrator(raw)
        evidence = outcomes + retrieved.support
        price = self.settings.prices.of(cost)
        return Estimate(
            action=action,
            value=worth - price,
            worth=worth,
            error=math.sqrt(max(worth * (1.0 - worth), 0.01) / evidence),
            price=price,
            head=head,
            head_part=1.0 - part,
            retrieved=retrieved,
        )

    def _joined(self, head: float, retrieved: Retrieved) -> tuple[float, float]:
        # the logit of both, and the share of similar episodes in it
        support = retrieved.support
        part = self.settings.retrieval_part * support / (support + self.settings.retrieval_patience)
        return logit_of((1.0 - part) * head + part * retrieved.value), part

    def _probabilities(self, situation: Situation, values: Floats, errors: Floats, best: int) -> Floats | None:
        # None: take the best one
        settings, kind = self.settings.exploration, situation.task_type or ""
        usual = settings.first if settings.method == "epsilon" else settings.method
        setting = settings.by_type.get(kind, usual)
        if setting in ("off", 0) or len(values) == 1:
            return None
        if isinstance(setting, str):
            return exploration.thompson(values, errors)
        count = self._tallies[name][0] if (name := ("type", kind)) in self._tallies else 0.0
        fallen = setting * settings.halved_after / (settings.halved_after + count)
        return exploration.epsilon_greedy(best, len(values), max(min(settings.least, setting), fallen))

    # What was seen, summed up: how often, reward, seconds and tokens.

    def _count(
        self, situation: Situation, action: Action, outcome: Outcome, target: float, replaced: Replaced | None
    ) -> None:
        cost, weight, moment = cost_of(outcome), outcome.weight, outcome.weight * target
        if replaced is not None:
            weight, moment = weight - replaced.weight, moment - replaced.weight * replaced.reward
        row = (weight, moment, weight * (cost.seconds or 0.0), weight * (cost.tokens or 0.0))
        for name in (*_levels(_like(situation), action), ("type", situation.task_type or "")):
            before = self._tallies.get(name, (0.0, 0.0, 0.0, 0.0))
            self._tallies[name] = tuple(max(0.0, number) for number in map(add, before, row))

    def _means(self, situation: Situation, actions: Sequence[Action]) -> list[_Means]:
        # Of the most alike outcomes, shrunk to all others. An action with a persona starts from the same one without.
        like, usual = _like(situation), _shrunk(self._tallies.get(()), _NOTHING_KNOWN, 1.0)
        return [self._mean(like, action, usual) for action in actions]

    def _mean(self, like: tuple[str, str, str], action: Action, usual: _Means) -> _Means:
        before = self._mean(like, without_persona(action), usual) if action.persona else usual
        _, by_action, alike = _levels(like, action)
        return _shrunk(self._tallies.get(alike), _shrunk(self._tallies.get(by_action), before, 5.0), 5.0)

    def to_bytes(self) -> bytes:
        moments = self._features.moments
        head = {f"head.{name}": array for name, array in self._head.arrays().items()}
        meta = {
            "version": _VERSION,
            "dimensions": self.dimensions,
            "features": asdict(self.settings.features),
            "observed": self.observed,
            "actions": [_names(action) for action in self._head.actions],
            "tallied": list(self._tallies),
        }
        arrays = {
            "meta": np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8),
            "count": np.array(moments.count),
            "mean": moments.mean,
            "spread": moments.squares,
            "calibration": self._calibrator.state,
            "tallies": np.array(list(self._tallies.values())).reshape(-1, 4),
            **head,
        }
        file = io.BytesIO()
        np.savez(file, allow_pickle=False, **arrays)
        return file.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes, dimensions: int, settings: PolicySettings | None = None) -> "Policy":
        """Return the policy that `to_bytes` described. Raises LearnedStateError if the data does not fit."""
        policy = cls(dimensions, settings)
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as stored:
                arrays = {name: stored[name] for name in stored.files}
            meta = json.loads(arrays["meta"].tobytes())
            policy._restore(meta, arrays)
        except (ValueError, KeyError, TypeError, OSError, EOFError, zipfile.BadZipFile) as error:
            raise LearnedStateError(f"what the policy has learned cannot be used: {error}") from error
        return policy

    def _restore(self, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        expected = {
            "version": _VERSION,
            "dimensions": self.dimensions,
            "features": asdict(self.settings.features),
        }
        for name, value in expected.items():
            if meta[name] != value:
                raise ValueError(f"its {name} is {meta[name]}; accepted: {value}")
        actions = [Action(*names) for names in meta["actions"]]
        self._head.restore(actions, {name[5:]: array for name, array in arrays.items() if name.startswith("head.")})
        moments = self._features.moments
        moments.restore(float(arrays["count"]), arrays["mean"], arrays["spread"])
        self._calibrator.state[...] = arrays["calibration"]
        tallies = arrays["tallies"].reshape(-1, 4).tolist()
        self._tallies = {tuple(name): tuple(row) for name, row in zip(meta["tallied"], tallies, strict=True)}
        self.observed = int(meta["observed"])


_UNKNOWN: Final = Cost()


def _like(situation: Situation) -> tuple[str, str, str]:
    # the fields by which situations count as alike
    return situation.task_type or "", situation.kind, situation.role


@lru_cache(maxsize=4096)
def _levels(like: tuple[str, str, str], action: Action) -> tuple[tuple[str, ...], ...]:
    # tally keys of an outcome, from all outcomes to those most like it
    name = _names(action)
    return (), ("action", *name), ("like", *like, *name)


def _shrunk(tally: tuple[float, ...] | None, means: _Means, strength: float) -> _Means:
    # shrunk to `means`, which count as `strength` outcomes
    if tally is None:
        return means
    count, reward, seconds, tokens = tally
    whole = count + strength
    first, second, third = means
    return (
        (reward + strength * first) / whole,
        (seconds + strength * second) / whole,
        (tokens + strength * third) / whole,
    )


def _filled(cost: Cost, means: _Means) -> Cost:
    # unknown seconds and tokens come from experience
    if cost.seconds is not None and cost.tokens is not None:
        return cost
    _, seconds, tokens = means
    return Cost(
        seconds=seconds if cost.seconds is None else cost.seconds,
        tokens=tokens if cost.tokens is None else cost.tokens,
        load_seconds=cost.load_seconds,
        lost_prefix_tokens=cost.lost_prefix_tokens,
    )


def _names(action: Action) -> tuple[str, ...]:
    # several times as fast as `dataclasses.astuple`
    return action.role, action.persona, action.model, action.thinking, action.mode
