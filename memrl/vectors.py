"""Find the episodes whose vectors are most similar to one. Only this file uses faiss.

The index is a projection of the vectors in the database, and can be made from them at any time. Vectors have length 1,
so that an inner product is a cosine.

    small    exact: a few flat indices of at most `SHARD` vectors each, so that adding one never copies many
    large    inverted lists (IVF) of vectors that are projected onto their principal components and product-quantized,
             with 2 bits a number, which say which vectors may be nearest; these are then compared with 8 bits a number
             of all dimensions. A process of its own trains the lists, so that nobody waits for the interpreter
             meanwhile. Until they take the place of the old index, what comes goes into that one, and is kept for the
             new one too

Jégou, Douze and Schmid, "Product quantization for nearest neighbor search" (2011), for lists of quantized vectors
and comparing again; Jégou, Douze, Schmid and Pérez, "Aggregating local descriptors into a compact image
representation" (2010), for principal components that are rotated before they are quantized; André, Kermarrec and Le
Scouarnec, "Cache locality is not enough" (2015), for fast scans of lists.
"""

import json
import os
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

import faiss
import numpy as np
from numpy.typing import NDArray

from memrl.errors import IndexNotReady, MemrlError
from memrl.store import EpisodeStore

Vectors = NDArray[np.float32]
Ids = NDArray[np.int64]
Chunk = tuple[list[int], Vectors]
Source = Callable[[int], Iterator[Chunk]]
"""Yields ids and vectors of the database that come after an id, in chunks, by id."""

Stamp = Callable[[int], tuple[int | None, int]]
"""Returns for an id the fingerprint of its episode, None where there is no such episode; and the vectors' revision."""

SHARD: Final = 4096
CATCH_UP: Final = 64
"""How many vectors may still be missing when a new index takes the place of the old one: a few milliseconds' work."""
RETRY: Final = 1.1
"""By which factor the number of vectors has to grow before an index is tried again that could not be made."""
ROOM: Final = 1.5
"""How many more vectors there is room for than make the lists be trained again, since they come in the meantime."""
COMPARED_AT_A_TIME: Final = 64
"""How many candidates are compared again at a time."""
TINY: Final = np.float32(1e-30)
ROUNDS: Final = 8
"""Rounds of k-means."""
POINTER: Final = "index.json"


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """When and how vectors are indexed. The defaults are what `benchmarks/memory.py` measured as best."""

    flat_numbers: int = 3 << 19
    """Up to how many numbers (vectors times dimensions) are compared one by one. With more, lists are trained."""
    lists_per_root: float = 1.0
    """The number of lists is the power of two next to this, times the root of the number of vectors."""
    probes: int = 64
    """How many lists are searched."""
    components: int = 128
    """Onto how many principal components vectors are projected for the lists; 0 or as many as there are: not at all."""
    candidates: int = 400
    """How many vectors are compared again, at least; twice as many as are wanted if that is more."""
    samples_per_list: int = 48
    """On how many vectors for each list the lists are trained."""
    growth: float = 2.0
    """By which factor the number of vectors has to grow before lists are trained again."""
    dropped_share: float = 0.2
    """Which share of the vectors may be of dropped episodes before the index is made anew."""
    niceness: int = 10
    """By how much the process that makes an index gives way to others."""


@dataclass(frozen=True, slots=True)
class IndexStats:
    """The state of the index."""

    kind: Literal["none", "flat", "ivf"]
    building: bool
    """Whether a new one is being made. What was there before answers until then."""
    vectors: int
    """How many can be found now."""
    lists: int
    """The number of inverted lists; 0 for a flat index."""
    bytes: int
    """About how much memory it takes."""
    problem: str = ""
    """Why the saved index was not used, or a new one could not be made; empty if all is well."""


@dataclass(frozen=True, slots=True)
class _Saved:
    """What is written beside a saved index, and has to match the database for it to be used."""

    files: list[str]
    bytes: list[int]
    checksums: list[int]
    embedder: str
    dimensions: int
    vectors: int
    last: int
    """The highest id that it has. It has all those below that the database has."""
    fingerprint: int
    """That of the last episode. Another one with the same number, after a backup was restored, would not have it."""
    revision: int
    """Changes with everything that changes vectors of earlier episodes."""


class _Stopped(Exception):
    """The index is being closed."""


class _Flat:
    """Compares with every vector."""

    def __init__(self, dimensions: int) -> None:
        self.dimensions = dimensions
        self._shards: list[tuple[Any, Ids]] = []

    def __len__(self) -> int:
        return sum(index.ntotal for index, _ in self._shards)

    def add(self, ids: list[int], vectors: Vectors) -> None:
        start = 0
        while start < len(ids):
            if not self._shards or self._shards[-1][0].ntotal == SHARD:
                self._shards.append((faiss.IndexFlatIP(self.dimensions), np.empty(SHARD, dtype=np.int64)))
            index, names = self._shards[-1]
            there = index.ntotal
            added = min(SHARD - there, len(ids) - start)
            names[there : there + added] = ids[start : start + added]
            index.add(vectors[start : start + added])
            start += added

    def ids(self) -> Ids:
        parts = [names[: index.ntotal] for index, names in self._shards]
        return np.concatenate([np.zeros(0, dtype=np.int64), *parts])

    def search(self, asked: Vectors, count: int) -> tuple[Ids, Vectors]:
        found_ids: list[Ids] = [np.zeros(0, dtype=np.int64)]
        found: list[Vectors] = [np.zeros(0, dtype=np.float32)]
        for index, names in self._shards:
            similarities, places = index.search(asked, min(count, index.ntotal))
            found_ids.append(names[places[0]])
            found.append(similarities[0])
        ids, similarities = np.concatenate(found_ids), np.concatenate(found)
        order = np.argsort(-similarities, kind="stable")[:count]
        return ids[order], similarities[order]


class _Lists:
    """Compares with the vectors in the lists whose centres are nearest; `index` numbers them as they come."""

    def __init__(self, index: Any, dimensions: int, settings: IndexSettings, capacity: int) -> None:
        """Make lists of nothing, with room for `capacity` vectors. Memory is taken when it is used."""
        self.index = index
        self.lists = faiss.extract_index_ivf(index)
        """The inverted lists in it, which may come after a projection."""
        self.lists.nprobe = min(settings.probes, self.lists.nlist)  # with more, distances to no list spoil all others
        self._candidates = settings.candidates
        self._ids = np.empty(capacity, dtype=np.int64)
        self._scales = np.empty(capacity, dtype=np.float32)
        self._rows = np.empty((capacity, dimensions), dtype=np.int8)
        self._taken = np.empty((COMPARED_AT_A_TIME, dimensions), dtype=np.int8)
        self._numbers = np.empty((COMPARED_AT_A_TIME, dimensions), dtype=np.float32)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, ids: list[int], vectors: Vectors) -> None:
        end = self._count + len(ids)
        if end > len(self._ids):
            self._grow(2 * end)
        scales = np.abs(vectors).max(axis=1) / 127
        self._ids[self._count : end] = ids
        self._scales[self._count : end] = scales
        self._rows[self._count : end] = np.rint(vectors / np.maximum(scales, TINY)[:, None])
        self.index.add(vectors)
        self._count = end

    def ids(self) -> Ids:
        return self._ids[: self._count]

    def search(self, asked: Vectors, count: int) -> tuple[Ids, Vectors]:
        _, found = self.index.search(asked, min(max(self._candidates, 2 * count), max(1, self._count)))
        places = found[0] if found[0, -1] >= 0 else found[0][found[0] >= 0]
        similarities = self._compared(places, asked[0])
        if len(places) > count:
            best = np.argpartition(-similarities, count - 1)[:count]
            places, similarities = places[best], similarities[best]
        order = np.argsort(-similarities)
        return self._ids.take(places[order]), similarities[order]

    def _compared(self, places: Ids, asked: Vectors) -> Vectors:
        """Return the similarities of a vector and those at these places, a few at a time, which caches can hold."""
        similarities = np.empty(len(places), dtype=np.float32)
        for start in range(0, len(places), COMPARED_AT_A_TIME):
            some = places[start : start + COMPARED_AT_A_TIME]
            rows, numbers = self._taken[: len(some)], self._numbers[: len(some)]
            self._rows.take(some, axis=0, out=rows, mode="clip")  # the other modes copy once more
            np.copyto(numbers, rows)
            np.dot(numbers, asked, out=similarities[start : start + len(some)])
        similarities *= self._scales.take(places)
        return similarities

    def write(self, index: Path, rows: Path) -> None:
        """Write all into two files. Raises OSError, and RuntimeError from faiss."""
        faiss.write_index(self.index, str(index))
        with rows.open("wb") as file:
            for part in (self._ids, self._scales, self._rows):
                part[: self._count].tofile(file)

    @classmethod
    def read(cls, index: Path, rows: Path, dimensions: int, settings: IndexSettings) -> "_Lists":
        """Read what `write` wrote. Raises OSError, ValueError, and RuntimeError from faiss."""
        read = faiss.read_index(str(index))
        lists = cls(read, dimensions, settings, int(settings.growth * ROOM * read.ntotal))
        with rows.open("rb") as file:
            for part in (lists._ids, lists._scales, lists._rows):
                whole = part[: read.ntotal].reshape(-1)
                if file.readinto(whole.view(np.uint8).data) != whole.nbytes:
                    raise ValueError(f"{rows.name} is too short")
        lists._count = read.ntotal
        return lists

    def _grow(self, capacity: int) -> None:
        count = self._count
        ids, scales, rows = self._ids, self._scales, self._rows
        self._ids, self._scales = np.empty(capacity, dtype=np.int64), np.empty(capacity, dtype=np.float32)
        self._rows = np.empty((capacity, rows.shape[1]), dtype=np.int8)
        self._ids[:count], self._scales[:count], self._rows[:count] = ids[:count], scales[:count], rows[:count]


class VectorIndex:
    """The vectors of one embedder. Any thread may search, one at a time adds."""

    def __init__(
        self,
        folder: Path,
        embedder: str,
        dimensions: int,
        source: Source,
        stamp: Stamp,
        settings: IndexSettings,
        database: tuple[Path, int] | None = None,
    ) -> None:
        """Make an index of nothing; `load` fills it from `source`, and from what is saved in `folder`.

        `database` is the file that `source` reads, with the number of the embedder in it, for the process that makes
        large indices. Without it a thread makes them.
        """
        self.dimensions = dimensions
        self._folder = folder
        self._embedder = embedder
        self._source = source
        self._stamp = stamp
        self._settings = settings
        self._lock = threading.Lock()
        self._index: _Flat | _Lists | None = None
        self._pending: list[Chunk] | None = None
        """What came while a new index is being made; None if none is."""
        self._last = 0
        self._total = 0
        self._trained = 0
        """How many vectors there were when the lists were trained."""
        self._saved = 0
        """How many vectors the saved index has."""
        self._dropped = 0
        self._complete = False
        """Whether it has all that the database has."""
        self._problem = ""
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._database = database
        self._process: subprocess.Popen[bytes] | None = None
        self._failed_with = 0
        """How many vectors there were when an index could not be made; 0 if the last one could."""

    def load(self, last: int) -> None:
        """Read the saved index, and from the database what came after it, up to the id `last`.

        A missing, stale or damaged index is made anew. If there is much to do, a thread does it.
        """
        self._total = last
        saved = self._read_saved()
        limit = self._flat_limit
        if saved is None and last > limit:
            self.build()
            return
        self._index = saved or _Flat(self.dimensions)
        self._saved = self._trained = len(self._index) if saved else 0
        after = self._last
        if last - after > limit:
            self._start(lambda: self._catch_up(after, last))
        else:
            self._catch_up(after, last)

    def add(self, ids: list[int], vectors: Vectors) -> None:
        """Add vectors of length 1: shape (ids, dimensions)."""
        if not ids:
            return
        _use_one_thread()
        with self._lock:
            if self._index is not None:
                self._index.add(ids, vectors)
            if self._pending is not None:
                self._pending.append((ids, vectors))
            self._last = max(self._last, *ids)

    def search(self, vector: Vectors, count: int) -> tuple[Ids, Vectors]:
        """Return the ids and similarities of up to `count` vectors, most similar first. Raises `IndexNotReady`."""
        _use_one_thread()
        asked = np.ascontiguousarray(vector, dtype=np.float32).reshape(1, -1)
        with self._lock:
            if self._index is None:
                raise IndexNotReady(0, self._total)
            return self._index.search(asked, count)

    @property
    def dropped(self) -> int:
        """How many vectors may be found whose episodes were dropped."""
        return self._dropped

    def drop(self, count: int) -> None:
        """Take note that `count` episodes were dropped. Their vectors are found until the index is made anew."""
        self._dropped += count

    def maintain(self) -> None:
        """Begin to make a new index if that is due. Everything that was added has to be committed."""
        if self._index is None or self._busy:
            return
        count = len(self._index)
        if count < RETRY * self._failed_with:
            return
        limit = self._flat_limit if isinstance(self._index, _Flat) else self._trained * self._settings.growth
        if count > limit or self._dropped > max(self._settings.dropped_share * count, SHARD // 4):
            self.build()

    def build(self) -> None:
        """Begin to make a new index of the vectors in the database, in a thread. The old one answers until then.

        Everything that was added has to be committed.
        """
        if self._busy:
            return
        with self._lock:
            self._pending = []
        self._start(self._build)

    def wait(self) -> None:
        """Wait until no thread works on the index."""
        if self._thread is not None:
            self._thread.join()

    def close(self) -> None:
        """Stop making an index, and save one that has grown since it was saved."""
        self.abandon()
        if isinstance(self._index, _Lists) and self._complete and len(self._index) > self._saved:
            self._save(self._index)

    def abandon(self) -> None:
        """Stop making an index, and save nothing."""
        self._stopping.set()
        if (process := self._process) is not None:
            process.kill()
        self.wait()

    def stats(self) -> IndexStats:
        """Return what there is."""
        with self._lock:
            index, building = self._index, self._busy
            count = 0 if index is None else len(index)
            if isinstance(index, _Lists):
                lists = int(index.lists.nlist)
                size = count * (self.dimensions + index.lists.code_size + 20) + 4 * lists * index.lists.d
                return IndexStats("ivf", building, count, lists, size, self._problem)
            size = 4 * count * self.dimensions
            return IndexStats("none" if index is None else "flat", building, count, 0, size, self._problem)

    @property
    def _busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def _flat_limit(self) -> int:
        return self._settings.flat_numbers // self.dimensions

    def _start(self, work: Callable[[], None]) -> None:
        self._thread = threading.Thread(target=self._carry_out, args=(work,), name="memory-index", daemon=True)
        self._thread.start()

    def _carry_out(self, work: Callable[[], None]) -> None:
        try:
            work()
        except _Stopped:
            pass
        except (MemrlError, MemoryError, RuntimeError, OSError, ValueError) as error:  # faiss raises RuntimeError
            self._problem = f"the index could not be made: {error}"
            self._failed_with = len(self._index) if self._index is not None else self._total
        finally:
            with self._lock:
                self._pending = None

    def _chunks(self, after: int = 0) -> Iterator[Chunk]:
        for chunk in self._source(after):
            if self._stopping.is_set():
                raise _Stopped
            yield chunk

    def _catch_up(self, after: int, last: int) -> None:
        """Add what the database has from the id `after` to `last`; what comes later is added by `add`."""
        for ids, vectors in self._chunks(after):
            count = sum(one <= last for one in ids)
            self.add(ids[:count], vectors[:count])
            if count < len(ids):
                break
        self._complete = True

    def _build(self) -> None:
        revision = self._stamp(0)[1]  # what changes from now on may not be in what is made
        files = self._new_files()
        elsewhere = self._made_elsewhere(files) if self._database is not None else None
        new = elsewhere or _made(self._chunks, self.dimensions, self._settings, self._stopping.is_set)
        if elsewhere is None and isinstance(new, _Lists):
            new.write(*files)
        if isinstance(new, _Lists):
            self._name_saved(files, new, revision)
        known = np.zeros(int(new.ids().max(initial=0)) + 1, dtype=np.bool_)
        known[new.ids()] = True
        self._take_over(new, known)

    def _made_elsewhere(self, files: tuple[Path, Path]) -> _Lists | None:
        """Let another process make lists, and return them; None if there are too few vectors for lists.

        Raises _Stopped, and RuntimeError if the process ends otherwise.
        """
        assert self._database is not None
        path, embedder = self._database
        root = str(Path(__file__).parents[1])
        paths = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
        told = json.dumps([str(path), embedder, self.dimensions, asdict(self._settings), *map(str, files)])
        with subprocess.Popen(  # noqa: S603 -- this interpreter, this module
            [sys.executable, "-m", "memrl.vectors", told],
            stdin=subprocess.PIPE,  # it ends when this end is closed, as it is when this process ends
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        ) as process:
            self._process = process
            if self._stopping.is_set():
                process.kill()
            assert process.stdout is not None
            said = process.stdout.read()
            assert process.stderr is not None
            complaint = process.stderr.read().decode(errors="replace").strip().splitlines()
        self._process = None
        if self._stopping.is_set():
            raise _Stopped
        if process.returncode:
            raise RuntimeError(f"its process ended with {process.returncode}: {(complaint or ['no word'])[-1]}")
        if json.loads(said) == "few":
            return None
        return _Lists.read(*files, self.dimensions, self._settings)

    def _take_over(self, new: _Flat | _Lists, known: NDArray[np.bool_]) -> None:
        """Add what came in the meantime until little is left; then add that, and let `new` answer."""
        _use_one_thread()
        while True:
            with self._lock:
                waiting = self._pending or []
                if sum(len(ids) for ids, _ in waiting) <= CATCH_UP:
                    _add_unknown(new, waiting, known)
                    self._index, self._pending = new, None
                    self._trained = len(new)
                    self._complete = True
                    self._dropped = self._failed_with = 0
                    self._problem = ""
                    return
                self._pending = []
            _add_unknown(new, waiting, known)

    def _new_files(self) -> tuple[Path, Path]:
        self._folder.mkdir(parents=True, exist_ok=True)
        number = 1 + max((int(path.stem.split("-")[1]) for path in self._folder.glob("index-*.*")), default=0)
        return self._folder / f"index-{number}.faiss", self._folder / f"index-{number}.rows"

    def _save(self, lists: _Lists) -> None:
        """Write the index to new files, and name them. Raises OSError, and RuntimeError from faiss."""
        files = self._new_files()
        lists.write(*files)
        self._name_saved(files, lists, self._stamp(0)[1])

    def _name_saved(self, files: tuple[Path, Path], lists: _Lists, revision: int) -> None:
        """Replace atomically what names the files of the saved index. Raises OSError."""
        last = int(lists.ids().max(initial=0))
        while (fingerprint := self._stamp(last)[0]) is None:
            if last <= 1:
                return
            last -= 1  # the last one was dropped
        saved = _Saved(
            files=[path.name for path in files],
            bytes=[path.stat().st_size for path in files],
            checksums=[_checksum(path) for path in files],
            embedder=self._embedder,
            dimensions=self.dimensions,
            vectors=len(lists),
            last=last,
            fingerprint=fingerprint,
            revision=revision,
        )
        _write_atomically(self._folder / POINTER, json.dumps(asdict(saved), indent=1) + "\n")
        self._saved = len(lists)
        for old in self._folder.glob("index-*.*"):
            if old.name not in saved.files:
                old.unlink(missing_ok=True)

    def _read_saved(self) -> _Lists | None:
        """Return the saved index if it can be used; if there is one that cannot, `stats` says why."""
        try:
            text = (self._folder / POINTER).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            self._problem = f"{self._folder / POINTER} cannot be read: {error}"
            return None
        try:
            saved = _Saved(**json.loads(text))
            if reason := self._unusable(saved):
                self._problem = f"the saved index was made anew, since {reason}"
                return None
            index, rows = (self._folder / name for name in saved.files)
            lists = _Lists.read(index, rows, self.dimensions, self._settings)
        except (OSError, ValueError, TypeError, RuntimeError) as error:
            self._problem = f"the saved index was made anew, since it cannot be read: {error}"
            return None
        self._last = saved.last
        return lists

    def _unusable(self, saved: _Saved) -> str:
        """Return why a saved index is damaged or stale, empty if it is neither. Raises OSError."""
        if (saved.embedder, saved.dimensions) != (self._embedder, self.dimensions):
            return f"it has vectors of {saved.embedder} with {saved.dimensions} dimensions"
        if self._stamp(saved.last) != (saved.fingerprint, saved.revision):
            return "the database has changed in another way since"
        for name, size, checksum in zip(saved.files, saved.bytes, saved.checksums, strict=True):
            path = self._folder / name
            if not path.is_file():
                return f"{name} is missing"
            if path.stat().st_size != size or _checksum(path) != checksum:
                return f"{name} is not what was written"
        return ""


def _made(
    chunks: Callable[[], Iterator[Chunk]], dimensions: int, settings: IndexSettings, stopped: Callable[[], bool]
) -> _Flat | _Lists:
    """Return a new index of all vectors. Raises _Stopped."""
    _use_one_thread()
    total = sum(len(ids) for ids, _ in chunks())
    few = total <= settings.flat_numbers // dimensions
    new = _Flat(dimensions) if few else _trained_lists(chunks, total, dimensions, settings, stopped)
    for ids, vectors in chunks():
        if ids:
            new.add(ids, vectors)
    return new


def _trained_lists(
    chunks: Callable[[], Iterator[Chunk]],
    total: int,
    width: int,
    settings: IndexSettings,
    stopped: Callable[[], bool],
) -> _Lists:
    """Return lists that are trained on a sample of the `total` vectors, and empty. Raises _Stopped."""
    lists = lists_for(total, settings.lists_per_root)
    step = max(1, total // (lists * settings.samples_per_list))
    sample = np.concatenate([vectors[::step] for _, vectors in chunks()])
    projection = _projection(sample, settings.components) if 0 < settings.components < width else None
    if projection is not None:
        sample = projection.apply(sample)
    dimensions = sample.shape[1]
    parameters = faiss.ClusteringParameters()
    parameters.niter = 1
    parameters.spherical = True
    parameters.min_points_per_centroid = 1
    parameters.max_points_per_centroid = len(sample)
    clustering = faiss.Clustering(dimensions, lists, parameters)
    centres = faiss.IndexFlatIP(dimensions)
    for _ in range(ROUNDS):  # one after the other, so that it can be stopped
        if stopped():
            raise _Stopped
        clustering.train(sample, centres)
    _shorten(centres, sample)
    together = 2 if dimensions % 2 == 0 else 1  # numbers that are quantized as one
    index = faiss.IndexIVFPQFastScan(centres, dimensions, lists, dimensions // together, 4, faiss.METRIC_INNER_PRODUCT)
    index.by_residual = True  # what is left of a vector without its list's centre can be quantized more finely
    index.train(sample)
    whole = index if projection is None else faiss.IndexPreTransform(projection, index)
    return _Lists(whole, width, settings, int(settings.growth * ROOM * total))


def _shorten(centres: Any, sample: Vectors) -> None:
    """Shorten all centres, which have length 1, to what vectors have of their directions, so that little is left."""
    found, _ = centres.search(sample, 1)
    shorter = centres.reconstruct_n(0, centres.ntotal) * max(float(found.mean()), 1e-3)
    centres.reset()
    centres.add(shorter)


def _projection(sample: Vectors, components: int) -> Any:
    """Return a linear map onto the principal components, rotated at random so that none of them varies the most.

    Products of vectors are to be kept, not distances from the mean, which therefore stays where it is.
    """
    wide = sample.astype(np.float64)
    _, directions = np.linalg.eigh(wide.T @ wide)
    rotation, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(components, components)))
    matrix = rotation @ directions[:, -components:].T
    projection = faiss.LinearTransform(sample.shape[1], components, False)
    faiss.copy_array_to_vector(np.ascontiguousarray(matrix, dtype=np.float32).reshape(-1), projection.A)
    projection.is_trained = True
    return projection


def _add_unknown(new: _Flat | _Lists, chunks: list[Chunk], known: NDArray[np.bool_]) -> None:
    """Add the vectors that are not known already."""
    for ids, vectors in chunks:
        places = [place for place, one in enumerate(ids) if one >= len(known) or not known[one]]
        if places:
            new.add([ids[place] for place in places], vectors[places])


def lists_for(vectors: int, per_root: float) -> int:
    """Return the number of lists for a number of vectors: the power of two nearest to `per_root` times its root."""
    return int(2 ** max(0, round(np.log2(per_root * np.sqrt(vectors)))))


_threads = threading.local()


def _use_one_thread() -> None:
    """Let faiss use no more threads than the one that calls it: OpenMP keeps this number for each thread."""
    if not getattr(_threads, "told", False):
        faiss.omp_set_num_threads(1)
        _threads.told = True


def _checksum(path: Path) -> int:
    checksum = 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            checksum = zlib.crc32(block, checksum)
    return checksum


def _write_atomically(path: Path, text: str) -> None:
    temporary = path.with_suffix(".new")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def main(told: str) -> None:
    """Make lists of the vectors in a database and write them to two files, as `VectorIndex` tells it to."""
    database, embedder, dimensions, settings, *files = json.loads(told)
    wanted = IndexSettings(**settings)
    os.nice(wanted.niceness)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    store = EpisodeStore.open_to_read(Path(database))
    new = _made(lambda: store.vectors(embedder, dimensions), dimensions, wanted, lambda: False)
    if isinstance(new, _Lists):
        new.write(*map(Path, files))
    print(json.dumps("few" if isinstance(new, _Flat) else "done"), flush=True)
    os._exit(0)  # the thread that reads would hold the end up


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1])
