"""Attempts by system calls of their own, past the C library and past Python."""

import platform
import signal

from tests.escape.attempt import Attempt, attempt

# name: (number on x86_64, number on aarch64, arguments); None where a machine lacks the call
_CALLS: dict[str, tuple[int | None, int | None, str]] = {
    "mount": (165, 40, "b'none', b'/tmp', b'tmpfs', 0, None"),
    "umount2": (166, 39, "b'/proc', 2"),
    "pivot_root": (155, 41, "b'.', b'.'"),
    "chroot": (161, 51, "b'.'"),
    "fsopen": (430, 430, "b'tmpfs', 0"),
    "open_tree": (428, 428, "-100, b'/', 1"),
    "move_mount": (429, 429, "0, b'', 0, b'', 0"),
    "unshare a user namespace": (272, 97, "0x10000000"),
    "unshare a mount namespace": (272, 97, "0x00020000"),
    "setns": (308, 268, "0, 0"),
    "clone3": (435, 435, "None, 0"),
    "ptrace": (101, 117, "0, 0, 0, 0"),
    "process_vm_readv": (310, 270, "os.getpid(), None, 0, None, 0, 0"),
    "process_vm_writev": (311, 271, "os.getpid(), None, 0, None, 0, 0"),
    "kcmp": (312, 272, "os.getpid(), os.getpid(), 1, 0, 0"),
    "pidfd_getfd": (438, 438, "0, 0, 0"),
    "keyctl": (250, 219, "0, -3, 0"),
    "add_key": (248, 217, "b'user', b'escape', b'x', 1, -1"),
    "request_key": (249, 218, "b'user', b'escape', None, 0"),
    "bpf": (321, 280, "0, None, 0"),
    "perf_event_open": (298, 241, "None, 0, -1, -1, 0"),
    "io_uring_setup": (425, 425, "1, ctypes.create_string_buffer(120)"),
    "userfaultfd": (323, 282, "1"),
    "kexec_load": (246, 104, "0, 0, None, 0xffff"),
    "init_module": (175, 105, "b'', 0, b''"),
    "finit_module": (313, 273, "-1, b'', 0"),
    "delete_module": (176, 106, "b'escape', 0"),
    "sched_setattr": (314, 274, "0, struct.pack('IIQiIQQQ', 48, 0, 0, 0, 0, 10**8, 0, 0), 0"),
    "ioprio_set": (251, 30, "1, 0, 0x4000"),
    "personality": (135, 92, "0xffffffff"),
    "reboot": (169, 142, "0, 0, 0, None"),
    "swapon": (167, 224, "b'/nonexistent', 0"),
    "acct": (163, 89, "b'/nonexistent'"),
    "syslog": (103, 116, "10, None, 0"),
    "quotactl": (179, 60, "0, None, 0, None"),
    "settimeofday": (164, 170, "None, None"),
    "clock_settime": (227, 112, "0, None"),
    "sethostname": (170, 161, "b'', 0"),
    "iopl": (172, None, "3"),
    "ioperm": (173, None, "0, 1, 1"),
    "modify_ldt": (154, None, "0, None, 0"),
    "name_to_handle_at": (303, 264, "-100, b'.', None, None, 0"),
    "open_by_handle_at": (304, 265, "-100, None, 0"),
    "fanotify_init": (300, 262, "0, 0"),
    "memfd_secret": (447, 447, "0"),
    "shmget": (29, 194, "0, 4096, 0o1600"),
    "mq_open": (240, 180, "b'escape', 0x42, 0o600, None"),
    "vmsplice": (278, 75, "1, None, 0, 0"),
    "a call that does not exist yet": (1000, 1000, "0"),
}
# Without arguments that could do harm, and allowed to anyone or at least to root; seen to succeed outside.
_HARMLESS = {"personality", "userfaultfd", "io_uring_setup", "ptrace", "keyctl", "unshare a user namespace"}

_COLUMN = {"x86_64": 0, "aarch64": 1}[platform.machine()]


def _calls() -> list[Attempt]:
    rows = [(name, row[_COLUMN], row[2]) for name, row in _CALLS.items()]
    return [
        attempt(f"call {name}", f"call({number}, {arguments})", "ENOSYS", outside=name in _HARMLESS)
        for name, number, arguments in rows
        if number is not None
    ]


_CLONE = (56, 220)[_COLUMN]
_FOREIGN = [
    attempt("call by the x32 numbers", "call(0x40000000 | 39)", "ENOSYS"),
    attempt(
        "call by the 32-bit gate",
        "import mmap\n"
        "page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)\n"
        "page.write(bytes.fromhex('b814000000cd80c3'))\n"
        "function = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))\n"
        "if os.fork() == 0:\n    say('ESCAPED', function())\n    os._exit(0)\n"
        "say('HELD', f'signal {os.WTERMSIG(os.wait()[1])}')",
        f"{int(signal.SIGSYS)} {int(signal.SIGSEGV)}",
    ),
]

CALLS = [
    *_calls(),
    attempt(
        "clone a user namespace",
        f"pid = libc.syscall({_CLONE}, ctypes.c_long(0x10000000 | signal.SIGCHLD), None, None, None, None)\n"
        "pid or os._exit(0)\nsay('ESCAPED', pid) if pid > 0 else say('HELD', errno.errorcode[ctypes.get_errno()])",
        "EPERM",
        outside=True,
    ),
    *(_FOREIGN if platform.machine() == "x86_64" else []),
]
