"""Processor time of this process, of engines, and of programs: with those that have ended."""

import subprocess
import sys

from orchestrator.pool.processor_times import ProcessorTimes

TAKEN = 0.2
ROUNDING = 0.05  # the kernel counts in steps of 0.01 s, in each of the numbers that are added

SPIN = "import os, sys\nwhile sum(os.times()[:2]) < {seconds}: pass\nprint('done', flush=True)\nsys.stdin.read()"


def spinning(seconds: float) -> subprocess.Popen[bytes]:
    """Return a process that has used so much time, and then waits for the end of its input."""
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", SPIN.format(seconds=seconds)], stdin=pipe, stdout=pipe)
    assert process.stdout is not None
    assert process.stdout.readline() == b"done\n"
    return process


def test_time_of_engines_and_programs_is_told_apart() -> None:
    times = ProcessorTimes()
    before = times.read({})
    engine, program = spinning(1.0), spinning(TAKEN + ROUNDING)
    with engine, program:
        during = times.read({engine.pid: "m"})
        assert during.engines["m"] >= 1.0
        assert during.programs - before.programs >= TAKEN
        assert during.daemon >= before.daemon
        for process in (engine, program):
            process.communicate(timeout=60)
    after = times.read({})
    assert after.engines == {}
    assert after.programs - before.programs >= TAKEN, "what an ended program has taken stays"
    assert after.programs - during.programs < 0.9, "what an ended engine has taken is not a program's"


def test_a_process_that_is_gone_is_left_out() -> None:
    process = spinning(0.0)
    with process:
        process.communicate(timeout=60)
    assert ProcessorTimes().read({process.pid: "m"}).engines == {}
