"""Store artifacts under the SHA-256 of their bytes, so that damage is noticed on reading, and publish them by name."""

import errno
import hashlib
import os
import re
import shutil
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from threading import Lock
from typing import Final
from uuid import uuid4

from orchestrator.files import sync_folder
from orchestrator.run.journal.errors import JournalCorrupt, JournalError, ObjectMissing, write_error
from orchestrator.run.journal.home import Home

# The latest objects stay in memory, since steps read them soon: `RECENT` of at most `SMALL` bytes each.
SMALL, RECENT = 1 << 16, 256

DIGEST = re.compile(r"[0-9a-f]{64}\Z")
# How often a link to an object is tried that other steps replace meanwhile. Each replaces it only once.
MOST_TRIES: Final = 100


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class ObjectStore:
    """Immutable objects in files `ab/cdef…` under `root`. It is thread-safe.

    A stored object is held, so that no sweep removes it, until it is released after the commit of an event that names
    it. With `durable` false no write waits for the disk.
    """

    def __init__(self, root: Path, *, durable: bool = True) -> None:
        self.root = root
        self._durable = durable
        self._unfinished = root / "unfinished"
        self._held: Counter[str] = Counter()
        self._released: set[str] | None = None
        self._recent: OrderedDict[str, bytes] = OrderedDict()
        self._lasting: set[str] = set()  # folders with synced names; none is ever removed
        self._lock = Lock()

    def clean(self) -> None:
        """Remove unfinished files of killed writers. Only the owner of the state folder may call this."""
        for path in self._unfinished.glob("*"):
            path.unlink(missing_ok=True)

    def path(self, digest: str) -> Path:
        """Return the path of an object, which may not exist. Raises `JournalError` if it is no digest."""
        if not DIGEST.match(digest):
            raise JournalError(self.root, f"{digest!r} is no SHA-256 digest; accepted: 64 lower-case hex digits")
        return self.root / digest[:2] / digest[2:]

    def put(self, data: bytes) -> str:
        """Store `data`, hold it, and return its digest once it would survive a power cut.

        Raises `DiskFull`, `JournalError`.
        """
        digest = digest_of(data)
        path = self.path(digest)
        self.hold([digest])
        try:
            if not (exists := _holds(path, data)):
                self._write(path, data)
            # Also if the object exists: its writer may have been killed before it had synced the name. The names of
            # objects that this process stored lately are synced.
            if not exists or digest not in self._recent:
                self._sync_name(path)
        except OSError as error:
            self.release([digest])
            raise write_error(path, "cannot be written", error) from error
        self._remember(digest, data)
        return digest

    def _sync_name(self, path: Path) -> None:
        if self._durable:
            sync_folder(path.parent)
        if path.parent.name not in self._lasting:
            lasting = os.listdir(self.root)  # read first, so that the sync is of all of these names
            if self._durable:
                sync_folder(self.root)
            self._lasting.update(lasting)

    def recent(self, digest: str) -> bytes | None:
        """Return an object from memory if it is small and was stored lately by this process, else None."""
        return self._recent.get(digest)

    def _remember(self, digest: str, data: bytes) -> None:
        if len(data) > SMALL:
            return
        with self._lock:
            self._recent[digest] = data
            if len(self._recent) > RECENT:
                self._recent.popitem(last=False)

    def hold(self, digests: Iterable[str]) -> None:
        """Keep objects from being swept, until `release` is called as often for them."""
        with self._lock:
            self._held.update(digests)

    def release(self, digests: Iterable[str]) -> None:
        """Undo one `hold` of each object. Objects that are not held are ignored."""
        with self._lock:
            for digest in digests:
                if self._released is not None:
                    self._released.add(digest)
                self._held[digest] -= 1
                if self._held[digest] <= 0:
                    del self._held[digest]

    @contextmanager
    def holding(self, digests: Collection[str]) -> Iterator[None]:
        """Hold objects while the context lasts. Raises `ObjectMissing` for one that is not stored."""
        self.hold(digests)
        try:
            for digest in digests:
                if not self.path(digest).exists():
                    raise ObjectMissing(self.path(digest), digest)
            yield
        finally:
            self.release(digests)

    def size(self, digest: str) -> int:
        """Return the size of an object in bytes; 0 if it is missing. Raises `JournalError`."""
        path = self.path(digest)
        try:
            return path.stat().st_size
        except FileNotFoundError:
            return 0  # an error only when it is read
        except OSError as error:
            raise JournalError(path, f"cannot be read: {error.strerror}") from error

    def sizes(self) -> dict[str, int]:
        """Return the sizes of all objects in bytes, by digest. Raises `JournalError`."""
        sizes: dict[str, int] = {}
        try:
            for folder in self.root.glob("[0-9a-f][0-9a-f]"):
                with os.scandir(folder) as entries:
                    sizes |= {folder.name + entry.name: entry.stat().st_size for entry in entries}
        except OSError as error:
            raise JournalError(self.root, f"cannot be read: {error.strerror}: {error.filename}") from error
        return sizes

    def unnamed(self, named: Callable[[], Collection[str]]) -> list[str]:
        """Return the digests of the objects that are neither held nor in what `named` returns."""
        stored = self.sizes()
        with self._lock:
            held = frozenset(self._held)
        # `named` comes last: an object that was released meanwhile is among the named ones.
        return list(stored.keys() - held - frozenset(named()))

    def sweep(self, named: Callable[[], Collection[str]], keep_going: Callable[[], bool]) -> list[str]:
        """Remove the `unnamed` objects while `keep_going` returns true, and return their digests.

        One sweep at a time. Raises `JournalError`.
        """
        with self._lock:
            self._released = set()
        try:
            return [digest for digest in self.unnamed(named) if keep_going() and self._remove(digest)]
        finally:
            with self._lock:
                self._released = None

    def _remove(self, digest: str) -> bool:
        path = self.path(digest)
        with self._lock:
            # Released during this sweep: an event names it.
            if digest in self._held or digest in (self._released or ()):
                return False
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise JournalError(path, f"cannot be removed: {error.strerror}") from error
            self._recent.pop(digest, None)
        return True

    def get(self, digest: str) -> bytes:
        """Return the bytes. Raises `ObjectMissing`, or `JournalCorrupt` if they are not the stored ones."""
        path = self.path(digest)
        try:
            data = path.read_bytes()
        except FileNotFoundError as error:
            raise ObjectMissing(path, digest) from error
        except OSError as error:
            raise JournalError(path, f"cannot be read: {error.strerror}") from error
        if digest_of(data) != digest:
            raise JournalCorrupt(path, "its bytes do not have the digest it is named by")
        return data

    def _write(self, path: Path, data: bytes) -> None:
        if path.parent.name not in self._lasting:
            self._unfinished.mkdir(parents=True, exist_ok=True)
            path.parent.mkdir(exist_ok=True)
        unfinished = self._unfinished / uuid4().hex
        try:
            # Few calls of the system: after each of them the thread waits until the event loop lets it continue.
            descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400)
            try:
                unwritten = memoryview(data)
                while unwritten:
                    unwritten = unwritten[os.write(descriptor, unwritten) :]
                if self._durable:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.rename(unfinished, path)
        except BaseException:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)
            raise


def _holds(path: Path, data: bytes) -> bool:
    try:
        return path.read_bytes() == data
    except FileNotFoundError:
        return False


def publish(home: Home, objects: ObjectStore, run: str, outputs: Mapping[str, str]) -> Path:
    """Make each artifact of `outputs` (name → digest) appear as `runs/RUN/artifacts/NAME`, and return that folder.

    Raises `DiskFull`, and `JournalError`, also for a name that is a folder of another one.
    """
    folder = home.artifacts(run)
    for name, digest in outputs.items():
        path = _beneath(folder, name)
        try:
            # A link can be made again at any time, so nothing is synced to the disk.
            _link(objects.path(digest), path)
        except OSError as error:
            raise write_error(path, "cannot be published", error) from error
    return folder


def _link(source: Path, path: Path) -> None:
    # The folder is created and the old link removed only if the first try fails.
    try:
        os.link(source, path)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.EEXIST, errno.EMLINK):
            raise
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        _link_or_copy(source, path)


def _link_or_copy(source: Path, path: Path) -> None:
    for tries_left in reversed(range(MOST_TRIES)):
        try:
            os.link(source, path)
        except OSError as error:
            # Another step that made the same bytes replaces the object at this moment.
            if error.errno == errno.ENOENT and tries_left and source.exists():
                continue
            if error.errno != errno.EMLINK:  # the object has as many links as the file system allows: 65,000 on ext4
                raise
            shutil.copyfile(source, path)
        return


def _beneath(folder: Path, name: str) -> Path:
    parts = PurePosixPath(name).parts  # models choose names, too, so a name must not lead out of the folder
    if not parts or name.startswith("/") or ".." in parts or "\0" in name:
        raise JournalError(folder, f"{name!r} is no name of an artifact; accepted: relative names without '..'")
    return folder.joinpath(*parts)
