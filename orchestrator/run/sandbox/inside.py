"""The launcher, the first program in the sandbox: set limits, identity and descriptors, and exec the job.

Bubblewrap runs this file alone, so it imports only the standard library. It writes READY to stdout, reads a request
from stdin (four bytes of length, then JSON), and writes STARTED or MISSING; from then on all descriptors belong to the
job. The job cannot undo any of this: the identity is dropped for good, and limits are hard ones.
"""

import json
import os
import resource
import shutil
import sys
from typing import Any

READY, STARTED, MISSING = b"r", b"s", b"m"
CHANNEL = 3
_CANNOT_START = 126


def main() -> None:
    """Read the request and execute the program.

    The request has `argv`, `env`, `uid` (or null), `limits` ([name, soft, hard] each), `channel` (a descriptor or
    null), `niceness` and `idle`.
    """
    os.write(1, READY)
    request = _read_request()
    _connect(request["channel"])
    os.setpgid(0, 0)  # it may signal its own group; it stays in bubblewrap's session, whose priority may be lowered
    os.setpriority(os.PRIO_PROCESS, 0, request["niceness"])  # raising it again takes privileges
    if request["idle"]:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    if request["uid"] is not None:
        _drop_privileges(request["uid"])
    for name, soft, hard in request["limits"]:
        resource.setrlimit(getattr(resource, name), (soft, hard))
    argv, env = request["argv"], request["env"]
    program = shutil.which(argv[0], path=env["PATH"])
    if program is None:
        os.write(1, MISSING)
        return
    os.write(1, STARTED)
    try:
        os.execve(program, argv, env)  # noqa: S606 - the sandbox exists to run it
    except OSError as error:
        os.write(2, f"{program}: {error.strerror}\n".encode())
        os._exit(_CANNOT_START)


def _read_request() -> Any:
    length = int.from_bytes(_read(4), "big")
    return json.loads(_read(length))


def _read(count: int) -> bytes:
    parts = []
    while count:
        part = os.read(0, count)
        if not part:
            sys.exit("the sandbox was closed before its program started")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _connect(channel: int | None) -> None:
    # Moves the channel to descriptor CHANNEL, and closes all others but stdin, stdout and stderr.
    if channel is not None and channel != CHANNEL:
        os.dup2(channel, CHANNEL)
    if channel is not None:
        os.set_inheritable(CHANNEL, True)
    os.closerange(3 if channel is None else CHANNEL + 1, os.sysconf("SC_OPEN_MAX"))


def _drop_privileges(uid: int) -> None:
    # The kernel then drops all capabilities of the process (capabilities(7)).
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


if __name__ == "__main__":
    main()
