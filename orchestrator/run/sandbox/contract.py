"""What the sandbox runs (SandboxJob), its limits (SandboxLimits), and how it ended (JobOutcome)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

MIB = 1024 * 1024

LimitName = Literal["wall", "cpu", "memory", "processes", "disk", "output"]  # that can end a job or make it fail


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLimits:
    """What one job may use. Times are in seconds, sizes in bytes."""

    # Wall-clock time of the program without waits for a core; with them, four times as much.
    wall: float = 60.0
    cpu: int = 60  # CPU time of each process
    # Of all processes and files together if there is a control group. Without one: of each process, and only as many
    # processes are allowed as fit into the sandbox's memory budget.
    memory: int = 512 * MIB
    processes: int = 32  # processes and threads at a time
    disk: int = 64 * MIB  # size of the work folder, and of `/tmp`
    output: int = 256 * 1024  # kept of stdout, and of stderr; a job that writes far more is ended
    niceness: int | None = None  # see `Niceness`; None leaves it to the caller of `run`, or to the default
    # Only processor time that hardly anybody else wants. The job then needs a generous `wall`.
    idle: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxJob:
    # Program and arguments. PATH is the sandbox's own, where `python` is this interpreter with its packages.
    argv: tuple[str, ...]
    # Contents by relative POSIX name, in the work folder (the current folder) at the start.
    files: Mapping[str, bytes] = field(default_factory=dict)
    stdin: bytes = b""
    limits: SandboxLimits = field(default_factory=SandboxLimits)
    keep: tuple[str, ...] = ()  # names or `fnmatch` patterns of files in the work folder to read back


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcome:
    """How a job ended. A program that cannot be started has no outcome: it raises an error."""

    exit_code: int | None  # None if a signal or a limit ended the program
    signal: int | None = None  # that ended the program; as in a shell, exit code 128 + n reads as signal n
    limit: LimitName | None = None  # that ended the program or made it fail; None if the exit code is 0
    stdout: bytes = b""
    stderr: bytes = b""
    cut: bool = False  # stdout or stderr was cut at the limit, or a file of `keep` was left out
    starved: bool = False  # `wall` ended a program that hardly got a core, which is not its fault
    seconds: float = 0.0  # wall-clock time
    cpu_seconds: float | None = None  # of all its processes; None if no control group counts it
    files: Mapping[str, bytes] = field(default_factory=dict)  # those of `keep` that are regular and within the limits

    @property
    def work_seconds(self) -> float:
        """The time without waits for a core, if that was counted."""
        return self.seconds if self.cpu_seconds is None else min(self.seconds, self.cpu_seconds)
