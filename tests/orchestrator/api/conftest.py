"""One daemon for the tests of all files that leave nothing behind that others would notice."""

from collections.abc import Iterator

import httpx2
import pytest

from tests.orchestrator.api.daemon_process import Running, running_daemon


@pytest.fixture(scope="session")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A daemon on its socket and on a TCP port. Its state folder holds what earlier tests have left there.

    Files that need an empty one, or that kill engines, define a daemon of their own.
    """
    with running_daemon(tmp_path_factory.mktemp("daemon") / "home") as running:
        yield running


@pytest.fixture
def client(daemon: Running) -> Iterator[httpx2.Client]:
    """A client on the daemon's socket."""
    with daemon.client() as opened:
        yield opened
