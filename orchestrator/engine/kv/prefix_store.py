"""Keep the KV cells of prefixes on disk, so that a restarted engine need not compute them.

A file has a line of JSON, which identifies and verifies the cells, and then the cells as llama.cpp writes them.
"""

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import msgspec

from orchestrator.engine.kv.prefix_tree import Tokens

SCHEMA = 1
_SUFFIX = ".kv"
_HEADER = 4096  # the largest size of the line of JSON, in bytes


class BadPrefix(Exception):
    """A stored prefix is damaged, or was written under another key or for other tokens."""


class _Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema: int
    key: str
    tokens: str
    state_bytes: int
    state_sha256: str


def prefix_file(folder: Path, key: str, tokens: Tokens) -> Path:
    """Return the path for these tokens. `key` identifies the model and all that its cells depend on."""
    return folder / (hashlib.sha256(f"{key} {_digest(tokens)}".encode()).hexdigest()[:32] + _SUFFIX)


def read_prefix(folder: Path, key: str, tokens: Tokens) -> bytes | None:
    """Return the cells of these tokens, or None if there is no file. Raises BadPrefix, OSError."""
    path = prefix_file(folder, key, tokens)
    try:
        with path.open("rb") as file:
            header = _header(file.readline(_HEADER))
            if (header.schema, header.key, header.tokens) != (SCHEMA, key, _digest(tokens)):
                raise BadPrefix("it was written for something else")
            size = os.fstat(file.fileno()).st_size - file.tell()
            if size != header.state_bytes:
                raise BadPrefix(f"it has {size} bytes of cells instead of {header.state_bytes}")
            state = file.read()
    except FileNotFoundError:
        return None
    if hashlib.sha256(state).hexdigest() != header.state_sha256:
        raise BadPrefix("its cells are not those that were written")
    with suppress(OSError):
        os.utime(path)  # the files that were used last are deleted last
    return state


def write_prefix(folder: Path, key: str, tokens: Tokens, state: bytes) -> None:
    """Replace the stored cells of these tokens, completely or not at all. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    header = _Header(SCHEMA, key, _digest(tokens), len(state), hashlib.sha256(state).hexdigest())
    path = prefix_file(folder, key, tokens)
    unfinished = path.with_name(f"{path.name}.{uuid4().hex}")
    try:
        with unfinished.open("wb") as file:
            file.write(msgspec.json.encode(header) + b"\n")
            file.write(state)
        unfinished.replace(path)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise


def keep_within(folder: Path, most_bytes: int) -> int:
    """Delete the least recently used files until at most `most_bytes` are left; return how many were deleted."""
    files = []
    # This includes unfinished files that a killed engine has left.
    for path in folder.glob(f"*{_SUFFIX}*"):
        with suppress(OSError):  # another engine may have deleted it
            status = path.stat()
            files.append((status.st_mtime_ns, status.st_size, path))
    used, deleted = sum(size for _, size, _ in files), 0
    for _, size, path in sorted(files):
        if used <= most_bytes:
            break
        with suppress(OSError):
            path.unlink(missing_ok=True)
            used, deleted = used - size, deleted + 1
    return deleted


def _header(line: bytes) -> _Header:
    try:
        return msgspec.json.decode(line, type=_Header)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadPrefix(f"it does not begin with what describes it: {error}") from error


def _digest(tokens: Tokens) -> str:
    return hashlib.sha256(tokens.tobytes()).hexdigest()
