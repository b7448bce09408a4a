"""Store model files on a node, by content: received in chunks, verified, continued after a break, within a limit.

A file lies in `FOLDER/GROUP/NAME`, since llama.cpp looks for the pieces of a split model in one folder. Until its
content has been verified it is called `NAME.part`; then `NAME.sha256` holds its digest. The time of the folder of a
group says when an engine has last used it.
"""

import hashlib
import os
import shutil
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from orchestrator.registry.memory import size as shown


class StoreError(Exception):
    """A file cannot be stored. The message says why, and what would be accepted."""


@dataclass(frozen=True, slots=True)
class ShippedFile:
    group: str  # the SHA-256 of the first file of those that lie next to each other
    name: str
    digest: str  # its SHA-256
    bytes: int


class ModelStore:
    """The model files in `folder`, of at most `limit` bytes; 0 for no limit. Blocks on the disk. Raises OSError."""

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder = folder
        self._limit = limit

    def digests(self) -> tuple[str, ...]:
        """Return the digests of the files that are complete."""
        return tuple(digest for digest, _ in self._complete())

    def _complete(self) -> Iterator[tuple[str, Path]]:
        for marker in sorted(self._folder.glob("*/*.sha256")):
            if (file := marker.with_suffix("")).is_file():
                yield marker.read_text("ascii"), file

    def read(self, digest: str, offset: int, size: int) -> bytes:
        """Return `size` bytes of the file with this digest. Raises StoreError."""
        file = next((file for other, file in self._complete() if other == digest), None)
        if file is None:
            raise StoreError(f"no file has the SHA-256 {digest}")
        with open(file, "rb") as opened:
            opened.seek(offset)
            chunk = opened.read(size)
        if len(chunk) < size:
            raise StoreError(f"{file} ends before byte {offset + size}")
        return chunk

    def path(self, file: ShippedFile) -> Path:
        return self._folder / file.group / file.name

    def touch(self, groups: Iterable[str]) -> None:
        """Note that groups are used now."""
        for group in groups:
            (self._folder / group).mkdir(parents=True, exist_ok=True)
            os.utime(self._folder / group)

    def begin(self, file: ShippedFile) -> int | None:
        """Return how many bytes of a file have been received; None if it is complete. Raises OSError."""
        target = self.path(file)
        if target.is_file() and _marker(target).is_file() and _marker(target).read_text("ascii") == file.digest:
            return None
        target.parent.mkdir(parents=True, exist_ok=True)
        part = _part(target)
        received = part.stat().st_size if part.is_file() else 0
        if received > file.bytes:
            part.unlink()
            received = 0
        return received

    def make_room(self, file: ShippedFile, missing: int, used: Collection[str]) -> tuple[str, ...]:
        """Remove groups so that `missing` more bytes of a file fit, the least recently used first.

        Groups that are `used`, and that of the file, stay. Returns the digests of what was removed. Raises StoreError,
        and then removes nothing.
        """
        sizes = {group: _size(group) for group in self._folder.iterdir() if group.is_dir()}
        idle = [group for group in sizes if group.name not in {*used, file.group}]
        held, removable = sum(sizes.values()), sum(sizes[group] for group in idle)
        free = shutil.disk_usage(self._folder).free
        self._check_room(file, missing, held - removable, free + removable, [*(sizes.keys() - idle)])
        removed: list[str] = []
        for group in sorted(idle, key=lambda group: group.stat().st_mtime_ns):
            if (not self._limit or held + missing <= self._limit) and missing <= free:
                break
            held, free = held - sizes[group], free + sizes[group]
            removed += [marker.read_text("ascii") for marker in group.glob("*.sha256")]
            shutil.rmtree(group)
        return tuple(removed)

    def write(self, file: ShippedFile, offset: int, chunk: bytes) -> None:
        """Add a chunk. Raises StoreError for any offset but the end of what has been received."""
        with open(_part(self.path(file)), "ab") as part:
            if part.tell() != offset:
                raise StoreError(f"{file.name}: a chunk starts at byte {offset}; accepted: {part.tell()}")
            part.write(chunk)

    def finish(self, file: ShippedFile) -> None:
        """Verify a file that has been received. Raises StoreError, and then receives it from its start again."""
        target = self.path(file)
        part = _part(target)
        with open(part, "rb") as opened:
            digest = hashlib.file_digest(opened, "sha256").hexdigest()
            os.fsync(opened.fileno())
        if digest != file.digest:
            part.unlink()
            raise StoreError(f"{file.name}: its SHA-256 is {digest}, and should be {file.digest}")
        os.replace(part, target)
        _marker(target).write_text(digest, "ascii")

    def _check_room(self, file: ShippedFile, missing: int, held: int, free: int, staying: Collection[Path]) -> None:
        # `held` bytes are those of groups that stay, and `free` those of the disk once the others are gone.
        names = sorted(path.name for group in staying if group.name != file.group for path in group.iterdir())
        listed = ", ".join(name for name in names if not name.endswith(".sha256"))
        used = f", with those that engines use: {listed}" if listed else ""
        if self._limit and held + missing > self._limit:
            raise StoreError(
                f"{file.name} needs {shown(missing)} more of the disk, where models take {shown(held)} of"
                f" {shown(self._limit)}{used}; accepted: more node_bytes under [cluster], or fewer models at a time"
            )
        if missing > free:
            raise StoreError(
                f"{file.name} needs {shown(missing)} more of the disk, of which {shown(free)} are or can be made"
                f" free{used}; accepted: fewer other files on the disk of {self._folder}, or fewer models at a time"
            )


def _size(group: Path) -> int:
    return sum(path.stat().st_size for path in group.iterdir())


def _part(target: Path) -> Path:
    return target.with_name(f"{target.name}.part")


def _marker(target: Path) -> Path:
    return target.with_name(f"{target.name}.sha256")
