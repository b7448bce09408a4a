"""Attempts at the network, at processes, and at the machine's resources."""

from dataclasses import replace

from tests.escape.attempt import BRIEF, SMALL, Attempt, attempt, ended

NETWORK = [
    attempt(
        "connect to the host", "attempt(connect, socket.AF_INET, ('127.0.0.1', PORT))", "ECONNREFUSED", outside=True
    ),
    attempt("connect to the Internet", "attempt(connect, socket.AF_INET, ('1.1.1.1', 443))", "ENETUNREACH"),
    attempt("ask a name server", "attempt(connect, socket.AF_INET, ('8.8.8.8', 53), socket.SOCK_DGRAM)", "ENETUNREACH"),
    attempt("resolve a name", "attempt(socket.getaddrinfo, 'example.org', 443)", "gaierror"),
    attempt(
        "connect by IPv6",
        "attempt(connect, socket.AF_INET6, ('2606:4700::1', 443))",
        "EADDRNOTAVAIL EAFNOSUPPORT ENETUNREACH",
    ),
    attempt(
        "connect to an abstract name",
        "attempt(connect, socket.AF_UNIX, '\\0' + ABSTRACT)",
        "ECONNREFUSED",
        outside=True,
    ),
    attempt("connect to a socket file", "attempt(connect, socket.AF_UNIX, SOCKET)", "ENOENT", outside=True),
    attempt(
        "open a netlink socket", "attempt(socket.socket, socket.AF_NETLINK, socket.SOCK_RAW)", "EPERM", outside=True
    ),
    attempt("open a packet socket", "attempt(socket.socket, socket.AF_PACKET, socket.SOCK_RAW)", "EPERM"),
    attempt("open a vsock", "attempt(socket.socket, 40, socket.SOCK_STREAM)", "EPERM"),
    attempt("open a raw socket", "attempt(socket.socket, socket.AF_INET, socket.SOCK_RAW, 1)", "EPERM"),
    attempt("use the kernel's ciphers", "attempt(socket.socket, 38, socket.SOCK_SEQPACKET)", "EPERM"),
    attempt(
        "open every other family",
        """
for family in range(3, 47):
    if family != socket.AF_INET6:
        attempt(socket.socket, family, socket.SOCK_DGRAM)
""",
        "EPERM",
    ),
    attempt(
        "bring an interface up",
        """
with socket.socket() as connection:
    attempt(fcntl.ioctl, connection, 0x8914, struct.pack('16sH14x', b'lo', 0))
""",
        "EPERM",
    ),
]

# How a process of a job of low priority may try to get more processor time than another one of the same job.
_PREPARATIONS = {
    "by a session of its own": "os.setsid()",
    "by the priority of its session": "os.setsid(); write('/proc/self/autogroup')",
    "by its scheduling class": "os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))",
    "by its niceness": "os.setpriority(os.PRIO_PROCESS, 0, 0)",
    "by a session of its child": "os.setpgid(0, 0); os.fork() and os._exit(0); os.setsid()",
}
_BURN = """
def burn(prepare, report):
    if os.fork():
        return
    try:
        exec(prepare)
    except OSError:
        pass
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    end = time.monotonic() + 4
    while time.monotonic() < end:
        pass
    os.write(report, struct.pack('d', time.process_time()))
    os._exit(0)

shares = []
for prepare in ('pass', PREPARE):
    shares.append(os.pipe())
    burn(prepare, shares[-1][1])
plain, prepared = (struct.unpack('d', os.read(share[0], 8))[0] for share in shares)
say('ESCAPED' if prepared > 4 * plain + 0.1 else 'HELD', 'fair')
"""


def _gain_time(name: str, prepare: str) -> Attempt:
    """Let two processes of a job compete for one core, of which one has tried to leave the job's low priority."""
    return attempt(
        f"gain time {name}", f"PREPARE = {prepare!r}\n{_BURN}", "fair", within=replace(SMALL, wall=60, niceness=19)
    )


PROCESSES = [
    attempt(
        "bomb by forks",
        """
while True:
    try:
        os.fork()
    except OSError:
        time.sleep(0.01)
""",
        limits=ended("cpu", "memory", "processes", "wall"),
        within=BRIEF,
    ),
    attempt(
        "fork beyond the limit",
        """
made = 0
try:
    while made < 64:
        made += 1
        os.fork() or time.sleep(60)
except OSError as error:
    say('HELD' if made <= 16 else 'ESCAPED', errno.errorcode[error.errno])
else:
    say('ESCAPED', made)
""",
        "EAGAIN",
    ),
    attempt(
        "start threads beyond the limit",
        """
made = []
try:
    while len(made) < 64:
        made.append(threading.Thread(target=time.sleep, args=(60,), daemon=True))
        made[-1].start()
except RuntimeError:
    say('HELD' if len(made) <= 16 else 'ESCAPED', 'threads')
else:
    say('ESCAPED', len(made))
os._exit(1)
""",
        "threads",
    ),
    attempt(
        "signal everybody",
        """
try:
    os.kill(-1, signal.SIGKILL)
except OSError:
    pass
say('HELD', 'alone')
""",
        "alone",
    ),
    attempt("signal a process of the host", "attempt(os.kill, CANARY, signal.SIGCONT)", "ESRCH", outside=True),
    attempt(
        "kill processes of the host",
        """
for pid in (CANARY, CANARY - 1, CANARY + 1, os.getppid() + 40000):
    attempt(os.kill, pid, signal.SIGKILL)
""",
        "ESRCH",
    ),
    attempt(
        "kill the first process",
        """
try:
    os.kill(1, signal.SIGKILL)
except OSError:
    pass
time.sleep(0.2)
say('HELD', 'alive')
""",
        "alive",
    ),
    attempt(
        "outlive its parent",
        """
if os.fork():
    say('HELD', 'parent ends')
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
for number in range(1, 32):
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_IGN)
time.sleep(3600)
""",
        "ends parent",
    ),
    attempt(
        "strike later",
        """
if os.fork():
    say('HELD', 'armed')
    os._exit(0)
time.sleep(1)
attempt(write, os.path.dirname(SECRET) + '/bomb')
attempt(connect, socket.AF_INET, ('127.0.0.1', PORT))
""",
        "armed",
    ),
    attempt(
        "refuse to end",
        """
for number in range(1, 32):
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_IGN)
while True:
    time.sleep(60)
""",
        limits=ended("wall"),
        within=BRIEF,
    ),
    attempt(
        "raise its limits",
        """
for limit in (resource.RLIMIT_NPROC, resource.RLIMIT_AS, resource.RLIMIT_FSIZE, resource.RLIMIT_CPU):
    attempt(resource.setrlimit, limit, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
""",
        "EPERM ValueError",
    ),
    attempt("type into a terminal", "attempt(fcntl.ioctl, 0, 0x5412, b'x')", "EPERM"),
]

PRIORITY = [
    attempt("write the priority of its session", "attempt(write, '/proc/self/autogroup')", "EROFS ENOENT"),
    attempt("spare itself from the end of memory", "attempt(write, '/proc/self/oom_score_adj')", "EROFS"),
    *(_gain_time(name, prepare) for name, prepare in _PREPARATIONS.items()),
    attempt("take priority", "attempt(os.setpriority, os.PRIO_PROCESS, 0, -10)", "EACCES EPERM"),
    attempt("run in real time", "attempt(os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(1))", "EPERM"),
]

RESOURCES = [
    attempt(
        "take all memory",
        """
blocks = []
try:
    while len(blocks) < 16 * 96:
        blocks.append(b'x' * 2**20)
    say('ESCAPED', len(blocks))
except MemoryError as error:
    blocks.clear()
    say('HELD', type(error).__name__)
""",
        "MemoryError",
        limits=ended("memory"),
    ),
    attempt(
        "take memory by many processes",
        """
def child():
    if pid := os.fork():
        return pid
    block = b'x' * (60 * 2**20)
    time.sleep(5)
    os._exit(len(block) % 1)
ends = [os.waitpid(pid, 0)[1] for pid in [child() for _ in range(3)]]
say('HELD', 'killed') if signal.SIGKILL in ends else say('ESCAPED', ends)
""",
        "killed",
        limits=ended("memory"),
        counted=True,
    ),
    attempt("take memory in files without names", "attempt(os.memfd_create, 'x')", "ENOSYS", outside=True),
    attempt(
        "fill the work folder",
        """
for n in range(99):
    attempt(lambda: open(str(n), 'wb').write(bytes(2**20)), worth=lambda _: n > 8)
""",
        "ENOSPC worthless",
    ),
    attempt(
        "fill /tmp",
        """
for n in range(99):
    attempt(lambda: open(f'/tmp/{n}', 'wb').write(bytes(2**20)), worth=lambda _: n > 8)
""",
        "ENOSPC worthless",
    ),
    attempt(
        "fill /dev/shm",
        """
for n in range(99):
    attempt(lambda: open(f'/dev/shm/{n}', 'wb').write(bytes(2**20)), worth=lambda _: n > 8)
""",
        "ENOSPC worthless",
    ),
    attempt(
        "make a file of a terabyte",
        """
with open('big', 'wb') as file:
    attempt(file.truncate, 2**40)
""",
        "EFBIG",
        outside=True,
    ),
    attempt(
        "make files without end",
        """
number = 0
while True:
    os.close(os.open(str(number), os.O_CREAT))
    number += 1
    number > 10**6 and say('ESCAPED', number)
""",
        "ENOSPC",
        limits=ended("cpu", "disk", "memory", "wall"),
    ),
    attempt(
        "open files without end",
        """
opened = []
def more():
    while len(opened) < 2000:
        opened.append(open('/dev/null'))
attempt(more)
""",
        "EMFILE",
    ),
    attempt(
        "flood the output",
        r"""
while True:
    os.write(1, b'HELD flood\n' * 5000)
""",
        "flood",
        limits=ended("output"),
    ),
    attempt(
        "flood the errors",
        """
while True:
    os.write(2, b'x' * 65536)
""",
        limits=ended("output"),
    ),
    attempt(
        "use the processor without end",
        """
while True:
    pass
""",
        limits=ended("cpu", "wall"),
        within=BRIEF,
    ),
]
