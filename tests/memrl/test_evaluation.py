import numpy as np
import pytest
from numpy.typing import NDArray

from orchestrator.memrl.routers import ESTIMATORS, Log, difference, doubly_robust, ips


def logged(count: int, seed: int, *, model: float = 1.0) -> tuple[Log, float]:
    """Return a log of choices between two actions by a router that draws at random, and what another one earns.

    `model` is how much of the truth the model of the reward knows: 0 for none of it.
    """
    rng = np.random.default_rng(seed)
    x = rng.random(count)
    success = np.stack((x, 1 - x), axis=1)
    other = np.stack((0.9 * (x > 0.5) + 0.05, 0.9 * (x <= 0.5) + 0.05), axis=1)
    behaviour = np.full((count, 2), 0.5)
    behaviour[:, 0] = 0.3 + 0.4 * x
    behaviour[:, 1] = 1 - behaviour[:, 0]
    taken = (rng.random(count) > behaviour[:, 0]).astype(int)
    index = np.arange(count)
    rewards = (rng.random(count) < success[index, taken]).astype(float)
    guess = model * success + (1 - model) * 0.5
    log = Log(
        rewards=rewards,
        propensities=behaviour[index, taken],
        targets=other[index, taken],
        predicted=guess[index, taken],
        expected=(other * guess).sum(axis=1),
    )
    return log, float((other * success).sum(axis=1).mean())


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[pytest.mark.slow] if at else []) for at, one in enumerate(reversed(ESTIMATORS))]
)
def test_intervals_cover_the_truth_about_as_often_as_they_say(name: str) -> None:
    covered = 0
    for seed in range(40):
        log, truth = logged(200, seed, model=0.5)
        found = ESTIMATORS[name](log, np.random.default_rng(seed))
        assert found.low <= found.value <= found.high
        covered += found.low <= truth <= found.high
    assert covered >= 33


def test_a_wrong_model_does_not_bias_the_doubly_robust_estimate() -> None:
    log, truth = logged(40_000, 0, model=-1.0)
    assert doubly_robust(log, np.random.default_rng(0), 100).value == pytest.approx(truth, abs=0.02)


def test_a_good_model_narrows_the_interval() -> None:
    log, _ = logged(2000, 0)
    robust, plain = doubly_robust(log, np.random.default_rng(0)), ips(log, np.random.default_rng(0))
    assert robust.high - robust.low < plain.high - plain.low


def test_the_difference_of_a_router_to_itself_is_0() -> None:
    log, _ = logged(500, 0)
    found = difference(log, log, np.random.default_rng(0))
    assert (found.value, found.low, found.high) == (0, 0, 0)


def test_a_router_that_never_does_what_was_logged_is_worth_no_choice() -> None:
    log, _ = logged(50, 0)
    never = Log(
        rewards=log.rewards,
        propensities=log.propensities,
        targets=np.zeros(50),
        predicted=log.predicted,
        expected=log.expected,
    )
    for estimate in ESTIMATORS.values():
        assert estimate(never, np.random.default_rng(0)).effective == 0


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"propensities": np.zeros(2)}, "not above 0"),
        ({"propensities": np.full(2, 1.5)}, "not above 0"),
        ({"targets": np.full(2, -0.1)}, "from 0 to 1"),
        ({"rewards": np.zeros(3)}, "lengths"),
        ({"rewards": np.array((np.nan, 0.0))}, "finite"),
    ],
)
def test_what_is_no_log_is_refused(fields: dict[str, NDArray[np.float64]], says: str) -> None:
    good = {name: np.full(2, 0.5) for name in ("rewards", "propensities", "targets", "predicted", "expected")}
    with pytest.raises(ValueError, match=says):
        Log(**{**good, **fields})
