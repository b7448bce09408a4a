"""Remember what engines really took, so that the next load of the same file is admitted by that.

An estimate from the header errs on the high side for most models and on the low side for a few (weights repacked into
private memory, say). What was measured replaces it, but for the buffers that are touched as prompts come, for the same
file loaded in the same way.

A measurement can be wrong: memory that was swapped out is not seen, and an engine that ran for weeks may have grown. So
only the last few count, and of those the largest. One that is implausible is not believed at all. One that is larger
than the estimate is believed for a day: a model that is too large by it is not loaded, and would never be measured
again.
"""

import contextlib
import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import fields
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple

import psutil
import structlog

from registry.memory import size
from registry.models import ModelEntry

log = structlog.get_logger(__name__)

MAX_REMEMBERED: Final = 1000
KEPT: Final = 5
"""How many measurements of a model count. It is measured twice for each load: when it is loaded, and when it ends."""
LEAST_BYTES: Final = 8 << 20
"""Every engine is a process of Python, which takes more than this."""
MOST_TIMES: Final = 8.0
"""A measurement that is more than so many times the estimate is not believed."""
LARGE_SECONDS: Final = 86_400.0
"""How long a measurement that is larger than the estimate is believed."""
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


class Measurement(NamedTuple):
    """The bytes that an engine took, and when that was seen, in seconds since the epoch."""

    taken: int
    at: float


class Footprints:
    """What was measured, by model file and settings; kept in `file`, or for this process only (None).

    `clock` returns the time in seconds since the epoch.
    """

    def __init__(self, file: Path | None = None, clock: Callable[[], float] = time.time) -> None:
        self._file = file
        self._clock = clock
        self._known = _read(file) if file is not None else {}

    def needed(self, entry: ModelEntry) -> int:
        """Return the bytes that an engine of this model needs: as measured, else as estimated.

        The buffers that it computes in may not have been touched yet when it was measured.
        """
        assert entry.memory is not None, "a model without a header is not loaded"
        measured = self._measured(entry)
        if measured is None:
            return entry.memory.total
        return max(measured, min(entry.memory.total, measured + entry.memory.compute))

    def describe(self, entry: ModelEntry) -> str:
        """Write the sum behind `needed`."""
        measured = self._measured(entry)
        if measured is None or entry.memory is None:
            return str(entry.memory)
        off = measured - entry.memory.total
        told = f"estimated {entry.memory}; measured {size(abs(off))} {'more' if off > 0 else 'less'}"
        untouched = self.needed(entry) - measured
        return f"{told}, and {size(untouched)} for buffers that may not have been touched yet" if untouched else told

    def note(self, entry: ModelEntry, taken: int) -> None:
        """Remember what an engine was seen to take, in bytes. What is implausible is logged and not remembered."""
        assert entry.memory is not None, "a model without a header is not loaded"
        measurement = Measurement(taken, self._clock())
        if not _plausible(measurement, entry.memory.total):
            log.warning("what an engine took is implausible", model=entry.id, bytes=taken, estimate=entry.memory.total)
            return
        key = _key(entry)
        self._known[key] = [*self._known.pop(key, []), measurement][-KEPT:]
        while len(self._known) > MAX_REMEMBERED:
            del self._known[next(iter(self._known))]
        if self._file is not None:
            _write(self._file, self._known)

    def _measured(self, entry: ModelEntry) -> int | None:
        """Return the largest of the measurements that are believed now, in bytes, or None where there is none."""
        assert entry.memory is not None, "a model without a header is not loaded"
        estimate, now = entry.memory.total, self._clock()
        known = (one for one in self._known.get(_key(entry), ()) if _plausible(one, estimate))
        return max(
            (one.taken for one in known if one.taken <= estimate or 0 <= now - one.at < LARGE_SECONDS), default=None
        )


def _plausible(measurement: Measurement, estimate: int) -> bool:
    return LEAST_BYTES <= measurement.taken <= MOST_TIMES * estimate


def _key(entry: ModelEntry) -> str:
    """Name a file, as it is now, and the settings it is loaded with."""
    assert entry.file is not None, "only a model of our own takes memory here"
    version = "gone"
    with contextlib.suppress(OSError):
        found = entry.file.stat()
        version = f"{found.st_size} bytes {found.st_mtime_ns}"
    settings = [getattr(entry, field.name) for field in fields(entry) if field.name not in _NO_SETTING]
    return f"{entry.file} {version} {blake2b(repr(settings).encode(), digest_size=8).hexdigest()}"


def _read(file: Path) -> dict[str, list[Measurement]]:
    """Return what a file holds: per model a list of bytes and times, or, as it once was, the most bytes ever seen."""
    try:
        known = json.loads(file.read_text("utf-8"))
        written = file.stat().st_mtime
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        log.warning("what engines took before cannot be read; estimates are used", file=str(file), reason=str(error))
        return {}
    if not isinstance(known, dict):
        return {}
    read = {
        key: [Measurement(kept, written)] if isinstance(kept, int) else _measurements(kept)
        for key, kept in known.items()
    }
    return {key: measurements for key, measurements in read.items() if measurements}


def _measurements(kept: object) -> list[Measurement]:
    """Return those of a list that are what `_write` writes."""
    return [
        Measurement(taken, at)
        for pair in (kept if isinstance(kept, list) else ())
        if isinstance(pair, list) and len(pair) == 2
        for taken, at in [pair]
        if isinstance(taken, int) and isinstance(at, float) and math.isfinite(at)
    ][-KEPT:]


def _write(file: Path, known: dict[str, list[Measurement]]) -> None:
    fresh = file.with_name(f"{file.name}.new")
    try:
        fresh.write_text(json.dumps(known, indent=1), "utf-8")
        os.replace(fresh, file)
    except OSError as error:
        log.warning("what an engine took cannot be kept", file=str(file), reason=str(error))
