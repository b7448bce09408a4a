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

_COLUMNS = {"x86_64": 1, "aarch64": 2}

# An allow list, because a deny list is incomplete as soon as the kernel gets a new call. It has what programs use for
# files, memory, threads, processes, signals, time and sockets. Left out is what
# - reaches other processes: ptrace, process_vm_readv, kcmp, pidfd_getfd;
# - changes the machine: mount, setns, unshare, chroot, bpf, kexec, modules, clocks, swap;
# - lengthens a time slice: sched_setattr;
# - was a source of vulnerabilities: io_uring, userfaultfd, perf_event_open, keyctl, personality;
# - gives memory that no limit counts: memfd_create, System V and POSIX queues.
#
# name:number on x86_64:number on aarch64, where older calls do not exist (-)
_TABLE = """
read:0:63 write:1:64 open:2:- close:3:57 stat:4:- fstat:5:80 lstat:6:- poll:7:- lseek:8:62 mmap:9:222
mprotect:10:226 munmap:11:215 brk:12:214 rt_sigaction:13:134 rt_sigprocmask:14:135 rt_sigreturn:15:139 ioctl:16:29
pread64:17:67 pwrite64:18:68 readv:19:65 writev:20:66 access:21:- pipe:22:- select:23:- sched_yield:24:124
mremap:25:216 msync:26:227 mincore:27:232 madvise:28:233 dup:32:23 dup2:33:- pause:34:- nanosleep:35:101
getitimer:36:102 alarm:37:- setitimer:38:103 getpid:39:172 sendfile:40:71 socket:41:198 connect:42:203 accept:43:202
sendto:44:206 recvfrom:45:207 sendmsg:46:211 recvmsg:47:212 shutdown:48:210 bind:49:200 listen:50:201
getsockname:51:204 getpeername:52:205 socketpair:53:199 setsockopt:54:208 getsockopt:55:209 clone:56:220 fork:57:-
vfork:58:- execve:59:221 exit:60:93 wait4:61:260 kill:62:129 uname:63:160 fcntl:72:25 flock:73:32 fsync:74:82
fdatasync:75:83 truncate:76:45 ftruncate:77:46 getdents:78:- getcwd:79:17 chdir:80:49 fchdir:81:50 rename:82:-
mkdir:83:- rmdir:84:- creat:85:- link:86:- unlink:87:- symlink:88:- readlink:89:- chmod:90:- fchmod:91:52 chown:92:-
fchown:93:55 lchown:94:- umask:95:166 gettimeofday:96:169 getrlimit:97:163 getrusage:98:165 sysinfo:99:179
times:100:153 getuid:102:174 getgid:104:176 setuid:105:146 setgid:106:144 geteuid:107:175 getegid:108:177
setpgid:109:154 getppid:110:173 getpgrp:111:- setsid:112:157 setreuid:113:145 setregid:114:143 getgroups:115:158
setgroups:116:159 setresuid:117:147 getresuid:118:148 setresgid:119:149 getresgid:120:150 getpgid:121:155
setfsuid:122:151 setfsgid:123:152 getsid:124:156 capget:125:90 capset:126:91 rt_sigpending:127:136
rt_sigtimedwait:128:137 rt_sigqueueinfo:129:138 rt_sigsuspend:130:133 sigaltstack:131:132 utime:132:- mknod:133:-
statfs:137:43 fstatfs:138:44 getpriority:140:141 setpriority:141:140 sched_setparam:142:118 sched_getparam:143:121
sched_setscheduler:144:119 sched_getscheduler:145:120 sched_get_priority_max:146:125 sched_get_priority_min:147:126
sched_rr_get_interval:148:127 mlock:149:228 munlock:150:229 mlockall:151:230 munlockall:152:231 prctl:157:167
arch_prctl:158:- setrlimit:160:164 sync:162:81 gettid:186:178 readahead:187:213 setxattr:188:5 lsetxattr:189:6
fsetxattr:190:7 getxattr:191:8 lgetxattr:192:9 fgetxattr:193:10 listxattr:194:11 llistxattr:195:12 flistxattr:196:13
removexattr:197:14 lremovexattr:198:15 fremovexattr:199:16 tkill:200:130 time:201:- futex:202:98
sched_setaffinity:203:122 sched_getaffinity:204:123 epoll_create:213:- getdents64:217:61 set_tid_address:218:96
restart_syscall:219:128 fadvise64:221:223 timer_create:222:107 timer_settime:223:110 timer_gettime:224:108
timer_getoverrun:225:109 timer_delete:226:111 clock_gettime:228:113 clock_getres:229:114 clock_nanosleep:230:115
exit_group:231:94 epoll_wait:232:- epoll_ctl:233:21 tgkill:234:131 utimes:235:- waitid:247:95 inotify_init:253:-
inotify_add_watch:254:27 inotify_rm_watch:255:28 openat:257:56 mkdirat:258:34 mknodat:259:33 fchownat:260:54
futimesat:261:- newfstatat:262:79 unlinkat:263:35 renameat:264:38 linkat:265:37 symlinkat:266:36 readlinkat:267:78
fchmodat:268:53 faccessat:269:48 pselect6:270:72 ppoll:271:73 set_robust_list:273:99 get_robust_list:274:100
splice:275:76 tee:276:77 sync_file_range:277:84 utimensat:280:88 epoll_pwait:281:22 signalfd:282:-
timerfd_create:283:85 eventfd:284:- fallocate:285:47 timerfd_settime:286:86 timerfd_gettime:287:87 accept4:288:242
signalfd4:289:74 eventfd2:290:19 epoll_create1:291:20 dup3:292:24 pipe2:293:59 inotify_init1:294:26 preadv:295:69
pwritev:296:70 rt_tgsigqueueinfo:297:240 recvmmsg:299:243 prlimit64:302:261 syncfs:306:267 sendmmsg:307:269
getcpu:309:168 sched_getattr:315:275 renameat2:316:276 seccomp:317:277 getrandom:318:278
execveat:322:281 membarrier:324:283 mlock2:325:284 copy_file_range:326:285 preadv2:327:286 pwritev2:328:287
statx:332:291 rseq:334:293 pidfd_send_signal:424:424 pidfd_open:434:434 close_range:436:436 openat2:437:437
faccessat2:439:439 epoll_pwait2:441:441 futex_waitv:449:449 fchmodat2:452:452
"""


def allowed_calls(machine: str) -> dict[str, int]:
    """Return the numbers of the allowed calls on `machine` (x86_64 or aarch64), by name."""
    rows = (entry.split(":") for entry in _TABLE.split())
    column = _COLUMNS[machine]
    return {row[0]: int(row[column]) for row in rows if row[column] != "-"}


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
