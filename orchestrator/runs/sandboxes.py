"""Give runs the sandbox: probed when it is first needed, with interpreters that leave room for the jobs of gates.

This module also says whether a task needs the sandbox at all, and why the sandbox cannot be had.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import structlog

from orchestrator.sandbox import Job, Sandbox, SandboxUnavailable, Session
from orchestrator.sandbox.budget import cost
from orchestrator.steps.tools.toolbox import TOOLS
from orchestrator.taskir import Step, TaskIR

log = structlog.get_logger(__name__)


class SandboxOnDemand:
    """The sandbox, probed once. Where it cannot be had, whoever needs it next looks again: it may have been mended."""

    def __init__(self) -> None:
        self._probing = asyncio.Lock()
        self._sandbox: Sandbox | None = None

    async def __call__(self) -> Sandbox:
        """Return the sandbox. Raises SandboxUnavailable."""
        async with self._probing:
            if self._sandbox is None:
                self._sandbox = await Sandbox.probe()
                log.info("the sandbox stands", how=self._sandbox.describe())
            return self._sandbox


class Interpreters:
    """The sessions of all runs. They may take a third of the sandbox's memory: a step's code may call tools that need
    some too, and steps that all waited for each other's memory would wait for ever."""

    def __init__(self, sandbox: Callable[[], Awaitable[Sandbox]]) -> None:
        self._sandbox = sandbox
        self._turns: asyncio.Semaphore | None = None

    @asynccontextmanager
    async def open(self, job: Job) -> AsyncIterator[Session]:
        """Have a session for as long as the block lasts. Raises SandboxError."""
        sandbox = await self._sandbox()
        if self._turns is None:
            each = cost(job.limits, counted=sandbox.groups is not None)
            self._turns = asyncio.Semaphore(max(1, sandbox.budget.total // 3 // each))
        async with self._turns, sandbox.open(job) as session:
            yield session


def runs_code(task: TaskIR | None) -> bool:
    """Whether a step of the task runs what models wrote, in an interpreter or by a tool."""
    return task is not None and any(map(_runs_code, task.plan.steps))


async def why_no_sandbox(sandbox: Callable[[], Awaitable[Sandbox]]) -> str:
    """Say why the sandbox cannot be had; nothing if it can."""
    try:
        await sandbox()
    except SandboxUnavailable as error:
        return str(error)
    return ""


def _runs_code(step: Step) -> bool:
    return step.kind == "repl" or any(TOOLS[name].sandboxed for name in step.tools if name in TOOLS)
