"""What is tried to get out of the sandbox: one program each, and what shows that it was contained.

A program says HELD and why for each thing that was refused to it, and ESCAPED for each thing that it could do. It has
to say the one or the other, unless a limit ends it: a program that fails for a reason of its own proves nothing.
`held` are the reasons that count. `outside` marks those that do no harm where they succeed; these are also run without
a sandbox, where they must escape.
"""

from dataclasses import dataclass

from orchestrator.run.sandbox.contract import MIB, LimitName, SandboxLimits

# What every program starts with. Its arguments are made by `World.arguments`.
PRELUDE = """
import ctypes, errno, fcntl, os, resource, signal, socket, stat, struct, subprocess, sys, threading, time
SECRET, CANARY, PORT, ABSTRACT, SOCKET, PROJECT, TOKEN = sys.argv[1:8]
CANARY, PORT = int(CANARY), int(PORT)
libc = ctypes.CDLL(None, use_errno=True)

def say(word, what):
    os.write(1, f"{word} {what}\\n".encode())

def attempt(action, *arguments, worth=lambda result: True):
    try:
        result = action(*arguments)
    except (OSError, ValueError) as error:
        number = getattr(error, "errno", None)
        say("HELD", errno.errorcode.get(number, type(error).__name__))
    else:
        say("ESCAPED" if worth(result) else "HELD", "done" if worth(result) else "worthless")

def call(number, *arguments):
    ctypes.set_errno(0)
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = libc.syscall(ctypes.c_long(number), *words)
    say("HELD", errno.errorcode[ctypes.get_errno()]) if result == -1 else say("ESCAPED", result)

def read(path):
    with open(path, "rb", buffering=0) as file:
        return file.read(4096)

def write(path):
    with open(path, "wb", buffering=0) as file:
        file.write(b"escaped")

def connect(family, address, kind=socket.SOCK_STREAM):
    with socket.socket(family, kind) as connection:
        connection.settimeout(5)
        connection.connect(address)
        connection.send(b"escaped")
"""

SMALL = SandboxLimits(wall=30, cpu=10, memory=96 * MIB, processes=16, disk=8 * MIB, output=64 * 1024, niceness=0)
BRIEF = SandboxLimits(wall=3, cpu=10, memory=96 * MIB, processes=16, disk=8 * MIB, output=64 * 1024, niceness=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A program (Python, after PRELUDE), the reasons for which it is held, and the limits that may end it instead."""

    name: str
    code: str
    held: frozenset[str] = frozenset()
    limits: frozenset[LimitName] = frozenset()
    outside: bool = False
    within: SandboxLimits = SMALL
    keep: tuple[str, ...] = ()
    counted: bool = False
    """It needs a control group to be contained."""


def attempt(name: str, code: str, held: str = "", **more: object) -> Attempt:
    return Attempt(name=name, code=code, held=frozenset(held.split()), **more)  # type: ignore[arg-type]


def ended(*limits: LimitName) -> frozenset[LimitName]:
    return frozenset(limits)
