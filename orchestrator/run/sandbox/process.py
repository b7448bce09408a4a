"""Watch one sandboxed program to its end or to a limit, and leave no process of it behind."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from orchestrator.run.sandbox.contract import JobOutcome, LimitName, SandboxJob
from orchestrator.run.sandbox.control_group import ControlGroup
from orchestrator.run.sandbox.files import collect_files, is_full
from orchestrator.run.sandbox.launch import Confinement, SandboxConfig, StartedSandbox, start, start_program

_SIGNAL_BASE = 128
_CHUNK = 64 * 1024
# A program that writes this many times more output than is kept is killed.
_FLOOD_FACTOR = 16
_TAKE_DOWN = 5  # niceness of a job that is killed
# How long a program may run if it waits for cores, and how often that is checked, as multiples of `wall`.
_LONGEST, _LEAST = 4.0, 0.1


@dataclass(slots=True)
class CapturedStream:
    """The beginning of a program's stdout or stderr."""

    text: bytearray = field(default_factory=bytearray)
    cut: bool = False  # the program wrote more


@dataclass(slots=True)
class SandboxedProcess:
    """A started program. `limit` is the limit for which it was killed, if any."""

    job: SandboxJob
    started: StartedSandbox
    group: ControlGroup | None
    limit: LimitName | None = None
    starved: bool = False  # killed because it hardly got a core

    def kill(self, limit: LimitName | None = None) -> None:
        """Kill every process of the sandbox now, at a limit or because the job is no longer needed."""
        self.limit = self.limit or limit
        _kill(self.started.first, self.group)

    async def outcome(self) -> JobOutcome:
        """Write stdin, read the output until the program ends or meets a limit, then read its files back."""
        clock, keep = asyncio.get_running_loop().time, self.job.limits.output
        child, begun = self.started.child, clock()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_feed(child.stdin, self.job.stdin))
            stdout = tasks.create_task(_capture(child.stdout, keep, self._on_flood))
            stderr = tasks.create_task(_capture(child.stderr, keep, self._on_flood))
            await self._wait_or_kill()
        seconds = clock() - begun
        # The work folder must stay open while the thread reads it.
        collecting = asyncio.ensure_future(
            asyncio.to_thread(self._collect_outcome, stdout.result(), stderr.result(), seconds)
        )
        await wait_despite_cancellation(collecting)
        return collecting.result()

    def _on_flood(self) -> None:
        self.kill("output")

    async def _wait_or_kill(self) -> None:
        clock = asyncio.get_running_loop().time
        begun, remaining = clock(), self.job.limits.wall
        try:
            while not await self._ends_within(remaining):
                remaining = await self._time_left(clock() - begun)
                if remaining <= 0:
                    self.kill("wall")
        finally:
            self.kill()
        await _ended(self.started)

    async def _ends_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self.started.child.process.wait()
        except TimeoutError:
            return self.limit is not None
        return True

    async def _time_left(self, elapsed: float) -> float:
        # What the program has waited for a core does not count in its limit.
        wall, used = self.job.limits.wall, None if self.group is None else self.group.cpu_seconds()
        waited = await asyncio.to_thread(waited_seconds, self.started.pid)
        remaining = wall - (elapsed - waited) if used is None or used < self.job.limits.cpu else 0.0
        self.starved = remaining > 0 and elapsed >= _LONGEST * wall
        return 0.0 if self.starved or remaining <= 0 else min(max(remaining, _LEAST * wall), _LONGEST * wall - elapsed)

    def _collect_outcome(self, stdout: CapturedStream, stderr: CapturedStream, seconds: float) -> JobOutcome:
        code, by_signal = (None, None) if self.limit else _exit(self.started.child.process.returncode)
        collected = collect_files(self.started.work, self.job.keep, self.job.limits.disk)
        return JobOutcome(
            exit_code=code,
            signal=by_signal,
            limit=None if code == 0 else self.limit or self._limit_met(by_signal),
            stdout=bytes(stdout.text),
            stderr=bytes(stderr.text),
            cut=stdout.cut or stderr.cut or collected.left_out,
            starved=self.starved,
            seconds=seconds,
            cpu_seconds=None if self.group is None else self.group.cpu_seconds(),
            files=collected.files,
        )

    def _limit_met(self, by_signal: int | None) -> LimitName | None:
        # As far as the kernel reports it.
        if by_signal == signal.SIGXCPU:
            return "cpu"
        if self.group is not None and self.group.ran_out_of_memory():
            return "memory"
        if by_signal == signal.SIGXFSZ or is_full(self.started.work):
            return "disk"
        if self.group is not None and self.group.ran_out_of_processes():
            return "processes"
        return None


@asynccontextmanager
async def run_sandboxed(
    config: SandboxConfig, job: SandboxJob, confinement: Confinement
) -> AsyncIterator[SandboxedProcess]:
    """Run the job's program during the block. However the block is left, no process remains.

    Raises ProgramMissing, InvalidJob, or SandboxUnavailable if bubblewrap fails.
    """
    starting = asyncio.ensure_future(start(config, job, confinement))
    try:
        await wait_despite_cancellation(starting)
        started = starting.result()
        await start_program(config, job, confinement, started)
        yield SandboxedProcess(job, started, confinement.group)
    finally:
        if starting.exception() is None:
            await _clean_up(starting.result(), confinement.group)


async def _clean_up(started: StartedSandbox, group: ControlGroup | None) -> None:
    _kill(started.first, group)
    try:
        await wait_despite_cancellation(asyncio.ensure_future(_wait_and_close(started)))
    finally:
        started.close()


async def _wait_and_close(started: StartedSandbox) -> None:
    await _ended(started)
    await started.child.close()


async def wait_despite_cancellation(task: asyncio.Future[Any]) -> None:
    """Wait for a task that is sure to end, even if the current task is cancelled.

    Then raises CancelledError if the current task was cancelled, else what the awaited task raises.
    """
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    task.result()


async def _ended(started: StartedSandbox) -> None:
    # The first process of a namespace ends last.
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(started.first, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(started.first)
    await started.child.process.wait()


def _kill(pidfd: int, group: ControlGroup | None) -> None:
    # Killing the first process kills all others.
    if group is not None:
        with contextlib.suppress(OSError):  # the group has been removed
            # All processes need processor time to end.
            group.set_niceness(_TAKE_DOWN)
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except ProcessLookupError:
        return  # it has ended


def _exit(returncode: int | None) -> tuple[int | None, int | None]:
    # (exit code, None) or (None, signal). Like a shell, bubblewrap reports signal n as exit code 128 + n.
    assert returncode is not None, "bubblewrap has ended"
    if returncode < 0:
        return None, -returncode
    if returncode - _SIGNAL_BASE in signal.valid_signals():
        return None, returncode - _SIGNAL_BASE
    return returncode, None


async def _capture(stream: asyncio.StreamReader, keep: int, on_flood: Callable[[], None]) -> CapturedStream:
    # The first `keep` bytes. Calls `on_flood` once if there is far more.
    captured = CapturedStream()
    total = 0
    while chunk := await stream.read(_CHUNK):
        if total <= keep * _FLOOD_FACTOR < total + len(chunk):
            on_flood()
        total += len(chunk)
        captured.text += chunk[: keep - len(captured.text)]
        captured.cut = total > keep
    return captured


async def _feed(stream: asyncio.StreamWriter, content: bytes) -> None:
    # A program need not read all of its stdin.
    try:
        stream.write(content)
        await stream.drain()
    except (BrokenPipeError, ConnectionResetError):
        return
    finally:
        stream.close()


_NANOSECONDS = 1e9
_TICKS = os.sysconf("SC_CLK_TCK")
# Which field after the state is the start of a thread, in ticks since boot (proc_pid_stat(5)).
_START = 18


def waited_seconds(ancestor: int) -> float:
    """Return the longest wait for a core of any thread of a process's descendants.

    The kernel counts it for living threads (schedstats, Linux `Documentation/scheduler/sched-stats.rst`); 0.0 if it
    does not, or if the process has ended.
    """
    try:
        descendants = psutil.Process(ancestor).children(recursive=True)
    except psutil.NoSuchProcess:
        return 0.0
    return max((_waited(thread) for process in descendants for thread in _threads(process.pid)), default=0.0)


def _threads(pid: int) -> list[Path]:
    try:
        return list(Path("/proc", str(pid), "task").iterdir())
    except OSError:
        return []  # it has ended meanwhile


def _waited(thread: Path) -> float:
    with contextlib.suppress(OSError, IndexError, ValueError):
        computed, waited = map(int, (thread / "schedstat").read_text(encoding="ascii").split()[:2])
        state, *fields = (thread / "stat").read_text(encoding="utf-8").rpartition(") ")[2].split()
        if state != "R":
            return waited / _NANOSECONDS
        # The kernel adds a wait only when it is over: for a thread that could run now, all its time without a core
        # counts.
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[_START]) / _TICKS
        return max(waited, age * _NANOSECONDS - computed) / _NANOSECONDS
    return 0.0
