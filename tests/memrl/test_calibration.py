import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.memrl.head import Calibrator, calibration_error, logit, sigmoid


@given(st.floats(-13, 13))
def test_logit_undoes_sigmoid(number: float) -> None:
    assert logit(sigmoid(number)) == pytest.approx(number, abs=1e-6)


def test_the_error_is_the_distance_between_prediction_and_frequency() -> None:
    predicted = np.array((0.9, 0.9, 0.9, 0.9, 0.1))
    happened = np.array((1.0, 1.0, 0.0, 0.0, 0.0))
    assert calibration_error(predicted, happened) == pytest.approx((4 * 0.4 + 0.1) / 5)
    assert calibration_error(np.zeros(0), np.zeros(0)) == 0


@given(st.lists(st.booleans(), min_size=1, max_size=50))
def test_certain_and_right_has_no_error(happened: list[bool]) -> None:
    truth = np.array(happened, dtype=float)
    assert calibration_error(truth, truth) == 0
    assert calibration_error(1 - truth, truth) == pytest.approx(1)


def test_a_calibrator_begins_as_the_identity() -> None:
    assert Calibrator()(0.7) == pytest.approx(float(sigmoid(0.7)))


def test_a_calibrator_corrects_overconfidence() -> None:
    rng = np.random.default_rng(0)
    calibrator = Calibrator()
    raw = rng.normal(0, 3, 4000)
    happened = (rng.random(4000) < sigmoid(raw / 3 - 0.5)).astype(float)
    for one, truth in zip(raw, happened, strict=True):
        calibrator.update(one, truth)
    before = calibration_error(sigmoid(raw[2000:]), happened[2000:])
    after = calibration_error(np.array([calibrator(one) for one in raw[2000:]]), happened[2000:])
    assert after < before / 3
