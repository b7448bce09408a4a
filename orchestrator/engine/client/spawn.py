"""Start an engine's process and say how it ended."""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from orchestrator.engine.client.spinning import spin_environment
from orchestrator.engine.contract import EngineSpec

_ROOT = str(Path(__file__).resolve().parents[2])
_LOG_TAIL = 2000
_LOG_BYTES = 4 << 20
"""A log that is longer makes room for a new one when an engine begins: models come and go for months."""


@dataclass(slots=True)
class Child:
    """A process that was started, our end of its socket, its log, and a descriptor that is readable when it ends.

    It dies when the thread that started it ends (PR_SET_PDEATHSIG) and when our end of the socket is closed.
    """

    process: subprocess.Popen[bytes]
    socket: socket.socket
    pidfd: int
    _log: IO[bytes]
    _log_start: int

    def log_tail(self) -> str:
        """Return the last lines that this process has logged."""
        end = os.fstat(self._log.fileno()).st_size
        start = max(self._log_start, end - _LOG_TAIL)
        text = os.pread(self._log.fileno(), end - start, start).decode("utf-8", "replace")
        return text.strip()

    def kill(self) -> None:
        """Kill it now. Does nothing when it has ended."""
        if self.process.poll() is None:
            self.process.kill()

    def release(self) -> None:
        """Give back the descriptors, after the end."""
        os.close(self.pidfd)
        self._log.close()


def launch(spec: EngineSpec) -> Child:
    """Start `python -m orchestrator.engine.worker.process`. Raises OSError."""
    # The log outlives this function; Child.release closes it.
    log = _opened(spec.log_file) if spec.log_file else tempfile.TemporaryFile("wb+")
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", "orchestrator.engine.worker.process", str(theirs.fileno()), str(spec.niceness)]
    paths = [_ROOT, *filter(None, [os.environ.get("PYTHONPATH")])]
    tunables = ["glibc.malloc.hugetlb=1", *filter(None, [os.environ.get("GLIBC_TUNABLES")])]
    environment = {
        **os.environ,
        **spin_environment(None if spec.step_costs is None else Path(spec.step_costs)),
        "PYTHONPATH": os.pathsep.join(paths),
        "GGML_NO_BACKTRACE": "1",  # a failed assertion would start gdb on itself and hang instead of dying
        "GLIBC_TUNABLES": ":".join(tunables),  # weights and KV cells in huge pages: steps are some percent faster
    }
    try:
        start = os.fstat(log.fileno()).st_size
        process = subprocess.Popen(  # noqa: S603 (our own interpreter and module)
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(theirs.fileno(),),
            env=environment,
            start_new_session=True,
        )
    except OSError:
        ours.close()
        log.close()
        raise
    finally:
        theirs.close()
    return Child(process, ours, os.pidfd_open(process.pid), log, start)


def _opened(file: str) -> IO[bytes]:
    """Open a log to be written on; a long one is put aside, where the last one was put. Raises OSError."""
    with suppress(FileNotFoundError):
        if os.stat(file).st_size > _LOG_BYTES:
            os.replace(file, f"{file}.1")
    return open(file, "ab+")


_ABORTED = re.compile(
    r"^(?:.*/)?([\w.-]+\.(?:c|cc|cpp|h|hpp):\d+: .+)|^(terminate called .+(?:\n *what\(\): .+)?)", re.MULTILINE
)
"""What a process logs before it calls abort(): ggml's assertions and fatal errors, or a C++ exception."""
_MOST_TOLD = 300
"""Characters of a cause that are told."""


def how_it_ended(code: int | None, log: str) -> str:
    """Return how a process ended that this program did not end, as a part of a sentence: "was killed by SIGSEGV".

    `code` is the return code as subprocess has it. The cause is added where the process's `log` tells it: the failed
    assertion of ggml, the C++ exception or the Python exception that ended the process.
    """
    name = signal_name(code)
    if name == "SIGKILL":
        return "was killed by SIGKILL: the system may have run out of memory"
    cause = ""
    if name == "SIGABRT":
        for match in _ABORTED.finditer(log):
            cause = match[0] if match[1] is None else match[1]
    elif name is None and "Traceback (most recent call last)" in log:
        cause = log.rstrip().rpartition("\n")[2]
    how = f"was killed by {name}" if name else f"exited with code {code}"
    return f"{how}: {' '.join(cause.split()):.{_MOST_TOLD}}" if cause else how


def signal_name(code: int | None) -> str | None:
    """Return the name of the signal in a return code, or None when it ended otherwise."""
    if code is None or code >= 0:
        return None
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
