"""Define what the sandbox runs (Job), within which Limits, and how it ended (Outcome)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

MIB = 1024 * 1024

LimitName = Literal["wall", "cpu", "memory", "processes", "disk", "output"]
"""The names of limits that can end a job or make it fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLimits:
    """What one job may use. Times are in seconds, sizes in bytes."""

    wall: float = 60.0
    """Wall-clock time, from the start of the program, without what it waits for a core; with that, four times as much.
    """
    cpu: int = 60
    """CPU time of each process."""
    memory: int = 512 * MIB
    """Memory of all processes and files together if there is a control group. Without one it is the limit of each
    process, and as many processes are allowed as fit into the sandbox's memory budget."""
    processes: int = 32
    """Processes at a time. A thread counts as a process."""
    disk: int = 64 * MIB
    """Size of the work folder, and also of `/tmp`."""
    output: int = 256 * 1024
    """How much is kept of stdout, and also of stderr. A job that writes far more is ended."""
    niceness: int | None = None
    """The niceness of the job, see `Niceness`; None leaves it to whoever runs the job, or else to the default."""
    idle: bool = False
    """Whether the job gets only processor time that hardly anybody else wants. It then needs a generous `wall`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxJob:
    """A program to run in the sandbox."""

    argv: tuple[str, ...]
    """The program and its arguments. The program is found on the sandbox's own PATH, where `python` is the interpreter
    of this installation, with its packages."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Files that are in the work folder when the program starts: contents by relative POSIX name. The work folder is
    the current folder of the program."""
    stdin: bytes = b""
    limits: SandboxLimits = field(default_factory=SandboxLimits)
    keep: tuple[str, ...] = ()
    """Names of files in the work folder, or `fnmatch` patterns of names, that are read back after the program ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcome:
    """How a job ended. A program that does not exist or cannot be started has no outcome: it raises an error."""

    exit_code: int | None
    """The exit code, or None if a signal or a limit ended the program."""
    signal: int | None = None
    """The signal that ended the program. As in a shell, an exit code of 128 + n reads as signal n."""
    limit: LimitName | None = None
    """The limit that ended the program or made it fail; always None if the exit code is 0."""
    stdout: bytes = b""
    stderr: bytes = b""
    cut: bool = False
    """Whether stdout or stderr was cut at the limit, or a file of `keep` was left out."""
    starved: bool = False
    """Whether the limit `wall` ended a program because it hardly got a core, which is not its fault."""
    seconds: float = 0.0
    """Wall-clock time."""
    cpu_seconds: float | None = None
    """The processor time of all its processes; None where no control group counts it."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Contents of those files of `keep` that are regular files and within the limits. Links are never followed."""

    @property
    def work_seconds(self) -> float:
        """How long the job computed: its time without what it waited for a core, as far as that was counted."""
        return self.seconds if self.cpu_seconds is None else min(self.seconds, self.cpu_seconds)
