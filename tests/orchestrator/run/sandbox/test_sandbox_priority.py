"""How much processor time a job gets, that no process of it can change that, and whether it got any."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.run.sandbox.niceness import DEFAULT, IDLE, LOWEST, Niceness, niceness_of, weight
from orchestrator.run.sandbox.sandbox import Sandbox
from tests.orchestrator.run.sandbox.sandbox_jobs import QUICK, busy_core, python, shell

LEAVE = """
import os, subprocess, sys, time
def tried(action):
    try:
        return action() and None
    except OSError as error:
        return error.strerror
print(tried(lambda: open("/proc/self/autogroup", "w")))
print(tried(lambda: os.setpriority(os.PRIO_PROCESS, 0, -1)))
print(tried(lambda: os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))), flush=True)
child = os.fork()
if not child:
    os.setsid()
    os.write(3, b".")
    time.sleep(600)
os.wait()
"""


def weighed(sandbox: Sandbox) -> Path:
    """Return the folder of control groups that weigh processor time. Skips the test without one."""
    if sandbox.groups is None or sandbox.groups.weight is None:
        pytest.skip("no control group can weigh processor time here")
    return sandbox.groups.weight


def group_of_job(folder: Path) -> Path:
    (group,) = folder.glob(f"orchestrator-{os.getpid()}-*")
    return group


async def test_a_new_session_stays_in_the_group_of_its_job(sandbox: Sandbox) -> None:
    folder = weighed(sandbox)
    async with sandbox.open(python(LEAVE, limits=replace(QUICK, niceness=19))) as session:
        await session._reader.readexactly(1)
        group = group_of_job(folder)
        members = {int(pid) for pid in (group / "cgroup.procs").read_text().split()}
        sessions = {os.getsid(pid) for pid in members}
        assert len(sessions) == 2, "the child has a session of its own, and is a member all the same"
        session.kill()
        outcome = await session.end()
    first, *others = outcome.stdout.decode().splitlines()
    assert first in ("Read-only file system", "No such file or directory")
    assert others == ["Permission denied", "Operation not permitted"]


async def test_honest_programs_start_sessions(sandbox: Sandbox) -> None:
    code = "import subprocess; print(subprocess.run(['echo', 'done'], start_new_session=True).returncode)"
    if "no new sessions" in sandbox.describe():
        assert (await sandbox.run(python(code))).exit_code == 1
    else:
        assert (await sandbox.run(python(code))).stdout == b"done\n0\n"


async def test_a_niceness_is_changed_while_a_job_runs(sandbox: Sandbox) -> None:
    folder, niceness = weighed(sandbox), Niceness(LOWEST)
    file = "cpu.weight" if sandbox.groups is not None and sandbox.groups.version == 2 else "cpu.shares"
    weights: dict[int, int] = {}
    async with sandbox.open(shell("echo >&3; sleep 600"), niceness) as session:
        await session._reader.readexactly(1)
        group = group_of_job(folder)
        for value in (LOWEST, 0, IDLE, DEFAULT):
            niceness.set(value)
            weights[value] = int((group / file).read_text())
    assert weights[0] > weights[DEFAULT] > weights[LOWEST] >= weights[IDLE]
    niceness.set(0)  # it has ended: nothing happens


async def test_a_job_that_gets_no_core_has_starved(sandbox: Sandbox) -> None:
    with busy_core() as cpu:
        code = f"import os\nos.sched_setaffinity(0, {{{cpu}}})\nwhile True: pass"
        outcome = await sandbox.run(python(code, limits=replace(QUICK, wall=1.0, idle=True)))
    assert (outcome.limit, outcome.starved) == ("wall", True)
    assert outcome.seconds > 3.0, "what it waits does not count in its limit, up to four times as much"


@pytest.mark.parametrize("code", ["import time; time.sleep(600)", "import os; os.read(os.pipe()[0], 1)"])
async def test_a_job_that_waits_for_itself_has_not_starved(code: str, sandbox: Sandbox) -> None:
    outcome = await sandbox.run(python(code, limits=replace(QUICK, wall=1.0)))
    assert (outcome.limit, outcome.starved) == ("wall", False)


@pytest.mark.parametrize("niceness", range(20))
def test_a_niceness_has_the_weight_that_the_kernel_gives_it(niceness: int) -> None:
    assert niceness_of(weight(niceness)) == niceness
    assert weight(niceness) == pytest.approx(1.25**-niceness)
