"""One browser for the tests of a file: as long as Playwright's own event loop runs, no other can in this process."""

from collections.abc import Iterator

import httpx2
import pytest
from playwright.sync_api import Browser

from tests.orchestrator.api.daemon_process import Running
from tests.orchestrator.api.page.browser import Visit, chromium, link_of, visiting


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture
def visit(browser: Browser, daemon: Running, client: httpx2.Client) -> Iterator[Visit]:
    """The page, logged in as the user of the daemon's socket."""
    with visiting(browser, daemon, link_of(client)) as opened:
        yield opened
