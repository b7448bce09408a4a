"""Write several files into a folder of the user: all of them or none, and never outside of the folder.

New versions are written next to the files that they replace, and old versions are kept, before anything is replaced.
A record in the folder says what is being done. If writing fails, everything is put back; if the process is killed, the
next one that writes into the folder puts everything back first. Links inside the folder are not followed.
"""

import errno
import fcntl
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Final, Literal

import msgspec

from orchestrator.errors import InputError, OrchestratorError, Problem
from orchestrator.run.journal.objects import DIGEST, digest_of
from orchestrator.run.steps.seen import NO_FILE
from orchestrator.task.taskir.fields import ARTIFACT
from orchestrator.task.taskir.names import compose_name

RECORD: Final = ".orchestrator-write"
"""The file in a folder that says what is being written into it."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_INSIDE = _FOLDER | os.O_NOFOLLOW
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS})
"""How file systems say that a file can have no second name."""


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file that is to be in the folder."""

    name: str
    data: bytes
    original: str | None = None
    """The digest that the file of this name must have now, or `NO_FILE`; None if any file may be replaced."""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that was written, under the name that it has in the folder."""

    name: str
    is_new: bool


class WriteFailed(OrchestratorError):
    """A file could not be written; the folder is as it was before, as far as the message does not say otherwise."""


class _NotWritten(Exception):
    """A file of this name could not be written."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(why)
        self.name = name


class _Entry(msgspec.Struct, frozen=True):
    """A file of a record: its name, its digest afterwards, and its digest before, or `NO_FILE`."""

    name: str
    new: str
    old: str


class _Record(msgspec.Struct, frozen=True):
    """What is being written into a folder, by whom, and how far it is.

    While it is "writing", everything can be put back. When it is "done", only temporary files are left to be removed.
    `folders` are those that had to be created, outer ones first.
    """

    run: str
    token: str
    folders: tuple[str, ...]
    files: tuple[_Entry, ...]
    state: Literal["writing", "done"] = "writing"

    def temporary(self, index: int, kind: Literal["new", "old", "placed"]) -> str:
        """Return the name of the new or the old version of a file while it is being written.

        "placed" says that the new one was renamed, in a file system in which files have no second names.
        """
        return f"{RECORD}-{self.token}-{index}.{kind}"


def write_files(folder: Path, files: Sequence[NewFile], run: str) -> tuple[str, tuple[WrittenFile, ...]]:
    """Write all files into the folder, or none. Return what an interrupted process had left, if so, and the files.

    `run` is the run that has made them. A file that exists keeps its permissions, and one that has the right content
    is not written. Raises `InputError` if the folder has something else than the files expect, before anything is
    written, and `WriteFailed`.
    """
    with _opened(folder) as root:
        recovered = _recover(root, folder)
        changes = _Plan(root, folder).changes(files)
        if not changes.entries:
            return recovered, ()
        writing = _Writing(root, changes.record(run))
        try:
            writing.all(changes.contents)
        except _NotWritten as error:
            left = writing.undo()
            outcome = "; ".join(left) or "nothing was changed"
            raise WriteFailed(f"{folder / error.name}: {error}; {outcome}") from error
        except BaseException:
            writing.undo()
            raise
        writing.clean()
    return recovered, changes.written


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    """Yield the open folder, into which no other process writes meanwhile. Raises `InputError`."""
    try:
        root = os.open(folder, _FOLDER)
    except OSError as error:
        raise _refused(folder, f"cannot be opened: {error.strerror}", "a folder that exists") from error
    try:
        try:
            fcntl.flock(root, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            what = "another process is writing results into it"
            raise _refused(folder, what, "to wait until it has ended") from error
        except OSError:  # such as on a network file system, which cannot lock a folder
            pass
        yield root
    finally:
        os.close(root)


def _refused(place: Path, what: str, accepted: str) -> InputError:
    return InputError(Problem(str(place), what, accepted))


@dataclass(slots=True)
class _Changes:
    """How files are to be written: folders to be created, entries, and their contents."""

    folders: dict[str, None]
    entries: list[_Entry]
    contents: list[bytes]

    @property
    def written(self) -> tuple[WrittenFile, ...]:
        return tuple(WrittenFile(entry.name, entry.old == NO_FILE) for entry in self.entries)

    def record(self, run: str) -> _Record:
        return _Record(run, secrets.token_hex(6), tuple(self.folders), tuple(self.entries))


class _Plan:
    """Checks files against what is in the folder, and plans how to write them."""

    def __init__(self, root: int, folder: Path) -> None:
        self._root = root
        self._folder = folder
        self._problems: list[Problem] = []
        self._changes = _Changes({}, [], [])
        self._listings: dict[str, _Listing] = {}

    def changes(self, files: Sequence[NewFile]) -> _Changes:
        """Return what is to be done. Raises `InputError` with everything that is in the way."""
        self._check_names([file.name for file in files])
        for file in files if not self._problems else ():
            entry = self._entry(file)
            if entry is not None and entry.old != entry.new:
                self._changes.entries.append(entry)
                self._changes.contents.append(file.data)
        if self._problems:
            raise InputError(*self._problems)
        return self._changes

    def _refuse(self, name: str, what: str, accepted: str) -> None:
        self._problems.append(Problem(str(self._folder / name), what, accepted))

    def _check_names(self, names: Sequence[str]) -> None:
        """Refuse names outside of the folder, and names of which one file system or another makes the same file."""
        taken: dict[str, str] = {}
        folders = {parent for name in names for parent in _with_parents(name)[:-1]}
        for name in names:
            if not re.fullmatch(ARTIFACT, name) or name.split("/")[0].startswith(RECORD):
                self._refuse(name, "is no name of a file in the folder", "a relative name without '..'")
            for path in _with_parents(name):
                first = taken.setdefault(_folded(path), path)
                if first != path:
                    what = f"differs from {first!r} only in case or accents, which some file systems ignore"
                    self._refuse(path, what, "names that differ in letters")
            if name in folders:
                self._refuse(name, "is to be a file and a folder", "a name for each")

    def _entry(self, file: NewFile) -> _Entry | None:
        """Return how a file is to be written under the name that it has in the folder; None with a problem."""
        name = self._existing_name(file.name)
        if name is None:
            return None
        try:
            with _parent(self._root, name) as (parent, base):
                before = _digest_in(parent, base)
                self._check_writable(name, parent, base, before)
        except FileNotFoundError:
            before = NO_FILE
        except OSError as error:
            self._refuse(name, _why(error), "a regular file that can be read and written")
            return None
        entry = _Entry(name, digest_of(file.data), before)
        if file.original is not None and before not in (file.original, entry.new):
            self._refuse(name, *_difference(before, file.original))
        return entry

    def _existing_name(self, name: str) -> str | None:
        """Return the name as the folder has it, as far as the folder has it; None with a problem."""
        *parents, last = name.split("/")
        folder = ""
        for part in parents:
            entry = self._entry_in(folder, part)
            if entry is None:
                return None
            folder = entry
        return self._entry_in(folder, last, is_folder=False)

    def _entry_in(self, folder: str, part: str, *, is_folder: bool = True) -> str | None:
        """Return the path of what a folder has under this name, or is to have; None with a problem."""
        path = f"{folder}/{part}" if folder else part
        try:
            listing = self._listing(folder)
        except OSError as error:
            self._refuse(folder, _why(error), "folders; links are not followed")
            return None
        entry = part if part in listing.names else listing.composed.get(compose_name(part))
        if entry is not None:
            return f"{folder}/{entry}" if folder else entry
        if (other := listing.folded.get(_folded(part))) is not None:
            self._refuse(path, f"there is {other!r}, which some file systems take for it", repr(other))
            return None
        if is_folder:
            self._changes.folders[path] = None
        return path

    def _listing(self, folder: str) -> "_Listing":
        """Return what is in a folder, which may have to be created. Raises OSError for a link or no folder."""
        if folder not in self._listings:
            names: list[str] = []
            if folder not in self._changes.folders:
                with _parent(self._root, f"{folder}/." if folder else ".") as (here, _):
                    names = os.listdir(here)
            self._listings[folder] = _Listing.of(names)
        return self._listings[folder]

    def _check_writable(self, name: str, parent: int, base: str, before: str) -> None:
        if before != NO_FILE:
            mode = os.stat(base, dir_fd=parent, follow_symlinks=False).st_mode
            if not mode & 0o222 or not os.access(base, os.W_OK, dir_fd=parent):
                self._refuse(name, "is read-only", "a file that may be written")
        if not os.access(".", os.W_OK | os.X_OK, dir_fd=parent):
            self._refuse(name, "is in a folder that cannot be written to", "a folder that can be written to")


@dataclass(frozen=True, slots=True)
class _Listing:
    """The names in a folder: as they are, by what they look like, and by what some file systems take them for."""

    names: frozenset[str]
    composed: Mapping[str, str]
    folded: Mapping[str, str]

    @classmethod
    def of(cls, names: Sequence[str]) -> "_Listing":
        return cls(
            frozenset(names), {compose_name(name): name for name in names}, {_folded(name): name for name in names}
        )


def _difference(before: str, original: str) -> tuple[str, str]:
    """Return what is wrong with a file that is not as expected, and what would be accepted."""
    if before == NO_FILE:
        return "was deleted since the run read it", "the file as the run read it"
    if original == NO_FILE:
        return "exists, and did not when the run wrote its output", "a folder without it"
    return "was changed since the run read it", "the file as the run read it"


class _Writing:
    """Carries out a record, puts everything back, and removes what is temporary."""

    def __init__(self, root: int, record: _Record) -> None:
        self._root = root
        self._record = record

    def all(self, contents: Sequence[bytes]) -> None:
        """Write all files, which have these `contents`. Raises `_NotWritten`."""
        record = self._record
        with _naming(""):
            _save(self._root, record)
            _sync_folder(self._root)
        for path in record.folders:
            with _naming(path), _parent(self._root, path) as (parent, base):
                os.mkdir(base, dir_fd=parent)
        for index, entry in enumerate(record.files):
            with _naming(entry.name), _parent(self._root, entry.name) as (parent, base):
                _stage(parent, base, contents[index], record.temporary(index, "new"))
                if entry.old != NO_FILE:
                    _keep(parent, base, record.temporary(index, "old"))
                _sync_folder(parent)
        for index, entry in enumerate(record.files):
            with _naming(entry.name), _parent(self._root, entry.name) as (parent, base):
                _place(parent, base, entry, record.temporary(index, "new"), record.temporary(index, "placed"))
                _sync_folder(parent)
        with _naming(""):
            _save(self._root, msgspec.structs.replace(record, state="done"))

    def undo(self) -> list[str]:
        """Put everything back, and return what could not be put back, in words."""
        left = {index: problem for index in range(len(self._record.files)) if (problem := self._undo(index))}
        self.clean(keep=left)
        return [*left.values()]

    def _undo(self, index: int) -> str:
        """Put one file back, and return why that could not be done, or an empty string."""
        entry, why = self._record.files[index], "was changed meanwhile"
        try:
            with _parent(self._root, entry.name) as (parent, base):
                restored = self._restore(parent, base, index, entry)
                _sync_folder(parent)
        except FileNotFoundError:
            return ""  # the folder was not created yet
        except OSError as error:
            restored, why = False, f"cannot be put back: {error.strerror}"
        old = self._record.temporary(index, "old")
        return "" if restored else f"{entry.name} {why}; it is left as it is, and its old version is {old} next to it"

    def _restore(self, parent: int, base: str, index: int, entry: _Entry) -> bool:
        """Put one file back. Return False for one that somebody has changed since it was written."""
        new, old, placed = (self._record.temporary(index, kind) for kind in ("new", "old", "placed"))
        if entry.old == NO_FILE:
            renamed = _exists(parent, placed) and not _exists(parent, new)
            if _same_file(parent, base, new) or (renamed and _digest_in(parent, base) == entry.new):
                os.unlink(base, dir_fd=parent)
            return True
        if not _exists(parent, old) or _same_file(parent, base, old):
            return True
        now = _digest_in(parent, base)
        if now == entry.old:
            return True
        if now not in (entry.new, NO_FILE) or _digest_in(parent, old) != entry.old:
            return False
        os.rename(old, base, src_dir_fd=parent, dst_dir_fd=parent)
        return True

    def clean(self, keep: Collection[int] = ()) -> None:
        """Remove temporary files, folders that were created and are empty, and the record, which goes last.

        The old versions of the files with the indexes `keep` stay. What cannot be removed is left to the next process.
        """
        record = self._record
        for index, entry in enumerate(record.files):
            with suppress(OSError), _parent(self._root, entry.name) as (parent, _):
                _remove(parent, record.temporary(index, "placed"))
                _remove(parent, record.temporary(index, "new"))
                if index not in keep:
                    _remove(parent, record.temporary(index, "old"))
        for path in reversed(record.folders):
            with suppress(OSError), _parent(self._root, path) as (parent, base):
                os.rmdir(base, dir_fd=parent)
        with suppress(OSError):
            _remove(self._root, RECORD)
            _sync_folder(self._root)


def _recover(root: int, folder: Path) -> str:
    """Bring to its end what a process that was killed has left in the folder, and return what that was."""
    record = _load(root, folder)
    if record is None:
        return ""
    writing = _Writing(root, record)
    if record.state == "done":
        writing.clean()
        return ""
    left = writing.undo()
    undone = f"{folder}: writing the results of run {record.run} was interrupted, and has been undone"
    if left:
        raise WriteFailed("; ".join([undone, *left]))
    return undone


def _save(root: int, record: _Record) -> None:
    """Write the record in place of the one before."""
    unfinished = f"{RECORD}.unfinished"
    _write(os.open(unfinished, _CREATE | os.O_TRUNC, 0o600, dir_fd=root), msgspec.json.encode(record))
    os.rename(unfinished, RECORD, src_dir_fd=root, dst_dir_fd=root)


def _load(root: int, folder: Path) -> _Record | None:
    """Return the record of a folder, or None. Raises `InputError` for one that no version of this program has written.

    It came with the folder, perhaps from somebody else, so that it is only believed as far as `_restore` goes.
    """
    try:
        with open(os.open(RECORD, _READ, dir_fd=root), "rb") as file:
            record = msgspec.json.decode(file.read(), type=_Record)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise _unusable(folder) from error
    names = [*record.folders, *(entry.name for entry in record.files)]
    digests = [*(entry.new for entry in record.files), *(entry.old for entry in record.files if entry.old != NO_FILE)]
    if not (
        re.fullmatch(r"[0-9a-f]{12}", record.token)
        and all(re.fullmatch(ARTIFACT, name) for name in names)
        and all(DIGEST.match(digest) for digest in digests)
    ):
        raise _unusable(folder)
    return record


def _unusable(folder: Path) -> InputError:
    return _refused(folder / RECORD, "is no record of what was being written here", "a folder without it")


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Raise `_NotWritten` with this name for an OSError."""
    try:
        yield
    except OSError as error:
        raise _NotWritten(name, f"cannot be written: {error.strerror}") from error


@contextmanager
def _parent(root: int, name: str) -> Iterator[tuple[int, str]]:
    """Yield the open folder of a file below `root`, and the file's name in it. No link is followed."""
    *folders, base = name.split("/")
    here = os.dup(root)
    try:
        for part in folders:
            inner = os.open(part, _INSIDE, dir_fd=here)
            os.close(here)
            here = inner
        yield here, base
    finally:
        os.close(here)


def _sync_folder(folder: int) -> None:
    """Make the names in a folder durable, if its file system can do that."""
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise


def _stage(parent: int, base: str, data: bytes, temporary: str) -> None:
    """Write a new version, with the permissions and the owner of the old one if there is one."""
    descriptor = os.open(temporary, _CREATE | os.O_EXCL, 0o666, dir_fd=parent)
    try:
        before = os.stat(base, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        pass
    else:
        with suppress(PermissionError):  # only root may give files away
            os.fchown(descriptor, before.st_uid, before.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(before.st_mode) & 0o777)
    _write(descriptor, data)


def _write(descriptor: int, data: bytes) -> None:
    """Write data to an open file, sync it, and close it."""
    with open(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _keep(parent: int, base: str, temporary: str) -> None:
    """Give a file a second name, or make a copy if it can have none."""
    try:
        os.link(base, temporary, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        with _regular(parent, base) as file:
            _stage(parent, base, file.read(), temporary)


def _place(parent: int, base: str, entry: _Entry, temporary: str, placed: str) -> None:
    """Put a new version in its place. Raises OSError if the file there is no longer what the record says."""
    if _digest_in(parent, base) != entry.old:
        raise OSError(errno.EBUSY, "it was changed meanwhile")
    if entry.old != NO_FILE:
        os.rename(temporary, base, src_dir_fd=parent, dst_dir_fd=parent)
        return
    try:  # unlike a rename, this replaces no file that was created meanwhile
        os.link(temporary, base, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        _write(os.open(placed, _CREATE, 0o600, dir_fd=parent), b"")
        os.rename(temporary, base, src_dir_fd=parent, dst_dir_fd=parent)


def _digest_in(parent: int, base: str) -> str:
    """Return the digest of a regular file, or `NO_FILE`. Raises OSError for anything else."""
    try:
        with _regular(parent, base) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return NO_FILE


def _regular(parent: int, base: str) -> BufferedReader:
    """Open a regular file. Raises OSError for anything else."""
    if not stat.S_ISREG(os.stat(base, dir_fd=parent, follow_symlinks=False).st_mode):
        raise OSError(errno.ENXIO, "it is a link or no regular file")
    return open(os.open(base, _READ, dir_fd=parent), "rb")


def _exists(parent: int, base: str) -> bool:
    try:
        os.stat(base, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _same_file(parent: int, first: str, second: str) -> bool:
    """Return whether two names in a folder are names of one file."""
    try:
        pair = [os.stat(name, dir_fd=parent, follow_symlinks=False) for name in (first, second)]
    except FileNotFoundError:
        return False
    return os.path.samestat(*pair)


def _remove(parent: int, base: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(base, dir_fd=parent)


def _folded(name: str) -> str:
    return compose_name(compose_name(name).casefold())


def _with_parents(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]


def _why(error: OSError) -> str:
    reasons = {
        errno.ELOOP: "is a link",
        errno.ENOTDIR: "is a link or no folder",
        errno.ENXIO: "is a link or no regular file",
        errno.EACCES: "may not be read",
    }
    return reasons.get(error.errno or 0, f"cannot be read: {error.strerror}")
