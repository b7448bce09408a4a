"""What the tests of the sandbox share: jobs, and a look at what a job has left."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from orchestrator.run.sandbox.contract import MIB, SandboxJob, SandboxLimits
from orchestrator.run.sandbox.sandbox import Sandbox

QUICK = SandboxLimits(wall=60, cpu=20, memory=96 * MIB, processes=16, disk=4 * MIB, output=1000, niceness=0)


def python(code: str, *arguments: str, limits: SandboxLimits = QUICK, **more: object) -> SandboxJob:
    """Return the job that runs this Python program."""
    return SandboxJob(argv=("python", "-I", "-c", code, *arguments), limits=limits, **more)  # type: ignore[arg-type]


def shell(code: str, limits: SandboxLimits = QUICK, **more: object) -> SandboxJob:
    """Return the job that runs this shell program."""
    return SandboxJob(argv=("sh", "-c", code), limits=limits, **more)  # type: ignore[arg-type]


@contextmanager
def busy_core() -> Iterator[int]:
    """Keep one core busy with a loop, and yield its number."""
    cpu = min(os.sched_getaffinity(0))
    loop = f"import os\nos.sched_setaffinity(0, {{{cpu}}})\nprint(flush=True)\nwhile True: pass"
    with ExitStack() as stack:
        process = stack.enter_context(
            subprocess.Popen([sys.executable, "-c", loop], stdout=subprocess.PIPE, start_new_session=True)
        )
        stack.callback(process.kill)
        assert process.stdout is not None
        process.stdout.readline()
        yield cpu


def own_groups(sandbox: Sandbox) -> list[Path]:
    """Return the control groups of this process that are still there. One that holds a process cannot be removed."""
    if sandbox.groups is None:
        return []
    groups = sandbox.groups
    parents = [parent for parent in (groups.memory, groups.pids, groups.cpu, groups.weight) if parent is not None]
    return [group for parent in parents for group in parent.glob(f"orchestrator-{os.getpid()}-*")]
