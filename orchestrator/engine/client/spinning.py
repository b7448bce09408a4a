"""Choose how long llama.cpp's threads spin when they wait for each other, by measuring what a spin takes here.

libgomp reads the number of spins from the environment when it is loaded. Without one a waiting thread spins for some
milliseconds. Where another process uses one of the cores, the thread that was computing there waits for a core, while
the others spin on theirs: on two cores that makes a step hundreds of times as long. Without any spinning a step takes
four times as long on a quiet machine, since some hundred times in a step every sleeping thread has to be woken.
Spinning for as long as threads wait for each other on a quiet machine costs about one per cent there, and little on a
busy one.

How long a spin takes depends on the processor. It is measured once and kept in a file, so that later starts read it.
"""

import hashlib
import os
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final
from uuid import uuid4

import msgspec

from orchestrator.engine.processor import cpu_model

SPIN_SECONDS: Final = 50e-6
"""How long a thread spins before it sleeps."""

_VARIABLES: Final = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
"""If the user has set one of these, it is left as it is."""
_SPINS: Final = 30_000
_MEASURE_SECONDS: Final = 30.0
_PLAUSIBLE: Final = (1e-10, 2e-6)
"""The shortest and the longest time that a spin can take, in seconds."""

_MEASURE: Final = """
import ctypes, time
gomp = ctypes.CDLL("libgomp.so.1")
def late(_):
    if gomp.omp_get_thread_num():
        time.sleep(0.005)
late = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(late)
times = []
for _ in range(4):
    before = time.thread_time()
    gomp.GOMP_parallel(late, None, 2, 0)
    times.append(time.thread_time() - before)
print(min(times))
"""
"""Prints the CPU seconds for which a thread spins before it sleeps, while it waits for another one that is late."""


class _StoredSpin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the file holds."""

    cpu: str
    """The model of the processor that it was measured on."""
    seconds: float
    """How long a spin takes."""


def spin_environment(folder: Path | None) -> dict[str, str]:
    """Return the environment variables that make the threads of an engine's process spin for `SPIN_SECONDS`.

    Returns none where the user has set such a variable, or where a spin cannot be measured, as without libgomp.
    Measuring takes 0.1 to 0.2 s, in a process of its own. The result is kept in `folder` (None: for the life of this
    process), under the model of the processor. A file that is damaged or holds no plausible time is replaced.
    """
    if any(name in os.environ for name in _VARIABLES):
        return {}
    seconds = _seconds_per_spin(folder)
    return {} if seconds is None else {_VARIABLES[0]: str(max(1, round(SPIN_SECONDS / seconds)))}


@cache
def _seconds_per_spin(folder: Path | None) -> float | None:
    if folder is None:
        return _measured()
    cpu = cpu_model()
    file = folder / f"{hashlib.sha256(cpu.encode()).hexdigest()[:32]}.spin"
    seconds = _read(file, cpu)
    if seconds is None:
        seconds = _measured()
        if seconds is not None:
            with suppress(OSError):  # it is measured again at the next start
                _write(file, _StoredSpin(cpu, seconds))
    return seconds


def _measured() -> float | None:
    try:
        done = subprocess.run(  # noqa: S603 (our own interpreter and text)
            [sys.executable, "-I", "-S", "-c", _MEASURE],
            env={**os.environ, _VARIABLES[0]: str(_SPINS)},
            capture_output=True,
            text=True,
            timeout=_MEASURE_SECONDS,
            check=True,
        )
        return _plausible(float(done.stdout) / _SPINS)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def _plausible(seconds: float) -> float | None:
    return seconds if _PLAUSIBLE[0] < seconds < _PLAUSIBLE[1] else None


def _read(file: Path, cpu: str) -> float | None:
    """Return what was stored for this very processor, or None: there is nothing, or nothing that can be believed."""
    try:
        stored = msgspec.json.decode(file.read_bytes(), type=_StoredSpin)
    except (OSError, ValueError, msgspec.DecodeError):
        return None
    return _plausible(stored.seconds) if stored.cpu == cpu else None


def _write(file: Path, stored: _StoredSpin) -> None:
    """Replace the file as a whole. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_name(f"{file.name}.{uuid4().hex}")
    try:
        unfinished.write_bytes(msgspec.json.encode(stored))
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)
