import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from orchestrator.memrl.head import (
    CATEGORIES,
    DESCRIBED,
    SURFACE,
    Features,
    FeatureSettings,
    Moments,
    RBFMap,
    categories,
    describe,
    surface,
)
from tests.memrl.situations import SITUATION, situation

texts = st.text(st.characters(codec=None, exclude_categories=()), max_size=200)
rows = arrays(np.float64, (3,), elements=st.floats(-1e6, 1e6))


@given(texts)
def test_surface_is_finite_for_any_text(text: str) -> None:
    counts = surface(text)
    assert counts.shape == (len(SURFACE),) == (16,)
    assert np.isfinite(counts).all()


def test_surface_counts_what_it_says() -> None:
    counts = dict(zip(SURFACE, surface("Is 12 + 30 = 42? (Yes!)\nGood."), strict=True))
    assert counts["numbers"] == pytest.approx(np.log1p(3))
    assert counts["digits"] == pytest.approx(6 / 29)
    assert counts["question marks"] == pytest.approx(np.log1p(1))
    assert counts["lines"] == pytest.approx(np.log1p(1))
    assert counts["brackets"] == pytest.approx(2 / 29)
    assert counts["symbols"] == pytest.approx(2 / 29)
    assert counts["beyond ASCII"] == 0


def test_surface_counts_letters_beyond_ascii() -> None:
    assert surface("äöü")[SURFACE.index("beyond ASCII")] == 1


def test_what_a_step_reads_and_its_failures_are_described() -> None:
    plain, failed = describe(SITUATION), describe(situation(SITUATION.text, input_bytes=999, failures=("CODE",)))
    assert plain.shape == (DESCRIBED,)
    assert (plain[:16] == failed[:16]).all()
    assert failed[16] == pytest.approx(np.log(1000))
    assert failed[17] == pytest.approx(np.log(2))


def test_categories_differ_by_kind_and_have_length_1() -> None:
    one, other = categories(SITUATION), categories(situation("", kind="repl"))
    assert one.shape == (CATEGORIES,)
    assert one @ one == pytest.approx(1)
    assert not np.array_equal(one, other)


def test_the_text_is_in_no_category_and_a_default_in_no_count() -> None:
    assert np.array_equal(categories(situation("one")), categories(situation("another")))
    assert np.array_equal(surface(SITUATION.text), describe(situation(SITUATION.text, role="writer"))[:16])


@given(st.lists(rows, min_size=2, max_size=20))
def test_moments_are_those_of_all_rows(numbers: list[NDArray[np.float64]]) -> None:
    moments = Moments(3)
    for row in numbers:
        moments.update(row)
    assert moments.mean == pytest.approx(np.mean(numbers, axis=0), abs=1e-6)
    assert moments.squares / len(numbers) == pytest.approx(np.var(numbers, axis=0), rel=1e-6, abs=1e-3)
    assert np.abs(moments.z(numbers[0])).max() <= 4


def test_what_never_varied_has_a_z_score_of_0() -> None:
    moments = Moments(2)
    for number in (1.0, 2.0, 3.0):
        moments.update(np.array((5.0, number)))
    assert moments.z(np.array((7.0, 2.0)))[0] == 0


def test_the_rbf_map_approximates_its_kernel() -> None:
    rng = np.random.default_rng(0)
    kernel = RBFMap(5, 4096, 2.0)
    one, other = rng.normal(size=5), rng.normal(size=5)
    expected = np.exp(-((one - other) @ (one - other)) / (2 * 2.0**2))
    assert kernel(one) @ kernel(other) == pytest.approx(expected, abs=0.05)


def test_features_refuse_an_embedding_of_the_wrong_width() -> None:
    features = Features(8, FeatureSettings())
    with pytest.raises(ValueError, match=r"shape \(9,\); accepted: \(8,\)"):
        features.of(SITUATION, np.zeros(9))
    assert features.of(SITUATION, np.zeros(8)).shape == (features.size,)
