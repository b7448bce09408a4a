"""Write files so that a killed process leaves the old file or the new one, and share bytes if the disk can.

Functions that write call `before_write` with a name before each write: tests kill the process there.
"""

import errno
import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

from orchestrator.files import sync_folder

BeforeWrite = Callable[[str], None]
How = Literal["reflink", "link", "copy"]

LARGE: Final = 1 << 20  # bytes from which a file may be hard-linked; copying smaller ones is quick
TEMPORARY: Final = ".procedure-unfinished"
_FICLONE: Final = 0x40049409  # the ioctl of Linux that shares the blocks of a file, see ioctl_ficlone(2)
_CANNOT_SHARE: Final = frozenset(
    {errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.EPERM, errno.EMLINK, errno.ENOSYS}
)


def no_fault(_place: str) -> None:
    """The `before_write` of everything but tests."""


def unfinished(path: Path) -> Path:
    """The file that `path` is written to before it gets its name. Only its writer uses it."""
    return path.with_name(f".{path.name[:200]}{TEMPORARY}")


def replace_file(
    path: Path,
    data: bytes | Path,
    mode: int,
    before_write: BeforeWrite = no_fault,
    owner: tuple[int, int] | None = None,
) -> None:
    """Replace `path` by bytes or those of a file, atomically and durably. The folder must exist.

    `owner` is a user id and a group id, which only root can set. Raises OSError.
    """
    fresh = unfinished(path)
    before_write(f"write {path.name}")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "wb") as file:
        if isinstance(data, bytes):
            file.write(data)
        else:
            with data.open("rb") as source:
                if not _cloned(source.fileno(), file.fileno()):
                    shutil.copyfileobj(source, file, 1 << 20)
        file.flush()
        if owner is not None and owner != (os.geteuid(), os.getegid()) and os.geteuid() == 0:
            os.fchown(file.fileno(), *owner)
        os.fchmod(file.fileno(), mode)
        os.fsync(file.fileno())
    before_write(f"name {path.name}")
    os.replace(fresh, path)
    sync_folder(path.parent)


def remove_file(path: Path, before_write: BeforeWrite = no_fault) -> None:
    """Remove a file durably, if there is one. Raises OSError."""
    before_write(f"remove {path.name}")
    path.unlink(missing_ok=True)
    sync_folder(path.parent)


def share_file(source: Path, target: Path, *, link: bool) -> How:
    """Make `target` a file with the bytes of `source` that later writes to `source` do not change; return how.

    Blocks are shared if the file system can. Otherwise `link` allows a hard link, which is safe if nobody writes to the
    file in place; else bytes are copied. Raises OSError.
    """
    with source.open("rb") as reader, target.open("xb") as writer:
        if _cloned(reader.fileno(), writer.fileno()):
            os.fsync(writer.fileno())
            return "reflink"
    if link:
        target.unlink()
        try:
            os.link(source, target, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _CANNOT_SHARE:
                raise
        else:
            return "link"
    with source.open("rb") as reader, target.open("wb") as writer:
        shutil.copyfileobj(reader, writer, 1 << 20)
        writer.flush()
        os.fsync(writer.fileno())
    return "copy"


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's content, or `absent`. Raises OSError."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return "absent"


def make_private_folder(folder: Path) -> None:
    """Make a folder and its missing parents, for their owner alone. Raises OSError."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError:
        make_private_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def _cloned(source: int, target: int) -> bool:
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError as error:
        if error.errno in _CANNOT_SHARE:
            return False
        raise
    return True
