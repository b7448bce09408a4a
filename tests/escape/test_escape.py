"""Try to get out of the sandbox, in every way that the tables beside this list, and look at the host afterwards."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from orchestrator.run.sandbox.contract import JobOutcome, SandboxJob
from orchestrator.run.sandbox.sandbox import Sandbox
from orchestrator.run.sandbox.seccomp import filter_program
from tests.escape.attempt import PRELUDE, Attempt
from tests.escape.attempts_on_calls import CALLS
from tests.escape.attempts_on_files import FILES, PRIVACY
from tests.escape.attempts_on_processes import NETWORK, PRIORITY, PROCESSES, RESOURCES

pytestmark = pytest.mark.escape

ATTEMPTS = [*FILES, *PRIVACY, *NETWORK, *PROCESSES, *PRIORITY, *RESOURCES, *CALLS]
_WORTH_KEEPING = "escape-secret"
_PROJECT = Path(__file__).parents[2]
_SETTINGS = (
    "kernel/hostname",
    "kernel/core_pattern",
    "kernel/randomize_va_space",
    "kernel/sysrq",
    "vm/overcommit_memory",
)


@dataclass(frozen=True, slots=True)
class World:
    """What there is on the host to get at: a file, a process, three servers; and a token to find processes by."""

    folder: Path
    secret: Path
    canary: subprocess.Popen[bytes]
    servers: tuple[socket.socket, ...]
    token: str

    def arguments(self) -> tuple[str, ...]:
        """Return the arguments of an attempt's program."""
        tcp, abstract, file = (server.getsockname() for server in self.servers)
        name = abstract[1:].decode()
        return (str(self.secret), str(self.canary.pid), str(tcp[1]), name, file, str(_PROJECT), self.token)

    def visitors(self) -> int:
        """Return how many connections have reached the servers."""
        return sum(map(_accepted, self.servers))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv("ESCAPE", _WORTH_KEEPING)
    secret = tmp_path / "secret.txt"
    secret.write_text(_WORTH_KEEPING)
    token = f"escape-token-{os.urandom(8).hex()}"
    with ExitStack() as stack:
        canary = stack.enter_context(subprocess.Popen(["sleep", "3600"]))
        stack.callback(canary.kill)
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        names = ("\0" + token, str(tmp_path / "server"))
        unix = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in names]
        for server, name in zip(unix, names, strict=True):
            server.bind(name)
            server.listen()
        leaked = stack.enter_context(open(secret, "rb"))
        os.set_inheritable(leaked.fileno(), True)
        yield World(tmp_path, secret, canary, (tcp, *unix), token)


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda attempt: attempt.name)
async def test_an_attempt_is_contained(attempt: Attempt, sandbox: Sandbox, world: World) -> None:
    if attempt.counted and sandbox.groups is None:
        pytest.skip("memory is not counted by a control group here")
    before = _host(world)
    outcome = await sandbox.run(
        SandboxJob(
            argv=("python", "-c", PRELUDE + attempt.code, *world.arguments()),
            limits=attempt.within,
            keep=attempt.keep,
        )
    )
    _assert_held(attempt, outcome)
    assert _WORTH_KEEPING not in str(outcome)
    assert len(outcome.stdout) <= attempt.within.output
    assert _host(world) == before
    assert world.canary.poll() is None
    assert world.visitors() == 0
    assert _processes(world.token) == []


@pytest.mark.parametrize("attempt", PRIORITY, ids=lambda attempt: attempt.name)
async def test_an_attempt_at_priority_is_contained_without_control_groups(
    attempt: Attempt, sandbox: Sandbox, world: World
) -> None:
    config = replace(sandbox.config, seccomp=filter_program(sessions=False))
    ungrouped = replace(sandbox, config=config, groups=None)
    argv = ("python", "-c", PRELUDE + attempt.code, *world.arguments())
    _assert_held(attempt, await ungrouped.run(SandboxJob(argv=argv, limits=attempt.within)))


@pytest.mark.parametrize("attempt", [a for a in ATTEMPTS if a.outside], ids=lambda attempt: attempt.name)
def test_the_same_attempt_succeeds_without_a_sandbox(attempt: Attempt, world: World) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + attempt.code, *world.arguments()],
        cwd=world.folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout, done.stderr
    if "ESCAPED" not in done.stdout:
        pytest.skip(f"this machine itself refuses it: {done.stdout.strip()}")


def test_there_are_at_least_forty_attempts_of_different_names() -> None:
    assert len({attempt.name for attempt in ATTEMPTS}) == len(ATTEMPTS) >= 40


def _assert_held(attempt: Attempt, outcome: JobOutcome) -> None:
    """The program was refused what it tried, for a reason that counts, or a limit ended it that should."""
    told = outcome.stdout.decode("utf-8", "replace")
    assert "ESCAPED" not in told
    reasons = {line.split()[-1] for line in told.splitlines() if line.startswith("HELD ")}
    if outcome.limit is not None and outcome.limit in attempt.limits:
        return
    assert reasons, f"it proved nothing: {outcome}"
    assert reasons <= attempt.held, outcome


def _host(world: World) -> dict[str, object]:
    """Return what an attempt could have changed on the host."""
    return {
        "files": sorted(path.name for path in world.folder.iterdir()),
        "secret": world.secret.read_text(),
        "settings": {name: _lines(f"/proc/sys/{name}") for name in _SETTINGS},
        "root": sorted(os.listdir("/")),
        "usr": sorted(os.listdir("/usr")),
        "passwd": Path("/etc/passwd").read_text(),
        "python": sorted(os.listdir(os.path.dirname(os.__file__))),
        "packages": sorted(os.listdir(sys.prefix)),
        "mounts": Path("/proc/self/mountinfo").read_text(),
        "modules": [line.split()[0] for line in _lines("/proc/modules")],
        "swaps": _lines("/proc/swaps"),
        "interfaces": sorted(socket.if_nameindex()),
        "shared memory": _lines("/proc/sysvipc/shm")[1:],
        "descriptors": sorted(os.listdir("/proc/self/fd")),
    }


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def _processes(token: str) -> list[str]:
    """Return the processes of the host that were started with the token."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            command = _of_process(folder / "cmdline")
            if token.encode() in command:
                found.append(command.decode("utf-8", "replace"))
    return found


def _of_process(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""  # it has ended meanwhile


def _accepted(server: socket.socket) -> int:
    """Return 1 if somebody has connected, without waiting for anybody."""
    server.setblocking(False)
    try:
        connection, _ = server.accept()
    except BlockingIOError:
        return 0
    connection.close()
    return 1
