"""Engines that hang are killed, and engines that are only slow are not."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.client.engine import Engine
from orchestrator.engine.client.watchdog import SAMPLES, Activity, Watchdog
from orchestrator.engine.contract import EngineSpec, Generation, Message
from orchestrator.engine.errors import EngineHung, ModelLoadFailed
from tests.orchestrator.forked_engines import children_of_tests

LONG = Generation(messages=(Message("user", "go on"),), max_tokens=1900, grammar='root ::= "a" root')
"""The grammar has no end, so the text takes all tokens that it may have."""
SHORT = Generation(messages=(Message("user", "x"),), max_tokens=2, grammar='root ::= "ab" root')
FRACTIONS = st.floats(0.001, 0.89)


def spec(models: Path, **options: Any) -> EngineSpec:
    return EngineSpec(**{"file": str(models / "quantised.gguf"), "context": 2048, "slots": 2, "threads": 1, **options})


class Timer:
    """A call that is due on the virtual clock."""

    def __init__(self, due: float, call: Callable[[], None]) -> None:
        self.due, self.call, self.cancelled = due, call, False

    def cancel(self) -> None:
        self.cancelled = True


class World:
    """A watchdog on a virtual clock, and the process that it watches."""

    def __init__(self, limit: float) -> None:
        self.now = 0.0
        self.has_work = True
        self.works = False
        self.samples = 0
        self.hung_at: float | None = None
        self._timers: list[Timer] = []
        self.watchdog = Watchdog(
            limit, has_work=lambda: self.has_work, worked=self._worked, on_hung=self._hung, call_later=self._call_later
        )

    def pass_time(self, seconds: float, late: float = 0.0) -> None:
        """Let time pass. Calls that become due are made at their time, or `late` seconds after it."""
        end = self.now + seconds
        while due := [timer for timer in self._timers if timer.due + late <= end and not timer.cancelled]:
            timer = min(due, key=lambda one: one.due)
            self._timers.remove(timer)
            self.now = max(self.now, timer.due + late)
            timer.call()
        self.now = max(self.now, end)

    @property
    def armed(self) -> bool:
        """Whether any call is due later."""
        return any(not timer.cancelled for timer in self._timers)

    def _call_later(self, delay: float, call: Callable[[], None]) -> Timer:
        timer = Timer(self.now + delay, call)
        self._timers.append(timer)
        return timer

    def _worked(self) -> bool:
        self.samples += 1
        worked, self.works = self.works, False
        return worked

    def _hung(self) -> None:
        assert self.hung_at is None, "it is killed once"
        self.hung_at = self.now


@given(st.floats(0.01, 1000), st.lists(st.tuples(FRACTIONS, st.sampled_from(["message", "work", "longer step"]))))
def test_a_process_is_hung_when_its_last_sign_of_life_is_as_old_as_the_limit(
    limit: float, signs: list[tuple[float, str]]
) -> None:
    world = World(limit)
    world.watchdog.start()
    for fraction, sign in signs:
        world.pass_time(fraction * world.watchdog.limit)
        if sign == "work":
            world.works = True
        else:
            world.watchdog.signal()
            world.watchdog.set_limit(limit * (3 if sign == "longer step" else 1))
        assert world.hung_at is None
    last, limit = world.now, world.watchdog.limit
    world.pass_time(2 * limit)
    assert world.hung_at is not None
    assert 0.899 * limit <= world.hung_at - last <= 1.001 * limit
    assert not world.armed


@given(st.lists(st.floats(0, 1e5), min_size=1, max_size=30))
def test_a_late_watchdog_takes_no_working_process_for_hung(delays: list[float]) -> None:
    world = World(10.0)
    world.watchdog.start()
    for delay in delays:
        world.works = True
        world.pass_time(1.0 + delay, late=delay)
    assert world.hung_at is None


def test_time_without_samples_is_not_counted() -> None:
    world = World(10.0)
    world.watchdog.start()
    world.pass_time(1.0)
    for number in range(1, SAMPLES + 1):
        assert world.hung_at is None, number
        world.pass_time(1e6 + 1, late=1e6)
    assert world.hung_at is not None


@pytest.mark.parametrize("sign", ["message", "work"])
def test_a_sign_of_life_restarts_the_count(sign: str) -> None:
    world = World(10.0)
    world.watchdog.start()
    for _ in range(5):
        world.pass_time(8.95)
        world.works = sign == "work"
        if sign == "message":
            world.watchdog.signal()
    assert world.hung_at is None


def test_without_work_there_is_no_timer() -> None:
    world = World(10.0)
    world.has_work = False
    world.watchdog.start()
    assert not world.armed
    world.has_work = True
    world.watchdog.start()
    world.pass_time(3.5)
    world.has_work = False
    world.pass_time(1.0)
    before = world.samples
    world.pass_time(1000.0)
    assert (world.samples, world.armed, world.hung_at) == (before, False, None)


def test_time_without_work_is_not_counted() -> None:
    world = World(10.0)
    world.watchdog.start()
    world.pass_time(9.5)
    world.has_work = False
    world.pass_time(0.1)
    world.has_work = True
    world.watchdog.signal()
    world.watchdog.start()
    world.pass_time(8.0)
    assert world.hung_at is None


@contextlib.contextmanager
def process(program: str) -> Iterator[subprocess.Popen[str]]:
    """Run a Python program until the block ends; it has said "ready" when this begins."""
    command = [sys.executable, "-c", program]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == "ready\n"
        yield child
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()


def quiet(activity: Activity) -> bool:
    """Return whether a process does no work in at least one of many short periods."""
    for _ in range(600):
        activity.worked()
        time.sleep(0.05)
        if not activity.worked():
            return True
    return False


BUSY = "print('ready', flush=True)\nwhile True: pass"
NOW_AND_THEN = "import time\nprint('ready', flush=True)\nwhile True: time.sleep(0.01)"
BLOCKED = """
import threading
held = threading.Lock()
held.acquire()
for _ in range(3): threading.Thread(target=held.acquire).start()
print('ready', flush=True)
held.acquire()
"""
UNINTERRUPTIBLE = """
import ctypes
libc = ctypes.CDLL(None)
print('ready', flush=True)
if libc.vfork() == 0: libc.pause()  # the parent is in state D until the child is gone
"""


def test_a_process_works_while_it_computes_and_not_while_it_is_stopped() -> None:
    with process(BUSY) as child:
        activity = Activity(child.pid)
        assert all(activity.worked() for _ in range(50)), "it runs, or waits for a core"
        child.send_signal(signal.SIGSTOP)
        assert quiet(activity)
        assert activity.states() == {"T"}
        child.send_signal(signal.SIGCONT)
        assert activity.worked()


def test_a_process_that_sleeps_at_every_sample_works() -> None:
    with process(NOW_AND_THEN) as child:
        activity = Activity(child.pid)
        for _ in range(20):
            time.sleep(0.05)
            assert activity.worked()


@pytest.mark.parametrize(("program", "state"), [(BLOCKED, "S"), (UNINTERRUPTIBLE, "D")])
def test_a_process_whose_threads_wait_does_not_work(program: str, state: str) -> None:
    with process(program) as child:
        activity = Activity(child.pid)
        assert quiet(activity)
        assert activity.states() == {state}


def test_a_process_that_is_gone_does_not_work() -> None:
    with process(BUSY) as child:
        activity = Activity(child.pid)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        activity.worked()
        assert not activity.worked(), "a zombie"
    activity.worked()
    assert not activity.worked()
    assert activity.states() == set()


async def running(engine: Engine) -> "asyncio.Task[object]":
    """Start a long generation and return when it decodes."""
    started = asyncio.Event()
    task: asyncio.Task[object] = asyncio.ensure_future(engine.generate(LONG, lambda _: started.set()))
    await started.wait()
    return task


async def test_a_stopped_engine_is_killed_and_an_idle_one_is_not(models: Path) -> None:
    engine = await Engine.start(spec(models, hung_seconds=2.0))
    await asyncio.sleep(2.5)  # idle: without work
    task = await running(engine)
    os.kill(engine.info.pid, signal.SIGSTOP)
    with pytest.raises(EngineHung, match=r"^the engine process of quantised\.gguf was stopped by a signal .* for 2 s"):
        await asyncio.wait_for(task, 60)
    assert not psutil.pid_exists(engine.info.pid)


async def test_an_engine_that_stopped_while_it_was_idle_is_found_by_the_next_request(models: Path) -> None:
    engine = await Engine.start(spec(models, hung_seconds=1.0))
    os.kill(engine.info.pid, signal.SIGSTOP)
    with pytest.raises(EngineHung):
        await asyncio.wait_for(engine.generate(SHORT), 60)
    assert not psutil.pid_exists(engine.info.pid)


DEADLOCK = """
import threading
def replaced(*args):
    held = threading.Lock()
    held.acquire()
    held.acquire()
"""


async def test_an_engine_in_a_deadlock_is_found(models: Path, sabotage: Callable[[str, str], None]) -> None:
    sabotage("orchestrator.engine.worker.loop:Loop._sample", DEADLOCK)
    engine = await Engine.start(spec(models, threads=2, hung_seconds=1.0))  # the other thread has computed by then
    with pytest.raises(EngineHung, match="was blocked, using no CPU time, for 1 s and was killed"):
        await asyncio.wait_for(engine.generate(SHORT), 60)
    assert not psutil.pid_exists(engine.info.pid)


async def test_a_deadlock_while_loading_is_found(models: Path, sabotage: Callable[[str, str], None]) -> None:
    sabotage("orchestrator.engine.llama.model:load_model", DEADLOCK)
    with pytest.raises(ModelLoadFailed, match="was blocked") as caught:
        await asyncio.wait_for(Engine.start(spec(models, load_seconds=1.0)), 60)
    assert caught.value.kind == "hung"
    assert not children_of_tests()


async def test_loading_may_take_longer_than_its_limit_while_it_makes_progress(models: Path) -> None:
    slow = spec(models, load_seconds=0.02, niceness=19)
    begun = time.monotonic()
    async with await Engine.start(slow) as engine:
        assert time.monotonic() - begun > slow.load_seconds, "or this shows nothing"
        assert (await engine.generate(SHORT)).usage.output_tokens == 2


@contextlib.contextmanager
def busy(cpu: int, count: int) -> Iterator[None]:
    """Keep one CPU busy with so many processes at normal priority."""
    program = f"import os\nos.sched_setaffinity(0, {{{cpu}}})\n{BUSY}"
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(process(program))
        yield


@pytest.mark.slow
async def test_an_engine_that_hardly_gets_a_core_is_left_alone_and_finishes(models: Path) -> None:
    cpu = min(os.sched_getaffinity(0))
    starved = spec(models, hung_seconds=0.5, niceness=19, cpus=(cpu,))
    came = [float("inf")]
    silent = asyncio.Event()

    def on_text(_: str) -> None:
        came.append(time.monotonic())
        if came[-1] - came[-2] > 2 * starved.hung_seconds:
            silent.set()

    async with await Engine.start(starved) as engine:
        with contextlib.suppress(OSError):  # Linux may share cores among sessions, of which the engine is one
            Path(f"/proc/{engine.info.pid}/autogroup").write_text("19")  # noqa: ASYNC240 (no disk is behind it)
        with busy(cpu, 12):
            generation = asyncio.ensure_future(engine.generate(replace(LONG, max_tokens=400), on_text))
            silence = asyncio.ensure_future(silent.wait())
            await asyncio.wait([generation, silence], return_when=asyncio.FIRST_COMPLETED)
            assert silent.is_set(), "it got too much of the core to show anything"
        assert (await generation).finish == "length"
