"""One browser for the tests of a file: as long as Playwright's own event loop runs, no other can in this process."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.orchestrator.api.page.browser import chromium


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started
