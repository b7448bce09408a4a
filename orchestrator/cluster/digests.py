"""Compute the SHA-256 of model files once, and remember it as long as a file's size and time stay the same."""

import asyncio
import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path

from orchestrator.cluster.store import ShippedFile
from orchestrator.engine.contract import EngineSpec
from orchestrator.files import replace_file
from orchestrator.registry.gguf import pieces


def digests_of(spec: EngineSpec, digest: Callable[[str], str]) -> dict[str, str]:
    """Return `EngineSpec.digests`, given what returns the SHA-256 of a file."""
    parts = [digest(str(piece)) for piece in pieces(Path(spec.file))]
    model = parts[0] if len(parts) == 1 else hashlib.sha256("".join(parts).encode()).hexdigest()
    adapters = (*(adapter.file for adapter in spec.lora), *spec.adapters)
    return {spec.file: model, **{adapter: digest(adapter) for adapter in adapters}}


def named_files(spec: EngineSpec) -> tuple[str, ...]:
    """Return the files that an engine names. Some are the first of several pieces."""
    return tuple(
        dict.fromkeys((spec.file, *spec.draft_files, *(adapter.file for adapter in spec.lora), *spec.adapters))
    )


class ModelFiles:
    """The model files of this machine. Their digests are stored in `file`, which daemon and bridge share.

    Methods raise OSError. Large files take seconds, in a thread.
    """

    def __init__(self, file: Path) -> None:
        self._digests = _Digests(file)
        self._hashing = asyncio.Lock()

    async def digests_of(self, spec: EngineSpec) -> dict[str, str]:
        """Return `EngineSpec.digests`."""
        async with self._hashing:
            return await asyncio.to_thread(digests_of, spec, self._digests.of)

    async def of(self, spec: EngineSpec) -> dict[str, ShippedFile]:
        """Return all files of a model by path, the pieces of one next to each other."""
        async with self._hashing:
            return await asyncio.to_thread(self._of, spec)

    def _of(self, spec: EngineSpec) -> dict[str, ShippedFile]:
        files = {}
        for named in named_files(spec):
            parts = [str(piece) for piece in pieces(Path(named))]
            group = self._digests.of(parts[0])
            for part in parts:
                file = Path(part)
                files[part] = ShippedFile(group, file.name, self._digests.of(part), file.stat().st_size)
        return files

    async def among(self, digests: Iterable[str]) -> tuple[str, ...]:
        """Return the files whose digests are stored and among these."""
        async with self._hashing:
            return self._digests.among(frozenset(digests))


class _Digests:
    # Not thread-safe.

    def __init__(self, file: Path) -> None:
        self._file = file
        self._by_path = _read(file)

    def of(self, path: str) -> str:
        version = _version(path)
        if self._by_path.get(path, ("", ""))[0] != version:
            self._by_path |= _read(self._file)
        if (stored := self._by_path.get(path)) is not None and stored[0] == version:
            return stored[1]
        with open(path, "rb") as opened:
            digest = hashlib.file_digest(opened, "sha256").hexdigest()
        self._by_path = {**self._by_path, **_read(self._file), path: (version, digest)}
        replace_file(self._file, json.dumps(self._by_path).encode())
        return digest

    def among(self, digests: frozenset[str]) -> tuple[str, ...]:
        return tuple(
            path for path, (version, digest) in self._by_path.items() if digest in digests and _is(path, version)
        )


def _version(path: str) -> str:
    status = Path(path).stat()
    return f"{status.st_size} {status.st_mtime_ns}"


def _is(path: str, version: str) -> bool:
    try:
        return _version(path) == version
    except OSError:
        return False


def _read(file: Path) -> dict[str, tuple[str, str]]:
    try:
        stored = json.loads(file.read_text("utf-8"))
        return {path: (str(version), str(digest)) for path, (version, digest) in stored.items()}
    except (OSError, ValueError, TypeError, AttributeError):  # they are computed again
        return {}
