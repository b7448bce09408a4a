"""One daemon for the tests of a file: other files count the children of the process that runs them."""

from collections.abc import Iterator

import httpx2
import pytest

from tests.orchestrator.api.daemon_process import Running, running_daemon


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A daemon with an empty state folder, which listens on its socket and on a TCP port."""
    with running_daemon(tmp_path_factory.mktemp("daemon") / "home") as running:
        yield running


@pytest.fixture
def client(daemon: Running) -> Iterator[httpx2.Client]:
    """A client on the daemon's socket."""
    with daemon.client() as opened:
        yield opened
