"""Compute the reward of an outcome, how much its caller may teach with it, and the cost of a choice. Pure.

R = s * (r_parallel + w * r_finish) + (1 - s) * success * Q(task). The stage s falls from 0.1 to 0 as outcomes come in;
Q(task) is the quality of the whole task's result (the parallel-agent reward of the Kimi K2.5 report; without it an
orchestrator collapses to serial plans). Parallelism counts only if it shortened the measured critical path, a finished
step only if its output was used.

Q does not learn costs, because they depend on the moment, such as which model is loaded. A choice subtracts them.

Whoever runs the machine could change what was learned anyway, and counts in full. Of any other caller the first
outcomes count in full and later ones less and less: with S in full, n weights sum to S * (1 + ln(n / S)), since
outcomes of one caller are not independent (effective sample size of clustered samples: Kish, 1965).
"""

from collections.abc import Collection, Container, Iterable
from dataclasses import dataclass
from typing import Final

from orchestrator.memrl.episodes import Outcome, Reward

NOT_THE_MODEL: Final = frozenset({"INFRASTRUCTURE", "RESOURCE"})  # failure kinds that say nothing about a model
JUDGE: Final = "judge"  # the gate at which a model judges
# gates that run tests in one process with the answer; the others look at its form
IN_PROCESS: Final = frozenset({"unit", "integration"})
TESTED_WEIGHT: Final = 0.9  # of a success by tests that a judge agrees with
IN_PROCESS_WEIGHT: Final = 0.7  # of a success by tests alone
FORM_WEIGHT: Final = 0.4  # of a success by gates of form only
UNCHECKED_WEIGHT: Final = 0.1  # of a finished attempt that nothing checked
LEAST_PROPENSITY: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    first: float = 0.1  # the stage s of the first outcome
    outcomes: int = 1000  # number of outcomes after which the stage is 0; it falls linearly
    finish: float = 0.5  # the weight w of a finished step, relative to parallelism

    def at(self, earlier: int) -> float:
        return self.first * max(0.0, 1.0 - earlier / self.outcomes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    seconds: float | None = None  # on the critical path of the run; None: estimate it from experience
    tokens: float | None = None  # read and written; None: estimate them from experience
    load_seconds: float = 0.0  # 0 if the model is loaded
    lost_prefix_tokens: float = 0.0  # to be read again, since another model has them in its KV cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Costs in units of reward; a success brings 1."""

    second: float = 0.002  # on the critical path or of loading: 500 s are worth a success
    thousand_tokens: float = 0.005
    lost_thousand_tokens: float = 0.01  # of a lost prefix

    def of(self, cost: Cost) -> float:
        """Return the price of a cost. Unknown parts are free."""
        seconds, tokens = (cost.seconds or 0.0) + cost.load_seconds, cost.tokens or 0.0
        kilo = self.thousand_tokens * tokens + self.lost_thousand_tokens * cost.lost_prefix_tokens
        return self.second * seconds + kilo / 1000


def teaches(outcome: Outcome) -> bool:
    """Whether an outcome says anything about the choice: not if the machine failed or nobody judged it."""
    return outcome.success is not None and outcome.weight > 0 and outcome.failure not in NOT_THE_MODEL


def staged(outcome: Outcome, earlier: int, stage: Stage | None = None, prices: Prices | None = None) -> Reward:
    """Return the reward of an outcome after a number of `earlier` ones.

    Its parts are stage, success, quality, parallel, finish (all from 0 to 1) and cost, which the total leaves out.
    Raises ValueError if the outcome teaches nothing, or success or quality is not from 0 to 1.
    """
    if not teaches(outcome):
        raise ValueError(f"an outcome of {outcome.failure or 'unknown success'} has no reward, as it teaches nothing")
    success, quality = outcome.success or 0.0, outcome.quality
    for name, share in (("success", success), ("quality", quality)):
        if not 0.0 <= share <= 1.0:
            raise ValueError(f"the {name} of an outcome is {share}; accepted: 0 to 1")
    stage, prices = stage or Stage(), prices or Prices()
    s, parallel = stage.at(earlier), parallel_share(outcome.saved_seconds, outcome.critical_seconds)
    finish = success if outcome.used else 0.0
    total = s * (parallel + stage.finish * finish) + (1.0 - s) * success * quality
    parts = {"stage": s, "success": success, "quality": quality, "parallel": parallel, "finish": finish}
    return Reward(total=total, parts={**parts, "cost": prices.of(cost_of(outcome))})


def cost_of(outcome: Outcome) -> Cost:
    return Cost(
        seconds=outcome.critical_seconds,
        tokens=float(outcome.tokens),
        load_seconds=outcome.load_seconds,
        lost_prefix_tokens=float(outcome.lost_prefix_tokens),
    )


def net(reward: Reward) -> float:
    """Return the total less the cost, which routers are compared by."""
    return reward.total - reward.parts.get("cost", 0.0)


def parallel_share(saved_seconds: float, critical_seconds: float) -> float:
    """Return the share of the critical path that running in parallel saved, from 0 to 1."""
    saved = max(0.0, saved_seconds)
    whole = saved + max(0.0, critical_seconds)
    return saved / whole if whole > 0 else 0.0


def propensity_weight(propensity: float, unforced: float | None) -> float:
    """Return the importance weight of an outcome, from 0 to 1: min(1, unforced / propensity).

    `unforced` is the propensity had the user forced nothing; None if the user did not. Clipping: truncated importance
    sampling (Ionides, 2008).
    """
    return 1.0 if unforced is None else min(1.0, max(0.0, unforced) / max(propensity, LEAST_PROPENSITY))


def success_weight(gates: Collection[str]) -> float:
    """Return the weight of a success that these gates have confirmed, from 0 to 1.

    Code can in principle deceive tests that run in one process with it, so they count less without a judge.
    """
    if IN_PROCESS.isdisjoint(gates):
        return FORM_WEIGHT if gates else UNCHECKED_WEIGHT
    return TESTED_WEIGHT if JUDGE in gates else IN_PROCESS_WEIGHT


def judge_weight(agreed: float, compared: float) -> float:
    """Return the weight of a judge's verdict, from 0 to 1, by how often it agreed with a checker.

    It is 2p - 1, so tossing a coin counts nothing. The probability p of being right has the prior Beta(3, 2), which
    gives 0.2 to a judge that was never compared.
    """
    right = (agreed + 3.0) / (compared + 5.0)
    return max(0.0, 2.0 * right - 1.0)


FULL_BY_ACTION: Final = 2.0  # outcomes in full for one caller and action in one context
FULL_BY_CALLER: Final = 3.0  # outcomes in full for one caller
READY_BY_CALLER: Final = 50  # one caller's outcomes that count for readiness at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    caller: str  # empty for outcomes recorded before callers were
    outcomes: int
    drawn: int  # outcomes whose action the router or the rules chose, not the user
    told: float  # the sum of their weights by evidence
    counted: float  # the sum of the weights they were learned with


def share(by_action: float, by_caller: float) -> float:
    """Return the weight of a caller's next outcome, from 0 to 1.

    The arguments are the weights of its earlier outcomes: of the same action in the same context, and of all.
    """
    return min(1.0, FULL_BY_ACTION / max(FULL_BY_ACTION, by_action), FULL_BY_CALLER / max(FULL_BY_CALLER, by_caller))


def readiness(contributions: Iterable[Contribution], trusted: Container[str]) -> int:
    """Return how many outcomes count for readiness: all of `trusted` callers, READY_BY_CALLER at most of any other."""
    return sum(
        contribution.drawn if contribution.caller in trusted else min(contribution.drawn, READY_BY_CALLER)
        for contribution in contributions
    )
