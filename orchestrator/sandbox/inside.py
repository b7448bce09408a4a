"""Start the job's program, as the first thing that runs in the sandbox: limits, identity, descriptors, exec.

bubblewrap runs this file alone, isolated, so it imports only the standard library. On stdout it says that the sandbox
stands (READY), then reads its orders from stdin (four bytes of length, JSON), and says STARTED or MISSING; from there
on all descriptors are the program's. It keeps no right that the program could use: the identity is dropped for good,
and the limits are hard ones.
"""

import contextlib
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
    """Obey the orders.

    They are `argv`, `env`, `uid` or null, `limits` [[name, soft, hard]], `channel` or null, `niceness`, `idle`.
    """
    os.write(1, READY)
    orders = _orders()
    _connect(orders["channel"])
    os.setpgid(0, 0)  # signals to its group are its own; the session stays that of bubblewrap, which stands back
    stand_back(0, orders["niceness"], orders["idle"])
    if orders["uid"] is not None:
        _become(orders["uid"])
    for name, soft, hard in orders["limits"]:
        resource.setrlimit(getattr(resource, name), (soft, hard))
    argv, env = orders["argv"], orders["env"]
    program = shutil.which(argv[0], path=env["PATH"])
    if program is None:
        os.write(1, MISSING)
        return
    os.write(1, STARTED)
    try:
        os.execve(program, argv, env)  # noqa: S606 - to run it is what the sandbox is for
    except OSError as error:
        os.write(2, f"{program}: {error.strerror}\n".encode())
        os._exit(_CANNOT_START)


def stand_back(pid: int, niceness: int, idle: bool) -> None:
    """Let others go before a process (0: this one) and what it starts from now on. There is no way back without rights.

    `idle` adds the kernel's class for idle time, which weighs less than any niceness (sched(7)).
    """
    with contextlib.suppress(OSError):  # it has ended, or it may not change at all and keeps what it has inherited
        os.setpriority(os.PRIO_PROCESS, pid, niceness)
        if idle:
            os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))


def _orders() -> Any:
    length = int.from_bytes(_read(4), "big")
    return json.loads(_read(length))


def _read(count: int) -> bytes:
    parts = []
    while count:
        part = os.read(0, count)
        if not part:
            sys.exit("the sandbox was given up before its program started")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _connect(channel: int | None) -> None:
    """Leave stdin, stdout, stderr and the channel open, and nothing else."""
    if channel is not None and channel != CHANNEL:
        os.dup2(channel, CHANNEL)
    if channel is not None:
        os.set_inheritable(CHANNEL, True)
    os.closerange(3 if channel is None else CHANNEL + 1, os.sysconf("SC_OPEN_MAX"))


def _become(uid: int) -> None:
    """Take on an unprivileged identity. The kernel drops all capabilities of a process that leaves uid 0 like this."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


if __name__ == "__main__":
    main()
