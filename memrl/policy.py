"""Choose an action: join what similar episodes and the head expect of each, less its costs, and explore on purpose.

A Policy does no I/O, keeps no clock, and draws only from the generator that it is given, so the same outcomes and the
same generator lead to the same choices. It is not safe for several threads at once.
"""

import io
import json
import math
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from operator import add
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from memrl import exploration, retrieval
from memrl.calibration import Calibrator, logit_of
from memrl.episodes import Action, Neighbour, Outcome, Replaced, Reward, Situation
from memrl.errors import MemrlError
from memrl.features import Features, FeatureSettings
from memrl.head import Head, HeadSettings, without_persona
from memrl.retrieval import RetrievalSettings, Retrieved
from memrl.reward import Cost, Prices, Stage, cost_of, staged, teaches

Floats = NDArray[np.float64]

_VERSION: Final = 2
CALIBRATION_RATE: Final = 0.05
"""How fast the calibration learns, by measurement on the outcomes of two real models (`make bench-routing`)."""
_Means = tuple[float, float, float]
"""Mean reward, seconds and tokens."""
_NOTHING_KNOWN: Final[_Means] = (0.5, 0.0, 0.0)
"""The reward, seconds and tokens that are expected of an action before the first outcome of any."""


class LearnedStateError(MemrlError, ValueError):
    """What was stored of a policy cannot be read, or does not fit; the policy can learn again from the episodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplorationSettings:
    """How often something else than the best action is chosen, in order to learn about it."""

    method: Literal["epsilon", "thompson", "off"] = "epsilon"
    """How it is explored in task types that `by_type` does not name."""
    first: float = 0.1
    """The epsilon of a task type without outcomes: how probable it is that any action is drawn, all alike."""
    least: float = 0.02
    """Where epsilon stops to fall; one that is lower at first stays as it is."""
    halved_after: float = 200.0
    """Epsilon is first * halved_after / (halved_after + outcomes of the task type)."""
    by_type: Mapping[str, float | Literal["thompson"]] = field(default_factory=dict)
    """How it is explored in some task types: by Thompson sampling, or with an epsilon that is this at first and falls
    in the same way; 0 for never. "" is the type of what has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySettings:
    """How a policy learns and chooses. The defaults are those of `make bench-routing`."""

    features: FeatureSettings = field(default_factory=FeatureSettings)
    head: HeadSettings = field(default_factory=HeadSettings)
    retrieval: RetrievalSettings = field(default_factory=RetrievalSettings)
    exploration: ExplorationSettings = field(default_factory=ExplorationSettings)
    stage: Stage = field(default_factory=Stage)
    prices: Prices = field(default_factory=Prices)
    retrieval_part: float = 0.3
    """The part of similar episodes in the expected reward where they speak clearly; the rest is the head's."""
    retrieval_patience: float = 5.0
    """The support (episodes of similarity 1) at which they have half of that part."""
    tolerance: float = 0.02
    """By how much less value an action is still as good as the best one, for the confidence."""
    budget: float | None = None
    """The share of choices that may take another action than the cheapest; None for all. A restart forgets the use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What is expected of an action in a situation."""

    action: Action
    value: float
    """Its worth less its price: the best action is the one with the highest value."""
    worth: float
    """The expected reward, calibrated."""
    error: float
    """The standard error of the worth."""
    price: float
    """What it costs, in units of reward."""
    head: float
    """The expected reward by the head alone."""
    head_part: float
    """The head's part in the worth, from 0 to 1; the rest is that of similar episodes."""
    retrieved: Retrieved
    """The expected reward by similar episodes alone, and which of them spoke."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChoice:
    """An action, and how it was chosen."""

    action: Action
    propensity: float
    """How probable this action was, given the situation: exactly the probability that it was drawn with."""
    confidence: float
    """How probable it is that no action has a value that is higher than the best one's by more than the tolerance."""
    explored: bool
    """Whether it was drawn although another action has a higher value."""
    best: Action
    """The action with the highest value, within the budget."""
    estimates: tuple[Estimate, ...]
    """One for each action, in the order in which they were given."""
    probabilities: tuple[float, ...]
    """How probable each action was, in the order in which they were given."""


class Policy:
    """What was learned from outcomes, and how it chooses."""

    def __init__(self, dimensions: int, settings: PolicySettings | None = None) -> None:
        """Begin without experience. `dimensions` is the width of the embeddings."""
        self.settings = settings or PolicySettings()
        self.observed = 0
        """How many outcomes have taught something."""
        self._features = Features(dimensions, self.settings.features)
        self._head = Head(self._features.size, dimensions, self.settings.head)
        self._calibrator = Calibrator(rate=CALIBRATION_RATE)
        """One for all actions: what actions differ by is for the head to know, and one of each would put predictions
        of different actions, which are compared, on scales that move apart."""
        self._tallies: dict[tuple[str, ...], tuple[float, ...]] = {}
        budget = self.settings.budget
        self._budget = None if budget is None else exploration.Budget(budget)

    @property
    def dimensions(self) -> int:
        """Return the width of the embeddings."""
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
        """Return the choice of one of the actions.

        `explore` is whether something else than the best action may be drawn; None is yes, but not while somebody
        waits. An action without costs is taken to cost what it has cost before. Raises ValueError without actions, if
        one is there twice, or for an embedding of the wrong width.
        """
        if not actions or len(set(actions)) < len(actions):
            raise ValueError(f"{len(actions)} actions were given, {len(set(actions))} of them different ones")
        estimates = self.estimate(situation, embedding, neighbours, actions, costs)
        values = np.array([one.value for one in estimates])
        errors = np.array([one.error for one in estimates])
        spent, cheapest, gain = False, 0, 0.0
        if self._budget is not None:
            spent = self._budget.spent
            cheapest = min(range(len(actions)), key=lambda place: (estimates[place].price, place))
            others = np.arange(len(values)) != cheapest
            gain = float(values[others].max() - values[cheapest]) if others.any() else 0.0
            values -= np.where(others, self._budget.price, 0.0)
        best = cheapest if spent else int(values.argmax())
        may = not spent and (not situation.interactive if explore is None else explore)
        probabilities = self._probabilities(situation, values, errors, best) if may else None
        taken = best if probabilities is None else exploration.draw(probabilities, rng)
        near = exploration.near_best(values, errors, best, self.settings.tolerance)
        if self._budget is not None:
            self._budget.note(gain, taken != cheapest)
        return PolicyChoice(
            action=actions[taken],
            propensity=1.0 if probabilities is None else float(probabilities[taken]),
            confidence=near,
            explored=taken != best,
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
        """Return what is expected of each action. Nothing changes, and nothing is drawn."""
        features = self._features.of(situation, embedding)
        heads, known_by = self._head.predict(features, actions)
        means = self._means(situation, actions)
        spoken = retrieval.estimate(neighbours, actions, [one[0] for one in means], self.settings.retrieval)
        expected = [_UNKNOWN] * len(actions) if costs is None else [costs.get(action, _UNKNOWN) for action in actions]
        return tuple(
            self._estimate(action, head, outcomes, one, _filled(cost, mean))
            for action, head, outcomes, one, cost, mean in zip(
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

        The neighbours are those that memory returns before it learns of the outcome; the calibration learns how
        right they and the head were. `replaced` is what another outcome of the same attempt has taught before, as when
        a rating comes later: this outcome takes its place, and `observed` stays. Raises ValueError for an embedding of
        the wrong width or a success that is not from 0 to 1.
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
        """Learn how several actions turned out in one situation, and return their rewards, as `observe` does.

        The calibration of each compares with what was expected before any of them was known. Told one after the other,
        an outcome would be expected by what the ones before it have taught about the very same situation, and the
        calibration would trust the head more than it deserves where it has to predict.
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
        told = [(action, outcome) for action, outcome in outcomes.items() if teaches(outcome)]
        if not told:
            return rewards
        actions = [action for action, _ in told]
        settings = self.settings
        earned = [
            staged(outcome, self.observed + place, settings.stage, settings.prices)
            for place, (_, outcome) in enumerate(told)
        ]
        features = self._features.of(situation, embedding)
        heads = self._head.predict(features, actions)[0].tolist()
        means = [one[0] for one in self._means(situation, actions)]
        spoken = retrieval.estimate(neighbours, actions, means, settings.retrieval)
        before = None if replaced is None else replace(replaced, reward=min(1.0, max(0.0, replaced.reward)))
        for (action, outcome), head, reward, retrieved in zip(told, heads, earned, spoken, strict=True):
            raw, _ = self._joined(head, retrieved)
            target = min(1.0, max(0.0, reward.total))
            self._calibrator.update(raw, target, outcome.weight, before)
            self._head.update(features, action, target, outcome.weight, before)
            self._count(situation, action, outcome, target, before)
            rewards[action] = reward
        if replaced is None:
            self._features.learn(situation)
            self.observed += len(told)
        return rewards

    def _estimate(self, action: Action, head: float, outcomes: float, retrieved: Retrieved, cost: Cost) -> Estimate:
        """Return the estimate of an action, of which the head expects `head`, by as much as `outcomes` have told it."""
        raw, part = self._joined(head, retrieved)
        worth = self._calibrator(raw)
        seen = outcomes + retrieved.support
        price = self.settings.prices.of(cost)
        return Estimate(
            action=action,
            value=worth - price,
            worth=worth,
            error=math.sqrt(max(worth * (1.0 - worth), 0.01) / seen),
            price=price,
            head=head,
            head_part=1.0 - part,
            retrieved=retrieved,
        )

    def _joined(self, head: float, retrieved: Retrieved) -> tuple[float, float]:
        """Return the logit that head and similar episodes come to, and the part of the latter in it."""
        support = retrieved.support
        part = self.settings.retrieval_part * support / (support + self.settings.retrieval_patience)
        return logit_of((1.0 - part) * head + part * retrieved.value), part

    def _probabilities(self, situation: Situation, values: Floats, errors: Floats, best: int) -> Floats | None:
        """Return how probable each action shall be; None if the best one is to be taken."""
        settings, kind = self.settings.exploration, situation.task_type or ""
        usual = settings.first if settings.method == "epsilon" else settings.method
        chosen = settings.by_type.get(kind, usual)
        if chosen in ("off", 0) or len(values) == 1:
            return None
        if isinstance(chosen, str):
            return exploration.thompson(values, errors)
        seen = self._tallies[name][0] if (name := ("type", kind)) in self._tallies else 0.0
        fallen = chosen * settings.halved_after / (settings.halved_after + seen)
        return exploration.epsilon_greedy(best, len(values), max(min(settings.least, chosen), fallen))

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
            self._tallies[name] = tuple(max(0.0, one) for one in map(add, before, row))

    def _means(self, situation: Situation, actions: Sequence[Action]) -> list[_Means]:
        """Return mean reward, seconds and tokens of each action: those of what is most alike, shrunk to the rest.

        An action with a persona begins with those of the same action without one.
        """
        like, usual = _like(situation), _shrunk(self._tallies.get(()), _NOTHING_KNOWN, 1.0)
        return [self._mean(like, action, usual) for action in actions]

    def _mean(self, like: tuple[str, str, str], action: Action, usual: _Means) -> _Means:
        before = self._mean(like, without_persona(action), usual) if action.persona else usual
        _, by_action, alike = _levels(like, action)
        return _shrunk(self._tallies.get(alike), _shrunk(self._tallies.get(by_action), before, 5.0), 5.0)

    def to_bytes(self) -> bytes:
        """Return all that was learned, which `from_bytes` reads."""
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
        """Return the policy that `to_bytes` described. Raises LearnedStateError if that cannot be, and says why."""
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
        wanted = {
            "version": _VERSION,
            "dimensions": self.dimensions,
            "features": asdict(self.settings.features),
        }
        for name, value in wanted.items():
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
    """Return what makes situations alike for the means of actions."""
    return situation.task_type or "", situation.kind, situation.role


@lru_cache(maxsize=4096)
def _levels(like: tuple[str, str, str], action: Action) -> tuple[tuple[str, ...], ...]:
    """Return under which names an outcome is counted, from all outcomes to those most like this one."""
    name = _names(action)
    return (), ("action", *name), ("like", *like, *name)


def _shrunk(tally: tuple[float, ...] | None, means: _Means, strength: float) -> _Means:
    """Return the means of a tally, shrunk to others that are worth `strength` outcomes; these, where there is none."""
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
    """Return a cost with the mean seconds and tokens of experience in the place of what is unknown."""
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
    """Return the fields of an action; several times as fast as `dataclasses.astuple`."""
    return action.role, action.persona, action.model, action.thinking, action.mode
