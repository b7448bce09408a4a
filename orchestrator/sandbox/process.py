"""Watch one sandboxed program to its end or to a limit, and leave nothing of it."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from orchestrator.sandbox.capture import Captured, capture, feed
from orchestrator.sandbox.contract import Job, LimitName, Outcome
from orchestrator.sandbox.control_group import ControlGroup
from orchestrator.sandbox.files import collect, is_full
from orchestrator.sandbox.launch import Confinement, Setting, Started, give_orders, start

_SIGNAL_BASE = 128


@dataclass(slots=True)
class SandboxedProcess:
    """A program that has been started. `limit` is the one that ended it."""

    job: Job
    started: Started
    group: ControlGroup | None
    limit: LimitName | None = None

    def kill(self, limit: LimitName | None = None) -> None:
        """End every process of the namespace now, because of a limit or because it is no longer wanted."""
        self.limit = self.limit or limit
        _kill(self.started.first)

    async def outcome(self) -> Outcome:
        """Feed and watch the program to its end or to a limit, then read its files back."""
        clock, keep = asyncio.get_running_loop().time, self.job.limits.output
        child, begun = self.started.child, clock()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(feed(child.stdin, self.job.stdin))
            stdout = tasks.create_task(capture(child.stdout, keep, self._flooded))
            stderr = tasks.create_task(capture(child.stderr, keep, self._flooded))
            await self._end()
        seconds = clock() - begun
        # Nobody may close the work folder while the thread reads it.
        telling = asyncio.ensure_future(asyncio.to_thread(self._tell, stdout.result(), stderr.result(), seconds))
        await to_the_end(telling)
        return telling.result()

    def _flooded(self) -> None:
        self.kill("output")

    async def _end(self) -> None:
        """Wait until the program has ended or its time is over; then nothing of the namespace lives on."""
        try:
            async with asyncio.timeout(self.job.limits.wall):
                await self.started.child.process.wait()
        except TimeoutError:
            self.kill("wall")
        finally:
            self.kill()
        await _ended(self.started)

    def _tell(self, stdout: Captured, stderr: Captured, seconds: float) -> Outcome:
        code, by_signal = (None, None) if self.limit else _exit(self.started.child.process.returncode)
        kept = collect(self.started.work, self.job.keep, self.job.limits.disk)
        return Outcome(
            exit_code=code,
            signal=by_signal,
            limit=None if code == 0 else self.limit or self._limit_met(by_signal),
            stdout=bytes(stdout.text),
            stderr=bytes(stderr.text),
            cut=stdout.cut or stderr.cut or kept.left_out,
            seconds=seconds,
            files=kept.files,
        )

    def _limit_met(self, by_signal: int | None) -> LimitName | None:
        """Return the limit that a program which failed has run into, as far as the kernel tells."""
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
async def sandboxed(setting: Setting, job: Job, means: Confinement) -> AsyncIterator[SandboxedProcess]:
    """Run the job's program while the block lasts. After it no process is left, however it was left.

    Raises ProgramMissing, InvalidJob, and SandboxUnavailable if bubblewrap fails.
    """
    starting = asyncio.ensure_future(start(setting, job, means))
    try:
        await to_the_end(starting)
        started = starting.result()
        await give_orders(setting, job, means, started)
        yield SandboxedProcess(job, started, means.group)
    finally:
        if starting.exception() is None:
            await _leave_nothing(starting.result())


async def _leave_nothing(started: Started) -> None:
    _kill(started.first)
    try:
        await to_the_end(asyncio.ensure_future(_let_go(started)))
    finally:
        started.close()


async def _let_go(started: Started) -> None:
    await _ended(started)
    await started.child.close()


async def to_the_end(task: asyncio.Future[Any]) -> None:
    """Wait for something that is sure to end, even if this task is cancelled meanwhile; then be cancelled.

    Raises what the awaited task raises, unless this one was cancelled.
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


async def _ended(started: Started) -> None:
    """Wait until bubblewrap and all of the namespace have ended: the kernel ends its first process after all others."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(started.first, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(started.first)
    await started.child.process.wait()


def _kill(pidfd: int) -> None:
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except ProcessLookupError:
        return  # it has ended


def _exit(returncode: int | None) -> tuple[int | None, int | None]:
    """Return (exit code, None) or (None, signal). bubblewrap tells of signals as a shell does."""
    assert returncode is not None, "bubblewrap has ended"
    if returncode < 0:
        return None, -returncode
    if returncode - _SIGNAL_BASE in signal.valid_signals():
        return None, returncode - _SIGNAL_BASE
    return returncode, None
