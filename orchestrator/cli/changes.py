"""Write several files into a folder of the user: all of them or none, and never outside of the folder.

Before anything is replaced, new versions are written next to the files, and old versions are kept. A record in the
folder says what is being written. If writing fails, everything is put back; if the process is killed, the next one
that writes into the folder does that first. Links inside the folder are not followed.
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
from orchestrator.run.steps.files import NO_FILE
from orchestrator.task.taskir.fields import ARTIFACT
from orchestrator.task.taskir.models import compose_name

# The file in a folder that says what is being written into it.
RECORD: Final = ".orchestrator-write"

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_INSIDE = _FOLDER | os.O_NOFOLLOW
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
# How file systems say that a file can have no further hard link.
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS})


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file to write."""

    name: str
    data: bytes
    # The digest that the file of this name must have now, or `NO_FILE`; None if any file may be replaced.
    original: str | None = None


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that was written, under the name that it has in the folder."""

    name: str
    is_new: bool


class WriteFailed(OrchestratorError):
    """A file could not be written. The folder is as before, unless the message says otherwise."""


class _NotWritten(Exception):
    def __init__(self, name: str, why: str) -> None:
        super().__init__(why)
        self.name = name


class _Entry(msgspec.Struct, frozen=True):
    name: str
    new: str  # digest afterwards
    old: str  # digest before, or `NO_FILE`


class _Record(msgspec.Struct, frozen=True):
    run: str
    token: str
    folders: tuple[str, ...]  # those that had to be created, outer ones first
    files: tuple[_Entry, ...]
    # While "writing", everything can be put back. When "done", only temporary files are left to be removed.
    state: Literal["writing", "done"] = "writing"

    def temporary(self, index: int, kind: Literal["new", "old", "placed"]) -> str:
        # "placed" marks that the new version was renamed, for lack of hard links.
        return f"{RECORD}-{self.token}-{index}.{kind}"


def write_files(folder: Path, files: Sequence[NewFile], run: str) -> tuple[str, tuple[WrittenFile, ...]]:
    """Write all files into the folder, or none. Return what was undone of an interrupted process, or "", and the files.

    `run` is the run that made them. A file that exists keeps its permissions; one with the right content is not
    written. Raises InputError, before anything is written, if the folder is not as the files expect, and WriteFailed.
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
            problems = writing.undo()
            outcome = "; ".join(problems) or "nothing was changed"
            raise WriteFailed(f"{folder / error.name}: {error}; {outcome}") from error
        except BaseException:
            writing.undo()
            raise
        writing.clean()
    return recovered, changes.written


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    try:
        root = os.open(folder, _FOLDER)
    except OSError as error:
        raise _refused(folder, f"cannot be opened: {error.strerror}", "a folder that exists") from error
    try:
        try:
            fcntl.flock(root, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            problem = "another process is writing results into it"
            raise _refused(folder, problem, "to wait until it has ended") from error
        except OSError:  # such as on a network file system, which cannot lock a folder
            pass
        yield root
    finally:
        os.close(root)


def _refused(place: Path, problem: str, accepted: str) -> InputError:
    return InputError(Problem(str(place), problem, accepted))


@dataclass(slots=True)
class _Changes:
    folders: dict[str, None]  # to be created, in this order
    entries: list[_Entry]
    contents: list[bytes]

    @property
    def written(self) -> tuple[WrittenFile, ...]:
        return tuple(WrittenFile(entry.name, entry.old == NO_FILE) for entry in self.entries)

    def record(self, run: str) -> _Record:
        return _Record(run, secrets.token_hex(6), tuple(self.folders), tuple(self.entries))


class _Plan:
    """Checks files against the folder, and collects all problems. A method that returns None has added one."""

    def __init__(self, root: int, folder: Path) -> None:
        self._root = root
        self._folder = folder
        self._problems: list[Problem] = []
        self._changes = _Changes({}, [], [])
        self._listings: dict[str, _Listing] = {}

    def changes(self, files: Sequence[NewFile]) -> _Changes:
        self._check_names([file.name for file in files])
        for file in files if not self._problems else ():
            entry = self._entry(file)
            if entry is not None and entry.old != entry.new:
                self._changes.entries.append(entry)
                self._changes.contents.append(file.data)
        if self._problems:
            raise InputError(*self._problems)
        return self._changes

    def _refuse(self, name: str, problem: str, accepted: str) -> None:
        self._problems.append(Problem(str(self._folder / name), problem, accepted))

    def _check_names(self, names: Sequence[str]) -> None:
        folded_paths: dict[str, str] = {}
        folders = {parent for name in names for parent in _with_parents(name)[:-1]}
        for name in names:
            if not re.fullmatch(ARTIFACT, name) or name.split("/")[0].startswith(RECORD):
                self._refuse(name, "is no name of a file in the folder", "a relative name without '..'")
            for path in _with_parents(name):
                first = folded_paths.setdefault(_folded(path), path)
                if first != path:
                    problem = f"differs from {first!r} only in case or accents, which some file systems ignore"
                    self._refuse(path, problem, "names that differ in letters")
            if name in folders:
                self._refuse(name, "would be a file and a folder", "a name for each")

    def _entry(self, file: NewFile) -> _Entry | None:
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
        # The folder's own spelling of a name is used: in NFD, for example.
        *parents, last = name.split("/")
        folder = ""
        for part in parents:
            entry = self._entry_in(folder, part)
            if entry is None:
                return None
            folder = entry
        return self._entry_in(folder, last, is_folder=False)

    def _entry_in(self, folder: str, part: str, *, is_folder: bool = True) -> str | None:
        path = f"{folder}/{part}" if folder else part
        try:
            listing = self._listing(folder)
        except OSError as error:
            self._refuse(folder, _why(error), "folders; links are not followed")
            return None
        entry = part if part in listing.names else listing.composed.get(compose_name(part))
        if entry is not None:
            return f"{folder}/{entry}" if folder else entry
        if (similar := listing.folded.get(_folded(part))) is not None:
            self._refuse(path, f"there is {similar!r}, which some file systems take for it", repr(similar))
            return None
        if is_folder:
            self._changes.folders[path] = None
        return path

    def _listing(self, folder: str) -> "_Listing":
        if folder not in self._listings:
            names: list[str] = []
            # A folder that is still to be created is empty.
            if folder not in self._changes.folders:
                with _parent(self._root, f"{folder}/." if folder else ".") as (descriptor, _):
                    names = os.listdir(descriptor)
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
    names: frozenset[str]
    composed: Mapping[str, str]  # by their NFC form
    folded: Mapping[str, str]  # by their case-folded form

    @classmethod
    def of(cls, names: Sequence[str]) -> "_Listing":
        return cls(
            frozenset(names), {compose_name(name): name for name in names}, {_folded(name): name for name in names}
        )


def _difference(before: str, original: str) -> tuple[str, str]:
    if before == NO_FILE:
        return "was deleted since the run read it", "the file as the run read it"
    if original == NO_FILE:
        return "exists, and did not when the run wrote its output", "a folder without it"
    return "was changed since the run read it", "the file as the run read it"


class _Writing:
    def __init__(self, root: int, record: _Record) -> None:
        self._root = root
        self._record = record

    def all(self, contents: Sequence[bytes]) -> None:
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
        # Returns, in words, what could not be put back.
        problems = {index: problem for index in range(len(self._record.files)) if (problem := self._undo(index))}
        self.clean(keep=problems)
        return [*problems.values()]

    def _undo(self, index: int) -> str:
        # Returns why the file could not be put back, or "".
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
            return False  # somebody has changed it since it was written
        os.rename(old, base, src_dir_fd=parent, dst_dir_fd=parent)
        return True

    def clean(self, keep: Collection[int] = ()) -> None:
        # The old versions of the files with the indexes `keep` stay.
        # The record goes last: until then the next process can finish this.
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
    # A record that is still there was left by a process that was killed.
    record = _load(root, folder)
    if record is None:
        return ""
    writing = _Writing(root, record)
    if record.state == "done":
        writing.clean()
        return ""
    problems = writing.undo()
    undone = f"{folder}: writing the results of run {record.run} was interrupted, and has been undone"
    if problems:
        raise WriteFailed("; ".join([undone, *problems]))
    return undone


def _save(root: int, record: _Record) -> None:
    unfinished = f"{RECORD}.unfinished"
    try:
        _write(os.open(unfinished, _CREATE | os.O_TRUNC, 0o600, dir_fd=root), msgspec.json.encode(record))
        os.rename(unfinished, RECORD, src_dir_fd=root, dst_dir_fd=root)
    except OSError:
        with suppress(OSError):
            _remove(root, unfinished)
        raise


def _load(root: int, folder: Path) -> _Record | None:
    try:
        with open(os.open(RECORD, _READ, dir_fd=root), "rb") as file:
            record = msgspec.json.decode(file.read(), type=_Record)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise _unusable(folder) from error
    # The record came with the folder, perhaps from somebody else: `_restore` checks all that it believes of it.
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
    try:
        yield
    except OSError as error:
        raise _NotWritten(name, f"cannot be written: {error.strerror}") from error


@contextmanager
def _parent(root: int, name: str) -> Iterator[tuple[int, str]]:
    # One folder after another is opened, so that no link is followed.
    *folders, base = name.split("/")
    descriptor = os.dup(root)
    try:
        for part in folders:
            inner = os.open(part, _INSIDE, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor, base
    finally:
        os.close(descriptor)


def _sync_folder(folder: int) -> None:
    try:
        os.fsync(folder)
    except OSError as error:
        # Some file systems cannot sync a folder.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise


def _stage(parent: int, base: str, data: bytes, temporary: str) -> None:
    # The new version gets the permissions and the owner of the old one.
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
    with open(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _keep(parent: int, base: str, temporary: str) -> None:
    try:
        os.link(base, temporary, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # Without hard links, the old version is copied.
        with _regular(parent, base) as file:
            _stage(parent, base, file.read(), temporary)


def _place(parent: int, base: str, entry: _Entry, temporary: str, placed: str) -> None:
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
    try:
        with _regular(parent, base) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return NO_FILE


def _regular(parent: int, base: str) -> BufferedReader:
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
