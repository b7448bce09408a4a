"""Keep the KV cells of prompts on disk, in files that are identified by their content.

A file has a line of JSON that says what can be restored from it, the cells as `Llama.state` returns them, and the
SHA-256 of both. It holds no text: prompts are compared by the hashes of their tokens.
"""

import hashlib
import os
import shutil
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import msgspec

from orchestrator.engine.kv.prefix_tree import Tokens
from orchestrator.engine.kv.prefix_value import KeptPrefix, to_remove

SCHEMA = 2
BLOCK = 64  # tokens; a stored prompt can be used up to each multiple of this
LEAST_FREE_BYTES = 1 << 30  # of the disk: what others store there must not fail because of this
_SUFFIX = ".kv"
_HEADER_BYTES = 16 << 20  # the largest line of JSON
_HEADER_BYTES_PER_END = 48
_HASH_BYTES = 32
_PIECE_BYTES = 8 << 20  # written at a time, in some hundredths of a second
_ABANDONED_SECONDS = 3600.0  # after which an unfinished file is one of an engine that was killed


class BadPrefix(Exception):
    """A stored prefix is damaged."""


class _Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema: int
    key: str
    tokens: int
    # After how many tokens a sequence may be cut, in rising order, and the hashes of these tokens.
    ends: tuple[tuple[int, str], ...]
    state_bytes: int
    seconds: float  # to compute it again

    @property
    def file_name(self) -> str:
        return hashlib.sha256(f"{self.key} {self.ends[-1]}".encode()).hexdigest()[:32] + _SUFFIX


@dataclass(frozen=True, slots=True)
class StoredPrefix:
    """A file from which the first `length` tokens of a prompt can be restored."""

    path: Path
    length: int
    tokens: int  # all tokens whose cells it has
    size: int  # bytes


class PrefixStore:
    """The prefixes in a folder, which takes at most `most_bytes`. Several engines may share it.

    Call `refresh` before `longest` and `write`. Methods raise OSError if folder or files cannot be read or written.
    """

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        self._headers: dict[str, _Header] = {}
        self._kept: dict[str, KeptPrefix] = {}

    @property
    def files(self) -> int:
        """How many files the folder had at the last `refresh`."""
        return len(self._kept)

    def refresh(self) -> None:
        """Take note of the files that are there now, and remove those that are unusable or too many."""
        headers, files, now = {}, {}, time.time()
        for entry in self._entries():
            with suppress(OSError):  # another engine may have removed it
                status = entry.stat()
                if not entry.name.endswith(_SUFFIX):
                    if _SUFFIX in entry.name and now - status.st_mtime > _ABANDONED_SECONDS:
                        self._unlink(entry.name)
                    continue
                header = self._headers.get(entry.name) or self._described(entry.name, status.st_size)
                if header is not None:
                    headers[entry.name] = header
                    files[entry.name] = KeptPrefix(status.st_size, header.seconds, status.st_mtime)
        self._headers, self._kept = headers, files
        self._remove(to_remove(files, self._most_bytes, now))

    def longest(self, key: str, tokens: Tokens) -> StoredPrefix | None:
        """Return from which file the most of `tokens` can be restored, of several the smallest.

        `key` identifies the model, the version of llama.cpp, and all else that cells depend on.
        """
        mine = {name: header for name, header in self._headers.items() if header.key == key}
        digests = _digests(tokens, (length for header in mine.values() for length, _ in header.ends))
        best: StoredPrefix | None = None
        for name, header in mine.items():
            ends = header.ends
            # If the tokens up to an end are the same, those up to the ends before are, too.
            same = bisect_left(ends, True, key=lambda end: digests.get(end[0]) != end[1])
            length, size = ends[same - 1][0] if same else 0, self._kept[name].size
            if length and (best is None or (length, -size) > (best.length, -best.size)):
                best = StoredPrefix(self._folder / name, length, header.tokens, size)
        return best

    def read(self, prefix: StoredPrefix) -> memoryview:
        """Return the cells of all tokens of a file, and count that as a use. Raises BadPrefix, OSError."""
        content = prefix.path.read_bytes()
        whole = memoryview(content)[:-_HASH_BYTES]
        if hashlib.sha256(whole).digest() != content[-_HASH_BYTES:]:
            raise BadPrefix("it is not what was written")
        start = content.index(b"\n") + 1
        header, expected = msgspec.json.decode(whole[:start], type=_Header), self._headers[prefix.path.name]
        if (header.key, header.ends) != (expected.key, expected.ends):
            raise BadPrefix("another file has taken its place")
        with suppress(OSError):
            os.utime(prefix.path)
        return whole[start:]

    def digest(self, prefix: StoredPrefix) -> str:
        """Return the SHA-256 that a file ends with, in hexadecimal."""
        with prefix.path.open("rb") as file:
            file.seek(-_HASH_BYTES, os.SEEK_END)
            return file.read().hex()

    def write(
        self, key: str, tokens: Tokens, state: Callable[[], memoryview], *, size: int, seconds: float, cuts: bool
    ) -> Iterator[None] | None:
        """Return what writes the cells of `tokens`, a piece at each `next`; the file is there after the last.

        Returns None if they are worth less than what would have to go for them, or the disk is nearly full. `size` is
        the expected bytes of the `state`, `seconds` the time to compute it again. `cuts`: the cells of the first tokens
        can be used alone.
        """
        blocks = range(BLOCK, len(tokens), BLOCK) if cuts else ()
        others = [header.ends for header in self._headers.values() if cuts and header.key == key]
        digests = _digests(tokens, {*blocks, *(length for ends in others for length, _ in ends), len(tokens)})
        # Where earlier prompts ended, such as the turns of a conversation.
        turns = {length for ends in others for length, digest in ends if digests.get(length) == digest}
        ends = sorted({*blocks, *turns, len(tokens)})
        room = size + _HEADER_BYTES_PER_END * (len(ends) + 10) + _HASH_BYTES
        if not self._make_room(KeptPrefix(room, seconds, time.time())):
            return None
        cells = state()
        places = tuple((end, digests[end]) for end in ends)
        return self._written(_Header(SCHEMA, key, len(tokens), places, len(cells), seconds), cells)

    def remove(self, prefix: StoredPrefix) -> None:
        self._remove([prefix.path.name])

    def _written(self, header: _Header, state: memoryview) -> Iterator[None]:
        path = self._folder / header.file_name
        unfinished = path.with_name(f"{path.name}.{uuid4().hex}")
        try:
            # Only the owner may read it.
            with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                check = hashlib.sha256()
                head = memoryview(msgspec.json.encode(header) + b"\n")
                for piece in (head, *(state[at : at + _PIECE_BYTES] for at in range(0, len(state), _PIECE_BYTES))):
                    check.update(piece)
                    file.write(piece)
                    yield
                file.write(check.digest())
            unfinished.replace(path)
        except BaseException:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)
            raise
        # What the new file can restore, too, is no longer needed.
        ends = set(header.ends)
        others = ((name, other) for name, other in self._headers.items() if name != path.name)
        self._remove([name for name, other in others if other.key == header.key and other.ends[-1] in ends])

    def _make_room(self, prefix: KeptPrefix) -> bool:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        removed = to_remove({**self._kept, "": prefix}, self._most_bytes, prefix.used)
        if "" in removed or shutil.disk_usage(self._folder).free - prefix.size < LEAST_FREE_BYTES:
            return False
        self._remove(removed)
        return True

    def _described(self, name: str, size: int) -> _Header | None:
        with (self._folder / name).open("rb") as file:
            line = file.readline(_HEADER_BYTES)
        try:
            header = msgspec.json.decode(line, type=_Header)
        except (msgspec.DecodeError, UnicodeDecodeError):
            header = None
        fits = header is not None and size == len(line) + header.state_bytes + _HASH_BYTES
        if header is None or not fits or header.schema != SCHEMA or not header.ends:
            self._unlink(name)
            return None
        return header

    def _entries(self) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self._folder) as entries:
                return list(entries)
        except FileNotFoundError:
            return []

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            self._headers.pop(name, None)
            self._kept.pop(name, None)
            self._unlink(name)

    def _unlink(self, name: str) -> None:
        with suppress(OSError):
            (self._folder / name).unlink(missing_ok=True)


def _digests(tokens: Tokens, lengths: Iterable[int]) -> dict[int, str]:
    # The hash of the first tokens, by their number.
    digests, running, at = {}, hashlib.sha256(), 0
    for length in sorted(set(lengths)):
        if length > len(tokens):
            break
        running.update(tokens[at:length].tobytes())
        digests[length], at = running.hexdigest()[:32], length
    return digests
