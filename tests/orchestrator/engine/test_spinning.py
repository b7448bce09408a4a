"""How long threads spin: the choice, and its effect on the real libgomp and on an engine."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.client.engine import Engine
from orchestrator.engine.contract import EngineSpec, Generation
from orchestrator.engine.llama import Llama, SpinSwitch, open_library
from orchestrator.engine.spinning import is_ours, spin_environment
from orchestrator.engine.worker.contention import CpuUse
from orchestrator.engine.worker.spinning import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    LOST_CPUS,
    LOST_SECONDS,
    MISSING_CPUS,
    SOON,
    CpuTimes,
    Spinning,
    SpinTuner,
    cpu_times,
)
from tests.orchestrator.engine.driven_loop import driven_loop

VARIABLES = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "KMP_BLOCKTIME")
THREADS = st.integers(2, 96)


# The choice


def spinning_tuner(threads: int, now: float = 0.0) -> SpinTuner:
    """Return one whose threads spin for long since `now`."""
    tuner = SpinTuner()
    tuner.measured(float(threads), threads, now)
    assert tuner.long
    return tuner


@given(THREADS, st.floats(0.0, 100.0))
def test_threads_spin_for_long_only_after_enough_cpus_were_free(threads: int, free: float) -> None:
    tuner = SpinTuner()
    assert not tuner.long
    tuner.measured(free, threads, 0.0)
    assert tuner.long == (free >= threads - MISSING_CPUS)


@given(THREADS, st.floats(0.003, 5.0), st.floats(0.0, 1.0))
def test_threads_that_lose_their_cpus_sleep_soon(threads: int, seconds: float, lost: float) -> None:
    tuner = spinning_tuner(threads)
    used, steps = (threads - lost) * seconds, 0
    while steps * seconds < LOST_SECONDS:
        assert tuner.long
        tuner.stepped(seconds, used, threads, 1.0)
        steps += 1
    tuner.stepped(seconds, used, threads, 1.0)
    if lost > LOST_CPUS + 1e-6:
        assert not tuner.long
    elif lost < LOST_CPUS - 1e-6:
        assert tuner.long


@given(THREADS, st.lists(st.floats(0.0, 0.002), max_size=200))
def test_steps_too_short_to_judge_end_nothing(threads: int, steps: list[float]) -> None:
    tuner = spinning_tuner(threads)
    for seconds in steps:
        tuner.stepped(seconds, 0.0, threads, 1.0)
    assert tuner.long


def test_the_pause_doubles_while_spinning_soon_ends_and_starts_over_later() -> None:
    tuner, now, pauses = SpinTuner(), 0.0, []
    for _ in range(10):
        while not tuner.wants_measurement(now):
            now += 0.25
        tuner.measured(2.0, 2, now)
        assert not tuner.wants_measurement(now), "the machine is not measured while threads spin for long"
        tuner.stepped(LOST_SECONDS, 0.0, 2, ended := now)
        while not tuner.wants_measurement(now):
            now += 0.25
        pauses.append(now - ended)
    assert pauses == [min(2 * FIRST_PAUSE * 2**times, LONGEST_PAUSE) for times in range(10)]
    tuner.measured(2.0, 2, now)
    tuner.stepped(LOST_SECONDS, 0.0, 2, now + SOON)
    assert not tuner.wants_measurement(now + SOON + FIRST_PAUSE / 2)
    assert tuner.wants_measurement(now + SOON + FIRST_PAUSE)


@given(st.lists(st.tuples(st.floats(0.0, 4.0), st.floats(0.0, 1.0), st.floats(0.0, 2.0)), max_size=60))
def test_on_a_busy_machine_threads_never_spin_for_long(steps: list[tuple[float, float, float]]) -> None:
    tuner = SpinTuner()
    now = 0.0
    for free, seconds, used in steps:
        now += seconds
        tuner.stepped(seconds, used, 8, now)
        tuner.measured(free, 8, now)
        assert not tuner.long


# The environment


def test_the_users_own_choice_is_neither_replaced_nor_changed_at_run_time() -> None:
    ours = spin_environment({})
    assert is_ours(ours)
    assert set(ours) == set(VARIABLES)
    for own in ({"GOMP_SPINCOUNT": "7"}, {"OMP_WAIT_POLICY": "passive"}, {"GOMP_SPINCOUNT": "300000"}):
        assert spin_environment(own) == {}
        assert not is_ours(own)
    assert "KMP_BLOCKTIME" not in spin_environment({"KMP_BLOCKTIME": "0"})


# The real libgomp

# Prints the CPU seconds for which a thread spins until it sleeps, for each of the limits. The other thread of its team
# is late: it waits until the first one sleeps.
_MEASURE = """
import ctypes, os, sys, time
from pathlib import Path
from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.llama import SpinSwitch, open_library

open_library(EngineSpec(file="none"))
gomp = ctypes.CDLL("libgomp.so.1")
state = Path("/proc/thread-self/stat").resolve()

def late(_):
    if gomp.omp_get_thread_num():
        while state.read_text().rpartition(") ")[2][0] != "S":
            time.sleep(0.001)

late = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(late)

def spun():
    times = []
    for _ in range(3):
        before = time.thread_time()
        gomp.GOMP_parallel(late, None, 2, 0)
        times.append(time.thread_time() - before)
    return min(times)

def threads():
    return len(os.listdir("/proc/self/task"))

spun()
before = threads()
switch = SpinSwitch()
print(switch.works)
for long in map(bool, map(int, sys.argv[1])):
    switch.set(long=long)
    while long and threads() > before:
        time.sleep(0.001)  # the second team ends a little later than the thread that started it
    print(long == switch.long, spun())
"""


def measured(modes: str, environment: Mapping[str, str]) -> list[str]:
    inherited = {key: value for key, value in os.environ.items() if key not in VARIABLES}
    command = [sys.executable, "-c", _MEASURE, modes]
    done = subprocess.run(command, env={**inherited, **environment}, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_the_limit_of_the_real_libgomp_changes_at_run_time() -> None:
    modes = "0101101001"
    works, *lines = measured(modes, spin_environment({}))
    assert works == "True"
    times: dict[str, list[float]] = {"0": [], "1": []}
    for mode, line in zip(modes, lines, strict=True):
        holds, seconds = line.split()
        assert holds == "True"
        times[mode].append(float(seconds))
    assert min(times["1"]) > 5 * max(times["0"]), "300,000 rounds instead of 1,000"


def test_a_limit_of_the_user_stays_at_run_time() -> None:
    works, *lines = measured("01", {"GOMP_SPINCOUNT": "1000"})
    assert works == "False"
    assert [line.split()[0] for line in lines] == ["True", "False"], "it is never said to spin for long"


# An engine


async def test_an_engines_process_is_given_both_limits(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    spec = EngineSpec(file=str(models / "quantised.gguf"), context=64, slots=1, threads=2)
    async with await Engine.start(spec) as engine:
        given_variables = psutil.Process(engine.info.pid).environ()
        answer = await engine.generate(Generation(prompt="a", max_tokens=8))
    assert is_ours(given_variables)
    assert answer.text


STEP_SECONDS = LOST_SECONDS / 2


class Clock:
    """Advances by a step whenever it is read."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += STEP_SECONDS
        return self.now


class Informed(Spinning):
    """Learns from the test, not from this machine, whether other processes use the cores."""

    def __init__(self, busy: range) -> None:
        """`busy` are the numbers of the steps during which others use all cores."""
        self.switch, self.modes, self.clock = SpinSwitch(), list[bool](), Clock()
        self._busy = busy
        self._others = 0.0
        super().__init__(self.switch, self._idle_since, self.clock)

    def others_compute(self, seconds: float) -> None:
        self.clock.now += seconds
        self._others += seconds

    def _idle_since(self) -> CpuTimes:
        return CpuTimes(0.0 if self._is_busy() else (self.clock.now - self._others) * 96, 0.0)

    def _is_busy(self) -> bool:
        return len(self.modes) in self._busy

    def after_step(self, use: CpuUse, threads: int, granted: int) -> None:
        use = CpuUse()
        use.seconds, use.cpu_seconds = STEP_SECONDS, 0.0 if self._is_busy() else STEP_SECONDS * threads
        super().after_step(use, threads, granted)
        self.modes.append(self.switch.long)


def crowds() -> int:
    return sum(thread.name == "crowd" for thread in threading.enumerate())


@pytest.fixture
def ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits of the environment are ours and the library is loaded, as in an engine's process."""
    for name, value in spin_environment({}).items():
        monkeypatch.setenv(name, value)
    open_library(EngineSpec(file="none"))


@pytest.mark.usefixtures("ours")
def test_an_engine_spins_only_on_a_quiet_machine_and_answers_the_same(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.engine.worker.threads.ThreadTuner.observe", lambda *_, **__: None)
    spec = EngineSpec(file=str(models / "quantised.gguf"), context=256, slots=2, threads=2)
    request = Generation(prompt="The sea is ", max_tokens=90, ignore_end=True)
    texts, modes = [], []
    for busy in (range(0), range(1000), range(30, 60)):
        spinning = Informed(busy)
        with driven_loop(Llama(spec), spec, spinning=spinning) as parent:
            parent.submit(request)
            texts.append(parent.finished().text)
        modes.append(spinning.modes)
        assert crowds() == (not spinning.switch.long)
        spinning.switch.set(long=True)
        assert crowds() == 0
    assert texts[0] == texts[1] == texts[2]
    always, never, between = modes
    assert all(always[8:90])
    assert not any(never)
    assert all(between[8:30])
    assert not any(between[32:60])
    assert all(between[70:90])


@pytest.mark.usefixtures("ours")
def test_an_engine_that_uses_fewer_threads_than_granted_does_not_spin() -> None:
    spinning = Informed(range(0))
    use = CpuUse()
    while not spinning.switch.long:
        spinning.after_step(use, 2, 2)
    spinning.after_step(use, 1, 2)
    assert not spinning.switch.long
    spinning.after_step(use, 2, 2)
    assert spinning.switch.long, "a short trial of fewer threads says nothing about the machine"
    spinning.after_step(use, 1, 2)
    spinning.after_step(use, 1, 2)
    spinning.after_step(use, 2, 2)
    assert not spinning.switch.long, "two steps in a row with fewer threads mean that the cores are not ours"
    for _ in range(20):
        spinning.after_step(use, 2, 2)
    assert spinning.switch.long


@pytest.mark.usefixtures("ours")
def test_what_others_compute_between_two_requests_does_not_count() -> None:
    spinning = Informed(range(0))
    use = CpuUse()
    for _ in range(4):  # requests that are shorter than a measurement
        spinning.others_compute(seconds=10.0)
        for _ in range(3):
            spinning.after_step(use, 2, 2)
    assert spinning.switch.long


def test_without_a_limit_of_ours_nothing_is_measured() -> None:
    def unexpected() -> CpuTimes:
        raise AssertionError

    spinning = Spinning(SpinSwitch(), unexpected, Clock())
    spinning.after_step(CpuUse(), 2, 2)


# The measurement


def test_cpu_times_are_those_of_the_cpus_that_we_may_use(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    cpus = sorted(os.sched_getaffinity(0))
    lines = ["cpu  9 9 9 9 9 9 9 9 9 9", *(f"cpu{number} 1 2 3 {100 * number} 50 6 7 8 0 0" for number in range(200))]
    stat.write_text("\n".join([*lines, "intr 5 0"]))
    times = cpu_times(stat)
    assert times is not None
    assert times.idle * os.sysconf("SC_CLK_TCK") == pytest.approx(sum(100 * number + 50 for number in cpus))
    assert 0.0 < times.own <= time.process_time()


@pytest.mark.parametrize("content", [None, "", "cpu 1 2 3 4\n", "cpu0 a b c d e\n", "cpu0\n"])
def test_without_readable_times_threads_do_not_spin_for_long(tmp_path: Path, content: str | None) -> None:
    stat = tmp_path / "stat"
    if content is not None:
        stat.write_text(content)
    assert cpu_times(stat) is None


def test_the_kernel_says_how_long_our_cpus_were_idle() -> None:
    before, after = cpu_times(), cpu_times()
    assert before is not None
    assert after is not None
    assert before.idle > 0.0
    assert before.own <= after.own
