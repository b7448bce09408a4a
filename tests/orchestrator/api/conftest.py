"""One daemon for all files whose tests need no settings of their own; xdist has each of its processes start one."""

from collections.abc import Iterator

import httpx2
import pytest

from tests.orchestrator.api.daemon_process import Running, running_daemon


@pytest.fixture(scope="session")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A daemon that listens on its socket and on a TCP port. Tests of other files have used it, too.

    However much they have taught its memory, no advice is followed.
    """
    with running_daemon(tmp_path_factory.mktemp("daemon") / "home", ORCHESTRATOR_MEMORY_USE="shadow") as running:
        yield running


@pytest.fixture
def client(daemon: Running) -> Iterator[httpx2.Client]:
    """A client on the daemon's socket."""
    with daemon.client() as opened:
        yield opened
