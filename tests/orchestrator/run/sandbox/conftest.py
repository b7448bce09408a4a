import os
from collections.abc import Iterator

import pytest

from orchestrator.run.sandbox.sandbox import Sandbox
from tests.orchestrator.forked_engines import children_of_tests
from tests.orchestrator.run.sandbox.sandbox_jobs import own_groups


@pytest.fixture
def sandbox(probed_sandbox: Sandbox | str) -> Iterator[Sandbox]:
    """A sandbox that has to leave nothing behind: no process, no descriptor, no control group."""
    if isinstance(probed_sandbox, str):
        pytest.skip(probed_sandbox)
    before = _descriptors()
    yield probed_sandbox
    assert children_of_tests(recursive=True) == []
    assert _descriptors() <= before, "garbage of earlier tests may have been closed meanwhile"
    assert own_groups(probed_sandbox) == []


def _descriptors() -> set[str]:
    """Return what the descriptors of this process lead to, but for those of event loops, which come and go."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # the one that listed them
        if "pidfd" in target or "memfd" in target or target.startswith("/"):
            found.add(f"{name} {target}")
    return found
