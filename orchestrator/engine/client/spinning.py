"""Choose how long llama.cpp's threads spin when they wait for each other, by measuring what a spin takes here.

libgomp reads the number of spins from the environment when it is loaded. Its default is some milliseconds' worth: a
thread that waits for one that lost its core holds its own core meanwhile, so that the other cannot come there. On two
cores of which another process holds one, that makes a step hundreds of times as long. Without spinning, a step takes
four times as long on a quiet machine, since each of some hundred meetings wakes a sleeping thread. Spinning for the
time that a meeting takes on a quiet machine costs about one per cent there, and little on a busy one.
"""

import os
import subprocess
import sys
from functools import cache
from typing import Final

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
"""Prints the CPU seconds that a thread spins for before it sleeps, while it waits for another one that is late."""


def spin_environment() -> dict[str, str]:
    """Return what engine processes have to have in their environment to wait as is best here.

    It is measured in a process of its own when it is first asked for, which takes about 0.1 s. Nothing is returned
    where the user has chosen, or where it cannot be measured, as without libgomp.
    """
    if any(name in os.environ for name in _VARIABLES):
        return {}
    seconds = _seconds_per_spin()
    return {} if seconds is None else {_VARIABLES[0]: str(max(1, round(SPIN_SECONDS / seconds)))}


@cache
def _seconds_per_spin() -> float | None:
    try:
        done = subprocess.run(  # noqa: S603 (our own interpreter and text)
            [sys.executable, "-I", "-S", "-c", _MEASURE],
            env={**os.environ, _VARIABLES[0]: str(_SPINS)},
            capture_output=True,
            text=True,
            timeout=_MEASURE_SECONDS,
            check=True,
        )
        seconds = float(done.stdout) / _SPINS
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return seconds if _PLAUSIBLE[0] < seconds < _PLAUSIBLE[1] else None
