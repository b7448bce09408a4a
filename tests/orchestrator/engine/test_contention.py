"""Whether other processes had the cores, beside real processes."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.engine.worker.contention import SHORT_SECONDS, CpuUse

CPU_SECONDS = 0.3


@contextmanager
def busy_loops(cpu: int, count: int) -> Iterator[None]:
    """Let processes compute on one CPU."""
    code = f"import os; os.sched_setaffinity(0, {{{cpu}}})\nprint(flush=True)\nwhile True: pass"
    loops = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(count)]
    try:
        for loop in loops:
            assert loop.stdout is not None
            loop.stdout.readline()
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.communicate()


def compute() -> None:
    """Use CPU time, for as long as it takes to get it."""
    end = time.thread_time() + CPU_SECONDS
    while time.thread_time() < end:
        pass


@contextmanager
def pinned(cpu: int) -> Iterator[None]:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def test_a_process_that_shares_its_core_is_disturbed() -> None:
    cpu, use = min(os.sched_getaffinity(0)), CpuUse()
    with busy_loops(cpu, 3), pinned(cpu):
        use.start()
        compute()
        assert use.stop() >= CPU_SECONDS
        assert use.disturbed(1)


def test_a_thread_that_waits_counts_as_disturbed_only_where_it_was_to_compute() -> None:
    use = CpuUse()
    done = threading.Event()
    sleeper = threading.Thread(target=done.wait)
    sleeper.start()
    use.start()
    time.sleep(0.05)
    use.stop()
    done.set()
    sleeper.join()
    assert use.disturbed(1), "nothing computed"
    assert use.seconds >= 0.05
    use.start()
    while use.stop() > SHORT_SECONDS:  # it was interrupted
        use.start()
    assert not use.disturbed(1), "too short to say anything"
