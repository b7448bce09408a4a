"""Keep cores busy, as other programs would, with processes at normal priority that loop and compute nothing."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from benchmarks.engine.cells import Busy

_PROGRAM = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
parent = os.getppid()
print(flush=True)
while os.getppid() == parent:
    for _ in range(1_000_000):
        pass
"""  # the program of a busy loop. It prints a line when it begins, and ends by itself when the benchmark has ended.


@contextmanager
def busy_loops(beside: Busy | None) -> Iterator[None]:
    """Run busy loops while the context is entered.

    "one" stands for a loop on the first core that this process may use, "each" for a loop on every core, None for none.
    """
    cores = sorted(os.sched_getaffinity(0))
    wanted = {None: [], "one": cores[:1], "each": cores}[beside]
    with ExitStack() as stack:
        for core in wanted:
            stack.enter_context(_busy_loop(core))
        yield


@contextmanager
def _busy_loop(core: int) -> Iterator[None]:
    command = [sys.executable, "-c", _PROGRAM, str(core)]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:  # noqa: S603 (ours)
        try:
            assert process.stdout is not None, "it was asked for"
            process.stdout.readline()
            yield
        finally:
            process.kill()
