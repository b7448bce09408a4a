"""Copy files into and out of a job's work folder, through one descriptor of the folder.

Paths are opened one component at a time, and links are never followed. Files are written before the program starts and
read after all its processes have ended, so nobody can change a folder between check and use.
"""

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from orchestrator.run.sandbox.errors import InvalidJob

_MAX_DEPTH = 16
_MAX_ENTRIES = 20_000
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(slots=True)
class CollectedFiles:
    files: dict[str, bytes] = field(default_factory=dict)  # by name
    left_out: bool = False  # a file was too large or too deep, or there were too many


def check_names(names: Mapping[str, bytes], size: int) -> None:
    """Raise InvalidJob if a name is not a relative POSIX path, or the contents exceed `size` bytes."""
    for name in names:
        parts = name.split("/")
        if not name or "\0" in name or any(part in ("", ".", "..") for part in parts) or len(parts) > _MAX_DEPTH:
            accepted = f"relative POSIX names of up to {_MAX_DEPTH} parts, without . and .."
            raise InvalidJob(f"{name!r} cannot be the name of a file in the work folder; accepted: {accepted}")
        if any("/".join(parts[:count]) in names for count in range(1, len(parts))):
            raise InvalidJob(f"{name!r} lies in a folder that is also the name of a file")
    total = sum(map(len, names.values()))
    if total > size:
        raise InvalidJob(f"the files of the job have {total} bytes; accepted: {size}, the size of its work folder")


def write_files(work: int, files: Mapping[str, bytes], uid: int | None) -> None:
    """Write the files into the folder `work` (a descriptor), owned by `uid` or by us. Raises OSError."""
    for name, content in files.items():
        *folders, last = name.split("/")
        descriptors = [os.dup(work)]
        try:
            for folder in folders:
                descriptors.append(_open_or_create(descriptors[-1], folder, uid))
            file = os.open(last, _NEW_FILE, 0o644, dir_fd=descriptors[-1])
            with open(file, "wb") as opened:
                _change_owner(file, uid)
                opened.write(content)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)


def collect_files(work: int, patterns: tuple[str, ...], size: int) -> CollectedFiles:
    """Read regular files in `work` whose names match, at most `size` bytes in all. Raises OSError."""
    collected = CollectedFiles()
    if not patterns:
        return collected
    for name, folder, last in _regular_files(work, collected):
        if not any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns):
            continue
        content = _read(folder, last, size)
        if content is None:
            collected.left_out = True
        else:
            collected.files[name] = content
            size -= len(content)
    return collected


def is_full(work: int) -> bool:
    """Return whether the folder's file system has no space or no inodes left."""
    space = os.fstatvfs(work)
    return space.f_bavail == 0 or space.f_favail == 0


def _open_or_create(parent: int, name: str, uid: int | None) -> int:
    try:
        os.mkdir(name, 0o755, dir_fd=parent)
    except FileExistsError:
        return os.open(name, _FOLDER, dir_fd=parent)
    folder = os.open(name, _FOLDER, dir_fd=parent)
    _change_owner(folder, uid)
    return folder


def _change_owner(descriptor: int, uid: int | None) -> None:
    if uid is not None:
        os.fchown(descriptor, uid, uid)


def _regular_files(work: int, collected: CollectedFiles) -> Iterator[tuple[str, int, str]]:
    # Yields (name, descriptor of its folder, last part of its name) in order; names that are not UTF-8 are left out.
    entries = 0
    for path, folders, files, descriptor in os.fwalk(".", dir_fd=work, follow_symlinks=False):
        prefix = "" if path == "." else f"{path.removeprefix('./')}/"
        if prefix.count("/") >= _MAX_DEPTH:
            collected.left_out = collected.left_out or bool(folders)
            folders.clear()
        folders.sort()
        for last in sorted(files):
            entries += 1
            if entries > _MAX_ENTRIES:
                collected.left_out = True
                return
            if _is_text(prefix + last):
                yield prefix + last, descriptor, last


def _read(folder: int, name: str, size: int) -> bytes | None:
    # None if it is not a regular file of at most `size` bytes.
    try:
        descriptor = os.open(name, _OLD_FILE, dir_fd=folder)
    except OSError:
        return None  # a link, a socket, or a file that may not be read
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
