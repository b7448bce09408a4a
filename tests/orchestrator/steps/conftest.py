import asyncio

import pytest

from orchestrator.sandbox import Sandbox, SandboxUnavailable


@pytest.fixture(scope="session")
def sandbox() -> Sandbox:
    """The sandbox of this machine."""
    try:
        return asyncio.run(Sandbox.probe())
    except SandboxUnavailable as error:
        pytest.skip(str(error))
