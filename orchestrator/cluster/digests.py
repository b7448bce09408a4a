"""Compute the SHA-256 of model files once, and remember it as long as a file's size and time stay the same."""

import hashlib
import json
from pathlib import Path

from orchestrator.files import replace_file


class Digests:
    """The digests of this machine's model files, stored in `file`. Not thread-safe."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._by_path = _read(file)

    def of(self, path: str) -> str:
        """Return the digest of a file. Blocks: a large file takes seconds. Raises OSError."""
        version = _version(path)
        if (stored := self._by_path.get(path)) is not None and stored[0] == version:
            return stored[1]
        with open(path, "rb") as opened:
            digest = hashlib.file_digest(opened, "sha256").hexdigest()
        self._by_path[path] = version, digest
        replace_file(self._file, json.dumps(self._by_path).encode())
        return digest

    def among(self, digests: frozenset[str]) -> tuple[str, ...]:
        """Return the files whose digests are stored and among these."""
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
