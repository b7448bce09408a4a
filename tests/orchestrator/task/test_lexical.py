"""Texts become vectors by their n-grams: of length one, the same everywhere, near where texts share parts of words."""

import hashlib
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.task.lexical import BLOCK, DIMENSIONS, embed

texts = st.lists(st.text(max_size=50), max_size=5)


@given(texts, st.sampled_from([64, 1000, DIMENSIONS]))
def test_vectors_have_length_one_or_none(texts: list[str], dimensions: int) -> None:
    vectors = embed(texts, dimensions)
    assert vectors.shape == (len(texts), dimensions)
    for text, norm in zip(texts, np.linalg.norm(vectors, axis=1), strict=True):
        assert norm == pytest.approx(1, abs=1e-5) if text.strip().isalnum() else norm < 1.001


@given(texts)
def test_a_text_has_its_vector_whatever_stands_beside_it(texts: list[str]) -> None:
    alone = [embed([text])[0] for text in texts]
    assert np.array_equal(embed(texts), np.array(alone, np.float32).reshape(len(texts), DIMENSIONS))


def test_vectors_are_those_that_were_stored_earlier() -> None:
    vectors = embed(["The ship Zilthir sails.", "Grüße\n aus Köln", ""])
    digest = hashlib.sha256(vectors.astype("<f4").tobytes()).hexdigest()
    assert digest == "7227db2adc56467c09aa9fee0989dd39e2d1723c5876f90f266ac92d1bb28606", "then NAME has to change too"


def test_case_accents_and_white_space_do_not_count() -> None:
    plain, other = embed(["Eclair of Zoe", unicodedata.normalize("NFD", "  ÉCLAIR\tof\nZoë ")])
    assert np.array_equal(plain, other)
    assert not embed(["", " \n", "\u0301"]).any()
    assert np.count_nonzero(embed(["\ud800"])) > 0, "half a surrogate pair is bytes too"


def test_near_words_are_nearer_than_far_ones() -> None:
    query, near, far = embed(["shipbuilders", "a shipbuilding yard", "an apple tree"])
    assert query @ near > 0.3 > query @ far + 0.1


@pytest.mark.parametrize("dimensions", [512, 1000, DIMENSIONS])
def test_texts_that_share_nothing_are_as_far_apart_as_chance_has_it(dimensions: int) -> None:
    letters = np.random.default_rng(1).choice(list("abcdefghijklmnopqrstuvwxyz"), (100, 200))
    vectors = embed(["".join(row) for row in letters], dimensions)
    cosines = (vectors @ vectors.T)[np.triu_indices(100, 1)]
    assert abs(cosines.mean()) < 0.02
    assert cosines.std() == pytest.approx(dimensions**-0.5, rel=0.15)


def test_a_long_text_is_counted_as_a_whole() -> None:
    part = "".join(np.random.default_rng(2).choice(list("abcdefgh "), BLOCK - 7))
    (whole,) = embed([f"{part} over the edge {part}"])
    both = embed([part, "over the edge"])
    assert whole @ both[0] > 0.999
    assert embed(["x" * (3 * BLOCK)])[0] @ embed(["x" * 100])[0] > 0.9
