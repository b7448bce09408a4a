"""Start bubblewrap for a job and bring it to the point where the job's program is about to run."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from orchestrator.sandbox import inside
from orchestrator.sandbox.bubblewrap import NOBODY, Descriptors, command_line
from orchestrator.sandbox.contract import Job, Limits
from orchestrator.sandbox.control_group import ControlGroup
from orchestrator.sandbox.errors import InvalidJob, ProgramMissing, SandboxUnavailable
from orchestrator.sandbox.files import put
from orchestrator.sandbox.limits import resource_limits
from orchestrator.sandbox.view import WORK, View, environment, etc_files

_START_SECONDS = 60.0
_INFO = 4096
_REASON = 2000
_CHUNK = 64 * 1024
_NICEST = 19
_PAUSE = 0.11
_JOIN = 'for group in $1; do echo 0 >"$group" || exit 125; done; shift; exec "$@"'


@dataclass(frozen=True, slots=True)
class Setting:
    """What all jobs of this machine have in common: bubblewrap's path, the view, the filter, the launcher's file."""

    bwrap: str
    view: View
    seccomp: bytes
    launcher: str


@dataclass(frozen=True, slots=True)
class Confinement:
    """What one job is given: a uid (None: a user namespace keeps ours), a control group, a channel (a descriptor)."""

    uid: int | None
    group: ControlGroup | None
    channel: int | None = None


@dataclass(frozen=True, slots=True)
class Child:
    """bubblewrap's process, and what is its own and then the program's stdin, stdout and stderr."""

    process: asyncio.subprocess.Process
    stdin: asyncio.StreamWriter
    stdout: asyncio.StreamReader
    stderr: asyncio.StreamReader

    @classmethod
    async def start(cls, command: list[str], descriptors: tuple[int, ...], limits: Limits) -> "Child":
        """Run the command with an empty environment, these descriptors and the limits' priority. Raises OSError."""
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
        inside.stand_back(process.pid, _priority(limits), limits.idle)  # to set a sandbox up takes time as well
        _session_stands_back(process.pid, _NICEST if limits.idle else _priority(limits))
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        return cls(process, process.stdin, process.stdout, process.stderr)

    async def last_words(self) -> str:
        """Return what it wrote to stderr before it failed."""
        return (await self.stderr.read(_REASON)).decode("utf-8", "replace").strip()

    async def close(self) -> None:
        """Wait for its end and read what nobody wants to know, which is when asyncio lets go of the pipes."""
        self.stdin.close()
        await self.process.wait()
        for stream in (self.stdout, self.stderr):
            while await stream.read(_CHUNK):
                continue


@dataclass(frozen=True, slots=True)
class Spawned:
    """bubblewrap's process, and the descriptor on which it tells of the namespace."""

    child: Child
    info: int


@dataclass(frozen=True, slots=True)
class Started:
    """bubblewrap's process, and descriptors of the namespace's first process (a pidfd) and of the work folder."""

    child: Child
    first: int
    work: int

    def close(self) -> None:
        """Give the descriptors back; with the work folder's goes the last hold on its files."""
        os.close(self.first)
        os.close(self.work)


async def start(setting: Setting, job: Job, means: Confinement) -> Started:
    """Start bubblewrap and wait until the sandbox stands. Raises SandboxUnavailable, with what bubblewrap said.

    It must not be cancelled. bubblewrap's own child waits for bubblewrap before it binds its life to it, so one that is
    killed at that moment leaves it behind.
    """
    try:
        spawned = await _spawn(setting, job, means)
    except OSError as error:
        raise SandboxUnavailable(f"bubblewrap cannot be started: {error}") from error
    try:
        return await _stand(spawned)
    except SandboxUnavailable:
        await _give_up(spawned.child)
        raise
    finally:
        os.close(spawned.info)


async def _spawn(setting: Setting, job: Job, means: Confinement) -> Spawned:
    with ExitStack() as ours:
        info, theirs = os.pipe()
        ours.callback(os.close, theirs)
        given = Descriptors(
            ours.enter_context(_readable(setting.seccomp)),
            {path: ours.enter_context(_readable(text)) for path, text in etc_files(_shown_uid(means)).items()},
            theirs,
        )
        command = command_line(setting.bwrap, setting.view, setting.launcher, job.limits.disk, given)
        descriptors = (*given.all(), *([] if means.channel is None else [means.channel]))
        try:
            child = await Child.start(_joined(command, means.group), descriptors, job.limits)
        except BaseException:
            os.close(info)
            raise
    return Spawned(child, info)


async def _stand(spawned: Spawned) -> Started:
    child = spawned.child
    try:
        async with asyncio.timeout(_START_SECONDS):
            if await child.stdout.read(1) != inside.READY:
                raise SandboxUnavailable(await child.last_words() or "bubblewrap ended without a word")
    except TimeoutError:
        raise SandboxUnavailable(f"bubblewrap did not start within {_START_SECONDS:.0f} s") from None
    # bubblewrap has written it before it let anything of the sandbox start.
    pid = json.loads(os.read(spawned.info, _INFO))["child-pid"]
    try:
        first = os.pidfd_open(pid)
    except OSError as error:
        raise SandboxUnavailable(f"its first process has ended: {error}") from error
    try:
        return Started(child, first, os.open(f"/proc/{pid}/root{WORK}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    except OSError as error:
        os.close(first)
        raise SandboxUnavailable(f"its work folder cannot be reached: {error}") from error


async def _give_up(child: Child) -> None:
    """End what has not become a sandbox: bubblewrap's group, and by the end of its input a launcher beyond that."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.process.pid, signal.SIGKILL)
    await child.close()


async def give_orders(setting: Setting, job: Job, means: Confinement, started: Started) -> None:
    """Put the job's files in place and let its program start. Raises ProgramMissing, InvalidJob."""
    child = started.child
    try:
        put(started.work, job.files, means.uid)
    except OSError as error:
        raise InvalidJob(f"the files of the job do not fit into its work folder: {error}") from error
    orders = json.dumps(_orders(setting, job, means)).encode()
    child.stdin.write(len(orders).to_bytes(4, "big") + orders)
    told = await child.stdout.read(1)
    if told == inside.MISSING:
        raise ProgramMissing(job.argv[0])
    if told != inside.STARTED:
        raise SandboxUnavailable(f"its launcher failed: {await child.last_words()}")


def _orders(setting: Setting, job: Job, means: Confinement) -> Mapping[str, object]:
    pids_counted = means.group is not None and means.group.pids is not None
    limits = resource_limits(
        job.limits,
        memory_counted=means.group is not None,
        one_more_process=pids_counted or means.uid is None,
    )
    return {
        "argv": job.argv,
        "env": environment(setting.view),
        "uid": means.uid,
        "limits": limits,
        "channel": means.channel,
        "niceness": _priority(job.limits),
        "idle": job.limits.idle,
    }


def _priority(limits: Limits) -> int:
    """Return the niceness of a job's processes: ours, and what its limits add."""
    return min(_NICEST, os.getpriority(os.PRIO_PROCESS, 0) + limits.niceness)


def _session_stands_back(pid: int, niceness: int, tries: int = 4) -> None:
    """Let other sessions go before that of a process. Where the kernel groups processes by session (sched(7)),
    niceness and the class for idle time count within one session alone.

    From those without rights the kernel takes one such change in a tenth of a second.
    """
    try:
        with open(f"/proc/{pid}/autogroup", "w", encoding="ascii") as group:
            group.write(str(niceness))
    except BlockingIOError:
        if tries > 1:
            asyncio.get_running_loop().call_later(_PAUSE, _session_stands_back, pid, niceness, tries - 1)
    except OSError:
        return  # it has ended, or the kernel has no such groups


def _shown_uid(means: Confinement) -> int:
    return NOBODY if means.uid is None else means.uid


def can_join(group: ControlGroup) -> bool:
    """Say whether a process of ours may join the group, by having one do so."""
    return subprocess.run(_joined(["true"], group), stderr=subprocess.DEVNULL, check=False).returncode == 0  # noqa: S603


def _joined(command: list[str], group: ControlGroup | None) -> list[str]:
    """Have the process join its control group before it becomes bubblewrap, so that nothing runs uncounted."""
    if group is None:
        return command
    return ["/bin/sh", "-c", _JOIN, "join", " ".join(group.entrances()), *command]


@contextlib.contextmanager
def _readable(content: bytes) -> Iterator[int]:
    """Lend a descriptor from which a child can read the content once."""
    descriptor, end = os.pipe()
    try:
        with open(end, "wb") as file:  # a few kilobytes, which a pipe holds
            file.write(content)
        yield descriptor
    finally:
        os.close(descriptor)
