"""Carry files into a job's work folder and out of it, through one descriptor of the folder.

Names are opened one component at a time and links are never followed. Files go in before the program starts and come
out when every process of it has ended, so nobody can change a folder between a look and its use.
"""

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from orchestrator.sandbox.errors import InvalidJob

_DEEPEST = 16
_MOST_ENTRIES = 20_000
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(slots=True)
class Kept:
    """What was read back, by name; `left_out` says that something wanted was too large, too deep or too many."""

    files: dict[str, bytes] = field(default_factory=dict)
    left_out: bool = False


def check_names(names: Mapping[str, bytes], size: int) -> None:
    """Refuse names that are not relative POSIX paths, and more than `size` bytes. Raises InvalidJob."""
    for name in names:
        parts = name.split("/")
        if not name or "\0" in name or any(part in ("", ".", "..") for part in parts) or len(parts) > _DEEPEST:
            accepted = f"relative POSIX names of up to {_DEEPEST} parts, without . and .."
            raise InvalidJob(f"{name!r} cannot be the name of a file in the work folder; accepted: {accepted}")
        if any("/".join(parts[:count]) in names for count in range(1, len(parts))):
            raise InvalidJob(f"{name!r} lies in a folder that is also the name of a file")
    total = sum(map(len, names.values()))
    if total > size:
        raise InvalidJob(f"the files of the job have {total} bytes; accepted: {size}, the size of its work folder")


def put(work: int, files: Mapping[str, bytes], uid: int | None) -> None:
    """Write the files into the folder `work` (a descriptor) as `uid`'s, or as our own. Raises OSError."""
    for name, content in files.items():
        *folders, last = name.split("/")
        descriptors = [os.dup(work)]
        try:
            for folder in folders:
                descriptors.append(_enter(descriptors[-1], folder, uid))
            file = os.open(last, _NEW_FILE, 0o644, dir_fd=descriptors[-1])
            with open(file, "wb") as opened:
                _give(file, uid)
                opened.write(content)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)


def collect(work: int, patterns: tuple[str, ...], size: int) -> Kept:
    """Read the regular files whose names match, `size` bytes together at most. Raises OSError."""
    kept = Kept()
    if not patterns:
        return kept
    for name, folder, last in _regular_files(work, kept):
        if not any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns):
            continue
        content = _read(folder, last, size)
        if content is None:
            kept.left_out = True
        else:
            kept.files[name] = content
            size -= len(content)
    return kept


def is_full(work: int) -> bool:
    """Say whether the folder's file system has no space or no inodes left."""
    space = os.fstatvfs(work)
    return space.f_bavail == 0 or space.f_favail == 0


def _enter(parent: int, name: str, uid: int | None) -> int:
    try:
        os.mkdir(name, 0o755, dir_fd=parent)
    except FileExistsError:
        return os.open(name, _FOLDER, dir_fd=parent)
    folder = os.open(name, _FOLDER, dir_fd=parent)
    _give(folder, uid)
    return folder


def _give(descriptor: int, uid: int | None) -> None:
    if uid is not None:
        os.fchown(descriptor, uid, uid)


def _regular_files(work: int, kept: Kept) -> Iterator[tuple[str, int, str]]:
    """Yield (name, descriptor of its folder, last part) in the order of names, of what a text can name."""
    seen = 0
    for path, folders, files, descriptor in os.fwalk(".", dir_fd=work, follow_symlinks=False):
        prefix = "" if path == "." else f"{path.removeprefix('./')}/"
        if prefix.count("/") >= _DEEPEST:
            kept.left_out = kept.left_out or bool(folders)
            folders.clear()
        folders.sort()
        for last in sorted(files):
            seen += 1
            if seen > _MOST_ENTRIES:
                kept.left_out = True
                return
            if _is_text(prefix + last):
                yield prefix + last, descriptor, last


def _read(folder: int, name: str, size: int) -> bytes | None:
    """Return the content of a regular file of up to `size` bytes, else None."""
    try:
        descriptor = os.open(name, _OLD_FILE, dir_fd=folder)
    except OSError:
        return None  # a link, a socket, or a file without the right to be read
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > size:
            return None
        return file.read(size)


def _is_text(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
