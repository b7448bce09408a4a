"""Carry files with KV cells between the folders of prefixes of machines, in chunks, and verify them by their SHA-256.

A file that is on its way has its name and a suffix, so engines do not see it, and remove it when it is old.
"""

import asyncio
import hashlib
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol
from uuid import uuid4

from orchestrator.engine.contract import PrefixFile
from orchestrator.engine.kv.prefix_store import LEAST_FREE_BYTES
from orchestrator.registry.memory import size as shown

CHUNK_BYTES: Final = 8 << 20  # smaller ones take most of their time for the call
_DIGEST_BYTES: Final = 32
_NAME = re.compile(r"[0-9a-f]{32}\.kv")
_TRANSFER = re.compile(r"[0-9a-f]{32}")


class PrefixError(Exception):
    """A file cannot be carried. The message says why."""


class PrefixFolder:
    """The files of a folder of prefixes, which engines share. Blocks on the disk. Raises OSError, PrefixError."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, name: str, offset: int, size: int) -> bytes:
        """Return `size` bytes of a file."""
        with self._path(name).open("rb") as file:
            file.seek(offset)
            chunk = file.read(size)
        if len(chunk) < size:
            raise PrefixError(f"{name} ends before byte {offset + size}")
        return chunk

    def write(self, name: str, transfer: str, offset: int, chunk: bytes) -> None:
        """Add a chunk to a file that arrives. `transfer` names its transfer."""
        part = self._part(name, transfer)
        if not offset:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            part.touch(mode=0o600, exist_ok=False)  # only the owner may read it
        free = shutil.disk_usage(self._folder).free
        if free - len(chunk) < LEAST_FREE_BYTES:
            raise PrefixError(f"the disk has {shown(free)} free; accepted: {shown(LEAST_FREE_BYTES)} beyond the file")
        with part.open("r+b") as file:
            if part.stat().st_size != offset:
                raise PrefixError(f"{name}: a chunk starts at byte {offset}; accepted: {part.stat().st_size}")
            file.seek(offset)
            file.write(chunk)

    def finish(self, name: str, transfer: str, digest: str) -> None:
        """Verify a file that has arrived, and let engines see it. Raises PrefixError if it is damaged."""
        part = self._part(name, transfer)
        if _digest(part) != digest:
            raise PrefixError(f"{name} is damaged: its SHA-256 is not {digest}")
        part.replace(self._path(name))

    def discard(self, name: str, transfer: str) -> None:
        """Remove what has arrived of a file."""
        self._part(name, transfer).unlink(missing_ok=True)

    def check(self, name: str) -> None:
        """Remove a file that is damaged, so that it is not sent again."""
        path = self._path(name)
        if path.is_file() and not _digest(path):
            path.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise PrefixError(f"{name!r:.80} names no file of KV cells")
        return self._folder / name

    def _part(self, name: str, transfer: str) -> Path:
        if not _TRANSFER.fullmatch(transfer):
            raise PrefixError(f"{transfer!r:.80} names no transfer")
        return self._path(name).with_name(f"{name}.{transfer}")


def _digest(path: Path) -> str:
    # The SHA-256 that the file ends with, if it is that of what is before; else nothing.
    content, check = path.stat().st_size - _DIGEST_BYTES, hashlib.sha256()
    if content < 0:
        return ""
    with path.open("rb") as file:
        while left := content - file.tell():
            check.update(file.read(min(CHUNK_BYTES, left)))
        return check.hexdigest() if file.read() == check.digest() else ""


class Place(Protocol):
    """One end of a transfer: a `PrefixFolder` of this machine or of a node. Methods return why they failed, or ""."""

    def read(self, name: str, offset: int, size: int) -> Any:
        """Start to read a chunk, and return what `write` of any place takes for it."""

    async def write(self, name: str, transfer: str, offset: int, chunk: Any) -> str: ...

    async def finish(self, name: str, transfer: str, digest: str) -> str: ...

    async def discard(self, name: str, transfer: str) -> str: ...

    async def check(self, name: str) -> str: ...


async def carry(file: PrefixFile, source: Place, target: Place) -> str:
    """Copy a file from one place to another, and return why that failed, or nothing."""
    transfer, arrived, problem = uuid4().hex, False, ""
    try:
        for offset in range(0, file.bytes, CHUNK_BYTES):
            size = min(CHUNK_BYTES, file.bytes - offset)
            if problem := await target.write(file.name, transfer, offset, source.read(file.name, offset, size)):
                return problem
        problem = await target.finish(file.name, transfer, file.digest)
        arrived = not problem
        if problem:
            await source.check(file.name)
        return problem
    finally:
        if not arrived:
            await target.discard(file.name, transfer)


class FolderHere:
    """The `PrefixFolder` of this machine as a `Place`. Chunks are awaitable."""

    def __init__(self, folder: PrefixFolder) -> None:
        self._folder = folder

    def read(self, name: str, offset: int, size: int) -> asyncio.Future[bytes]:
        return asyncio.ensure_future(asyncio.to_thread(self._folder.read, name, offset, size))

    async def write(self, name: str, transfer: str, offset: int, chunk: Any) -> str:
        try:
            content = await chunk
        except (OSError, PrefixError) as error:
            return str(error)
        return await reported(self._folder.write, name, transfer, offset, content)

    async def finish(self, name: str, transfer: str, digest: str) -> str:
        return await reported(self._folder.finish, name, transfer, digest)

    async def discard(self, name: str, transfer: str) -> str:
        return await reported(self._folder.discard, name, transfer)

    async def check(self, name: str) -> str:
        return await reported(self._folder.check, name)


async def reported(action: Callable[..., None], *arguments: Any) -> str:
    """Do something with a `PrefixFolder` in a thread, and return why it failed, or nothing."""
    try:
        await asyncio.to_thread(action, *arguments)
    except (OSError, PrefixError) as error:
        return str(error)
    return ""
