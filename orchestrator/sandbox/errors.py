"""Why the sandbox does not run a job.

    SandboxError
    ├── SandboxUnavailable   it cannot be had on this machine, and why; no code is run instead
    ├── InvalidJob           a job that cannot be run anywhere: its names, its files, its limits
    ├── ProgramMissing       the sandbox has no such program
    └── ChannelBroken        a session's program sent what is no message

What a job does within the sandbox is never an error: its Outcome tells it.
"""

from orchestrator.errors import OrchestratorError


class SandboxError(OrchestratorError):
    """A job was not run."""


class SandboxUnavailable(SandboxError):
    """Model-written code cannot be contained here. `reason` says what is missing, and what would help."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the sandbox cannot be had: {reason}")
        self.reason = reason


class InvalidJob(SandboxError):
    """The job cannot be run as it is; the message says what is wrong and what is accepted."""


class ProgramMissing(SandboxError):
    """The sandbox's PATH has no `program`."""

    def __init__(self, program: str) -> None:
        super().__init__(f"{program}: no such program in the sandbox")
        self.program = program


class ChannelBroken(SandboxError):
    """The program of a session announced a message that is longer than what is accepted."""
