"""The arbiter of the lease: an actor next to Ray's control plane, and the process through which others talk to it.

`ArbiterClient` starts it as `python -m orchestrator.cluster.arbiter SOCKET_FD ADDRESS FOLDER SECONDS`. It is a process
of its own because Ray ends its process when the control plane of the cluster is gone for a minute.
"""

import os
import socket
import sys
from pathlib import Path
from typing import Any, Final

import ray
from ray.exceptions import GetTimeoutError, RayError

from orchestrator.cluster.arbiter_client import Unreachable, encode_unreachable, now
from orchestrator.cluster.driver import NAMESPACE, connect, control_plane_problem, is_same_cluster
from orchestrator.cluster.lease import Arbiter, Record, decode_record, decode_request, encode
from orchestrator.cluster.stream import receive_frame, send_frame
from orchestrator.cluster.tls import NotConnected
from orchestrator.files import lock_file, replace_file, user_folder

NAME: Final = "arbiter"
CHECK_SECONDS: Final = 0.5  # for the control plane to answer when the arbiter has not
START_SECONDS: Final = 60.0  # for Ray to start the actor, which imports this module
CONTROL_PLANE: Final = {"node:__internal_head__": 0.001}  # Ray's resource of the node that runs it


class ArbiterHost:
    """The arbiter as an actor. Its record is a file, so that it outlives the actor."""

    def __init__(self, folder: str) -> None:
        usual = user_folder(os.environ, "XDG_STATE_HOME", ".local/state") / "orchestrator"
        root = (Path(folder).expanduser() if folder else usual) / "arbiter"
        root.mkdir(parents=True, exist_ok=True)
        root.chmod(0o700)  # the record has a key
        self._lock = lock_file(root / "lock")  # raises FileLocked while an earlier actor still answers
        self._file = root / "lease"
        record = decode_record(self._file.read_bytes()) if self._file.exists() else Record()
        self._arbiter = Arbiter(record, now())

    def ask(self, body: bytes) -> bytes:
        """Answer a request of `lease`, once what it has changed is on the disk."""
        before = self._arbiter.record
        answer = self._arbiter.answer(decode_request(body), now())
        if not self._arbiter.record.says_the_same(before):
            replace_file(self._file, encode(self._arbiter.record), durable=True)
        return encode(answer)


def find_arbiter(folder: str) -> Any:
    """Return the actor, which is made if it is not there."""
    actor: Any = ray.remote(ArbiterHost)
    return actor.options(
        name=NAME,
        namespace=NAMESPACE,
        lifetime="detached",
        get_if_exists=True,
        num_cpus=0,
        resources=CONTROL_PLANE,
        max_restarts=-1,
        max_task_retries=0,  # a renewal that comes late must not come again
    ).remote(folder)


def serve(connection: socket.socket, address: str, folder: str, seconds: float) -> str:
    """Pass requests on until the connection is closed. Returns why it ended early, or nothing."""
    handle, patience = None, START_SECONDS
    try:
        while (body := receive_frame(connection)) is not None:
            if handle is None:
                if problem := control_plane_problem(address, CHECK_SECONDS):  # Ray would try for longer
                    send_frame(connection, encode_unreachable(Unreachable(problem)))
                    continue
                connect(address)
                handle = find_arbiter(folder)
            try:
                answer: bytes = ray.get(handle.ask.remote(body), timeout=patience)
            except GetTimeoutError:
                if not control_plane_problem(address, CHECK_SECONDS) and not is_same_cluster(address):
                    return "the control plane was started again"  # the next process finds its arbiter
                answer = encode_unreachable(Unreachable(f"the arbiter did not answer for {patience:g} s"))
            send_frame(connection, answer)
            patience = seconds
    except (NotConnected, RayError, ValueError, RuntimeError) as error:
        return str(error).strip().rpartition("\n")[2]
    return ""


def main(descriptor: str, address: str, folder: str, seconds: str) -> int:
    connection = socket.socket(fileno=int(descriptor))
    if reason := serve(connection, address, folder, float(seconds)):
        send_frame(connection, encode_unreachable(Unreachable(reason)))
        return 1
    return 0


if __name__ == "__main__":
    code = main(*sys.argv[1:5])
    sys.stderr.flush()
    os._exit(code)  # Ray's own end of a driver waits for threads
