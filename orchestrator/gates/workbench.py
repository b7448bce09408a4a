"""Run jobs in the sandbox, as many at a time as there are cores for them.

Engines decode meanwhile, and theirs is the work that somebody waits for: the jobs of gates take the time that engines
leave, and there are few of them at once, so that decoding keeps nine tenths of its speed (`make bench-gates` measures
it). What steps have run themselves has a bench of its own: it counts against their deadlines, and waits for no gate.
"""

import asyncio
from collections.abc import Awaitable, Callable

from orchestrator.gates.contract import NoVerdict
from orchestrator.sandbox import Job, Outcome, Sandbox, SandboxError


def jobs_at_once(cores: int) -> int:
    """Return how many jobs of gates may run beside engines that decode on all of these physical cores."""
    return max(1, cores // 4)


class Workbench:
    """Where gates or steps run their jobs. `sandbox` is asked for it with every job, and raises SandboxUnavailable."""

    def __init__(self, sandbox: Callable[[], Awaitable[Sandbox]], at_once: int) -> None:
        self._sandbox = sandbox
        self._turns = asyncio.Semaphore(at_once)

    async def run(self, job: Job) -> Outcome:
        """Return how the job ended. Raises `NoVerdict` for a job that could not be run."""
        try:
            sandbox = await self._sandbox()
            async with self._turns:
                return await sandbox.run(job)
        except SandboxError as error:
            raise NoVerdict(str(error), final=True) from error
