"""Read files of the user's folder, never anything outside it, and record which versions of them an attempt has seen."""

import errno
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import BinaryIO, Final

from orchestrator.run.journal.objects import digest_of
from orchestrator.task.taskir.models import find_name

MAX_FILE_BYTES = 4 * 1024 * 1024
MOST_READS: Final = 1000  # files that are recorded; a search may read all that there are
NO_FILE: Final = ""  # in place of the digest of a missing file

_LINKED: Final = {
    errno.ELOOP: "is a link; links are not followed",
    errno.ENOTDIR: "has a part that is a link or no folder; links are not followed",
}
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class UnreadableFile(Exception):
    """A file that cannot be an input. The message says which file and why."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"file {name!r} {why}")
        self.name = name


class MissingFile(UnreadableFile):
    """The file does not exist."""


class LinkedFile(UnreadableFile):
    """The name is a link, or a part of it is a link or no folder."""


def read_text(folder: Path, name: str, limit: int = MAX_FILE_BYTES) -> str:
    """Return the text of a file of at most `limit` bytes. Raises `UnreadableFile`."""
    return text_of(name, read_bytes(folder, name, limit))


def text_of(name: str, data: bytes) -> str:
    """Decode UTF-8, with or without a byte order mark. Raises `UnreadableFile`."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableFile(name, f"is not UTF-8 text (byte {error.start}); convert it first") from error


def read_bytes(folder: Path, name: str, limit: int = MAX_FILE_BYTES) -> bytes:
    """Return the bytes of a regular file. Raises `UnreadableFile`, also if it has more than `limit`."""
    with _opened(folder, name) as file:
        status = os.fstat(file.fileno())
        data = file.read(limit + 1)
    if len(data) > limit:
        size = max(status.st_size, len(data))
        raise UnreadableFile(name, f"has {size} bytes; an input may have {limit}")
    return data


def size_of(folder: Path, name: str) -> int:
    """Return the bytes of a regular file without reading it. Raises `UnreadableFile`."""
    with _opened(folder, name) as file:
        return os.fstat(file.fileno()).st_size


def is_linked(folder: Path, name: str) -> bool:
    """Return whether a file cannot be read because its name leads through a link."""
    try:
        _opened(folder, name).close()
    except LinkedFile:
        return True
    except UnreadableFile:
        pass
    return False


def _opened(folder: Path, name: str) -> BinaryIO:
    parts = name.split("/")
    if "\0" in name or any(part in ("", ".", "..") for part in parts):
        raise UnreadableFile(name, "is no name under --dir; accepted: relative names without '.' and '..'")
    try:
        return open(_open_beneath(folder, parts), "rb")
    except FileNotFoundError as error:
        raise MissingFile(name, "does not exist") from error
    except OSError as error:
        if error.errno in _LINKED:
            raise LinkedFile(name, _LINKED[error.errno]) from error
        raise UnreadableFile(name, _why(error)) from error


def _open_beneath(folder: Path, parts: list[str]) -> int:
    # Every component is opened relative to the one before it, without following links. So no name and no link leads
    # out of the folder, not even a link that is swapped in meanwhile. The user named `folder`, so it may be a link.
    current = os.open(folder, _FOLDER)
    try:
        for part in parts[:-1]:
            below = os.open(_entry(current, part), _FOLDER | os.O_NOFOLLOW, dir_fd=current)
            os.close(current)
            current = below
        name = _entry(current, parts[-1])
        # Opening a device can have effects of its own, so look first; then look at what was opened.
        _only_regular(os.stat(name, dir_fd=current, follow_symlinks=False), also=stat.S_IFLNK)
        descriptor = os.open(name, _FILE, dir_fd=current)
    finally:
        os.close(current)
    try:
        _only_regular(os.fstat(descriptor))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _entry(folder: int, name: str) -> str:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        # The folder may spell the name with other Unicode characters that look the same.
        return name if name.isascii() else find_name(name, os.listdir(folder)) or name
    return name


def _only_regular(status: os.stat_result, also: int = stat.S_IFREG) -> None:
    if stat.S_IFMT(status.st_mode) not in (stat.S_IFREG, also):
        raise OSError(errno.ENXIO, "no regular file")


def _why(error: OSError) -> str:
    reasons = {
        errno.ENXIO: "is no regular file",
        errno.EACCES: "may not be read",
    }
    return reasons.get(error.errno or 0, f"cannot be read: {error.strerror}")


class SeenFiles:
    """Files of the user's folder that one attempt has seen. Calls block on the disk.

    Its results may replace these files later, but only if they are still the same.
    """

    def __init__(self) -> None:
        # By name, as of the first read; only of the first MOST_READS files.
        self.digests: dict[str, str] = {}
        # Files named like the step's outputs, before it writes them; None for no file. Unreadable ones are missing.
        self.originals: dict[str, bytes | None] = {}

    def read_text(self, folder: Path, name: str, limit: int = MAX_FILE_BYTES) -> str:
        """Record a file and return its text, as `read_text` does. Raises `UnreadableFile`."""
        data = read_bytes(folder, name, limit)
        self.add(name, digest_of(data))
        return text_of(name, data)

    def add(self, name: str, digest: str) -> None:
        if len(self.digests) < MOST_READS:
            self.digests.setdefault(name, digest)

    def with_line_ends(self, outputs: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return texts of a model with the line ends of their originals."""
        # Models write "\n", and mostly none at the end. A diff would show lines that nobody has changed.
        return {name: _with_ends_of(self.originals.get(name) or b"", data) for name, data in outputs.items()}

    def keep_originals(self, folder: Path, names: Iterable[str]) -> None:
        for name in names:
            try:
                self.originals[name] = read_bytes(folder, name)
            except MissingFile:
                self.originals[name] = None
            except UnreadableFile:
                continue


def version_of(folder: Path, name: str) -> str:
    """Return the digest of a file, `NO_FILE` for none, and what is no digest for one that cannot be read."""
    try:
        return digest_of(read_bytes(folder, name))
    except MissingFile:
        return NO_FILE
    except UnreadableFile as error:
        return str(error)


def _with_ends_of(original: bytes, data: bytes) -> bytes:
    if original.endswith(b"\n") and data and not data.endswith(b"\n"):
        data += b"\n"
    only_crlf = b"\n" in original and original.count(b"\n") == original.count(b"\r\n")
    return data.replace(b"\n", b"\r\n") if only_crlf and b"\r" not in data else data
