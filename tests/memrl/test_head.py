import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from orchestrator.memrl.episodes import Action, Replaced
from orchestrator.memrl.head import Head, HeadSettings, sigmoid
from tests.memrl.situations import LARGE, SMALL

SIZE = 6


def taught(count: int = 3000, seed: int = 0) -> tuple[Head, np.random.Generator]:
    """Return a head that has seen LARGE succeed four times in five, and SMALL only where the second feature is high."""
    rng = np.random.default_rng(seed)
    head = Head(SIZE, 2, HeadSettings())
    for _ in range(count):
        features = situation(rng)
        head.update(features, LARGE, float(rng.random() < 0.8))
        head.update(features, SMALL, float(rng.random() < sigmoid(4 * features[1])))
    return head, rng


def situation(rng: np.random.Generator) -> NDArray[np.float64]:
    features = rng.normal(size=SIZE)
    features[0] = 1.0
    return features


def expected(head: Head, features: NDArray[np.float64], action: Action) -> float:
    return float(head.predict(features, (action,))[0][0])


def test_it_begins_without_an_opinion() -> None:
    head = Head(SIZE, 2, HeadSettings())
    expected, outcomes = head.predict(np.ones(SIZE), (SMALL, LARGE))
    assert expected.tolist() == [0.5, 0.5]
    assert outcomes.tolist() == [1, 1]
    assert head.actions == ()


def test_it_learns_where_an_action_succeeds() -> None:
    head, _ = taught()
    easy, hard = np.array((1, 1, 0, 0, 0, 0.0)), np.array((1, -1, 0, 0, 0, 0.0))
    for features, better in ((easy, SMALL), (hard, LARGE)):
        (small, large), _ = head.predict(features, (SMALL, LARGE))
        assert (SMALL if small > large else LARGE) == better


def test_a_new_setting_of_a_known_model_begins_with_what_is_known_of_the_model() -> None:
    head, rng = taught()
    new = Action("worker", persona="historian", model="large")
    unknown = Action("worker", persona="historian", model="other")
    features = [situation(rng) for _ in range(50)]
    assert np.mean([expected(head, one, new) > expected(head, one, unknown) for one in features]) > 0.7
    assert head.predict(features[0], (new,))[1][0] > 100


def test_it_knows_more_where_it_has_seen_more() -> None:
    head, _ = taught(300)
    near, far = np.array((1, 0, 0, 0, 0, 0.0)), np.array((1, 9, 9, 9, 0, 0.0))
    assert head.predict(near, (LARGE,))[1][0] > 10 * head.predict(far, (LARGE,))[1][0]
    few, _ = taught(30)
    assert head.predict(near, (LARGE,))[1][0] > 5 * few.predict(near, (LARGE,))[1][0]


def test_its_bayesian_part_is_the_posterior_mean() -> None:
    rng = np.random.default_rng(0)
    head = Head(SIZE, 2, HeadSettings(own=0.0, shared=0.0, patience=1e-9))
    rows = np.array([situation(rng) for _ in range(40)])
    truth = (rng.random(40) < 0.5).astype(float)
    for features, target in zip(rows, truth, strict=True):
        head.update(features, SMALL, target)
    plain = rows[:, :4]
    weights = np.linalg.solve(plain.T @ plain + 3.0 * np.eye(4), plain.T @ (truth - 0.5))
    for features in rows:
        assert expected(head, features, SMALL) == pytest.approx(np.clip(0.5 + weights @ features[:4], 0.02, 0.98))


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0.05, 1)), min_size=1, max_size=8),
    st.integers(0, 7),
    st.floats(0, 1),
    st.floats(0.05, 1),
)
def test_its_bayesian_part_knows_nothing_more_of_what_was_replaced(
    outcomes: list[tuple[float, float]], place: int, target: float, weight: float
) -> None:
    place %= len(outcomes)
    rng = np.random.default_rng(0)
    rows = [situation(rng) for _ in outcomes]
    revised, told = (Head(SIZE, 2, HeadSettings(own=0.0, shared=0.0, patience=1e-9)) for _ in range(2))
    for number, (features, (success, counted)) in enumerate(zip(rows, outcomes, strict=True)):
        revised.update(features, SMALL, success, counted)
        told.update(features, SMALL, *((target, weight) if number == place else (success, counted)))
    reward, counted = outcomes[place]
    revised.update(rows[place], SMALL, target, weight, Replaced(reward=reward, weight=counted))
    for name in ("means", "covariances", "line_counts", "counts"):
        assert revised.arrays()[name] == pytest.approx(told.arrays()[name], abs=1e-9)


def test_what_never_was_learned_can_be_replaced_without_harm() -> None:
    head, rng = taught(3)
    for _ in range(50):
        head.update(situation(rng), SMALL, 0.0, 0.1, Replaced(reward=1.0, weight=1.0))
    assert all(np.isfinite(array).all() for array in head.arrays().values())
    assert np.linalg.eigvalsh(head.arrays()["covariances"]).min() > 0


def test_a_weight_of_0_teaches_nothing_about_success() -> None:
    head = Head(SIZE, 2, HeadSettings())
    head.update(np.ones(SIZE), SMALL, 1.0, weight=0.0)
    assert expected(head, np.ones(SIZE), SMALL) == 0.5


def test_what_was_learned_can_be_put_back() -> None:
    head, rng = taught(200)
    other = Head(SIZE, 2, HeadSettings())
    other.restore(head.actions, head.arrays())
    features = situation(rng)
    assert [expected(other, features, action) for action in head.actions] == [
        expected(head, features, action) for action in head.actions
    ]


@pytest.mark.parametrize("spoil", [lambda array: array[:-1], lambda array: array + np.nan])
def test_arrays_that_do_not_fit_are_refused(spoil: object) -> None:
    head, _ = taught(20)
    arrays = {**head.arrays(), "difficulty": spoil(head.arrays()["difficulty"])}  # type: ignore[operator]
    with pytest.raises(ValueError, match="difficulty"):
        Head(SIZE, 2, HeadSettings()).restore(head.actions, arrays)
