"""Give runs the sandbox, which is probed on first use, and limit how many interpreters run in it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import structlog

from orchestrator.run.sandbox.contract import SandboxJob
from orchestrator.run.sandbox.errors import SandboxUnavailable
from orchestrator.run.sandbox.memory_budget import memory_cost
from orchestrator.run.sandbox.sandbox import Sandbox
from orchestrator.run.sandbox.session import Session
from orchestrator.run.steps.tools.toolbox import TOOLS
from orchestrator.task.taskir.models import KINDS, Step, TaskIR

log = structlog.get_logger(__name__)


class SandboxOnDemand:
    # Each use probes until the sandbox is available, since what is missing may be installed meanwhile.
    def __init__(self) -> None:
        self._probing = asyncio.Lock()
        self._sandbox: Sandbox | None = None

    async def __call__(self) -> Sandbox:
        """Raises SandboxUnavailable."""
        async with self._probing:
            if self._sandbox is None:
                self._sandbox = await Sandbox.probe()
                log.info("the sandbox is available", how=self._sandbox.describe())
            return self._sandbox


class Interpreters:
    """Opens the interpreter sessions of all runs, which together may use a third of the sandbox's memory."""

    def __init__(self, sandbox: Callable[[], Awaitable[Sandbox]]) -> None:
        self._sandbox = sandbox
        self._turns: asyncio.Semaphore | None = None

    @asynccontextmanager
    async def open(self, job: SandboxJob) -> AsyncIterator[Session]:
        """Open a session for the block. Waits until there is room. Raises SandboxError."""
        sandbox = await self._sandbox()
        if self._turns is None:
            cost = memory_cost(job.limits, counted=sandbox.groups is not None)
            # Without a limit, steps could wait for each other's memory for ever: their code may call tools that need
            # memory, too.
            self._turns = asyncio.Semaphore(max(1, sandbox.budget.total // 3 // cost))
        async with self._turns, sandbox.open(job) as session:
            yield session


def runs_code(task: TaskIR | None) -> bool:
    """Return whether a step of the task runs code in the sandbox, in an interpreter or by a tool."""
    return task is not None and any(map(_runs_code, task.plan.steps))


async def why_no_sandbox(sandbox: Callable[[], Awaitable[Sandbox]]) -> str:
    """Return why the sandbox is not available; empty if it is."""
    try:
        await sandbox()
    except SandboxUnavailable as error:
        return str(error)
    return ""


def _runs_code(step: Step) -> bool:
    return KINDS[step.kind].sandboxed or any(TOOLS[name].sandboxed for name in step.tools if name in TOOLS)
