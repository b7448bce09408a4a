"""Keep the KV cells of prefixes in a folder, so that an engine that is started again does not have to compute them.

A file begins with a line of JSON that says what the cells belong to and how to verify them, followed by the cells as
llama.cpp writes them. They are given to llama.cpp only if every byte is as it was written.
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
_HEADER = 4096
"""The largest size of the line of JSON, in bytes."""


class BadPrefix(Exception):
    """A stored prefix is damaged, or was written under another key or for other tokens."""


class _Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema: int
    key: str
    tokens: str
    state_bytes: int
    state_sha256: str


def prefix_file(folder: Path, key: str, tokens: Tokens) -> Path:
    """Return the path for the cells of these tokens. `key` identifies the model and all that its cells depend on."""
    return folder / (hashlib.sha256(f"{key} {_digest(tokens)}".encode()).hexdigest()[:32] + _SUFFIX)


def read_prefix(folder: Path, key: str, tokens: Tokens) -> bytes | None:
    """Return the cells of these tokens, or None if there is no file. Raises BadPrefix, and OSError."""
    path = prefix_file(folder, key, tokens)
    try:
        with path.open("rb") as file:
            header = _header(file.readline(_HEADER))
            if (header.schema, header.key, header.tokens) != (SCHEMA, key, _digest(tokens)):
                raise BadPrefix("it was written for something else")
            there = os.fstat(file.fileno()).st_size - file.tell()
            if there != header.state_bytes:
                raise BadPrefix(f"it has {there} bytes of cells instead of {header.state_bytes}")
            state = file.read()
    except FileNotFoundError:
        return None
    if hashlib.sha256(state).hexdigest() != header.state_sha256:
        raise BadPrefix("its cells are not those that were written")
    with suppress(OSError):
        os.utime(path)  # the files that were used last are deleted last
    return state


def write_prefix(folder: Path, key: str, tokens: Tokens, state: bytes) -> None:
    """Replace the cells that are kept for these tokens, completely or not at all. Raises OSError."""
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
    """Delete the least recently used files until the folder has at most `most_bytes`, and return how many were deleted.

    Unfinished files that a killed engine has left count, and are deleted like others.
    """
    files = []
    for path in folder.glob(f"*{_SUFFIX}*"):
        with suppress(OSError):  # another engine may have deleted it
            status = path.stat()
            files.append((status.st_mtime_ns, status.st_size, path))
    used, gone = sum(size for _, size, _ in files), 0
    for _, size, path in sorted(files):
        if used <= most_bytes:
            break
        with suppress(OSError):
            path.unlink(missing_ok=True)
            used, gone = used - size, gone + 1
    return gone


def _header(line: bytes) -> _Header:
    try:
        return msgspec.json.decode(line, type=_Header)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadPrefix(f"it does not begin with what describes it: {error}") from error


def _digest(tokens: Tokens) -> str:
    return hashlib.sha256(tokens.tobytes()).hexdigest()
