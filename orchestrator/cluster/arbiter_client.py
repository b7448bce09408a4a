"""Ask the arbiter of the lease, through a process that is a part of the Ray cluster."""

import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import msgspec

from orchestrator.cluster.environment import ray_environment
from orchestrator.cluster.lease import Answer, Granted, Refused, Request, encode
from orchestrator.cluster.listening import NoLibrary
from orchestrator.cluster.stream import Broken, receive_frame, send_frame

PROGRAM: Final = "orchestrator.cluster.arbiter"
LOG: Final = "arbiter.log"  # of the process, in the folder of logs
CONNECT_SECONDS: Final = 120.0  # for the process to join the cluster, and for the actor to start


def now() -> float:
    """Return seconds of a clock that is never set, and continues while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Unreachable(msgspec.Struct, frozen=True, tag=True):
    """The arbiter has not answered. What was asked may have reached it nevertheless."""

    reason: str


_answers: msgspec.msgpack.Decoder[Granted | Refused | Unreachable] = msgspec.msgpack.Decoder(
    Granted | Refused | Unreachable
)


def encode_unreachable(unreachable: Unreachable) -> bytes:
    return msgspec.msgpack.encode(unreachable)


class ArbiterClient:
    """Asks one thing at a time, and blocks. Its process is started when it is needed, and again when it has ended."""

    def __init__(self, address: str, folder: str, logs: Path, seconds: float) -> None:
        """`address` is the Ray cluster's. An answer may take `seconds`."""
        self._address = address
        self._folder = folder
        self._logs = logs
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None

    def ask(self, request: Request) -> Answer | Unreachable:
        connection = self._connection
        try:
            if connection is None:
                connection = self._start()
            send_frame(connection, encode(request))
            body = receive_frame(connection)
            connection.settimeout(self._seconds + 1.0)  # longer than its own patience with the actor
        except NoLibrary as error:
            return Unreachable(str(error))
        except (OSError, Broken) as error:
            self.close()
            return Unreachable(f"its process does not answer: {error}")
        if body is None:
            self.close()
            return Unreachable("its process has ended")
        return _answers.decode(body)

    def interrupt(self) -> None:
        """Let a question that another thread asks end early, without an answer."""
        if (process := self._process) is not None:
            process.kill()

    def close(self) -> None:
        """End the process."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _start(self) -> socket.socket:
        environ = ray_environment()
        ours, theirs = socket.socketpair()
        arguments = (str(theirs.fileno()), self._address, self._folder, str(self._seconds))
        self._connection = ours
        self._logs.mkdir(parents=True, exist_ok=True)
        with theirs, open(self._logs / LOG, "ab") as output:
            self._process = subprocess.Popen(  # noqa: S603 (our own interpreter and module)
                [sys.executable, "-m", PROGRAM, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(theirs.fileno(),),
                env=environ,
                start_new_session=True,
            )
        ours.settimeout(CONNECT_SECONDS)
        return ours
