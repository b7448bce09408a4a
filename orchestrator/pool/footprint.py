"""Remember how much memory engines took, so that later loads of the same file are admitted by that.

An estimate from the header is too high for most models, and too low for a few, for instance if weights are repacked
into private memory. A measurement of the same file with the same options replaces it, except for compute buffers, which
may not have been used yet when the engine was measured.

A measurement can be wrong: memory that was swapped out is not counted, and an engine that ran for weeks may have grown.
So the largest of the last few measurements counts. Implausible ones are ignored. One that is larger than the estimate
counts for a day only: if the model is too large by it, the model is not loaded, and would never be measured again.
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
"""How many measurements of a model count. An engine is measured twice: when it is loaded, and when it is stopped."""
LEAST_BYTES: Final = 8 << 20
"""A smaller measurement is implausible: every engine is a Python process, which takes more."""
MOST_TIMES: Final = 8.0
"""A measurement that is more than so many times the estimate is implausible."""
LARGE_SECONDS: Final = 86_400.0
"""How long a measurement that is larger than the estimate counts, in seconds."""
_NO_SETTING: Final = frozenset({"id", "description", "residency", "header", "memory", "unavailable"})


def measure(pid: int, estimate: int) -> int | None:
    """Return how many bytes a process needs, or None if it has ended.

    Its private memory counts in full. Mapped files, mostly the weights, count up to the estimate: what is beyond it can
    be dropped from the page cache, for instance weights that have been copied into another layout.
    """
    try:
        taken = psutil.Process(pid).memory_info()
    except psutil.Error:
        return None
    return max(taken.rss - taken.shared, min(taken.rss, estimate))


class Measurement(NamedTuple):
    """How many bytes an engine took, and when that was measured, in seconds since the epoch."""

    taken: int
    at: float


class Footprints:
    """Measurements by model file and options. They are stored in `file`; if that is None, only in memory.

    `clock` returns the time in seconds since the epoch.
    """

    def __init__(self, file: Path | None = None, clock: Callable[[], float] = time.time) -> None:
        self._file = file
        self._clock = clock
        self._known = _read(file) if file is not None else {}
        self._settings: dict[str, tuple[ModelEntry, str]] = {}
        """By model, the entry that was asked for last and the digest of its settings, which takes long to make."""

    def needed(self, entry: ModelEntry) -> int:
        """Return how many bytes an engine of this model needs: as measured, or else as estimated.

        Compute buffers are added to a measurement up to the estimate, since they may not have been used yet.
        """
        assert entry.memory is not None, "a model without a header is not loaded"
        measured = self._measured(entry)
        if measured is None:
            return entry.memory.total
        return max(measured, min(entry.memory.total, measured + entry.memory.compute))

    def describe(self, entry: ModelEntry) -> str:
        """Format how `needed` is calculated."""
        measured = self._measured(entry)
        if measured is None or entry.memory is None:
            return str(entry.memory)
        off = measured - entry.memory.total
        calculation = f"estimated {entry.memory}; measured {size(abs(off))} {'more' if off > 0 else 'less'}"
        untouched = self.needed(entry) - measured
        return f"{calculation}, and {size(untouched)} for unused compute buffers" if untouched else calculation

    def note(self, entry: ModelEntry, taken: int) -> None:
        """Remember how many bytes an engine took. An implausible measurement is logged and not remembered."""
        assert entry.memory is not None, "a model without a header is not loaded"
        measurement = Measurement(taken, self._clock())
        if not _plausible(measurement, entry.memory.total):
            log.warning("what an engine took is implausible", model=entry.id, bytes=taken, estimate=entry.memory.total)
            return
        key = self._key(entry)
        self._known[key] = [*self._known.pop(key, []), measurement][-KEPT:]
        while len(self._known) > MAX_REMEMBERED:
            del self._known[next(iter(self._known))]
        if self._file is not None:
            _write(self._file, self._known)

    def _measured(self, entry: ModelEntry) -> int | None:
        """Return the largest of the measurements that count now, in bytes, or None if there is none."""
        assert entry.memory is not None, "a model without a header is not loaded"
        estimate, now = entry.memory.total, self._clock()
        known = (one for one in self._known.get(self._key(entry), ()) if _plausible(one, estimate))
        return max(
            (one.taken for one in known if one.taken <= estimate or 0 <= now - one.at < LARGE_SECONDS), default=None
        )

    def _key(self, entry: ModelEntry) -> str:
        """Return a key for a model's file, in its present version, and the options that it is loaded with."""
        assert entry.file is not None, "only a model of our own takes memory here"
        version = "gone"
        with contextlib.suppress(OSError):
            found = entry.file.stat()
            version = f"{found.st_size} bytes {found.st_mtime_ns}"
        known = self._settings.get(entry.id)
        if known is None or known[0] is not entry:
            known = self._settings[entry.id] = entry, _digest_of_settings(entry)
        return f"{entry.file} {version} {known[1]}"


def _plausible(measurement: Measurement, estimate: int) -> bool:
    return LEAST_BYTES <= measurement.taken <= MOST_TIMES * estimate


def _digest_of_settings(entry: ModelEntry) -> str:
    settings = [getattr(entry, field.name) for field in fields(entry) if field.name not in _NO_SETTING]
    return blake2b(repr(settings).encode(), digest_size=8).hexdigest()


def _read(file: Path) -> dict[str, list[Measurement]]:
    """Read a file of measurements. In old files a model has one number instead of a list: the most bytes ever seen."""
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
    """Return the valid measurements of a list from a file."""
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
