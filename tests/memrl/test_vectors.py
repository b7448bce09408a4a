"""The index finds what is most similar, is made anew when it has to be, and saved so that it never lies."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from orchestrator.memrl.errors import IndexNotReady
from orchestrator.memrl.vectors import POINTER, IndexSettings, VectorIndex

DIMENSIONS = 32
LARGE = IndexSettings(flat_numbers=1000 * DIMENSIONS, probes=16)
"""With these, more than 1000 vectors get lists."""


class Vectors:
    """Stands for the database: vectors around a few centres, by id from 1."""

    def __init__(self, count: int, revision: int = 0) -> None:
        rng = np.random.default_rng(3)
        centres = rng.normal(size=(40, DIMENSIONS))
        made = centres[rng.integers(40, size=count)] + 0.3 * rng.normal(size=(count, DIMENSIONS))
        self.vectors: NDArray[np.float32] = (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float32)
        self.count = count
        self.revision = revision
        self.reads = 0

    def source(self, after: int) -> Iterator[tuple[list[int], NDArray[np.float32]]]:
        for start in range(after, self.count, 256):
            end = min(start + 256, self.count)
            self.reads += 1
            yield list(range(start + 1, end + 1)), self.vectors[start:end]

    def stamp(self, last: int) -> tuple[int | None, int]:
        return (7 * last if last <= self.count else None), self.revision

    def index(self, folder: Path, settings: IndexSettings = LARGE, embedder: str = "one") -> VectorIndex:
        index = VectorIndex(folder, embedder, DIMENSIONS, self.source, self.stamp, settings)
        index.load(self.count)
        return index

    def recall(self, index: VectorIndex, count: int = 20) -> float:
        hits = 0
        for vector in self.vectors[:50]:
            truth = np.argsort(-(self.vectors[: self.count] @ vector))[:count] + 1
            hits += len(np.intersect1d(index.search(vector, count)[0], truth))
        return hits / (50 * count)


def test_a_small_index_is_exact(tmp_path: Path) -> None:
    vectors = Vectors(900)
    index = vectors.index(tmp_path)
    assert vectors.recall(index) == 1.0
    assert (index.stats().kind, index.stats().vectors) == ("flat", 900)
    ids, similarities = index.search(vectors.vectors[17], 1)
    assert (ids.tolist(), similarities[0]) == ([18], pytest.approx(1, abs=1e-5))


def test_a_large_index_has_lists_and_finds_nearly_all(tmp_path: Path) -> None:
    vectors = Vectors(3000)
    index = vectors.index(tmp_path)
    index.wait()
    stats = index.stats()
    assert (stats.kind, stats.vectors, stats.problem) == ("ivf", 3000, "")
    assert stats.lists > 1
    assert vectors.recall(index) >= 0.95
    assert index.search(vectors.vectors[17], 1)[1][0] == pytest.approx(1, abs=0.01)
    index.close()


@pytest.mark.parametrize("components", [0, 12, DIMENSIONS])
def test_lists_of_projected_vectors_find_nearly_all(tmp_path: Path, components: int) -> None:
    vectors = Vectors(3000)
    settings = IndexSettings(flat_numbers=1000 * DIMENSIONS, probes=16, components=components)
    index = vectors.index(tmp_path, settings)
    index.wait()
    assert (index.stats().kind, index.stats().problem) == ("ivf", "")
    assert vectors.recall(index) >= 0.95
    index.close()
    again = vectors.index(tmp_path, settings)
    assert (again.stats().kind, again.stats().vectors, again.stats().problem) == ("ivf", 3000, "")
    assert vectors.recall(again) >= 0.95
    again.close()


def test_what_comes_while_lists_are_trained_is_found_during_and_after(tmp_path: Path) -> None:
    vectors = Vectors(4000)
    vectors.count = 900
    index = vectors.index(tmp_path)
    for number in range(900, 2000):
        vectors.count = number + 1
        index.add([number + 1], vectors.vectors[number : number + 1])
        index.maintain()
        assert index.search(vectors.vectors[number], 1)[0].tolist() == [number + 1]
    index.wait()
    index.maintain()
    index.wait()
    assert (index.stats().kind, index.stats().vectors) == ("ivf", 2000)
    assert vectors.recall(index) >= 0.95
    index.close()


def test_a_saved_index_is_read_and_brought_up_to_date(tmp_path: Path) -> None:
    vectors = Vectors(3200)
    vectors.count = 3000
    index = vectors.index(tmp_path)
    index.wait()
    index.close()
    vectors.count, vectors.reads = 3200, 0
    index = vectors.index(tmp_path)
    assert vectors.reads == 1
    assert (index.stats().vectors, index.stats().problem) == (3200, "")
    assert vectors.recall(index) >= 0.95
    index.close()
    vectors.reads = 0
    vectors.index(tmp_path).close()
    assert vectors.reads == 0
    assert len(list(tmp_path.glob("index-*.*"))) == 2


def test_an_index_that_is_not_ready_says_so(tmp_path: Path) -> None:
    vectors = Vectors(3000)
    index = VectorIndex(tmp_path, "one", DIMENSIONS, vectors.source, vectors.stamp, LARGE)
    with pytest.raises(IndexNotReady):
        index.search(vectors.vectors[0], 5)


def test_a_missing_index_is_made_anew(tmp_path: Path) -> None:
    vectors = Vectors(3000)
    first = vectors.index(tmp_path)
    first.wait()
    first.close()
    for path in tmp_path.glob("index-*.rows"):
        path.unlink()
    index = vectors.index(tmp_path)
    assert "missing" in index.stats().problem
    index.wait()
    assert (index.stats().problem, index.stats().vectors) == ("", 3000)
    index.close()


@pytest.mark.parametrize("kind", ["faiss", "rows"])
@pytest.mark.parametrize("how", ["flipped", "torn", "empty"])
def test_a_damaged_index_is_made_anew(tmp_path: Path, kind: str, how: str) -> None:
    vectors = Vectors(1500)
    first = vectors.index(tmp_path)
    first.wait()
    first.close()
    (path,) = tmp_path.glob(f"index-*.{kind}")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes({"flipped": bytes(data), "torn": bytes(data[: len(data) // 3]), "empty": b""}[how])
    index = vectors.index(tmp_path)
    assert "not what was written" in index.stats().problem
    index.wait()
    assert vectors.recall(index) >= 0.95
    index.close()


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"files": 3}', "\0\0"])
def test_a_damaged_pointer_is_no_index(tmp_path: Path, text: str) -> None:
    vectors = Vectors(1500)
    (tmp_path / POINTER).write_text(text)
    index = vectors.index(tmp_path)
    index.wait()
    assert (index.stats().vectors, index.stats().problem) == (1500, "")
    index.close()


@pytest.mark.parametrize("what", ["embedder", "revision", "backup"])
def test_a_stale_index_is_made_anew(tmp_path: Path, what: str) -> None:
    vectors = Vectors(3000)
    first = vectors.index(tmp_path)
    first.wait()
    first.close()
    later = Vectors(2000 if what == "backup" else 3000, revision=int(what == "revision"))
    index = later.index(tmp_path, embedder="other" if what == "embedder" else "one")
    index.wait()
    assert index.stats().vectors == later.count
    assert later.recall(index) >= 0.95
    index.close()


def test_lists_are_trained_again_when_there_are_twice_as_many(tmp_path: Path) -> None:
    vectors = Vectors(3000)
    vectors.count = 1100
    index = vectors.index(tmp_path)
    index.wait()
    lists = index.stats().lists
    vectors.count = 3000
    index.add(list(range(1101, 3001)), vectors.vectors[1100:])
    index.maintain()
    index.wait()
    assert index.stats().lists > lists
    assert index.stats().vectors == 3000
    index.close()


def test_lists_take_more_vectors_than_there_was_room_for(tmp_path: Path) -> None:
    vectors = Vectors(3000)
    vectors.count = 1100
    index = vectors.index(tmp_path, replace(LARGE, growth=1.0))
    index.wait()
    vectors.count = 3000
    for number in range(1100, 3000, 100):
        index.add(list(range(number + 1, number + 101)), vectors.vectors[number : number + 100])
    assert (index.stats().kind, index.stats().vectors) == ("ivf", 3000)
    assert vectors.recall(index) >= 0.95
    index.close()


def test_closing_ends_the_training(tmp_path: Path) -> None:
    vectors = Vectors(3000)
    index = vectors.index(tmp_path)
    index.close()
    again = vectors.index(tmp_path)
    again.wait()
    assert vectors.recall(again) >= 0.95
    again.close()


def test_dropped_vectors_leave_when_the_index_is_made_anew(tmp_path: Path) -> None:
    vectors = Vectors(900)
    index = vectors.index(tmp_path)
    vectors.count = 500
    index.drop(400)
    index.maintain()
    assert index.stats().vectors == 900
    index.drop(800)
    index.maintain()
    index.wait()
    assert index.stats().vectors == 500
    index.close()


def test_the_pointer_names_whole_files_only(tmp_path: Path) -> None:
    vectors = Vectors(1500)
    index = vectors.index(tmp_path)
    index.wait()
    saved = json.loads((tmp_path / POINTER).read_text())
    assert [(tmp_path / name).stat().st_size for name in saved["files"]] == saved["bytes"]
    assert not list(tmp_path.glob("*.new"))
    index.close()
