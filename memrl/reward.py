"""Say what an outcome is worth, and what a choice costs. Pure.

The reward is staged: R = s * (r_parallel + w * r_finish) + (1 - s) * success * Q(task), where the stage s falls from
0.1 to 0 as outcomes come in, and Q(task) is the quality of the result of the whole task (the parallel-agent reward of
the Kimi K2.5 report, with which an orchestrator learns to use parallelism before it learns to finish, and without which
it collapses to serial plans). Neither shaping term can be had for its own sake: parallelism counts only if it shortened
the measured critical path, and a finished step only if somebody used what it made.

Costs are no part of what Q learns, because they depend on the moment, such as on which model is loaded: a choice
subtracts the costs at hand from the expected reward.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from memrl.episodes import Outcome, Reward

NOT_THE_MODEL: Final = frozenset({"INFRASTRUCTURE", "RESOURCE"})
"""The kinds of failure that say nothing about a model."""
JUDGE: Final = "judge"
"""The gate at which a model judges."""
IN_PROCESS: Final = frozenset({"unit", "integration"})
"""Gates that say whether an answer is right by tests that run in one process with it. The others look at its form."""
TESTED_WEIGHT: Final = 0.9
"""How much it counts that tests have passed with which a judge agrees."""
IN_PROCESS_WEIGHT: Final = 0.7
"""How much it counts that tests have passed, without a judge's word."""
FORM_WEIGHT: Final = 0.4
"""How much it counts that an answer has passed gates which look at its form only."""
UNCHECKED_WEIGHT: Final = 0.1
"""How much it counts that an attempt was done which nothing has checked."""
LEAST_PROPENSITY: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """How the shaping terms of the reward are weighed."""

    first: float = 0.1
    """The stage s of the first outcome."""
    outcomes: int = 1000
    """After so many outcomes the stage is 0; it falls linearly."""
    finish: float = 0.5
    """The weight w of a finished step, relative to that of parallelism."""

    def at(self, seen: int) -> float:
        """Return the stage after so many outcomes."""
        return self.first * max(0.0, 1.0 - seen / self.outcomes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a choice is expected to cost, beside what is the same for all."""

    seconds: float | None = None
    """Seconds on the critical path of the run; None if only experience can tell."""
    tokens: float | None = None
    """Tokens read and written; None if only experience can tell."""
    load_seconds: float = 0.0
    """Seconds for loading the model; 0 if it is loaded."""
    lost_prefix_tokens: float = 0.0
    """Tokens to be read again that another model has read already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What costs are in units of reward, of which a success brings 1."""

    second: float = 0.002
    """A second on the critical path, or of loading a model: 500 of them are worth a success."""
    thousand_tokens: float = 0.005
    lost_thousand_tokens: float = 0.01
    """A thousand tokens of a lost prefix."""

    def of(self, cost: Cost) -> float:
        """Return the price of a cost. What is unknown is free."""
        seconds, tokens = (cost.seconds or 0.0) + cost.load_seconds, cost.tokens or 0.0
        kilo = self.thousand_tokens * tokens + self.lost_thousand_tokens * cost.lost_prefix_tokens
        return self.second * seconds + kilo / 1000


def teaches(outcome: Outcome) -> bool:
    """Return whether an outcome says anything about what was chosen: not if the machine failed or nobody judged it."""
    return outcome.success is not None and outcome.weight > 0 and outcome.failure not in NOT_THE_MODEL


def staged(outcome: Outcome, seen: int, stage: Stage | None = None, prices: Prices | None = None) -> Reward:
    """Return the reward of an outcome after `seen` earlier ones.

    The parts are the stage, success, quality, parallel and finish (each from 0 to 1), and the cost, which the total
    leaves out. Raises ValueError for an outcome that teaches nothing, or a success or quality that is not from 0 to 1.
    """
    if not teaches(outcome):
        raise ValueError(f"an outcome of {outcome.failure or 'unknown success'} has no reward, as it teaches nothing")
    success, quality = outcome.success or 0.0, outcome.quality
    for name, share in (("success", success), ("quality", quality)):
        if not 0.0 <= share <= 1.0:
            raise ValueError(f"the {name} of an outcome is {share}; accepted: 0 to 1")
    stage, prices = stage or Stage(), prices or Prices()
    s, parallel = stage.at(seen), _parallel(outcome)
    finish = success if outcome.used else 0.0
    total = s * (parallel + stage.finish * finish) + (1.0 - s) * success * quality
    parts = {"stage": s, "success": success, "quality": quality, "parallel": parallel, "finish": finish}
    return Reward(total=total, parts={**parts, "cost": prices.of(cost_of(outcome))})


def cost_of(outcome: Outcome) -> Cost:
    """Return what an attempt has cost."""
    return Cost(
        seconds=outcome.critical_seconds,
        tokens=float(outcome.tokens),
        load_seconds=outcome.load_seconds,
        lost_prefix_tokens=float(outcome.lost_prefix_tokens),
    )


def net(reward: Reward) -> float:
    """Return a reward less its cost, which is what a router is judged by."""
    return reward.total - reward.parts.get("cost", 0.0)


def _parallel(outcome: Outcome) -> float:
    """Return the share by which running beside others shortened the critical path, from 0 to 1."""
    saved = max(0.0, outcome.saved_seconds)
    whole = saved + max(0.0, outcome.critical_seconds)
    return saved / whole if whole > 0 else 0.0


def propensity_weight(propensity: float, unforced: float | None) -> float:
    """Return how much an outcome counts for how its action came about, from 0 to 1.

    `propensity` is how probable the choice was, and `unforced` how probable it would have been if the user had forced
    no part of it; None if nothing was forced. A forced choice is no sample of the router's policy, so it is weighed by
    their ratio, which is clipped at 1 (truncated importance sampling: Ionides, 2008): what the router would hardly have
    done teaches hardly anything.
    """
    return 1.0 if unforced is None else min(1.0, max(0.0, unforced) / max(propensity, LEAST_PROPENSITY))


def success_weight(gates: Collection[str]) -> float:
    """Return how much a success counts that the strongest of these passed gates have confirmed, from 0 to 1.

    Tests that run in one process with the code under test can, in principle, be deceived by it. Their word alone counts
    less than with a judge that agrees.
    """
    if IN_PROCESS.isdisjoint(gates):
        return FORM_WEIGHT if gates else UNCHECKED_WEIGHT
    return TESTED_WEIGHT if JUDGE in gates else IN_PROCESS_WEIGHT


def judge_weight(agreed: float, compared: float) -> float:
    """Return how much a judge's verdict counts, from 0 to 1, given how often it agreed with a checker.

    It is 2p - 1 for a probability p of being right, so tossing a coin counts nothing; p has the prior Beta(3, 2), which
    lets a judge that was never compared count 0.2.
    """
    right = (agreed + 3.0) / (compared + 5.0)
    return max(0.0, 2.0 * right - 1.0)
