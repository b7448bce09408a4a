"""Store artifacts by the SHA-256 of their bytes, so that one that can be read is whole."""

import hashlib
import os
import re
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from orchestrator.journal.errors import JournalCorrupt, JournalError, ObjectMissing

DIGEST = re.compile(r"[0-9a-f]{64}\Z")


class ObjectStore:
    """Files `ab/cdef…` under `root`, immutable. Any number of threads may call it at once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._unfinished = root / "unfinished"

    def clean(self) -> None:
        """Remove what writers that were killed left half written. Only the owner of the state folder may."""
        for path in self._unfinished.glob("*"):
            path.unlink(missing_ok=True)

    def path(self, digest: str) -> Path:
        """Return where the object lies. Raises `JournalError` for what is no digest."""
        if not DIGEST.match(digest):
            raise JournalError(self.root, f"{digest!r} is no SHA-256 digest; accepted: 64 lower-case hex digits")
        return self.root / digest[:2] / digest[2:]

    def put(self, data: bytes) -> str:
        """Store `data` and return its digest once it would survive a power cut."""
        digest = hashlib.sha256(data).hexdigest()
        path = self.path(digest)
        try:
            if not _holds(path, data):
                self._write(path, data)
            # Also for an object that was there: who wrote it may have died before making its name durable.
            _sync_folder(path.parent)
            _sync_folder(self.root)
        except OSError as error:
            raise JournalError(path, f"cannot be written: {error.strerror}") from error
        return digest

    def get(self, digest: str) -> bytes:
        """Return the bytes. Raises `ObjectMissing`, or `JournalCorrupt` when they are not what was stored."""
        path = self.path(digest)
        try:
            data = path.read_bytes()
        except FileNotFoundError as error:
            raise ObjectMissing(path, digest) from error
        except OSError as error:
            raise JournalError(path, f"cannot be read: {error.strerror}") from error
        if hashlib.sha256(data).hexdigest() != digest:
            raise JournalCorrupt(path, "its bytes do not have the digest it is named by")
        return data

    def _write(self, path: Path, data: bytes) -> None:
        self._unfinished.mkdir(parents=True, exist_ok=True)
        path.parent.mkdir(exist_ok=True)
        unfinished = self._unfinished / uuid4().hex
        try:
            with unfinished.open("xb") as file:
                file.write(data)
                file.flush()
                os.fchmod(file.fileno(), 0o400)
                os.fsync(file.fileno())
            unfinished.replace(path)
        except BaseException:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)
            raise


def _holds(path: Path, data: bytes) -> bool:
    try:
        return path.read_bytes() == data
    except FileNotFoundError:
        return False


def _sync_folder(path: Path) -> None:
    """Make the names in a folder durable: fsync of a file says nothing about the entry that points to it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
