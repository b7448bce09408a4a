"""Write files that a killed process leaves whole, lock them, tell whether they changed, and find a user's folders."""

import fcntl
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


class FileLocked(Exception):
    """Another process has the lock of a file. `holder` is its id, or None if it has not written that yet."""

    def __init__(self, holder: int | None) -> None:
        super().__init__(f"process {holder}" if holder else "another process")
        self.holder = holder


def replace_file(path: Path, content: str | bytes, *, durable: bool = False) -> None:
    """Replace a file, so that whoever reads it gets the old content or the new one. Raises OSError.

    With `durable` the new content is on the disk before the file has its name.
    """
    fresh = path.with_name(f".{path.name[:200]}.{secrets.token_hex(4)}")
    try:
        with fresh.open("xb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable, which an fsync of its files does not do. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock_file(path: Path) -> int:
    """Lock a file, write the id of this process into it, and return its descriptor, whose end is that of the lock.

    The lock is on the open file, so the file of a killed process locks nobody out. Raises FileLocked and OSError.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(descriptor, 32, 0).strip()
            raise FileLocked(int(holder) if holder.isdigit() else None) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def user_folder(environ: Mapping[str, str], variable: str, usual: str) -> Path:
    """Return a folder of the XDG specification: that of the environment variable, else `usual` in the home folder."""
    # Empty counts as unset, and so does a relative path.
    stated = Path(environ.get(variable) or "")
    return stated if stated.is_absolute() else Path(environ.get("HOME") or Path.home()) / usual


class FolderLocked(Exception):
    """Another process is changing files of `folder`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"{folder}: another process is changing files in this folder; try again when it has ended")
        self.folder = folder


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder in the block. Raises FolderLocked at once if it is taken, and OSError."""
    # A lock on the open folder leaves no file behind when the process is killed.
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise FolderLocked(folder) from error
        yield
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Signature:
    """Tells two contents of a file apart without reading it. Times are in nanoseconds."""

    device: int
    inode: int
    size: int
    modified: int
    changed: int  # of the inode; a file that becomes readable has the same `modified` as before

    @property
    def content(self) -> tuple[int, ...]:
        """The part that stays the same as long as nobody writes."""
        return self.device, self.inode, self.size, self.modified


Signatures = Mapping[Path, Signature | None]  # None for a file that could not be read


def signature(path: Path) -> Signature | None:
    """Return the signature of a file, or None if it cannot be read."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):  # the latter: a name with a zero byte
        return None
    return Signature(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
