import pytest

from orchestrator.run.gates.contract import RunJob
from orchestrator.run.gates.shares import JobRunner
from orchestrator.run.sandbox.sandbox import Sandbox


@pytest.fixture
def run(sandbox: Sandbox) -> RunJob:
    """Runs jobs in the sandbox, as gates do."""

    async def here() -> Sandbox:
        return sandbox

    return JobRunner(here, limit=2).run
