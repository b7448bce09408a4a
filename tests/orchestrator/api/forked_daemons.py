"""Fork daemons from a process that has imported the program already, which takes most of the time that a start takes.

This file is both ends: `fork_daemon` is called by tests, and `python -m tests.orchestrator.api.forked_daemons` is the
process that forks. It is no child of the tests, because some of them count their children, and neither are its daemons.
It ends, and kills its daemons, when the process of the tests has ended. That the daemon starts as a program of its own
is tested by the tests of `orchestrator serve`.
"""

import array
import atexit
import gc
import json
import os
import resource
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO, Final

from orchestrator.api.daemon import main as daemon_main
from orchestrator.app import attached
from tests.orchestrator.forked_engines import ENGINE, fork_engines_here

ROOT: Final = Path(__file__).parents[3]
NUMBER_BYTES: Final = 4
"""What is told of a daemon are numbers of so many bytes: first its process id, and when it has ended its exit code."""
REQUEST_BYTES: Final = 1 << 17
"""How long a request may be: it is the environment of a daemon and the limit of its descriptors, as JSON."""
START_SECONDS: Final = 300.0


class ForkedProcess:
    """A process that was forked, with the methods of `subprocess.Popen` that tests of the daemon use."""

    def __init__(self, told: socket.socket) -> None:
        """`told` is the socket on which the process that forks tells of this one."""
        self._told = told
        self._code: int | None = None
        told.settimeout(START_SECONDS)
        self.pid = _read_number(told)

    def poll(self) -> int | None:
        """Return the exit code, negative after a signal, or None while the process runs."""
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0.0)
        return None

    def wait(self, seconds: float) -> int:
        """Return the exit code once the process has ended. Raises subprocess.TimeoutExpired after so many seconds."""
        if self._code is None:
            self._told.settimeout(seconds)
            try:
                self._code = _read_number(self._told)
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired("orchestrator.app", seconds) from None
            self._told.close()
        return self._code

    def send_signal(self, number: int) -> None:
        """Send a signal to the process, if it has not ended."""
        if self.poll() is None:
            os.kill(self.pid, number)


def fork_daemon(environment: Mapping[str, str], log: IO[bytes], open_files: int | None = None) -> ForkedProcess:
    """Start a daemon with exactly these environment variables, whose stdout and stderr are the file `log`.

    It may open as many descriptors as the tests may, or `open_files`.
    """
    ours, theirs = socket.socketpair()
    request = json.dumps({"environment": dict(environment), "open_files": open_files})
    with theirs:
        socket.send_fds(_forking(), [request.encode()], [log.fileno(), theirs.fileno()])
    return ForkedProcess(ours)


@cache
def _forking() -> socket.socket:
    """Start the process that forks, once, and return the socket for requests to it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    atexit.register(ours.close)
    program = [sys.executable, "-m", "tests.orchestrator.api.forked_daemons", str(theirs.fileno())]
    fork = ["setsid", "--fork", *program]
    with theirs:
        subprocess.run(fork, cwd=ROOT, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, check=True)
    return ours


def _read_number(told: socket.socket) -> int:
    """Read a number. Raises TimeoutError, and AssertionError where the process that forks has ended."""
    data = told.recv(NUMBER_BYTES, socket.MSG_WAITALL)
    assert data, "the process that forks daemons has ended"
    return int.from_bytes(data, "little", signed=True)


# What follows runs in the process that forks.


@dataclass(frozen=True, slots=True)
class Forked:
    """A daemon that runs."""

    pid: int
    pidfd: int
    told: socket.socket

    def close(self) -> None:
        """Close the descriptors."""
        os.close(self.pidfd)
        self.told.close()


@dataclass(frozen=True, slots=True)
class Request:
    """What a daemon is to be started with."""

    environment: dict[str, str]
    open_files: int | None
    log: int
    told: socket.socket


def serve(requests: socket.socket) -> Request | None:
    """Fork a daemon for each request until the other end is closed.

    Returns the request in each forked process, which is to become the daemon, and None in this one at the end.
    """
    daemons: dict[int, Forked] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(requests, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is not requests:
                    daemon = daemons.pop(key.fd)
                    selector.unregister(daemon.pidfd)
                    _tell_end(daemon)
                    continue
                request = _receive(requests)
                if request is None:
                    for daemon in daemons.values():
                        os.kill(daemon.pid, signal.SIGKILL)
                    return None
                pid = os.fork()
                if pid == 0:
                    request.told.close()
                    for daemon in daemons.values():
                        daemon.close()
                    return request
                os.close(request.log)
                daemon = Forked(pid, os.pidfd_open(pid), request.told)
                daemons[daemon.pidfd] = daemon
                selector.register(daemon.pidfd, selectors.EVENT_READ)
                _tell(daemon.told, pid)


def _receive(requests: socket.socket) -> Request | None:
    """Read a request; None where the other end is closed."""
    numbers = array.array("i")
    room = socket.CMSG_SPACE(2 * numbers.itemsize)
    data, passed, _, _ = requests.recvmsg(REQUEST_BYTES, room, socket.MSG_CMSG_CLOEXEC)
    if not data:
        return None
    for _, _, bytes_ in passed:
        numbers.frombytes(bytes_)
    log, told = numbers
    return Request(**json.loads(data), log=log, told=socket.socket(fileno=told))


def _tell_end(daemon: Forked) -> None:
    _, status = os.waitpid(daemon.pid, 0)
    _tell(daemon.told, os.waitstatus_to_exitcode(status))
    daemon.close()


def _tell(told: socket.socket, number: int) -> None:
    with suppress(OSError):  # the test may have gone away
        told.send(number.to_bytes(NUMBER_BYTES, "little", signed=True))


def main(descriptor: int) -> int:
    """Fork daemons. Returns the exit code of this process, or in a forked one that of the daemon."""
    import_module(ENGINE)
    parts = attached()
    _ = parts.endpoints  # imports them
    gc.freeze()  # no daemon looks through all this
    with socket.socket(fileno=descriptor) as requests:
        request = serve(requests)
    if request is None:
        return 0
    for stream in (1, 2):
        os.dup2(request.log, stream)
    os.close(request.log)
    started_with = dict(os.environ)
    os.environ.clear()
    os.environ.update(request.environment)
    if request.open_files is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (request.open_files, request.open_files))
    fork_engines_here(started_with)
    return daemon_main(parts)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
