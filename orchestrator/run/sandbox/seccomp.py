"""Assemble the system call filter (classic BPF, Linux `Documentation/userspace-api/seccomp_filter.rst`).

A call that is not allowed fails with ENOSYS, so that C libraries fall back to an older one. A few calls are allowed for
some arguments only, and fail with EPERM for others. Call numbers differ between architectures, so a call for another
one ends the program.
"""

import errno
import platform
import socket
import stat
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from orchestrator.run.sandbox.errors import SandboxUnavailable
from orchestrator.run.sandbox.syscalls import allowed_calls

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# opcodes, <linux/bpf_common.h>
_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_IF_EQUAL, _IF_GREATER, _IF_AT_LEAST = 0x15, 0x25, 0x35

# verdicts, <linux/seccomp.h>
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000

# offsets in struct seccomp_data; both machines are little-endian, so the low word of an argument comes first
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16

_NEW_NAMESPACES = 0x7E020000  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_FAMILIES = frozenset({socket.AF_UNIX, socket.AF_INET, socket.AF_INET6})
_DEVICES = frozenset({stat.S_IFCHR, stat.S_IFBLK})
_TTY_INPUT = frozenset({0x5412, 0x541C})  # TIOCSTI, TIOCLINUX: they insert input into a terminal
_WORD = 0xFFFFFFFF

# (opcode, instructions to skip if true, instructions to skip if false, operand)
Instruction = tuple[int, int, int, int]


# Allows a call if `argument & mask` is among `values`; with `refused`, if it is not among them.
@dataclass(frozen=True, slots=True)
class _Rule:
    call: str
    argument: int
    mask: int
    values: frozenset[int]
    refused: bool = False


_RULES = (
    _Rule("clone", 0, _NEW_NAMESPACES, frozenset({0})),
    _Rule("socket", 0, _WORD, _FAMILIES),
    _Rule("ioctl", 1, _WORD, _TTY_INPUT, refused=True),
    _Rule("mknod", 1, 0xF000, _DEVICES, refused=True),
    _Rule("mknodat", 2, 0xF000, _DEVICES, refused=True),
)

_NO_SESSIONS = _Rule("setsid", 0, 0, frozenset())


def filter_program(machine: str | None = None, *, sessions: bool = True) -> bytes:
    """Return the filter for a machine (default: this one) as an array of `struct sock_filter`.

    Without `sessions`, setsid fails with EPERM. Raises SandboxUnavailable for an unknown architecture.
    """
    machine = machine or platform.machine()
    if machine not in _AUDIT_ARCH:
        supported = ", ".join(_AUDIT_ARCH)
        raise SandboxUnavailable(f"no system call filter for {machine}; there is one for {supported}")
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in _assemble(machine, sessions))


def _assemble(machine: str, sessions: bool) -> Iterator[Instruction]:
    calls = allowed_calls(machine)
    yield from [(_LOAD, 0, 0, _ARCH), (_IF_EQUAL, 1, 0, _AUDIT_ARCH[machine]), (_RETURN, 0, 0, _KILL)]
    yield (_LOAD, 0, 0, _NUMBER)
    for rule in _RULES if sessions else (*_RULES, _NO_SESSIONS):
        if rule.call in calls:
            yield from _conditional(calls[rule.call], rule)
    for first, last in _ranges(calls.values()):
        yield from [(_IF_AT_LEAST, 0, 2, first), (_IF_GREATER, 1, 0, last), (_RETURN, 0, 0, _ALLOW)]
    yield (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)


def _conditional(number: int, rule: _Rule) -> Iterator[Instruction]:
    refuse = _ERRNO | errno.EPERM
    match, no_match = (refuse, _ALLOW) if rule.refused else (_ALLOW, refuse)
    body: list[Instruction] = [(_LOAD, 0, 0, _ARGUMENTS + 8 * rule.argument), (_AND, 0, 0, rule.mask)]
    for value in sorted(rule.values):
        body += [(_IF_EQUAL, 0, 1, value), (_RETURN, 0, 0, match)]
    body.append((_RETURN, 0, 0, no_match))
    yield (_IF_EQUAL, 0, len(body), number)
    yield from body


def _ranges(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    # Ranges (first, last) of consecutive numbers: 1, 2, 3, 7 are (1, 3) and (7, 7).
    first = last = -1
    for number in sorted(numbers):
        if number != last + 1 or first < 0:
            if first >= 0:
                yield first, last
            first = number
        last = number
    if first >= 0:
        yield first, last
