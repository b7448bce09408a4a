"""Remember measured memory of engines, so that later loads of the same file are admitted by it.

A measurement of the same file with the same options replaces the estimate from the header. The largest of the last few
counts: swapped memory is not measured, and an engine may have grown for weeks.
"""

import contextlib
import json
import math
import time
from collections.abc import Callable
from dataclasses import fields
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple

import psutil
import structlog

from orchestrator.files import replace_file
from orchestrator.registry.memory import size
from orchestrator.registry.models import ModelEntry
from orchestrator.registry.options import state_sequences

log = structlog.get_logger(__name__)

MAX_REMEMBERED: Final = 1000
KEPT: Final = 5  # Measurements that count per model. An engine is measured when it is loaded and when it stops.
LEAST_BYTES: Final = 8 << 20  # Less is implausible: every engine is a Python process, which takes more.
MOST_TIMES: Final = 8.0  # more times the estimate than this is implausible
# A measurement above the estimate counts for a day only: if it makes the model too large, the model is never loaded and
# so never measured again.
LARGE_SECONDS: Final = 86_400.0
_NO_SETTING: Final = frozenset(
    {"id", "description", "residency", "header", "memory", "unavailable", "nodes", "replicas", "servers"}
)


def measure(pid: int, estimate: int) -> int | None:
    """Return how many bytes a process needs, or None if it has ended."""
    try:
        memory = psutil.Process(pid).memory_info()
    except psutil.Error:
        return None
    return needed_of(memory.rss, memory.shared, estimate)


def needed_of(resident: int, shared: int, estimate: int) -> int:
    """Return the bytes that a process needs, given those that it has in memory and those of them that are shared."""
    # Private memory counts in full. Mapped files, mostly weights, count up to the estimate: the rest can be dropped
    # from the page cache, such as weights copied into another layout.
    return max(resident - shared, min(resident, estimate))


class Measurement(NamedTuple):
    bytes: int
    at: float  # seconds since the epoch


class Footprints:
    """Measurements by model file and options, stored in `file` unless it is None.

    `clock` returns seconds since the epoch.
    """

    def __init__(self, file: Path | None = None, clock: Callable[[], float] = time.time) -> None:
        self._file = file
        self._clock = clock
        self._by_key = _read(file) if file is not None else {}
        # By model, the last entry and the digest of its settings, which is slow to compute.
        self._settings: dict[str, tuple[ModelEntry, str]] = {}

    def needed(self, entry: ModelEntry) -> int:
        """Return how many bytes an engine of this model needs: measured, or else estimated."""
        assert entry.memory is not None, "a model without a header is not loaded"
        measured = self._measured(entry)
        if measured is None:
            return entry.memory.total
        # Compute buffers may not have been used yet, so they are added up to the estimate.
        return max(measured, min(entry.memory.total, measured + entry.memory.compute))

    def describe(self, entry: ModelEntry) -> str:
        measured = self._measured(entry)
        if measured is None or entry.memory is None:
            return str(entry.memory)
        off = measured - entry.memory.total
        calculation = f"estimated {entry.memory}; measured {size(abs(off))} {'more' if off > 0 else 'less'}"
        untouched = self.needed(entry) - measured
        return f"{calculation}, and {size(untouched)} for unused compute buffers" if untouched else calculation

    def note(self, entry: ModelEntry, measured: int) -> None:
        """Remember the bytes of an engine. An implausible measurement is logged and ignored."""
        assert entry.memory is not None, "a model without a header is not loaded"
        measurement = Measurement(measured, self._clock())
        if not _plausible(measurement, entry.memory.total):
            log.warning(
                "what an engine took is implausible", model=entry.id, bytes=measured, estimate=entry.memory.total
            )
            return
        key = self._key(entry)
        self._by_key[key] = [*self._by_key.pop(key, []), measurement][-KEPT:]
        while len(self._by_key) > MAX_REMEMBERED:
            del self._by_key[next(iter(self._by_key))]
        if self._file is not None:
            _write(self._file, self._by_key)

    def _measured(self, entry: ModelEntry) -> int | None:
        assert entry.memory is not None, "a model without a header is not loaded"
        estimate, now = entry.memory.total, self._clock()
        measurements = (
            measurement for measurement in self._by_key.get(self._key(entry), ()) if _plausible(measurement, estimate)
        )
        return max(
            (
                measurement.bytes
                for measurement in measurements
                if measurement.bytes <= estimate or 0 <= now - measurement.at < LARGE_SECONDS
            ),
            default=None,
        )

    def _key(self, entry: ModelEntry) -> str:
        assert entry.file is not None, "only a model of our own takes memory here"
        # The version of the file and the options it is loaded with are part of the key.
        version = "gone"
        with contextlib.suppress(OSError):
            status = entry.file.stat()
            version = f"{status.st_size} bytes {status.st_mtime_ns}"
        cached = self._settings.get(entry.id)
        if cached is None or cached[0] is not entry:
            cached = self._settings[entry.id] = entry, _digest_of_settings(entry)
        # Engines of older versions had fewer states.
        states = f" {state_sequences(entry.slots)} states" if entry.header and entry.header.state_bytes else ""
        return f"{entry.file} {version} {cached[1]}{states}"


def _plausible(measurement: Measurement, estimate: int) -> bool:
    return LEAST_BYTES <= measurement.bytes <= MOST_TIMES * estimate


def _digest_of_settings(entry: ModelEntry) -> str:
    settings = [getattr(entry, field.name) for field in fields(entry) if field.name not in _NO_SETTING]
    return blake2b(repr(settings).encode(), digest_size=8).hexdigest()


def _read(file: Path) -> dict[str, list[Measurement]]:
    try:
        stored = json.loads(file.read_text("utf-8"))
        written = file.stat().st_mtime
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        log.warning("what engines took before cannot be read; estimates are used", file=str(file), reason=str(error))
        return {}
    if not isinstance(stored, dict):
        return {}
    # In old files a model has one number instead of a list: the most bytes ever measured.
    read = {
        key: [Measurement(value, written)] if isinstance(value, int) else _measurements(value)
        for key, value in stored.items()
    }
    return {key: measurements for key, measurements in read.items() if measurements}


def _measurements(value: object) -> list[Measurement]:
    return [
        Measurement(measured, at)
        for pair in (value if isinstance(value, list) else ())
        if isinstance(pair, list) and len(pair) == 2
        for measured, at in [pair]
        if isinstance(measured, int) and isinstance(at, float) and math.isfinite(at)
    ][-KEPT:]


def _write(file: Path, measurements: dict[str, list[Measurement]]) -> None:
    try:
        replace_file(file, json.dumps(measurements, indent=1))
    except OSError as error:
        log.warning("what an engine took cannot be kept", file=str(file), reason=str(error))
