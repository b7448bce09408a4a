"""Fork engines from a process that has imported their program already, which takes most of the time that a start takes.

This file is both ends: `forked_engines` and `fork_engines_here` have this process ask for engines to be forked, and
`python -m tests.orchestrator.forked_engines` is a process that forks. An engine is a child of the process that asks, as
an engine is that was started as a program, and not of the one that forks. An engine whose environment has settings that
only a new program reads, such as a `sitecustomize` of a test, is started as a program.
"""

import ctypes
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import IO, Any, Final

import psutil

from orchestrator.engine.client import spawn

ROOT: Final = Path(__file__).parents[2]
ENGINE: Final = "orchestrator.engine.worker.process"
REQUEST_BYTES: Final = 1 << 17
"""How long a request may be: it is the environment and the niceness of an engine, as JSON."""
READ_AT_START: Final = ("GOMP_", "OMP_", "LD_", "PYTHON")
"""How the names of variables begin that are read only when a program or a library is loaded."""
SYS_CLONE: Final = 56
CLONE_PARENT: Final = 0x00008000

_forking: set[int] = set()
"""The process ids of the processes that fork engines for this one."""


def children_of_tests(recursive: bool = False) -> list[psutil.Process]:
    """Return the children of this process, without the one that forks its engines."""
    return [one for one in psutil.Process().children(recursive=recursive) if one.pid not in _forking]


class ForkedEngine(subprocess.Popen[bytes]):
    """An engine that is forked by another process, whose parent is this one."""

    def __init__(self, pid: int, command: Sequence[str]) -> None:
        self._forked = pid
        super().__init__(command)

    def _execute_child(self, *_: Any) -> None:
        self.pid = self._forked
        self._child_created = True


class EngineForker:
    """The process that forks engines, as the process sees it that asks for them."""

    def __init__(self, requests: socket.socket, pid: int, environment: Mapping[str, str]) -> None:
        """`environment` is what the process `pid` was started with, and `requests` a socket that it listens on."""
        self._requests, self._environment, self._lock = requests, environment, Lock()
        self._start = spawn.start_process
        _forking.add(pid)

    def start(
        self, command: Sequence[str], log: IO[bytes], descriptor: int, environment: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        """Do what `spawn.start_process` does."""
        if not self._suits(environment):
            return self._start(command, log, descriptor, environment)
        request = json.dumps({"environment": dict(environment), "niceness": int(command[-1])})
        with self._lock:
            socket.send_fds(self._requests, [request.encode()], [descriptor, log.fileno()])
            pid = int(self._requests.recv(32))
        return ForkedEngine(pid, command)

    def _suits(self, environment: Mapping[str, str]) -> bool:
        own, theirs = self._read_at_start(self._environment), self._read_at_start(environment)
        known = {str(ROOT), *own.pop("PYTHONPATH", "").split(os.pathsep)}
        return known.issuperset(theirs.pop("PYTHONPATH", "").split(os.pathsep)) and own == theirs

    @staticmethod
    def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
        return {name: value for name, value in environment.items() if name.startswith(READ_AT_START)}


@contextmanager
def forked_engines() -> Iterator[None]:
    """Have the engines of this process forked, by a process that is started here, until the end of the block."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = {**os.environ, "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
    with theirs:
        forking = subprocess.Popen(
            [sys.executable, "-m", "tests.orchestrator.forked_engines", str(theirs.fileno())],
            cwd=ROOT,
            env=environment,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    forker = EngineForker(ours, forking.pid, environment)
    started = spawn.start_process
    spawn.start_process = forker.start
    try:
        yield
    finally:
        spawn.start_process = started
        ours.close()
        forking.wait()


def fork_engines_here(environment: Mapping[str, str]) -> None:
    """Have the engines of this process forked by a copy of it, which is made here.

    `environment` is what the program of this process was started with. No other thread may run.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        ours.close()
        os.setsid()
        os._exit(serve(theirs))
    theirs.close()
    spawn.start_process = EngineForker(ours, pid, environment).start


# What follows runs in the process that forks.


def serve(requests: socket.socket) -> int:
    """Fork an engine for each request, and answer with its process id, until the other end is closed. Returns 0."""
    with suppress(ConnectionError):
        while True:
            data, descriptors, _, _ = socket.recv_fds(requests, REQUEST_BYTES, 2)
            if not data:
                break
            main = import_module(ENGINE).main  # now, as many processes of tests never start an engine
            pid = _fork_sibling()
            if pid == 0:
                requests.close()
                _become_engine(main, json.loads(data), *descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            requests.send(str(pid).encode())
    return 0


def _fork_sibling() -> int:
    """Do what `os.fork` does, but that the new process is a child of this one's parent."""
    python, libc = ctypes.pythonapi, ctypes.PyDLL(None, use_errno=True)
    python.PyOS_BeforeFork()
    pid = int(libc.syscall(SYS_CLONE, CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0))
    if pid == 0:
        python.PyOS_AfterFork_Child()
    else:
        python.PyOS_AfterFork_Parent()
    assert pid >= 0, os.strerror(ctypes.get_errno())
    return pid


def _become_engine(main: Any, request: dict[str, Any], descriptor: int, log: int) -> None:
    """Run an engine to its end, as `spawn` would have started it."""
    code = 1
    try:
        os.setsid()
        for stream in (1, 2):
            os.dup2(log, stream)
        os.close(log)
        os.environ.clear()
        os.environ.update(request["environment"])
        gc.enable()
        code = main(descriptor, request["niceness"])
    except (Exception, SystemExit):  # noqa: BLE001 (as Python itself does at the end of a program)
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as end:
        sys.exit(serve(end))
