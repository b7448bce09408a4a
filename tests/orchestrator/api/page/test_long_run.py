"""A run of thousands of steps: only what is visible is drawn."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser, expect

from orchestrator.run.journal.journal import Journal
from orchestrator.task.events import RunFinished
from tests.orchestrator.api.daemon_process import Running, running_daemon
from tests.orchestrator.api.page.browser import PATIENCE, link_of, visiting
from tests.orchestrator.run.record.test_picture import T0, planned

STEPS: Final = 3000
RUN: Final = "R"  # as `planned` calls it
MAX_ELEMENTS: Final = 2000

expect.set_options(timeout=PATIENCE)


async def write(home: Path) -> None:
    after = {f"S{number}": [f"S{number - 10}"] if number > 10 else [] for number in range(1, STEPS + 1)}
    with Journal.open(home) as journal:
        await journal.append(RUN, [*planned(after), RunFinished(at=T0 + 1, status="cancelled", error="a test")])


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    home = tmp_path_factory.mktemp("long") / "home"
    asyncio.run(write(home))
    with running_daemon(home, ORCHESTRATOR_MEMORY_USE="off") as running:
        yield running


def test_only_visible_rows_are_elements(long: Running, browser: Browser) -> None:
    with long.client() as client, visiting(browser, long, link_of(client)) as visit:
        page = visit.page
        visit.ready("table.runs")
        visit.go("runs", RUN)
        steps = page.get_by_role("listbox")
        expect(steps.get_by_role("option").first).to_have_attribute("aria-setsize", str(STEPS))
        assert page.locator("*").count() < MAX_ELEMENTS
        steps.focus()
        page.keyboard.press("End")
        expect(page.locator("[role=option][aria-selected=true] .id")).to_have_text(f"S{STEPS}")
        expect(page.locator("#step-title")).to_have_text(f"Step S{STEPS}")
        assert page.locator("*").count() < MAX_ELEMENTS
        page.keyboard.press("PageUp")
        page.keyboard.press("PageUp")
        page.keyboard.press("PageUp")
        expect(page.locator("[role=option][aria-selected=true] .id")).to_have_text(f"S{STEPS - 30}")
        expect(page.locator("[role=option][aria-selected=true]")).to_be_in_viewport()
        page.locator(".chart").evaluate("chart => { chart.scrollTop = 0 }")
        expect(steps.get_by_role("option", name="S1,")).to_be_visible()
        expect(page.locator("#step-title")).to_have_text(f"Step S{STEPS - 30}")  # it stays selected out of sight
        steps.focus()
        page.keyboard.press("ArrowDown")
        expect(page.locator("[role=option][aria-selected=true] .id")).to_have_text(f"S{STEPS - 29}")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name=f"Step S{STEPS - 29}")).to_be_visible()


def test_long_tables_are_shown_in_parts(long: Running, browser: Browser) -> None:
    with long.client() as client, visiting(browser, long, link_of(client)) as visit:
        page = visit.page
        visit.ready("table.runs")
        visit.go("runs", RUN)
        page.get_by_text("The picture as a table").click()
        rows = page.get_by_role("table", name="Steps").locator("tbody tr")
        expect(rows).to_have_count(500)
        page.get_by_role("button", name=f"{STEPS - 500:,} more").click()
        expect(rows).to_have_count(1000)
