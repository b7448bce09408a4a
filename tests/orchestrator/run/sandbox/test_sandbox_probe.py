"""The probe has to notice what is missing: a bubblewrap that leaves something out must not pass."""

import os
import select
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.run.sandbox.contract import SandboxJob
from orchestrator.run.sandbox.errors import SandboxUnavailable
from orchestrator.run.sandbox.sandbox import Sandbox
from tests.orchestrator.run.sandbox.sandbox_jobs import QUICK

_PACKAGE = Path(__file__).parents[4] / "orchestrator"

# A bubblewrap that forgets: it drops an option and its values, and says that it is the real one.
_FORGETFUL = """#!{python} -IS
import os, sys
arguments, kept = sys.argv[1:], []
end = arguments.index("--") if "--" in arguments else len(arguments)
while arguments:
    if {option!r} == arguments[0] and end > 0:
        del arguments[: 1 + {values}]
        end -= 1 + {values}
    else:
        kept.append(arguments.pop(0))
        end -= 1
os.execv({bwrap!r}, [{bwrap!r}, *kept])
"""

_PROBE = """
import asyncio, sys
from orchestrator.run.sandbox.errors import SandboxUnavailable
from orchestrator.run.sandbox.sandbox import Sandbox
try:
    print(asyncio.run(Sandbox.probe()).describe())
except SandboxUnavailable as error:
    print("refused:", error.reason)
"""


async def test_the_sandbox_says_what_contains_a_job(sandbox: Sandbox) -> None:
    told = sandbox.describe()
    assert sandbox.probe_result is not None
    assert sandbox.probe_result.uid != 0
    for part in ("no network", f"uid {sandbox.probe_result.uid}", "seccomp", "memory by", "MiB"):
        assert part in told


@pytest.mark.parametrize(
    ("option", "values", "noticed"),
    [
        ("--unshare-net", 0, "it sees the network"),
        ("--seccomp", 1, "system call filter does not bind"),
        ("--size", 1, "disk limit does not bind"),
    ],
)
async def test_what_bubblewrap_leaves_out_is_noticed(
    option: str, values: int, noticed: str, sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bwrap = tmp_path / "bwrap"
    bwrap.write_text(_FORGETFUL.format(python=sys.executable, option=option, values=values, bwrap=sandbox.config.bwrap))
    bwrap.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxUnavailable, match=noticed):
        await Sandbox.probe()


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (None, "apt-get install bubblewrap"),
        ("echo bubblewrap 0.4.1", "0.4.1.*0.8 is needed"),
        (
            '[ "$1" = --version ] && echo bubblewrap 0.9.0 || { echo no namespaces here >&2; exit 1; }',
            "no namespaces here",
        ),
    ],
)
async def test_without_a_working_bubblewrap_there_is_no_sandbox(
    program: str | None, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if program is not None:
        (tmp_path / "bwrap").write_text(f"#!/bin/sh\n{program}\n")
        (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxUnavailable, match=reason) as caught:
        await Sandbox.probe()
    assert caught.value.reason in str(caught.value)


async def test_a_user_without_namespaces_has_no_sandbox(sandbox: Sandbox) -> None:
    """Inside the sandbox there is such a user."""
    job = SandboxJob(argv=("python", "-c", _PROBE), files=_package(), limits=QUICK)
    outcome = await sandbox.run(job)
    assert outcome.stdout.startswith(b"refused: "), outcome
    assert b"namespace" in outcome.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_user_with_namespaces_has_a_sandbox(sandbox: Sandbox) -> None:
    python = shutil.which("python3", path="/usr/bin")
    if python is None or subprocess.run([python, "-c", "import sys; assert sys.version_info >= (3, 11)"]).returncode:
        pytest.skip("the system has no Python 3.11 that another user could run")
    if not all(folder.stat().st_mode & stat.S_IXOTH for folder in _PACKAGE.parents):
        pytest.skip("another user may not enter the folders that the checkout is in")
    program = f"import os, sys\nos.setgroups([])\nos.setresgid(*[12345] * 3)\nos.setresuid(*[12345] * 3)\n{_PROBE}"
    packages = os.pathsep.join((str(_PACKAGE.parent), *filter(None, sys.path)))
    done = subprocess.run(
        [python, "-c", f"import sys; sys.path += {packages.split(os.pathsep)!r}\nimport psutil, asyncio\n{program}"],
        env={"HOME": "/nonexistent", "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    if "new namespace" in done.stdout:
        pytest.skip(done.stdout)
    assert "user namespace, no network, uid 65534" in done.stdout, done
    autogroup = Path("/proc/sys/kernel/sched_autogroup_enabled")
    refused = "by niceness" in done.stdout and autogroup.exists() and autogroup.read_text().strip() == "1"
    assert ("no new sessions" in done.stdout) == refused


def test_a_job_dies_with_the_process_that_runs_it(sandbox: Sandbox) -> None:
    token = f"token-{os.urandom(8).hex()}"
    program = f"""
import asyncio
from orchestrator.run.sandbox.contract import SandboxJob
from orchestrator.run.sandbox.sandbox import Sandbox
async def main():
    sandbox = await Sandbox.probe()
    async with sandbox.open(SandboxJob(argv=("sh", "-c", "echo >&3; sleep 600 & sleep 600", "{token}"))) as session:
        await session._reader.readexactly(1)
        print("runs", flush=True)
        await asyncio.sleep(600)
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "runs\n"
        job = next(pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _is_job(pid, token))
        descriptor = os.pidfd_open(job)
        owner.send_signal(signal.SIGKILL)
    try:
        assert select.select([descriptor], [], [], 60)[0] == [descriptor]
    finally:
        os.close(descriptor)


def _is_job(pid: int, token: str) -> bool:
    try:
        command = Path("/proc", str(pid), "cmdline").read_bytes()
    except OSError:
        return False
    return command.startswith(b"sh\0") and token.encode() in command


def _package() -> dict[str, bytes]:
    """Return what the sandbox's own code consists of, as files of a job."""
    packages = [_PACKAGE / "__init__.py", _PACKAGE / "run" / "__init__.py"]
    files = [*packages, _PACKAGE / "errors.py", *(_PACKAGE / "run" / "sandbox").glob("*.py")]
    return {str(file.relative_to(_PACKAGE.parent)): file.read_bytes() for file in files}
