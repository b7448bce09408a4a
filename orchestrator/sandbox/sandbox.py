"""Run model-written programs, each in a sandbox of its own: the only place that does."""

import asyncio
import os
import platform
import re
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

import psutil

from orchestrator.sandbox import inside
from orchestrator.sandbox.bubblewrap import MINIMUM_VERSION
from orchestrator.sandbox.budget import Budget, affordable, cost
from orchestrator.sandbox.contract import MIB, Job, Limits, Outcome
from orchestrator.sandbox.control_group import ControlGroup, ControlGroups, find_control_groups, remove_quietly
from orchestrator.sandbox.errors import InvalidJob, SandboxUnavailable
from orchestrator.sandbox.files import check_names
from orchestrator.sandbox.identities import Identities
from orchestrator.sandbox.launch import Confinement, Setting, can_join
from orchestrator.sandbox.limits import OWN_PROCESSES
from orchestrator.sandbox.probe import Findings, judge, looking, taking_memory
from orchestrator.sandbox.process import SandboxedProcess, sandboxed, to_the_end
from orchestrator.sandbox.seccomp import filter_program
from orchestrator.sandbox.session import Session
from orchestrator.sandbox.view import environment, installation_view


@dataclass(frozen=True, slots=True)
class Sandbox:
    """What it takes to run jobs here. It is had by `probe`, which has seen it contain something.

    `groups` is None where memory cannot be counted by a control group, `identities` where we are not root. `findings`
    are the probe's.
    """

    setting: Setting
    groups: ControlGroups | None
    identities: Identities | None
    budget: Budget
    findings: Findings | None = None

    @classmethod
    async def probe(cls, budget: int | None = None) -> "Sandbox":
        """Return the sandbox of this machine, after programs in it have tried what they must not be able to do.

        `budget` is the memory of all jobs together, in bytes; the default is half of the machine's. Raises
        SandboxUnavailable with the reason; nothing may be run then.
        """
        setting = Setting(_find_bubblewrap(), installation_view(), filter_program(), inside.__file__)
        identities = Identities.of_this_machine() if os.geteuid() == 0 else None
        total = budget or psutil.virtual_memory().total // 2
        sandbox = cls(setting, _working_groups(), identities, Budget(total))
        names = frozenset(environment(setting.view))
        looked, took = await sandbox.run(looking(names)), await sandbox.run(taking_memory())
        return replace(sandbox, findings=judge(looked, took))

    def describe(self) -> str:
        """Say in one line what contains a job here, as the probe has found it."""
        by = f"control group v{self.groups.version}" if self.groups else "address space of each process"
        found = self.findings
        who = f"uid {found.uid}" if found else "not probed"
        kind = "namespaces of root" if self.identities else "user namespace"
        budget = f"{self.budget.total // MIB} MiB together"
        return f"{self.setting.bwrap}: {kind}, no network, {who}, seccomp filter, memory by {by} ({budget})"

    async def run(self, job: Job) -> Outcome:
        """Run a program to its end, or to a limit. Waits until its memory is free among the running jobs.

        Raises InvalidJob, ProgramMissing, SandboxUnavailable. When the awaiting task is cancelled, every process of the
        job has ended before the cancellation goes on.
        """
        async with self._process(job, None) as process:
            return await process.outcome()

    @asynccontextmanager
    async def open(self, job: Job) -> AsyncIterator[Session]:
        """Run a program while the block lasts, and talk to it. It is killed when the block is left. Raises as `run`."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            async with self._process(job, theirs.fileno()) as process:
                theirs.close()
                reader, writer = await asyncio.open_connection(sock=ours)
                outcome = asyncio.create_task(process.outcome())  # awaited below, whatever happens
                try:
                    yield Session(process, outcome, reader, writer)
                finally:
                    process.kill()
                    await to_the_end(outcome)
                    writer.close()

    @asynccontextmanager
    async def _process(self, job: Job, channel: int | None) -> AsyncIterator[SandboxedProcess]:
        _check(job)
        counted = self.groups is not None
        job = replace(job, limits=affordable(job.limits, self.budget.total, counted=counted))
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.budget.share(cost(job.limits, counted=counted)))
            uid = stack.enter_context(self.identities.lend()) if self.identities else None
            group = self._group(job, stack)
            means = Confinement(uid, group, channel)
            yield await stack.enter_async_context(sandboxed(self.setting, job, means))

    def _group(self, job: Job, stack: AsyncExitStack) -> ControlGroup | None:
        if self.groups is None:
            return None
        try:
            group = self.groups.create(job.limits, OWN_PROCESSES)
        except OSError as error:
            raise SandboxUnavailable(f"a control group cannot be made: {error}") from error
        stack.callback(remove_quietly, group)
        return group


def _check(job: Job) -> None:
    if not job.argv or any("\0" in part for part in job.argv):
        raise InvalidJob("a job needs argv: the program and its arguments, without NUL bytes")
    limits = job.limits
    numbers = (limits.wall, limits.cpu, limits.memory, limits.processes, limits.disk, limits.output)
    if min(numbers) <= 0 or not 0 <= limits.niceness <= 19:
        raise InvalidJob(f"{limits} has a limit that is not above 0, or a niceness beyond 0 to 19")
    check_names(job.files, limits.disk)


def _find_bubblewrap() -> str:
    """Return the path of bubblewrap. Raises SandboxUnavailable if there is none, or one that is too old."""
    if platform.system() != "Linux":
        raise SandboxUnavailable(f"it needs Linux, this is {platform.system()}")
    found = shutil.which("bwrap")
    if found is None:
        raise SandboxUnavailable("bubblewrap is not installed; on Debian or Ubuntu: apt-get install bubblewrap")
    try:
        told = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout  # noqa: S603
    except OSError as error:
        raise SandboxUnavailable(f"{found} cannot be run: {error}") from error
    if tuple(map(int, re.findall(r"\d+", told))) < MINIMUM_VERSION:
        least = ".".join(map(str, MINIMUM_VERSION))
        raise SandboxUnavailable(f"{found} is {told.strip() or 'of no known version'}; bubblewrap {least} is needed")
    return found


def _working_groups() -> ControlGroups | None:
    """Return where control groups can be made, after making and joining one; None where they cannot."""
    groups = find_control_groups()
    if groups is None:
        return None
    groups.sweep()
    try:
        group = groups.create(Limits(), OWN_PROCESSES)
    except OSError:
        return None
    try:
        return groups if can_join(group) else None
    finally:
        remove_quietly(group)
