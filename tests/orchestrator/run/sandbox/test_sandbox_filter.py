"""Run the assembled filter in an interpreter of the kernel's few instructions, call by call."""

import errno
import socket
import stat
import struct
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.run.sandbox.errors import SandboxUnavailable
from orchestrator.run.sandbox.seccomp import allowed_calls, filter_program

_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_MISSING, _REFUSED = 0x00050000 | errno.ENOSYS, 0x00050000 | errno.EPERM
_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_MACHINES = st.sampled_from(sorted(_ARCH))
_CONDITIONAL = {"clone", "socket", "ioctl", "mknod", "mknodat"}


@cache
def _instructions(machine: str, sessions: bool) -> list[tuple[int, int, int, int]]:
    return list(struct.iter_unpack("=HBBI", filter_program(machine, sessions=sessions)))


def verdict(
    machine: str, number: int, arguments: tuple[int, ...] = (), arch: int | None = None, sessions: bool = True
) -> int:
    """Return what the filter says to a call."""
    words = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("=iIQ6Q", number, _ARCH[machine] if arch is None else arch, 0, *words)
    program = _instructions(machine, sessions)
    value = position = 0
    while True:
        code, if_true, if_false, operand = program[position]
        position += 1
        match code:
            case 0x20:
                (value,) = struct.unpack_from("=I", data, operand)
            case 0x54:
                value &= operand
            case 0x06:
                return operand
            case 0x15 | 0x25 | 0x35:
                holds = {0x15: value == operand, 0x25: value > operand, 0x35: value >= operand}[code]
                position += if_true if holds else if_false
            case _:
                raise AssertionError(f"the kernel's seccomp has no use for {code:#x}")


@given(_MACHINES, st.integers(0, 600) | st.integers(0, 2**31 - 1))
def test_only_calls_of_the_list_exist(machine: str, number: int) -> None:
    names = {value: name for name, value in allowed_calls(machine).items()}
    if names.get(number) in _CONDITIONAL:
        assert verdict(machine, number) in (_ALLOW, _REFUSED)
    else:
        assert verdict(machine, number) == (_ALLOW if number in names else _MISSING)


@given(st.integers(0, 600), st.integers(0, 2**32 - 1))
def test_calls_of_another_architecture_end_the_program(number: int, arch: int) -> None:
    if arch != _ARCH["x86_64"]:
        assert verdict("x86_64", number, arch=arch) == _KILL


@pytest.mark.parametrize(
    ("call", "arguments", "allowed"),
    [
        ("clone", (0x01200011,), True),  # fork
        ("clone", (0x003D0F00,), True),  # a thread
        ("clone", (0x10000011,), False),  # a user namespace
        ("clone", (0x00020011,), False),  # a mount namespace
        ("socket", (socket.AF_UNIX, socket.SOCK_STREAM), True),
        ("socket", (socket.AF_INET6, socket.SOCK_DGRAM), True),
        ("socket", (socket.AF_NETLINK, socket.SOCK_RAW), False),
        ("socket", (socket.AF_PACKET, socket.SOCK_RAW), False),
        ("socket", (40, socket.SOCK_STREAM), False),  # vsock
        ("ioctl", (0, 0x5401), True),  # TCGETS
        ("ioctl", (0, 0x5412), False),  # TIOCSTI
        ("ioctl", (0, 0x7_0000_5412), False),  # the kernel looks at 32 bits only, and so must we
        ("mknodat", (0, 0, stat.S_IFIFO | 0o600), True),
        ("mknodat", (0, 0, stat.S_IFBLK | 0o600), False),
        ("mknodat", (0, 0, stat.S_IFCHR | 0o600), False),
    ],
)
@pytest.mark.parametrize("machine", sorted(_ARCH))
def test_some_calls_depend_on_an_argument(machine: str, call: str, arguments: tuple[int, ...], allowed: bool) -> None:
    assert verdict(machine, allowed_calls(machine)[call], arguments) == (_ALLOW if allowed else _REFUSED)


@pytest.mark.parametrize("machine", sorted(_ARCH))
def test_sessions_can_be_refused(machine: str) -> None:
    calls = allowed_calls(machine)
    assert verdict(machine, calls["setsid"]) == _ALLOW
    assert verdict(machine, calls["setsid"], sessions=False) == _REFUSED
    assert all(verdict(machine, calls[name], sessions=False) == _ALLOW for name in ("setpgid", "getsid", "execve"))


@pytest.mark.parametrize("machine", sorted(_ARCH))
def test_no_call_raises_a_priority_past_the_limits(machine: str) -> None:
    """The kernel holds what the remaining calls set to the limits of nice and real-time priority (setrlimit(2))."""
    assert not {"sched_setattr", "ioprio_set", "uclamp"} & set(allowed_calls(machine))


def test_the_two_machines_differ_only_in_what_one_lacks() -> None:
    x86, arm = allowed_calls("x86_64"), allowed_calls("aarch64")
    assert set(arm) < set(x86)
    assert len(set(x86.values())) == len(x86)
    assert len(set(arm.values())) == len(arm)
    assert {"openat", "execve", "futex", "exit_group"} <= set(arm)


def test_another_machine_has_no_filter() -> None:
    with pytest.raises(SandboxUnavailable, match=r"riscv64.*x86_64, aarch64"):
        filter_program("riscv64")
