import numpy as np
import pytest
from numpy.typing import NDArray

from memrl.calibration import sigmoid
from memrl.episodes import Action
from memrl.head import Head, HeadSettings
from tests.memrl.situations import LARGE, SMALL

SIZE = 6


def taught(count: int = 3000, seed: int = 0) -> tuple[Head, np.random.Generator]:
    """Return a head that has seen LARGE succeed four times in five, and SMALL only where the second feature is high."""
    rng = np.random.default_rng(seed)
    head = Head(SIZE, HeadSettings())
    for _ in range(count):
        features = situation(rng)
        head.update(features, LARGE, float(rng.random() < 0.8))
        head.update(features, SMALL, float(rng.random() < sigmoid(4 * features[1])))
    return head, rng


def situation(rng: np.random.Generator) -> NDArray[np.float64]:
    features = rng.normal(size=SIZE)
    features[0] = 1.0
    return features


def test_it_begins_without_an_opinion() -> None:
    head = Head(SIZE, HeadSettings())
    assert head.logits(np.ones(SIZE), (SMALL, LARGE)).tolist() == [0, 0]
    assert head.actions == ()
    assert head.count(SMALL) == 0


def test_it_learns_where_an_action_succeeds() -> None:
    head, _ = taught()
    easy, hard = np.array((1, 1, 0, 0, 0, 0.0)), np.array((1, -1, 0, 0, 0, 0.0))
    for features, better in ((easy, SMALL), (hard, LARGE)):
        small, large = head.logits(features, (SMALL, LARGE))
        assert (SMALL if small > large else LARGE) == better
    assert head.count(LARGE) == 3000


def test_a_new_setting_of_a_known_model_begins_with_what_is_known_of_the_model() -> None:
    head, rng = taught()
    new = Action("worker", persona="historian", model="large")
    unknown = Action("worker", persona="historian", model="other")
    features = [situation(rng) for _ in range(50)]
    assert np.mean([head.logits(one, (new,))[0] > head.logits(one, (unknown,))[0] for one in features]) > 0.7


def test_a_weight_of_0_teaches_nothing_about_success() -> None:
    head = Head(SIZE, HeadSettings())
    head.update(np.ones(SIZE), SMALL, 1.0, weight=0.0)
    assert head.logits(np.ones(SIZE), (SMALL,))[0] == 0


def test_what_was_learned_can_be_put_back() -> None:
    head, rng = taught(200)
    other = Head(SIZE, HeadSettings())
    other.restore(head.actions, head.arrays())
    features = situation(rng)
    assert (other.logits(features, (SMALL, LARGE)) == head.logits(features, (SMALL, LARGE))).all()


@pytest.mark.parametrize("spoil", [lambda array: array[:-1], lambda array: array + np.nan])
def test_arrays_that_do_not_fit_are_refused(spoil: object) -> None:
    head, _ = taught(20)
    arrays = {**head.arrays(), "difficulty": spoil(head.arrays()["difficulty"])}  # type: ignore[operator]
    with pytest.raises(ValueError, match="difficulty"):
        Head(SIZE, HeadSettings()).restore(head.actions, arrays)
