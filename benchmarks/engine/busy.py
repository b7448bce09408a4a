"""Keep cores busy as other programs would, with loops that compute nothing, at normal priority."""

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
"""
"""Ends by itself when the benchmark is gone, and says when it begins."""


@contextmanager
def busy_loops(beside: Busy | None) -> Iterator[None]:
    """While it is entered, a loop runs on the first core that this process may use, or one on each; none for None."""
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
