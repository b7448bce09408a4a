"""What the tests of the sandbox share: jobs, and a look at what a job has left."""

import os
from pathlib import Path

from orchestrator.sandbox import MIB, Sandbox, SandboxJob, SandboxLimits

QUICK = SandboxLimits(wall=60, cpu=20, memory=96 * MIB, processes=16, disk=4 * MIB, output=1000, niceness=0)


def python(code: str, *arguments: str, limits: SandboxLimits = QUICK, **more: object) -> SandboxJob:
    """Return the job that runs this Python program."""
    return SandboxJob(argv=("python", "-I", "-c", code, *arguments), limits=limits, **more)  # type: ignore[arg-type]


def shell(code: str, limits: SandboxLimits = QUICK, **more: object) -> SandboxJob:
    """Return the job that runs this shell program."""
    return SandboxJob(argv=("sh", "-c", code), limits=limits, **more)  # type: ignore[arg-type]


def own_groups(sandbox: Sandbox) -> list[Path]:
    """Return the control groups of this process that are still there. One that holds a process cannot be removed."""
    if sandbox.groups is None:
        return []
    groups = sandbox.groups
    parents = [parent for parent in (groups.memory, groups.pids, groups.cpu, groups.weight) if parent is not None]
    return [group for parent in parents for group in parent.glob(f"orchestrator-{os.getpid()}-*")]
