"""Run model-written programs isolated from this machine: `await Sandbox.probe()`, then `run(job)` or `open(job)`.

contract       what is run, within which limits, and how it ended
sandbox        Sandbox: takes a job's memory, uid and control group, and runs it
launch         starts bubblewrap and, in it, the program; bubblewrap: its command line
process        watches the program, enforces limits, collects output and files
session        messages to and from a running program
inside         the first program in the sandbox: sets limits and identity, then execs the job
filesystem     which files of this machine the sandbox shows
files          copies files into and out of the work folder
control_group, rlimits, memory_budget    memory and processes
niceness       processor time of a job
seccomp        the system call filter, and the allowed calls
probe          checks that a sandbox contains programs
"""

from orchestrator.run.sandbox.contract import MIB, JobOutcome, LimitName, SandboxJob, SandboxLimits
from orchestrator.run.sandbox.errors import (
    ChannelBroken,
    InvalidJob,
    ProgramMissing,
    SandboxError,
    SandboxUnavailable,
    StartTimeout,
)
from orchestrator.run.sandbox.niceness import Niceness
from orchestrator.run.sandbox.sandbox import Sandbox
from orchestrator.run.sandbox.session import CHANNEL, MESSAGE_LIMIT, Session

__all__ = [
    "CHANNEL",
    "MESSAGE_LIMIT",
    "MIB",
    "ChannelBroken",
    "InvalidJob",
    "JobOutcome",
    "LimitName",
    "Niceness",
    "ProgramMissing",
    "Sandbox",
    "SandboxError",
    "SandboxJob",
    "SandboxLimits",
    "SandboxUnavailable",
    "Session",
    "StartTimeout",
]
