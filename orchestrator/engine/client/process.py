"""The port to an engine's process: what `Engine` needs of a process, on this machine or on another one."""

import socket
from typing import Protocol


class ProcessHandle(Protocol):
    """A process that waits for Load on its socket."""

    @property
    def socket(self) -> socket.socket:
        """The caller's end of the connection to the process."""

    @property
    def ended(self) -> int:
        """A descriptor that is readable once the process has ended, or cannot be reached any more."""

    @property
    def place(self) -> str:
        """Where it runs, as a part of a sentence: " on node b"; empty for this machine."""

    @property
    def lost(self) -> bool:
        """Whether it ended for its caller because its machine was lost."""

    def worked(self) -> bool:
        """Return whether the process has worked since the last call, see `Activity.worked`."""

    def states(self) -> set[str]:
        """Return the states of its threads, see `Activity.states`."""

    def exit_code(self) -> int | None:
        """Return the return code of the ended process, as of subprocess; None if nobody knows it."""

    def describe_end(self) -> str:
        """Return how the process ended, as a part of a sentence: "was killed by SIGSEGV"."""

    def log_tail(self) -> str:
        """Return the end of the process's log, as text."""

    def kill(self) -> None:
        """End the process with SIGKILL, if it has not ended."""

    def release(self) -> None:
        """Give back the descriptors, once the process has ended and its socket is closed."""
