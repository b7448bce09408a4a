"""Choose how long llama.cpp's threads spin while they wait for each other, and measure a spin on this processor."""

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

# libgomp reads the number of spins from the environment when it is loaded; by default threads spin for milliseconds. If
# another process takes a core, the others spin while its thread waits: on two cores a step takes hundreds of times as
# long. Without spinning a step takes four times as long on a quiet machine, since sleeping threads are woken some
# hundred times a step. A spin as long as the usual wait costs about one per cent there, and little on a busy machine.
SPIN_SECONDS: Final = 50e-6

_VARIABLES: Final = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")  # not changed if the user sets one
_SPINS: Final = 30_000
_MEASURE_SECONDS: Final = 30.0
_PLAUSIBLE: Final = (1e-10, 2e-6)  # seconds for one spin

# Prints the CPU seconds for which a thread spins before it sleeps, while it waits for a late one.
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


class _StoredSpin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cpu: str  # the processor's model
    seconds: float  # for one spin


def spin_environment(folder: Path | None) -> dict[str, str]:
    """Return the environment variables that make an engine's threads spin for `SPIN_SECONDS`.

    Empty if the user has set such a variable, or if a spin cannot be measured (no libgomp). Measuring takes 0.1 to
    0.2 s. The result is stored in `folder`, or for this process only if that is None.
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
    # A damaged or implausible file is replaced.
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
        result = subprocess.run(  # noqa: S603 (our own interpreter and text)
            [sys.executable, "-I", "-S", "-c", _MEASURE],
            env={**os.environ, _VARIABLES[0]: str(_SPINS)},
            capture_output=True,
            text=True,
            timeout=_MEASURE_SECONDS,
            check=True,
        )
        return _plausible(float(result.stdout) / _SPINS)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def _plausible(seconds: float) -> float | None:
    return seconds if _PLAUSIBLE[0] < seconds < _PLAUSIBLE[1] else None


def _read(file: Path, cpu: str) -> float | None:
    # None for another processor or an implausible time
    try:
        stored = msgspec.json.decode(file.read_bytes(), type=_StoredSpin)
    except (OSError, ValueError, msgspec.DecodeError):
        return None
    return _plausible(stored.seconds) if stored.cpu == cpu else None


def _write(file: Path, stored: _StoredSpin) -> None:
    # Replaced as a whole. Raises OSError.
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_name(f"{file.name}.{uuid4().hex}")
    try:
        unfinished.write_bytes(msgspec.json.encode(stored))
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)
