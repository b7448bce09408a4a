import pytest

from orchestrator.run.gates import JobRunner, RunJob
from orchestrator.run.sandbox import Sandbox


@pytest.fixture
def run(sandbox: Sandbox) -> RunJob:
    """Runs jobs in the sandbox, as gates do."""

    async def here() -> Sandbox:
        return sandbox

    return JobRunner(here, limit=2).run
