"""Start an engine's process, and describe how it ended."""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from orchestrator.engine.client.watchdog import Activity
from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.spinning import spin_environment

_ROOT = str(Path(__file__).resolve().parents[3])
_LOG_TAIL = 2000  # bytes at the end of a log that an error quotes
_LOG_BYTES = 4 << 20  # longer logs are renamed at a start, since a daemon loads and unloads models for months


class EngineProcess:
    """An engine's process on this machine: a `ProcessHandle`.

    It ends when its starting thread ends (PR_SET_PDEATHSIG) or the parent's end of the socket is closed.
    """

    place = ""
    lost = False

    def __init__(
        self, process: subprocess.Popen[bytes], parent_socket: socket.socket, log: IO[bytes], log_start: int
    ) -> None:
        self.process = process
        self.socket = parent_socket
        self.ended = os.pidfd_open(process.pid)
        self._log, self._log_start = log, log_start
        self._activity = Activity(process.pid)

    def worked(self) -> bool:
        return self._activity.worked()

    def states(self) -> set[str]:
        return self._activity.states()

    def exit_code(self) -> int:
        return self.process.wait()

    def describe_end(self) -> str:
        return describe_exit(self.exit_code(), self.log_tail())

    def log_tail(self) -> str:
        """Return the last 2,000 bytes of this process's log, as text."""
        end = os.fstat(self._log.fileno()).st_size
        start = max(self._log_start, end - _LOG_TAIL)
        text = os.pread(self._log.fileno(), end - start, start).decode("utf-8", "replace")
        return text.strip()

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()

    def release(self) -> None:
        os.close(self.ended)
        self._log.close()


def launch(spec: EngineSpec) -> EngineProcess:
    """Start the process of an engine, which waits for Load on its socket. Raises OSError."""
    # The log outlives this function; `release` closes it.
    log = _opened(spec.log_file) if spec.log_file else tempfile.TemporaryFile("wb+")
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", "orchestrator.engine.worker.process", str(theirs.fileno()), str(spec.niceness)]
    tunables = ["glibc.malloc.hugetlb=1", *filter(None, [os.environ.get("GLIBC_TUNABLES")])]
    environment = {
        **engine_environment(),
        **spin_environment(os.environ),
        "GLIBC_TUNABLES": ":".join(tunables),  # weights and KV cells in huge pages: steps are some percent faster
    }
    try:
        start = os.fstat(log.fileno()).st_size
        process = start_process(command, log, theirs.fileno(), environment)
    except OSError:
        ours.close()
        log.close()
        raise
    finally:
        theirs.close()
    return EngineProcess(process, ours, log, start)


def engine_environment() -> dict[str, str]:
    """Return the environment of a process that imports this program and loads llama.cpp."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([_ROOT, *filter(None, [os.environ.get("PYTHONPATH")])]),
        "GGML_NO_BACKTRACE": "1",  # a failed assertion would start gdb on itself and hang instead of dying
    }


def start_process(
    command: Sequence[str], log: IO[bytes], descriptor: int, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start a process with exactly this environment, which logs to `log` and inherits `descriptor`. Raises OSError."""
    return subprocess.Popen(  # noqa: S603 (our own interpreter and module)
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        pass_fds=(descriptor,),
        env=environment,
        start_new_session=True,
    )


def _opened(file: str) -> IO[bytes]:
    # FILE.1 replaces the last such file. Raises OSError.
    with suppress(FileNotFoundError):
        if os.stat(file).st_size > _LOG_BYTES:
            os.replace(file, f"{file}.1")
    return open(file, "ab+")


# What a process logs before abort(): ggml's assertions and fatal errors, or a C++ exception.
_ABORTED = re.compile(
    r"^(?:.*/)?([\w.-]+\.(?:c|cc|cpp|h|hpp):\d+: .+)|^(terminate called .+(?:\n *what\(\): .+)?)", re.MULTILINE
)
_CAUSE_CHARACTERS = 300


def describe_exit(code: int | None, log: str) -> str:
    """Return how a process ended, as a part of a sentence: "was killed by SIGSEGV".

    `code` is the return code of subprocess. The cause is added if `log` contains it.
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
    return f"{how}: {' '.join(cause.split()):.{_CAUSE_CHARACTERS}}" if cause else how


def signal_name(code: int | None) -> str | None:
    """Return the signal's name for a return code of subprocess; None if the process exited."""
    if code is None or code >= 0:
        return None
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
