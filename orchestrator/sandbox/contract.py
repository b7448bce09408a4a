"""Define what the sandbox is asked to run, within which limits, and what it tells of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

MIB = 1024 * 1024

LimitName = Literal["wall", "cpu", "memory", "processes", "disk", "output"]
"""The limit that ended a job, or that it ran into."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one job may use. Times are in seconds, sizes in bytes.

    `wall` begins with the program, `cpu` is for each process. `memory` is the total of all processes and files where a
    control group can be had; elsewhere each process gets it, and as many processes are allowed as the sandbox's budget
    pays for. A thread counts as a process. `disk` is for the work folder and for `/tmp`, each. Of stdout and stderr
    `output` bytes each are kept; a job that writes much more than that is ended. `niceness` is added to ours; the
    default lets engines (7) go first. An `idle` job gets only time that nobody else wants (SCHED_IDLE), and waits long
    for it where everybody works: it needs a generous `wall`.
    """

    wall: float = 60.0
    cpu: int = 60
    memory: int = 512 * MIB
    processes: int = 32
    disk: int = 64 * MIB
    output: int = 256 * 1024
    niceness: int = 10
    idle: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A program to run in the sandbox.

    `argv[0]` is found on the sandbox's own PATH (`python` is the interpreter of this installation, with its packages).
    `files` lie in the work folder, which is the current one, before it starts: relative POSIX names, contents.
    `keep` are names of files (or `fnmatch` patterns) in the work folder to read back when it has ended.
    """

    argv: tuple[str, ...]
    files: Mapping[str, bytes] = field(default_factory=dict)
    stdin: bytes = b""
    limits: Limits = field(default_factory=Limits)
    keep: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a job ended. `exit_code` is None when a signal or a limit ended it; `limit` names the limit it hit.

    A program that was not there, or could not be started, is an error and no outcome. A job that succeeded names no
    limit. A program that exits with 128 + n reads like one that signal n has ended, as in a shell. `stdout` and
    `stderr` are cut at the limit, and `cut` says so; it also says that a file of `keep` was left out. `files` are those
    of `keep` that exist: regular files within the limits, links are never followed. `seconds` is the wall-clock time.
    """

    exit_code: int | None
    signal: int | None = None
    limit: LimitName | None = None
    stdout: bytes = b""
    stderr: bytes = b""
    cut: bool = False
    seconds: float = 0.0
    files: Mapping[str, bytes] = field(default_factory=dict)
