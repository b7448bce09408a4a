"""Have the sandbox of this machine when it is first needed: a run that executes nothing never waits for the probe."""

import asyncio

import structlog

from orchestrator.sandbox import Sandbox

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
