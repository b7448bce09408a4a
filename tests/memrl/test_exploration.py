from math import erf, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.memrl.exploration import Budget, best_probabilities, draw, epsilon_greedy, near_best, thompson

several = st.lists(st.tuples(st.floats(-1, 1), st.floats(0.001, 1)), min_size=1, max_size=8)


@given(st.integers(1, 9), st.floats(0, 1), st.data())
def test_epsilon_greedy_adds_up_to_1_and_tries_each(count: int, epsilon: float, data: st.DataObject) -> None:
    best = data.draw(st.integers(0, count - 1))
    probabilities = epsilon_greedy(best, count, epsilon)
    assert probabilities.sum() == pytest.approx(1)
    assert (probabilities >= epsilon / count).all()
    assert probabilities[best] == probabilities.max()


@given(several)
def test_thompson_probabilities_add_up_to_1(actions: list[tuple[float, float]]) -> None:
    means, errors = np.array(actions).T
    probabilities = thompson(means, errors)
    assert probabilities.sum() == pytest.approx(1)
    assert best_probabilities(means, errors).sum() == pytest.approx(1, abs=0.02)
    assert (best_probabilities(means, errors, 0.1) >= best_probabilities(means, errors) - 1e-6).all()


def test_of_two_actions_the_probability_is_that_of_their_difference() -> None:
    means, errors = np.array((0.6, 0.4)), np.array((0.3, 0.2))
    z = 0.2 / sqrt(0.3**2 + 0.2**2)
    expected = 0.5 * (1 + erf(z / sqrt(2)))
    assert best_probabilities(means, errors)[0] == pytest.approx(expected, abs=1e-3)


def test_thompson_draws_as_often_as_a_drawn_value_is_the_highest() -> None:
    rng = np.random.default_rng(0)
    means, errors = np.array((0.5, 0.6, 0.2, 0.55)), np.array((0.1, 0.05, 0.3, 0.2))
    sampled = rng.normal(means, errors, (200_000, 4)).argmax(axis=1)
    frequencies = np.bincount(sampled, minlength=4) / 200_000
    assert thompson(means, errors) == pytest.approx(frequencies, abs=0.01)


def test_actions_that_are_surely_alike_are_all_as_good_as_the_best() -> None:
    alike = best_probabilities(np.array((0.5, 0.5, 0.495)), np.full(3, 0.001), 0.02)
    assert (alike > 0.99).all()


@given(several, st.floats(0, 0.2))
def test_of_one_action_the_probability_is_computed_alone(actions: list[tuple[float, float]], margin: float) -> None:
    means, errors = np.array(actions).T
    for place, probability in enumerate(best_probabilities(means, errors, margin)):
        assert near_best(means, errors, place, margin) == pytest.approx(probability)


def test_draws_come_as_often_as_their_probability() -> None:
    rng = np.random.default_rng(0)
    probabilities = np.array((0.1, 0.0, 0.7, 0.2))
    drawn = np.bincount([draw(probabilities, rng) for _ in range(20_000)], minlength=4) / 20_000
    assert drawn == pytest.approx(probabilities, abs=0.02)


def keep(budget: Budget, gain: float) -> bool:
    """Return whether a dear action with this gain is taken."""
    dear = not budget.spent and gain > budget.price
    budget.note(gain, dear)
    return dear


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=300), st.floats(0, 1))
def test_a_budget_is_kept_at_every_moment(gains: list[float], share: float) -> None:
    budget = Budget(share, window=50)
    taken = 0
    for choices, gain in enumerate(gains, 1):
        taken += keep(budget, gain)
        assert taken <= share * choices + 1


def test_a_budget_goes_to_the_highest_gains() -> None:
    rng = np.random.default_rng(0)
    budget = Budget(0.3)
    gains = rng.random(5000)
    taken = np.array([keep(budget, gain) for gain in gains])[500:]
    assert taken.mean() == pytest.approx(0.3, abs=0.02)
    assert gains[500:][taken].min() > 0.6


def test_a_budget_is_not_used_up_for_losses() -> None:
    budget = Budget(0.5)
    assert not any(keep(budget, gain) for gain in np.linspace(-1, -0.1, 100))
    assert budget.price == 0


def test_a_budget_makes_up_for_what_was_drawn_beside_it() -> None:
    budget = Budget(0.5)
    gains = np.random.default_rng(0).random(1000)
    for gain in gains:
        budget.note(gain, True)
    assert budget.spent
    assert budget.price == pytest.approx(gains.max())
