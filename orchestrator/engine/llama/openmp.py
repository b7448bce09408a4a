"""Change at run time how long libgomp's threads spin while they wait for each other.

`engine/spinning.py` has the two limits. The short one holds while there are more threads of libgomp than CPUs. So a
second team of threads, which does nothing and sleeps, makes all others sleep soon, too. It ends with the thread that
started it.
"""

import ctypes
import os
import threading
from typing import Any

import orchestrator.engine.llama.binding as lib
from orchestrator.engine.spinning import is_ours


class SpinSwitch:
    """Lets the threads of the loaded library spin for long or only briefly. At first they spin briefly.

    A process has one, since libgomp has one limit for all its threads.
    """

    def __init__(self) -> None:
        self._openmp = _libgomp() if is_ours(os.environ) else None
        self._crowd: _Crowd | None = None
        self.long = self.works
        self.set(long=False)

    @property
    def works(self) -> bool:
        """Whether `set` has an effect: the library computes with libgomp, and the user has not set its limits."""
        return self._openmp is not None

    def set(self, *, long: bool) -> None:
        if self._openmp is None or long == self.long:
            return
        if self._crowd is not None:
            self._crowd.end()
        self._crowd = None if long else _Crowd(self._openmp)
        self.long = long


class _Crowd:
    # As many threads as CPUs: with one more, for which others wait, there are more threads than CPUs.

    def __init__(self, openmp: Any) -> None:
        self._openmp = openmp
        self._started, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="crowd", daemon=True)
        self._thread.start()
        self._started.wait()

    def end(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        # The team calls a function that needs nothing of Python and does nothing.
        self._openmp.GOMP_parallel(self._openmp.omp_get_thread_num, None, self._openmp.omp_get_num_procs(), 0)
        self._started.set()
        self._over.wait()


def _libgomp() -> Any:
    # Found through the files that need it, since a process may have several. LLVM's library has its functions, too.
    for file in lib.loaded_files():
        library = ctypes.CDLL(str(file))
        if hasattr(library, "GOMP_parallel"):
            return None if hasattr(library, "kmp_set_blocktime") else library
    return None
