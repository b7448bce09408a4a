"""Find the episodes with the most similar vectors. Only this file uses faiss.

The index can be rebuilt from the vectors in the database. Vectors have length 1, so an inner product is a cosine.

    small    exact: all vectors are compared
    large    inverted lists (IVF) of vectors that are projected onto principal components and product-quantized with
             2 bits a number; candidates are compared again with 8 bits a number of all dimensions. A process trains
             the lists, so nobody waits for the interpreter. Until they replace the old index, new vectors go to both

Jégou, Douze and Schmid, "Product quantization for nearest neighbor search" (2011): quantized lists, second comparison.
Jégou, Douze, Schmid and Pérez, "Aggregating local descriptors into a compact image representation" (2010): rotated
principal components. André, Kermarrec and Le Scouarnec, "Cache locality is not enough" (2015): fast scans.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from orchestrator.files import replace_file
from orchestrator.memrl.errors import IndexNotReady, MemrlError
from orchestrator.memrl.files import checksum, importing_environment, unused_name
from orchestrator.memrl.store import EpisodeStore

try:
    import faiss
except ModuleNotFoundError:
    faiss = None  # type: ignore[assignment]  # the extra `learning` is not installed

MISSING: Final = "the memory needs the extra `learning`; accepted: pip install 'orchestrator[learning]'"

Vectors = NDArray[np.float32]
Ids = NDArray[np.int64]
Chunk = tuple[list[int], Vectors]
Source = Callable[[int], Iterator[Chunk]]  # yields ids and vectors of the database above an id, in chunks, by id

# id -> fingerprint of its episode (None if there is none), revision of the vectors
Stamp = Callable[[int], tuple[int | None, int]]

CATCH_UP: Final = 64  # vectors that may be missing when a new index takes over: a few milliseconds' work
LEAST_DROPPED: Final = 1024  # vectors of dropped episodes before an index is rebuilt
RETRY: Final = 1.1  # growth of the number of vectors before a failed index is tried again
ROOM: Final = 1.5  # spare room, since vectors arrive while lists are trained
COMPARED_AT_A_TIME: Final = 64  # candidates
TINY: Final = np.float32(1e-30)
ROUNDS: Final = 8  # of k-means
POINTER: Final = "index.json"


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """When and how vectors are indexed. Defaults as measured by `benchmarks/memory.py`."""

    flat_numbers: int = 3 << 19  # vectors times dimensions up to which all are compared; beyond it, lists are trained
    # the number of lists is the power of two nearest to this times the root of the number of vectors
    lists_per_root: float = 1.0
    probes: int = 64  # lists that are searched
    components: int = 128  # principal components for the lists; 0 or all: no projection
    candidates: int = 400  # vectors that are compared again, at least; twice the number wanted if that is more
    samples_per_list: int = 48  # training vectors for each list
    growth: float = 2.0  # growth of the number of vectors before lists are trained again
    dropped_share: float = 0.2  # share of vectors of dropped episodes before the index is rebuilt
    niceness: int = 10  # of the process that makes an index


@dataclass(frozen=True, slots=True)
class IndexStats:
    kind: Literal["none", "flat", "ivf"]
    building: bool  # a new one is being made, and the old one answers
    vectors: int  # that can be found now
    lists: int  # inverted lists; 0 for a flat index
    bytes: int  # approximate memory
    problem: str = ""  # why the saved index was not used, or a new one could not be made


@dataclass(frozen=True, slots=True)
class _Saved:
    """What the pointer file says about a saved index. It must match the database."""

    files: list[str]
    bytes: list[int]
    checksums: list[int]
    embedder: str
    dimensions: int
    vectors: int
    last: int  # the highest id; all lower ones of the database are in it
    fingerprint: int  # of the last episode: after a backup was restored, another one may have its number
    revision: int  # changes with the vectors of earlier episodes


class _Stopped(Exception):
    """The index is being closed."""


class _Flat:
    """Compares with all vectors."""

    def __init__(self, dimensions: int) -> None:
        self._index = faiss.IndexIDMap(faiss.IndexFlatIP(dimensions))

    def __len__(self) -> int:
        return int(self._index.ntotal)

    def add(self, ids: list[int], vectors: Vectors) -> None:
        self._index.add_with_ids(vectors, np.array(ids, dtype=np.int64))

    def ids(self) -> Ids:
        ids: Ids = faiss.vector_to_array(self._index.id_map)
        return ids

    def search(self, query: Vectors, count: int) -> tuple[Ids, Vectors]:
        if not self or count < 1:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float32)
        similarities, ids = self._index.search(query, min(count, len(self)))
        return ids[0], similarities[0]


class _Lists:
    """Compares with the vectors in the lists whose centres are nearest; `index` numbers them as they come."""

    def __init__(self, index: Any, dimensions: int, settings: IndexSettings, capacity: int) -> None:
        # memory for `capacity` vectors is taken when it is used
        self.index = index
        self.lists = faiss.extract_index_ivf(index)  # the inverted lists of `index`, behind a projection
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

    def search(self, query: Vectors, count: int) -> tuple[Ids, Vectors]:
        _, labels = self.index.search(query, min(max(self._candidates, 2 * count), max(1, self._count)))
        places = labels[0] if labels[0, -1] >= 0 else labels[0][labels[0] >= 0]
        similarities = self._compared(places, query[0])
        if len(places) > count:
            best = np.argpartition(-similarities, count - 1)[:count]
            places, similarities = places[best], similarities[best]
        order = np.argsort(-similarities)
        return self._ids.take(places[order]), similarities[order]

    def _compared(self, places: Ids, query: Vectors) -> Vectors:
        # a few at a time, which caches can hold
        similarities = np.empty(len(places), dtype=np.float32)
        for start in range(0, len(places), COMPARED_AT_A_TIME):
            batch = places[start : start + COMPARED_AT_A_TIME]
            rows, numbers = self._taken[: len(batch)], self._numbers[: len(batch)]
            self._rows.take(batch, axis=0, out=rows, mode="clip")  # the other modes copy once more
            np.copyto(numbers, rows)
            np.dot(numbers, query, out=similarities[start : start + len(batch)])
        similarities *= self._scales.take(places)
        return similarities

    def write(self, index: Path, rows: Path) -> None:
        # raises OSError, and RuntimeError from faiss
        faiss.write_index(self.index, str(index))
        with rows.open("wb") as file:
            for part in (self._ids, self._scales, self._rows):
                part[: self._count].tofile(file)

    @classmethod
    def read(cls, index: Path, rows: Path, dimensions: int, settings: IndexSettings) -> "_Lists":
        # raises OSError, ValueError, and RuntimeError from faiss
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
        for array in (self._ids, self._scales, self._rows):
            array.resize((capacity, *array.shape[1:]), refcheck=False)  # in place; nobody holds a view


class VectorIndex:
    """The vectors of one embedder. Any thread may search; one at a time adds."""

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
        """Start empty; `load` fills it from `source` and from what is saved in `folder`.

        `database` is the file that `source` reads and the number of the embedder in it, for the process that makes
        large indices. Without it, a thread makes them.
        """
        if faiss is None:
            raise MemrlError(MISSING)
        self.dimensions = dimensions
        self._folder = folder
        self._embedder = embedder
        self._source = source
        self._stamp = stamp
        self._settings = settings
        self._lock = threading.Lock()
        self._index: _Flat | _Lists | None = None
        self._pending: list[Chunk] | None = None  # vectors that arrive while an index is built, else None
        self._last = 0
        self._total = 0
        self._trained = 0  # vectors when the lists were trained
        self._saved = 0  # vectors in the saved index
        self.dropped = 0  # vectors that may be found although their episodes were dropped
        self._complete = False  # has all that the database has
        self._problem = ""
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._database = database
        self._process: subprocess.Popen[bytes] | None = None
        self._failed_with = 0  # vectors when an index could not be made; 0 if the last one could

    def load(self, last: int) -> None:
        """Read the saved index, and the vectors above it up to the id `last` from the database.

        A missing, stale or damaged index is rebuilt. A thread does the work if there is much.
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
        """Return ids and similarities of up to `count` vectors, most similar first. Raises `IndexNotReady`."""
        _use_one_thread()
        query = np.ascontiguousarray(vector, dtype=np.float32).reshape(1, -1)
        with self._lock:
            if self._index is None:
                raise IndexNotReady(0, self._total)
            return self._index.search(query, count)

    def drop(self, count: int) -> None:
        """Note that `count` episodes were dropped. Their vectors are found until the index is rebuilt."""
        self.dropped += count

    def maintain(self) -> None:
        """Start to make a new index if it is due. All added vectors must be committed."""
        if self._index is None or self._busy:
            return
        count = len(self._index)
        if count < RETRY * self._failed_with:
            return
        limit = self._flat_limit if isinstance(self._index, _Flat) else self._trained * self._settings.growth
        if count > limit or self.dropped > max(self._settings.dropped_share * count, LEAST_DROPPED):
            self.build()

    def build(self) -> None:
        """Start to make a new index in a thread. The old one answers meanwhile. All added vectors must be committed."""
        if self._busy:
            return
        with self._lock:
            self._pending = []
        self._start(self._build)

    def wait(self) -> None:
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
        # what comes after `last` is added by `add`
        for ids, vectors in self._chunks(after):
            count = sum(number <= last for number in ids)
            self.add(ids[:count], vectors[:count])
            if count < len(ids):
                break
        self._complete = True

    def _build(self) -> None:
        revision = self._stamp(0)[1]  # what changes from now on may not be in what is made
        files = self._new_files()
        elsewhere = self._lists_of_process(files) if self._database is not None else None
        new = elsewhere or _new_index(self._chunks, self.dimensions, self._settings)
        if elsewhere is None and isinstance(new, _Lists):
            new.write(*files)
        if isinstance(new, _Lists):
            self._name_saved(files, new, revision)
        indexed = np.zeros(int(new.ids().max(initial=0)) + 1, dtype=np.bool_)
        indexed[new.ids()] = True
        self._take_over(new, indexed)

    def _lists_of_process(self, files: tuple[Path, Path]) -> _Lists | None:
        # None: too few vectors for lists. Raises _Stopped, and RuntimeError if the process fails.
        assert self._database is not None
        path, embedder = self._database
        request = json.dumps([str(path), embedder, self.dimensions, asdict(self._settings), *map(str, files)])
        with subprocess.Popen(  # noqa: S603 -- this interpreter, this module
            [sys.executable, "-m", "orchestrator.memrl.vectors", request],
            stdin=subprocess.PIPE,  # it ends when this end is closed, as it is when this process ends
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**importing_environment(), "OMP_NUM_THREADS": "1"},
        ) as process:
            self._process = process
            if self._stopping.is_set():
                process.kill()
            assert process.stdout is not None
            answer = process.stdout.read()
            assert process.stderr is not None
            complaint = process.stderr.read().decode(errors="replace").strip().splitlines()
        self._process = None
        if self._stopping.is_set():
            raise _Stopped
        if process.returncode:
            raise RuntimeError(f"its process ended with {process.returncode}: {(complaint or ['no word'])[-1]}")
        if json.loads(answer) == "few":
            return None
        return _Lists.read(*files, self.dimensions, self._settings)

    def _take_over(self, new: _Flat | _Lists, indexed: NDArray[np.bool_]) -> None:
        # adds what arrived meanwhile until little is left, then that under the lock
        _use_one_thread()
        while True:
            with self._lock:
                waiting = self._pending or []
                if sum(len(ids) for ids, _ in waiting) <= CATCH_UP:
                    _add_unknown(new, waiting, indexed)
                    self._index, self._pending = new, None
                    self._trained = len(new)
                    self._complete = True
                    self.dropped = self._failed_with = 0
                    self._problem = ""
                    return
                self._pending = []
            _add_unknown(new, waiting, indexed)

    def _new_files(self) -> tuple[Path, Path]:
        self._folder.mkdir(parents=True, exist_ok=True)
        name = unused_name(self._folder, "index")
        return self._folder / f"{name}.faiss", self._folder / f"{name}.rows"

    def _save(self, lists: _Lists) -> None:
        # raises OSError, and RuntimeError from faiss
        files = self._new_files()
        lists.write(*files)
        self._name_saved(files, lists, self._stamp(0)[1])

    def _name_saved(self, files: tuple[Path, Path], lists: _Lists, revision: int) -> None:
        # The pointer file is replaced atomically. Raises OSError.
        last = int(lists.ids().max(initial=0))
        while (fingerprint := self._stamp(last)[0]) is None:
            if last <= 1:
                return
            last -= 1  # the last one was dropped
        saved = _Saved(
            files=[path.name for path in files],
            bytes=[path.stat().st_size for path in files],
            checksums=[checksum(path) for path in files],
            embedder=self._embedder,
            dimensions=self.dimensions,
            vectors=len(lists),
            last=last,
            fingerprint=fingerprint,
            revision=revision,
        )
        replace_file(self._folder / POINTER, json.dumps(asdict(saved), indent=1) + "\n", durable=True)
        self._saved = len(lists)
        for old in self._folder.glob("index-*.*"):
            if old.name not in saved.files:
                old.unlink(missing_ok=True)

    def _read_saved(self) -> _Lists | None:
        # None: there is none, or `stats` says why it cannot be used
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
        # why a saved index is damaged or stale, or empty. Raises OSError.
        if (saved.embedder, saved.dimensions) != (self._embedder, self.dimensions):
            return f"it has vectors of {saved.embedder} with {saved.dimensions} dimensions"
        if self._stamp(saved.last) != (saved.fingerprint, saved.revision):
            return "the database has changed in another way since"
        for name, size, written in zip(saved.files, saved.bytes, saved.checksums, strict=True):
            path = self._folder / name
            if not path.is_file():
                return f"{name} is missing"
            if path.stat().st_size != size or checksum(path) != written:
                return f"{name} is not what was written"
        return ""


def _new_index(chunks: Callable[[], Iterator[Chunk]], dimensions: int, settings: IndexSettings) -> _Flat | _Lists:
    _use_one_thread()
    total = sum(len(ids) for ids, _ in chunks())
    few = total <= settings.flat_numbers // dimensions
    new = _Flat(dimensions) if few else _trained_lists(chunks, total, dimensions, settings)
    for ids, vectors in chunks():
        if ids:
            new.add(ids, vectors)
    return new


def _trained_lists(chunks: Callable[[], Iterator[Chunk]], total: int, width: int, settings: IndexSettings) -> _Lists:
    # empty lists, trained on a sample of the `total` vectors
    lists = lists_for(total, settings.lists_per_root)
    step = max(1, total // (lists * settings.samples_per_list))
    sample = np.concatenate([vectors[::step] for _, vectors in chunks()])
    projection = _projection(sample, settings.components) if 0 < settings.components < width else None
    if projection is not None:
        sample = projection.apply(sample)
    dimensions = sample.shape[1]
    points = {"min_points_per_centroid": 1, "max_points_per_centroid": len(sample)}
    kmeans = faiss.Kmeans(dimensions, lists, niter=ROUNDS, spherical=True, **points)
    kmeans.train(sample)
    assert kmeans.centroids is not None, "they are trained"
    # Centres of length 1 are shortened to the vectors' mean share of their direction, for small residuals.
    similarities, _ = kmeans.index.search(sample, 1)
    centres = faiss.IndexFlatIP(dimensions)
    centres.add(kmeans.centroids * max(float(similarities.mean()), 1e-3))
    together = 2 if dimensions % 2 == 0 else 1  # numbers that are quantized as one
    index = faiss.IndexIVFPQFastScan(centres, dimensions, lists, dimensions // together, 4, faiss.METRIC_INNER_PRODUCT)
    index.by_residual = True  # what is left of a vector without its list's centre can be quantized more finely
    index.train(sample)
    whole = index if projection is None else faiss.IndexPreTransform(projection, index)
    return _Lists(whole, width, settings, int(settings.growth * ROOM * total))


def _projection(sample: Vectors, components: int) -> Any:
    # The principal components are rotated at random so that none of them varies most. The mean is not subtracted, since
    # the projection has to keep inner products, not distances.
    wide = sample.astype(np.float64)
    _, directions = np.linalg.eigh(wide.T @ wide)
    rotation, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(components, components)))
    matrix = rotation @ directions[:, -components:].T
    projection = faiss.LinearTransform(sample.shape[1], components, False)
    faiss.copy_array_to_vector(np.ascontiguousarray(matrix, dtype=np.float32).reshape(-1), projection.A)
    projection.is_trained = True
    return projection


def _add_unknown(new: _Flat | _Lists, chunks: list[Chunk], indexed: NDArray[np.bool_]) -> None:
    for ids, vectors in chunks:
        places = [place for place, number in enumerate(ids) if number >= len(indexed) or not indexed[number]]
        if places:
            new.add([ids[place] for place in places], vectors[places])


def lists_for(vectors: int, per_root: float) -> int:
    """Return the power of two nearest to `per_root` times the root of the number of vectors."""
    return int(2 ** max(0, round(np.log2(per_root * np.sqrt(vectors)))))


_threads = threading.local()


def _use_one_thread() -> None:
    # OpenMP keeps this number for each thread
    if not getattr(_threads, "told", False):
        faiss.omp_set_num_threads(1)
        _threads.told = True


def main(request: str) -> None:
    """Cluster the vectors of a database into lists, and write them to two files; `VectorIndex` starts this process.

    `request` is a JSON list: database, embedder, dimensions, settings, and both files. Prints "done", or "few" if there
    are too few vectors for lists.
    """
    database, embedder, dimensions, settings, *files = json.loads(request)
    parsed = IndexSettings(**settings)
    os.nice(parsed.niceness)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    store = EpisodeStore.open_to_read(Path(database))
    new = _new_index(lambda: store.vectors(embedder, dimensions), dimensions, parsed)
    if isinstance(new, _Lists):
        new.write(*map(Path, files))
    print(json.dumps("few" if isinstance(new, _Flat) else "done"), flush=True)
    os._exit(0)  # the thread that reads would hold the end up


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1])
