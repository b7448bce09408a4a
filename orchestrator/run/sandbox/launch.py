"""Start bubblewrap for a job and, when its sandbox is set up, the job's program."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from orchestrator.run.sandbox import inside
from orchestrator.run.sandbox.bubblewrap import NOBODY, Descriptors, command_line
from orchestrator.run.sandbox.contract import SandboxJob
from orchestrator.run.sandbox.control_group import ControlGroup
from orchestrator.run.sandbox.errors import InvalidJob, ProgramMissing, SandboxUnavailable, StartTimeout
from orchestrator.run.sandbox.files import write_files
from orchestrator.run.sandbox.filesystem import WORK, FilesystemView, environment, etc_files
from orchestrator.run.sandbox.niceness import DEFAULT, LOWEST, Niceness
from orchestrator.run.sandbox.rlimits import resource_limits

_START_SECONDS = 60.0
_INFO = 4096
_REASON = 2000
_CHUNK = 64 * 1024
# The highest niceness while a sandbox is set up, which takes as long as a short job but must not take for ever.
_SET_UP = 14
_PAUSE = 0.11
_JOIN = 'for group in $1; do echo 0 >"$group" || exit 125; done; shift; exec "$@"'


@dataclass(frozen=True, slots=True)
class SandboxConfig:
    bwrap: str  # path of bubblewrap
    view: FilesystemView
    seccomp: bytes  # the system call filter
    launcher: str  # path of `inside.py`


@dataclass(frozen=True, slots=True)
class Confinement:
    """The sandbox of one job."""

    uid: int | None  # None if the job keeps ours, in a user namespace
    group: ControlGroup | None
    niceness: Niceness
    channel: int | None = None  # the program's end of a session's channel


@dataclass(frozen=True, slots=True)
class BubblewrapProcess:
    """Bubblewrap's process; later its pipes are those of the job's program."""

    process: asyncio.subprocess.Process
    stdin: asyncio.StreamWriter
    stdout: asyncio.StreamReader
    stderr: asyncio.StreamReader

    @classmethod
    async def start(cls, command: list[str], descriptors: tuple[int, ...]) -> "BubblewrapProcess":
        """Run the command with an empty environment and these descriptors. Raises OSError."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            pass_fds=descriptors,
            env={},
            cwd="/",
            start_new_session=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        return cls(process, process.stdin, process.stdout, process.stderr)

    async def read_stderr(self) -> str:
        return (await self.stderr.read(_REASON)).decode("utf-8", "replace").strip()

    async def close(self) -> None:
        """Wait for the end of the process."""
        self.stdin.close()
        await self.process.wait()
        # asyncio closes the pipes only when they are read to their end.
        for stream in (self.stdout, self.stderr):
            while await stream.read(_CHUNK):
                continue


@dataclass(frozen=True, slots=True)
class Spawned:
    """A bubblewrap that may still be setting up its sandbox."""

    child: BubblewrapProcess
    info: int  # descriptor with the pid of the namespace's first process, as JSON


@dataclass(frozen=True, slots=True)
class StartedSandbox:
    """A sandbox that is set up; its launcher waits for a request."""

    child: BubblewrapProcess
    first: int  # pidfd of the first process of the PID namespace
    pid: int  # the same process's id, as we see it
    work: int  # descriptor of the work folder

    def close(self) -> None:
        """Close the descriptors. The work folder and its files cease to exist."""
        os.close(self.first)
        os.close(self.work)


async def start(config: SandboxConfig, job: SandboxJob, confinement: Confinement) -> StartedSandbox:
    """Start bubblewrap and wait until the sandbox is set up. Raises SandboxUnavailable with bubblewrap's message.

    It must not be cancelled: bubblewrap's child dies with bubblewrap only after both have set that up, so killing
    bubblewrap earlier would leave the child behind.
    """
    try:
        spawned = await _spawn(config, job, confinement)
    except OSError as error:
        raise SandboxUnavailable(f"bubblewrap cannot be started: {error}") from error
    try:
        return await _wait_until_ready(spawned)
    except SandboxUnavailable:
        await _abort(spawned.child)
        raise
    finally:
        os.close(spawned.info)


async def _spawn(config: SandboxConfig, job: SandboxJob, confinement: Confinement) -> Spawned:
    with ExitStack() as ours:
        info, theirs = os.pipe()
        ours.callback(os.close, theirs)
        passed = Descriptors(
            ours.enter_context(_readable(config.seccomp)),
            {path: ours.enter_context(_readable(text)) for path, text in etc_files(_shown_uid(confinement)).items()},
            theirs,
        )
        command = command_line(config.bwrap, config.view, config.launcher, job.limits.disk, passed)
        descriptors = (*passed.all(), *([] if confinement.channel is None else [confinement.channel]))
        try:
            if confinement.group is not None:
                confinement.niceness.bind(partial(_set_up_with, confinement.group))
            child = await BubblewrapProcess.start(_command_joining(command, confinement.group), descriptors)
        except BaseException:
            os.close(info)
            raise
    return Spawned(child, info)


async def _wait_until_ready(spawned: Spawned) -> StartedSandbox:
    child = spawned.child
    try:
        async with asyncio.timeout(_START_SECONDS):
            if await child.stdout.read(1) != inside.READY:
                raise SandboxUnavailable(await child.read_stderr() or "bubblewrap ended without a message")
    except TimeoutError:
        raise StartTimeout(f"bubblewrap did not start within {_START_SECONDS:.0f} s") from None
    # Bubblewrap has written it before anything in the sandbox started.
    pid = json.loads(os.read(spawned.info, _INFO))["child-pid"]
    try:
        first = os.pidfd_open(pid)
    except OSError as error:
        raise SandboxUnavailable(f"its first process has ended: {error}") from error
    try:
        return StartedSandbox(
            child, first, pid, os.open(f"/proc/{pid}/root{WORK}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        )
    except OSError as error:
        os.close(first)
        raise SandboxUnavailable(f"its work folder cannot be reached: {error}") from error


async def _abort(child: BubblewrapProcess) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.process.pid, signal.SIGKILL)
    # A launcher outside of the process group ends when its stdin is closed.
    await child.close()


async def start_program(
    config: SandboxConfig, job: SandboxJob, confinement: Confinement, started: StartedSandbox
) -> None:
    """Write the job's files into the work folder and start its program.

    Raises ProgramMissing, InvalidJob if the files do not fit, or SandboxUnavailable if the launcher fails.
    """
    child = started.child
    try:
        write_files(started.work, job.files, confinement.uid)
    except OSError as error:
        raise InvalidJob(f"the files of the job do not fit into its work folder: {error}") from error
    request = json.dumps(_launch_request(config, job, confinement)).encode()
    _set_session_niceness(child.process.pid, confinement.niceness)
    child.stdin.write(len(request).to_bytes(4, "big") + request)
    answer = await child.stdout.read(1)
    if answer == inside.MISSING:
        raise ProgramMissing(job.argv[0])
    if answer != inside.STARTED:
        raise SandboxUnavailable(f"its launcher failed: {await child.read_stderr()}")
    _bind_niceness(confinement, child.process.pid)


def _launch_request(config: SandboxConfig, job: SandboxJob, confinement: Confinement) -> Mapping[str, object]:
    pids_counted = confinement.group is not None and confinement.group.pids is not None
    limits = resource_limits(
        job.limits,
        memory_counted=confinement.group is not None,
        one_more_process=pids_counted or confinement.uid is None,
    )
    return {
        "argv": job.argv,
        "env": environment(config.view),
        "uid": confinement.uid,
        "limits": limits,
        "channel": confinement.channel,
        "niceness": _added_to_ours(DEFAULT if job.limits.niceness is None else job.limits.niceness),
        "idle": job.limits.idle,
    }


def _set_up_with(group: ControlGroup, niceness: int) -> None:
    group.set_niceness(min(_SET_UP, niceness))


def _bind_niceness(confinement: Confinement, pid: int) -> None:
    # By its control group, or else by the session of bubblewrap's process.
    niceness, group = confinement.niceness, confinement.group

    def apply(value: int) -> None:
        if group is not None:
            group.set_niceness(value)
        _set_session_niceness(pid, niceness)

    niceness.bind(apply)


def _added_to_ours(niceness: int) -> int:
    return min(LOWEST, os.getpriority(os.PRIO_PROCESS, 0) + niceness)


def _set_session_niceness(pid: int, niceness: Niceness, tries: int = 4) -> None:
    # The kernel may group processes by session (sched(7)); a process's niceness then counts only within its session.
    # Without privileges the kernel accepts one such change in a tenth of a second, hence the `tries`.
    try:
        with open(f"/proc/{pid}/autogroup", "w", encoding="ascii") as group:
            group.write(str(_added_to_ours(niceness.value)))
    except BlockingIOError:
        if tries > 1:
            asyncio.get_running_loop().call_later(_PAUSE, _set_session_niceness, pid, niceness, tries - 1)
    except OSError:
        return  # the process has ended, or the kernel does not group by session


def _shown_uid(confinement: Confinement) -> int:
    return NOBODY if confinement.uid is None else confinement.uid


def can_join(group: ControlGroup) -> bool:
    """Return whether a process of ours may join the group, by starting one that does."""
    return subprocess.run(_command_joining(["true"], group), stderr=subprocess.DEVNULL, check=False).returncode == 0  # noqa: S603


def _command_joining(command: list[str], group: ControlGroup | None) -> list[str]:
    # The command joins first, so that nothing runs uncounted.
    if group is None:
        return command
    return ["/bin/sh", "-c", _JOIN, "join", " ".join(group.join_files()), *command]


@contextlib.contextmanager
def _readable(content: bytes) -> Iterator[int]:
    # A descriptor from which a child process can read the content once.
    descriptor, end = os.pipe()
    try:
        with open(end, "wb") as file:  # a few kilobytes, which a pipe holds
            file.write(content)
        yield descriptor
    finally:
        os.close(descriptor)
