import os
import signal
from dataclasses import replace

import pytest

from orchestrator.run.sandbox.contract import MIB, SandboxJob
from orchestrator.run.sandbox.errors import InvalidJob, ProgramMissing
from orchestrator.run.sandbox.sandbox import Sandbox
from tests.orchestrator.run.sandbox.sandbox_jobs import QUICK, python, shell


async def test_a_program_gets_its_input_and_tells_its_end(sandbox: Sandbox) -> None:
    outcome = await sandbox.run(shell("cat; echo oops >&2; exit 3", stdin=b"hello"))
    assert (outcome.exit_code, outcome.signal, outcome.limit) == (3, None, None)
    assert (outcome.stdout, outcome.stderr, outcome.cut) == (b"hello", b"oops\n", False)


async def test_a_signal_ends_a_program(sandbox: Sandbox) -> None:
    outcome = await sandbox.run(shell("kill -TERM $$"))
    assert (outcome.exit_code, outcome.signal, outcome.limit) == (None, signal.SIGTERM, None)


async def test_a_program_need_not_read_its_input(sandbox: Sandbox) -> None:
    assert (await sandbox.run(shell("exit 0", stdin=bytes(2 * MIB)))).exit_code == 0


async def test_the_tools_of_this_installation_run(sandbox: Sandbox) -> None:
    outcome = await sandbox.run(
        SandboxJob(argv=("ruff", "check", "--isolated", "x.py"), files={"x.py": b"y\n"}, limits=QUICK)
    )
    assert (outcome.exit_code, b"F821" in outcome.stdout) == (1, True), outcome
    outcome = await sandbox.run(python("import psutil; print(psutil.__name__)"))
    assert outcome.stdout == b"psutil\n"


async def test_wall_clock_time_is_limited(sandbox: Sandbox) -> None:
    outcome = await sandbox.run(shell("echo begun; sleep 600 & sleep 600", limits=replace(QUICK, wall=1.5)))
    assert (outcome.exit_code, outcome.signal, outcome.limit) == (None, None, "wall")
    assert outcome.stdout == b"begun\n"


async def test_processor_time_is_limited(sandbox: Sandbox) -> None:
    outcome = await sandbox.run(python("while True: pass", limits=replace(QUICK, wall=110, cpu=1)))
    assert (outcome.exit_code, outcome.signal, outcome.limit) == (None, signal.SIGXCPU, "cpu")


async def test_a_program_that_waits_does_not_work(sandbox: Sandbox) -> None:
    waited = await sandbox.run(shell("sleep 0.5"))
    used = "import time\nwhile time.process_time() < 0.3: pass"
    worked = await sandbox.run(python(used))
    if sandbox.groups is None or sandbox.groups.cpu is None:
        assert waited.cpu_seconds is None
        assert waited.work_seconds == waited.seconds
        return
    assert waited.cpu_seconds is not None
    assert waited.work_seconds <= waited.seconds - 0.4, "it takes some time to start a program"
    assert worked.cpu_seconds is not None
    assert worked.cpu_seconds >= 0.3
    assert worked.work_seconds == min(worked.seconds, worked.cpu_seconds)


async def test_memory_is_limited(sandbox: Sandbox) -> None:
    outcome = await sandbox.run(python(f"block = b'x' * {128 * MIB}"))
    assert outcome.exit_code != 0
    assert outcome.limit == ("memory" if sandbox.groups else None)


async def test_processes_are_limited(sandbox: Sandbox) -> None:
    code = "import subprocess; found = [subprocess.Popen(['sleep', '60']) for _ in range(40)]"
    outcome = await sandbox.run(python(code))
    assert outcome.exit_code == 1
    assert b"Resource temporarily unavailable" in outcome.stderr[-200:]
    assert outcome.limit == ("processes" if sandbox.groups and sandbox.groups.pids else None)


async def test_the_work_folder_is_limited(sandbox: Sandbox) -> None:
    outcome = await sandbox.run(shell("for n in 1 2 3; do head -c 2M /dev/zero >$n || exit 1; done"))
    assert (outcome.exit_code, outcome.limit) == (1, "disk")


async def test_what_a_program_met_and_survived_is_no_limit(sandbox: Sandbox) -> None:
    outcome = await sandbox.run(shell("head -c 9M /dev/zero >x; exit 0"))
    assert (outcome.exit_code, outcome.limit) == (0, None)


async def test_output_is_cut(sandbox: Sandbox) -> None:
    outcome = await sandbox.run(python("print('x' * 3000)"))
    assert (outcome.exit_code, outcome.cut, outcome.stdout) == (0, True, b"x" * QUICK.output)


async def test_a_flood_ends_a_program(sandbox: Sandbox) -> None:
    outcome = await sandbox.run(SandboxJob(argv=("yes",), limits=QUICK))
    assert (outcome.exit_code, outcome.limit, outcome.cut) == (None, "output", True)
    assert len(outcome.stdout) == QUICK.output


async def test_a_program_that_is_not_there(sandbox: Sandbox) -> None:
    with pytest.raises(ProgramMissing, match="no-such-program") as caught:
        await sandbox.run(SandboxJob(argv=("no-such-program", "x"), limits=QUICK))
    assert caught.value.program == "no-such-program"


async def test_a_file_that_is_no_program(sandbox: Sandbox) -> None:
    outcome = await sandbox.run(shell("printf nonsense >tool; chmod +x tool; exec ./tool"))
    assert outcome.exit_code in (126, 127)


async def test_an_idle_job_stands_back_for_good(sandbox: Sandbox) -> None:
    code = (
        "import os\n"
        "told = [os.sched_getscheduler(0) == os.SCHED_IDLE, os.getpriority(os.PRIO_PROCESS, 0)]\n"
        "for attempt in (lambda: os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0)), lambda: os.nice(-1)):\n"
        "    try:\n"
        "        told.append(attempt() is None)\n"
        "    except OSError:\n"
        "        told.append('refused')\n"
        "print(told)\n"
        "group = '/proc/self/autogroup'\n"
        "print(open(group).read().split()[-1] if os.path.exists(group) else 19)\n"
    )
    outcome = await sandbox.run(python(code, limits=replace(QUICK, niceness=3, idle=True)))
    assert outcome.stdout.decode() == f"{[True, min(19, os.nice(0) + 3), 'refused', 'refused']}\n19\n", outcome


@pytest.mark.parametrize(
    "job",
    [
        SandboxJob(argv=()),
        SandboxJob(argv=("echo", "a\0b")),
        SandboxJob(argv=("true",), limits=replace(QUICK, wall=0)),
        SandboxJob(argv=("true",), limits=replace(QUICK, memory=-1)),
        SandboxJob(argv=("true",), limits=replace(QUICK, niceness=20)),
        SandboxJob(argv=("true",), limits=replace(QUICK, memory=1 << 60)),
        SandboxJob(argv=("true",), files={"/etc/x": b""}),
        SandboxJob(argv=("true",), files={"../x": b""}),
        SandboxJob(argv=("true",), files={"a": b"", "a/b": b""}),
        SandboxJob(argv=("true",), files={"x": bytes(QUICK.disk + 1)}, limits=QUICK),
    ],
)
async def test_a_job_that_cannot_be_run_is_refused(job: SandboxJob, sandbox: Sandbox) -> None:
    with pytest.raises(InvalidJob):
        await sandbox.run(job)
