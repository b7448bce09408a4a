import asyncio

import pytest

from orchestrator.gates import JobRunner, RunJob
from orchestrator.sandbox import Sandbox, SandboxUnavailable


@pytest.fixture(scope="session")
def sandbox() -> Sandbox:
    """The sandbox of this machine."""
    try:
        return asyncio.run(Sandbox.probe())
    except SandboxUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def run(sandbox: Sandbox) -> RunJob:
    """Runs jobs in the sandbox, as gates do."""

    async def here() -> Sandbox:
        return sandbox

    return JobRunner(here, limit=2).run
