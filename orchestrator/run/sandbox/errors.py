"""The errors of the sandbox.

    SandboxError
    ├── SandboxUnavailable   this machine has no working sandbox, so no code is run
    │   └── StartTimeout     this machine was too busy to set up a sandbox in time
    ├── InvalidJob           the job's names, files or limits are not acceptable
    ├── ProgramMissing       the sandbox has no such program
    └── ChannelBroken        the program of a session sent something that is no message

What a program does inside the sandbox raises no error: it is in the JobOutcome.
"""

from orchestrator.errors import OrchestratorError


class SandboxError(OrchestratorError):
    """A job was not run."""


class SandboxUnavailable(SandboxError):
    """This machine has no working sandbox. `reason` says what is missing, and what would help."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"there is no sandbox: {reason}")
        self.reason = reason


class StartTimeout(SandboxUnavailable):
    """The machine was too busy to set up a sandbox. Another try may succeed."""


class InvalidJob(SandboxError):
    """The job is not acceptable; the message says what would be."""


class ProgramMissing(SandboxError):
    def __init__(self, program: str) -> None:
        super().__init__(f"{program}: no such program in the sandbox")
        self.program = program


class ChannelBroken(SandboxError):
    """The program of a session announced too long a message."""
