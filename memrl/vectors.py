"""Find the episodes whose vectors are most similar to one. Only this file uses faiss.

The index is a projection of the vectors in the database, and can be made from them at any time. Vectors have length 1,
so that an inner product is a cosine.

    small    exact: a few flat indices of at most `SHARD` vectors each, so that adding one never copies many
    large    inverted lists (IVF) with 8 bits a number, trained in a thread. Until they take the place of the old
             index, what comes goes into that one, and is kept for the new one too

Sivic and Zisserman, "Video Google" (2003), for inverted lists of vectors; Johnson, Douze and Jégou, "Billion-scale
similarity search with GPUs" (2017), for faiss.
"""

import contextlib
import json
import os
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
ROUNDS: Final = 8
"""Rounds of k-means."""
POINTER: Final = "index.json"


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """When and how vectors are indexed. The defaults are what `benchmarks/memory.py` measured as best."""

    flat_numbers: int = 4 << 20
    """Up to how many numbers (vectors times dimensions) are compared one by one. With more, lists are trained."""
    lists_per_root: float = 2.0
    """The number of lists is the power of two next to this, times the root of the number of vectors."""
    probes: int = 16
    """How many lists are searched."""
    samples_per_list: int = 48
    """On how many vectors for each list the lists are trained."""
    growth: float = 2.0
    """By which factor the number of vectors has to grow before lists are trained again."""
    dropped_share: float = 0.2
    """Which share of the vectors may be of dropped episodes before the index is made anew."""
    niceness: int = 10
    """By how much the thread that makes an index gives way to others."""


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

    file: str
    bytes: int
    checksum: int
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
        self._shards: list[tuple[Any, list[int]]] = []

    def __len__(self) -> int:
        return sum(len(ids) for _, ids in self._shards)

    def add(self, ids: list[int], vectors: Vectors) -> None:
        start = 0
        while start < len(ids):
            if not self._shards or len(self._shards[-1][1]) == SHARD:
                self._shards.append((faiss.IndexFlatIP(self.dimensions), []))
            index, names = self._shards[-1]
            end = start + SHARD - len(names)
            index.add(vectors[start:end])
            names.extend(ids[start:end])
            start = end

    def search(self, asked: Vectors, count: int) -> tuple[Ids, Vectors]:
        found_ids: list[Ids] = [np.zeros(0, dtype=np.int64)]
        found: list[Vectors] = [np.zeros(0, dtype=np.float32)]
        for index, names in self._shards:
            similarities, places = index.search(asked, min(count, len(names)))
            found_ids.append(np.array([names[place] for place in places[0]], dtype=np.int64))
            found.append(similarities[0])
        ids, similarities = np.concatenate(found_ids), np.concatenate(found)
        order = np.argsort(-similarities, kind="stable")[:count]
        return ids[order], similarities[order]


class _Lists:
    """Compares with the vectors in the lists whose centres are nearest."""

    def __init__(self, index: Any, probes: int) -> None:
        self.index = index
        index.nprobe = probes

    def __len__(self) -> int:
        return int(self.index.ntotal)

    def add(self, ids: list[int], vectors: Vectors) -> None:
        self.index.add_with_ids(vectors, np.array(ids, dtype=np.int64))

    def search(self, asked: Vectors, count: int) -> tuple[Ids, Vectors]:
        similarities, ids = self.index.search(asked, count)
        there = ids[0] >= 0
        return ids[0][there], similarities[0][there]


class VectorIndex:
    """The vectors of one embedder. Any thread may search, one at a time adds."""

    def __init__(
        self, folder: Path, embedder: str, dimensions: int, source: Source, stamp: Stamp, settings: IndexSettings
    ) -> None:
        """Make an index of nothing; `load` fills it from `source`, and from what is saved in `folder`."""
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
        self._stopping.set()
        self.wait()
        if isinstance(self._index, _Lists) and self._complete and len(self._index) > self._saved:
            self._save(self._index, self._last, self._stamp(0)[1])

    def abandon(self) -> None:
        """Stop making an index, and save nothing."""
        self._stopping.set()
        self.wait()

    def stats(self) -> IndexStats:
        """Return what there is."""
        with self._lock:
            index, building = self._index, self._busy
            count = 0 if index is None else len(index)
            if isinstance(index, _Lists):
                lists = int(index.index.nlist)
                size = count * (self.dimensions + 8) + 4 * lists * self.dimensions
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
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), self._settings.niceness)
        try:
            work()
        except _Stopped:
            pass
        except (MemrlError, MemoryError, RuntimeError, OSError, ValueError) as error:  # faiss raises RuntimeError
            self._problem = f"the index could not be made: {error}"
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
        revision = self._stamp(0)[1]  # what changes from now on may not be in what is saved
        total = sum(len(ids) for ids, _ in self._chunks())
        new: _Flat | _Lists = _Flat(self.dimensions) if total <= self._flat_limit else self._trained_lists(total)
        known = bytearray()
        last = 0
        _use_one_thread()
        for ids, vectors in self._chunks():
            if ids:
                new.add(ids, vectors)
                last = ids[-1]
                known.extend(bytes(max(0, last + 1 - len(known))))
                for one in ids:
                    known[one] = 1
        last = max(last, self._add_pending(new, known))
        if isinstance(new, _Lists):
            self._save(new, last, revision)
        self._take_over(new, known)

    def _trained_lists(self, total: int) -> _Lists:
        """Return lists that are trained on a sample of the `total` vectors, and empty."""
        lists = lists_for(total, self._settings.lists_per_root)
        step = max(1, total // (lists * self._settings.samples_per_list))
        sample = np.concatenate([vectors[::step] for _, vectors in self._chunks()])
        _use_one_thread()
        parameters = faiss.ClusteringParameters()
        parameters.niter = 1
        parameters.spherical = True
        parameters.min_points_per_centroid = 1
        parameters.max_points_per_centroid = len(sample)
        clustering = faiss.Clustering(self.dimensions, lists, parameters)
        centres = faiss.IndexFlatIP(self.dimensions)
        for _ in range(ROUNDS):  # one after the other, so that it can be stopped
            if self._stopping.is_set():
                raise _Stopped
            clustering.train(sample, centres)
        index = faiss.IndexIVFScalarQuantizer(
            centres, self.dimensions, lists, faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT
        )
        index.train(sample)
        return _Lists(index, self._settings.probes)

    def _add_pending(self, new: _Flat | _Lists, known: bytearray) -> int:
        """Add what came in the meantime until little is left, and return the highest id."""
        last = 0
        while True:
            with self._lock:
                waiting = self._pending or []
                if sum(len(ids) for ids, _ in waiting) <= CATCH_UP:
                    return last
                self._pending = []
            last = max(last, self._add_unknown(new, waiting, known))

    def _add_unknown(self, new: _Flat | _Lists, chunks: list[Chunk], known: bytearray) -> int:
        """Add what came since and was not read from the database, and return the highest id."""
        last = 0
        for ids, vectors in chunks:
            places = [place for place, one in enumerate(ids) if one >= len(known) or not known[one]]
            if places:
                new.add([ids[place] for place in places], vectors[places])
            last = max(last, *ids)
        return last

    def _take_over(self, new: _Flat | _Lists, known: bytearray) -> None:
        self._add_pending(new, known)  # what came while it was saved
        with self._lock:
            self._add_unknown(new, self._pending or [], known)
            self._index, self._pending = new, None
            self._trained = len(new)
            self._complete = True
            self._dropped = 0
            self._problem = ""

    def _save(self, lists: _Lists, last: int, revision: int) -> None:
        """Write the index to a new file, and then atomically what names that file. Raises OSError."""
        while (fingerprint := self._stamp(last)[0]) is None:
            if last <= 1:
                return
            last -= 1  # the last one was dropped
        self._folder.mkdir(parents=True, exist_ok=True)
        earlier = set(self._folder.glob("index-*.faiss"))
        number = 1 + max((int(path.stem.split("-")[1]) for path in earlier), default=0)
        path = self._folder / f"index-{number}.faiss"
        faiss.write_index(lists.index, str(path))
        saved = _Saved(
            file=path.name,
            bytes=path.stat().st_size,
            checksum=_checksum(path),
            embedder=self._embedder,
            dimensions=self.dimensions,
            vectors=len(lists),
            last=last,
            fingerprint=fingerprint,
            revision=revision,
        )
        _write_atomically(self._folder / POINTER, json.dumps(asdict(saved), indent=1) + "\n")
        self._saved = len(lists)
        for old in earlier:
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
            index = faiss.read_index(str(self._folder / saved.file))
        except (OSError, ValueError, TypeError, RuntimeError) as error:
            self._problem = f"the saved index was made anew, since it cannot be read: {error}"
            return None
        self._last = saved.last
        return _Lists(index, self._settings.probes)

    def _unusable(self, saved: _Saved) -> str:
        """Return why a saved index is damaged or stale, empty if it is neither. Raises OSError."""
        path = self._folder / saved.file
        if (saved.embedder, saved.dimensions) != (self._embedder, self.dimensions):
            return f"it has vectors of {saved.embedder} with {saved.dimensions} dimensions"
        if self._stamp(saved.last) != (saved.fingerprint, saved.revision):
            return "the database has changed in another way since"
        if not path.is_file():
            return f"{saved.file} is missing"
        if path.stat().st_size != saved.bytes or _checksum(path) != saved.checksum:
            return f"{saved.file} is not what was written"
        return ""


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
