import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.run.steps.tools.search_index import PASSAGE, Bm25, SearchIndex, fuse, passage

TEXTS = {
    "ship.txt": "The Koldin is a ship. Its owner is Hillem, and it is 187 m long.",
    "train.txt": "The Marvon is a train with a top speed of 200 km/h.",
    "bridge.txt": "A bridge over the river Vell, built by ship engineers.",
    "empty.txt": "",
}


def test_bm25_prefers_rare_words_and_short_texts() -> None:
    index = Bm25(["a b", "a c", "a c c c c d d d d", "a"])
    assert set(index.scores("c")) == {1, 2}
    assert index.scores("b")[0] > index.scores("a")[0]
    assert index.scores("a")[3] > index.scores("a")[2]
    assert index.scores("nowhere") == {}
    assert Bm25([]).scores("a") == {}


def test_bm25_gives_what_its_formula_gives() -> None:
    # idf = ln(1 + (2 - 1 + 0.5) / (1 + 0.5)) = ln 2; both texts have the mean length 2; tf = 2 * 2.2 / (2 + 1.2)
    assert Bm25(["x x", "y z"]).scores("x") == pytest.approx({0: np.log(2) * 2 * 2.2 / 3.2})


def test_search_finds_what_shares_words_and_what_shares_only_parts() -> None:
    index = SearchIndex(TEXTS)
    assert index.search("who owns the Koldin?", 1)[0].name == "ship.txt"
    assert index.search("top speed", 1)[0].name == "train.txt"
    assert index.search("Marvons", 4)[0].name == "train.txt", "no word in common, only n-grams"
    assert "empty.txt" not in [hit.name for hit in index.search("ship", 10)]
    assert len(index.search("the", 2)) <= 2
    assert SearchIndex({}).search("x", 3) == []


def test_fusion_is_by_reciprocal_rank() -> None:
    assert fuse([[7, 8], [8]]) == pytest.approx({7: 1 / 61, 8: 1 / 62 + 1 / 61})


@given(st.integers(0, 3000))
def test_the_passage_holds_what_was_asked_for(before: int) -> None:
    text = "filler " * (before // 7) + "needle in hay " + "filler " * 300
    shown = passage(text, "needle")
    assert "needle" in shown
    assert len(shown) <= PASSAGE
