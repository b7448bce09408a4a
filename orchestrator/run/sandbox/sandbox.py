"""Run model-written programs, each in its own sandbox. Nothing else in this repository runs them."""

import asyncio
import os
import platform
import re
import secrets
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import structlog

from orchestrator.run.sandbox import inside
from orchestrator.run.sandbox.bubblewrap import MINIMUM_VERSION
from orchestrator.run.sandbox.contract import MIB, JobOutcome, SandboxJob, SandboxLimits
from orchestrator.run.sandbox.control_group import ControlGroup, ControlGroups, find_control_groups, remove_quietly
from orchestrator.run.sandbox.errors import InvalidJob, SandboxUnavailable
from orchestrator.run.sandbox.files import check_names
from orchestrator.run.sandbox.filesystem import environment, host_filesystem
from orchestrator.run.sandbox.launch import Confinement, SandboxConfig, can_join
from orchestrator.run.sandbox.memory_budget import MemoryBudget, fit_to_budget, memory_cost
from orchestrator.run.sandbox.niceness import DEFAULT, IDLE, LOWEST, Niceness
from orchestrator.run.sandbox.probe import ProbeResult, containment_job, evaluate, memory_job
from orchestrator.run.sandbox.process import SandboxedProcess, run_sandboxed, wait_despite_cancellation
from orchestrator.run.sandbox.rlimits import OWN_PROCESSES
from orchestrator.run.sandbox.seccomp import filter_program
from orchestrator.run.sandbox.session import Session

_COUNT = 4096
# The first range is "unused" in systemd's table of uids; the second is for containers, which often map only 65536.
_STARTS = (2_000_000_000, 60_000)
_UID_MAP = Path("/proc/self/uid_map")

log = structlog.get_logger(__name__)


class UidPool:
    def __init__(self, start: int, count: int = _COUNT) -> None:
        self._start = start
        self._count = count
        self._in_use: set[int] = set()

    @classmethod
    def for_this_machine(cls) -> "UidPool":
        """Return unused uids that are mapped here. Raises SandboxUnavailable if there are none."""
        text = _UID_MAP.read_text(encoding="ascii")
        extents = [tuple(map(int, line.split())) for line in text.splitlines()]
        for start in _STARTS:
            if any(first <= start and start + _COUNT <= first + length for first, _, length in extents):
                return cls(start)
        raise SandboxUnavailable(f"no unused uids are mapped here ({text.strip()}); map 65536, or run it as a user")

    @contextmanager
    def acquire(self) -> Iterator[int]:
        """Hold a uid that no other job of this process has."""
        free = [uid for uid in range(self._start, self._start + self._count) if uid not in self._in_use]
        # Random, as other processes may use the same range.
        uid = secrets.choice(free)
        self._in_use.add(uid)
        try:
            yield uid
        finally:
            self._in_use.discard(uid)


_AUTOGROUP = Path("/proc/sys/kernel/sched_autogroup_enabled")


@dataclass(frozen=True, slots=True)
class Sandbox:
    """Runs jobs on this machine. `probe` returns one after checking that it contains programs."""

    config: SandboxConfig
    groups: ControlGroups | None  # None if no control group can limit a job's memory
    uids: UidPool | None  # None if we are not root: jobs run under our own uid
    budget: MemoryBudget
    probe_result: ProbeResult | None = None  # None until the probe has succeeded

    @classmethod
    async def probe(cls, budget: int | None = None) -> "Sandbox":
        """Return this machine's sandbox, after programs in it have tried, and failed, to do what they must not.

        `budget` is the memory of all jobs together, in bytes; by default half of the machine's. Raises
        SandboxUnavailable with the reason if there is no working sandbox. Model-written code must not be run then.
        """
        bwrap, groups = _find_bubblewrap(), _working_groups()
        allowed = filter_program(sessions=_sessions_are_harmless(groups))
        config = SandboxConfig(bwrap, host_filesystem(), allowed, inside.__file__)
        uids = UidPool.for_this_machine() if os.geteuid() == 0 else None
        total = budget or psutil.virtual_memory().total // 2
        sandbox = cls(config, groups, uids, MemoryBudget(total))
        names = frozenset(environment(config.view))
        contained, memory = await sandbox.run(containment_job(names)), await sandbox.run(memory_job())
        return replace(sandbox, probe_result=evaluate(contained, memory))

    def describe(self) -> str:
        """Return one line that says how jobs are contained on this machine."""
        by = f"control group v{self.groups.version}" if self.groups else "address space of each process"
        probed = self.probe_result
        uid = f"uid {probed.uid}" if probed else "not probed"
        kind = "namespaces of root" if self.uids else "user namespace"
        budget = f"{self.budget.total // MIB} MiB together"
        contained = f"{self.config.bwrap}: {kind}, no network, {uid}, seccomp filter, memory by {by} ({budget})"
        if self.groups is not None and self.groups.weight is not None:
            return f"{contained}, processor time by control group"
        sessions = "" if _sessions_are_harmless(self.groups) else ", no new sessions (setsid)"
        return f"{contained}, processor time by niceness{sessions}"

    def showing(self, paths: Sequence[str]) -> "Sandbox":
        """Return this sandbox with further folders and files that its programs see read-only, at their own paths.

        It shares memory budget, uids and control groups. Raises InvalidJob for a path that is not absolute, is the
        root, or is neither a folder nor a regular file.
        """
        for path in paths:
            usable = os.path.isabs(path) and os.path.realpath(path) != "/"
            if not usable or not (os.path.isdir(path) or os.path.isfile(path)):
                accepted = "an absolute path of a folder or a file"
                raise InvalidJob(f"{path!r} cannot be shown in the sandbox; accepted: {accepted}")
        view = self.config.view
        shown = (*view.readable, *(path for path in map(os.path.normpath, paths) if path not in view.readable))
        return replace(self, config=replace(self.config, view=replace(view, readable=shown)))

    async def run(self, job: SandboxJob, niceness: Niceness | None = None) -> JobOutcome:
        """Run a program until it ends or meets a limit, as soon as the budget has enough memory.

        `niceness` may be set while the program runs; by default that of the job's limits counts. Raises InvalidJob,
        ProgramMissing or SandboxUnavailable. On cancellation, CancelledError is raised only after every process of the
        job has ended.
        """
        async with self._process(job, None, niceness) as process:
            return await process.outcome()

    @asynccontextmanager
    async def open(self, job: SandboxJob, niceness: Niceness | None = None) -> AsyncIterator[Session]:
        """Run a program and exchange messages with it during the block, then kill it. Raises as `run` does."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            async with self._process(job, theirs.fileno(), niceness) as process:
                theirs.close()
                reader, writer = await asyncio.open_connection(sock=ours)
                outcome = asyncio.create_task(process.outcome())  # awaited below, whatever happens
                try:
                    yield Session(process, outcome, reader, writer)
                finally:
                    process.kill()
                    await wait_despite_cancellation(outcome)
                    writer.close()

    @asynccontextmanager
    async def _process(
        self, job: SandboxJob, channel: int | None, niceness: Niceness | None
    ) -> AsyncIterator[SandboxedProcess]:
        _check(job)
        counted = self.groups is not None
        job = replace(job, limits=fit_to_budget(job.limits, self.budget.total, counted=counted))
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.budget.reserve(memory_cost(job.limits, counted=counted)))
            uid = stack.enter_context(self.uids.acquire()) if self.uids else None
            group = self._group(job, stack)
            niceness = niceness or Niceness(_own_niceness(job.limits))
            stack.callback(niceness.release)
            confinement = Confinement(uid, group, niceness, channel)
            yield await stack.enter_async_context(run_sandboxed(self.config, job, confinement))

    def _group(self, job: SandboxJob, stack: AsyncExitStack) -> ControlGroup | None:
        if self.groups is None:
            return None
        try:
            group = self.groups.create(job.limits, OWN_PROCESSES)
        except OSError as error:
            raise SandboxUnavailable(f"a control group cannot be created: {error}") from error
        stack.callback(remove_quietly, group)
        return group


def _own_niceness(limits: SandboxLimits) -> int:
    if limits.idle:
        return IDLE
    return DEFAULT if limits.niceness is None else limits.niceness


def _check(job: SandboxJob) -> None:
    if not job.argv or any("\0" in part for part in job.argv):
        raise InvalidJob("a job needs argv: the program and its arguments, without NUL bytes")
    limits = job.limits
    numbers = (limits.wall, limits.cpu, limits.memory, limits.processes, limits.disk, limits.output)
    if min(numbers) <= 0 or not 0 <= (limits.niceness or 0) <= LOWEST:
        raise InvalidJob(f"{limits} has a limit that is not above 0, or a niceness beyond 0 to {LOWEST}")
    check_names(job.files, limits.disk)


def _find_bubblewrap() -> str:
    if platform.system() != "Linux":
        raise SandboxUnavailable(f"it needs Linux, this is {platform.system()}")
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise SandboxUnavailable("bubblewrap is not installed; on Debian or Ubuntu: apt-get install bubblewrap")
    try:
        version = subprocess.run([bwrap, "--version"], capture_output=True, text=True, check=False).stdout  # noqa: S603
    except OSError as error:
        raise SandboxUnavailable(f"{bwrap} cannot be run: {error}") from error
    if tuple(map(int, re.findall(r"\d+", version))) < MINIMUM_VERSION:
        least = ".".join(map(str, MINIMUM_VERSION))
        raise SandboxUnavailable(f"{bwrap} is {version.strip() or 'of no known version'}; bubblewrap {least} is needed")
    return bwrap


def _working_groups() -> ControlGroups | None:
    # Memory limits matter more than weight and count of processor time: do without these if they cannot be had.
    groups = find_control_groups()
    if groups is None:
        return None
    groups.sweep()
    lesser = (groups, replace(groups, weight=None), replace(groups, weight=None, cpu=None))
    return next(filter(_works, lesser), None)


def _sessions_are_harmless(groups: ControlGroups | None) -> bool:
    # A program gains processor time by a new session if the kernel shares it among sessions (autogroup, sched(7)),
    # as it does for processes outside of all control groups that weigh it.
    if groups is not None and groups.weight is not None:
        return True
    try:
        return _AUTOGROUP.read_text(encoding="ascii").strip() != "1"
    except OSError:
        return True  # the kernel was built without it


def _works(groups: ControlGroups) -> bool:
    try:
        group = groups.create(SandboxLimits(), OWN_PROCESSES)
    except OSError:
        return False
    try:
        return can_join(group)
    finally:
        remove_quietly(group)


class SandboxOnDemand:
    """Probes for the sandbox at each use until it is available, since what is missing may be installed meanwhile."""

    def __init__(self) -> None:
        self._probing = asyncio.Lock()
        self._sandbox: Sandbox | None = None

    async def __call__(self) -> Sandbox:
        """Raises SandboxUnavailable."""
        async with self._probing:
            if self._sandbox is None:
                self._sandbox = await Sandbox.probe()
                log.info("the sandbox is available", how=self._sandbox.describe())
            return self._sandbox


async def why_no_sandbox(sandbox: Callable[[], Awaitable[Sandbox]]) -> str:
    """Return why the sandbox is not available; empty if it is."""
    try:
        await sandbox()
    except SandboxUnavailable as error:
        return str(error)
    return ""


class Interpreters:
    """Opens the interpreter sessions of all runs, which together may use a third of the sandbox's memory."""

    def __init__(self, sandbox: Callable[[], Awaitable[Sandbox]]) -> None:
        self._sandbox = sandbox
        self._turns: asyncio.Semaphore | None = None

    @asynccontextmanager
    async def open(self, job: SandboxJob) -> AsyncIterator[Session]:
        """Open a session for the block. Waits until there is room. Raises SandboxError."""
        sandbox = await self._sandbox()
        if self._turns is None:
            cost = memory_cost(job.limits, counted=sandbox.groups is not None)
            # Without a limit, steps could wait for each other's memory for ever: their code may call tools that need
            # memory, too.
            self._turns = asyncio.Semaphore(max(1, sandbox.budget.total // 3 // cost))
        async with self._turns, sandbox.open(job) as session:
            yield session
