"""Remember what engines really took, so that the next load of the same file is admitted by that.

An estimate from the header errs on the high side for most models and on the low side for a few (weights repacked into
private memory, say). What was measured replaces it, but for the buffers that are touched as prompts come, for the same
file loaded in the same way.
"""

import contextlib
import json
import os
from dataclasses import fields
from hashlib import blake2b
from pathlib import Path
from typing import Final

import psutil
import structlog

from registry.memory import size
from registry.models import ModelEntry

log = structlog.get_logger(__name__)

MAX_REMEMBERED: Final = 1000
_NO_SETTING: Final = frozenset({"id", "description", "residency", "header", "memory", "unavailable"})


def measure(pid: int, estimate: int) -> int | None:
    """Return the bytes that a process needs, or None if it is gone.

    Memory of its own is needed for sure. What it maps of files, its weights mostly, is needed up to the estimate:
    beyond that it is the page cache's, as after weights have been copied into another layout.
    """
    try:
        taken = psutil.Process(pid).memory_info()
    except psutil.Error:
        return None
    return max(taken.rss - taken.shared, min(taken.rss, estimate))


class Footprints:
    """What was measured, in bytes, by model file and settings; kept in `file`, or for this process only (None)."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._known = _read(file) if file is not None else {}

    def needed(self, entry: ModelEntry) -> int:
        """Return the bytes that an engine of this model needs: as measured, else as estimated.

        The buffers that it computes in may not have been touched yet when it was measured.
        """
        assert entry.memory is not None, "a model without a header is not loaded"
        measured = self._known.get(_key(entry))
        if measured is None:
            return entry.memory.total
        return max(measured, min(entry.memory.total, measured + entry.memory.compute))

    def describe(self, entry: ModelEntry) -> str:
        """Write the sum behind `needed`."""
        measured = self._known.get(_key(entry))
        if measured is None or entry.memory is None:
            return str(entry.memory)
        off = measured - entry.memory.total
        told = f"estimated {entry.memory}; measured {size(abs(off))} {'more' if off > 0 else 'less'}"
        untouched = self.needed(entry) - measured
        return f"{told}, and {size(untouched)} for buffers that may not have been touched yet" if untouched else told

    def note(self, entry: ModelEntry, taken: int) -> None:
        """Remember what an engine was seen to take, in bytes. The most that was seen counts."""
        key = _key(entry)
        if taken <= self._known.get(key, 0):
            return
        self._known.pop(key, None)
        self._known[key] = taken
        while len(self._known) > MAX_REMEMBERED:
            del self._known[next(iter(self._known))]
        if self._file is not None:
            _write(self._file, self._known)


def _key(entry: ModelEntry) -> str:
    """Name a file, as it is now, and the settings it is loaded with."""
    assert entry.file is not None, "only a model of our own takes memory here"
    version = "gone"
    with contextlib.suppress(OSError):
        found = entry.file.stat()
        version = f"{found.st_size} bytes {found.st_mtime_ns}"
    settings = [getattr(entry, field.name) for field in fields(entry) if field.name not in _NO_SETTING]
    return f"{entry.file} {version} {blake2b(repr(settings).encode(), digest_size=8).hexdigest()}"


def _read(file: Path) -> dict[str, int]:
    try:
        known = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        log.warning("what engines took before cannot be read; estimates are used", file=str(file), reason=str(error))
        return {}
    if not isinstance(known, dict):
        return {}
    return {key: taken for key, taken in known.items() if isinstance(taken, int) and taken > 0}


def _write(file: Path, known: dict[str, int]) -> None:
    fresh = file.with_name(f"{file.name}.new")
    try:
        fresh.write_text(json.dumps(known, indent=1), "utf-8")
        os.replace(fresh, file)
    except OSError as error:
        log.warning("what an engine took cannot be kept", file=str(file), reason=str(error))
