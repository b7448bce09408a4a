"""Two runs side by side on the page, and what was predicted next to what was measured in the list of runs."""

from typing import Any

import httpx2
import pytest
from playwright.sync_api import expect

from tests.orchestrator.api.daemon_process import RECORDS, Running, executed
from tests.orchestrator.api.page.browser import PATIENCE, Visit

expect.set_options(timeout=PATIENCE)

SUMMARY = {"id": "S1", "actor": "worker", "inputs": ["a.txt"], "outputs": ["s1"], "max_tokens": 48}


def body(action: str, *more: dict[str, Any]) -> dict[str, Any]:
    task = {"objective": f"to be compared: {action}", "plan": {"steps": [{**SUMMARY, "action": action}, *more]}}
    return {"task": task, "directory": str(RECORDS)}


NONE = "\u2013"
LATER = {**SUMMARY, "id": "S2", "action": "Summarize b.txt.", "inputs": ["b.txt"], "outputs": ["s2"]}


@pytest.fixture(scope="module")
def pair(daemon: Running) -> tuple[str, str]:
    """Two runs whose plans differ, the older one first."""
    with daemon.client() as client:
        first = executed(client, body("Summarize a.txt."))["run_id"]
        return str(first), str(executed(client, body("Copy a.txt.", LATER))["run_id"])


def test_two_runs_are_selected_and_compared(visit: Visit, client: httpx2.Client, pair: tuple[str, str]) -> None:
    page = visit.page
    page.get_by_label("Search").fill("to be compared")
    expect(page.locator("table.runs tbody tr")).to_have_count(2)
    expect(page.get_by_role("link", name="Compare two runs")).to_have_count(0)
    for run in pair[::-1]:
        page.get_by_label(f"Compare {run}").focus()
        page.keyboard.press("Space")
    page.get_by_role("link", name="Compare two runs").click()
    expect(page.get_by_role("heading", name="Compare two runs")).to_be_visible()
    assert page.url.endswith(f"#/compare/{pair[0]}/{pair[1]}"), "the older one is A"
    expect(page.get_by_text("The plans differ.")).to_be_visible()
    steps = page.locator("table tbody")
    expect(steps).to_have_count(3)
    compared = client.get(f"/v1/runs/{pair[0]}/comparison/{pair[1]}").json()
    for at, step in enumerate(compared["steps"], 1):
        for row, side in zip(steps.nth(at).locator("tr").all(), step["sides"], strict=True):
            text = row.inner_text()
            assert NONE in text if side is None else f"{side['output_tokens']}" in text
            assert side is None or side["model"] in text
    assert steps.nth(0).locator(".state").all_inner_texts() == ["done", "done"]
    assert page.locator("pre.text").inner_text().rstrip().splitlines() == compared["answers"].splitlines()
    page.get_by_role("link", name="to be compared: Summarize a.txt.").click()
    page.wait_for_function("run => location.hash.endsWith(run)", arg=pair[0])


def test_only_two_runs_are_selected(visit: Visit, client: httpx2.Client, pair: tuple[str, str]) -> None:
    third = executed(client, body("Summarize a.txt."))["run_id"]
    page = visit.page
    page.get_by_label("Search").fill("to be compared")
    for run in (*pair, third):
        page.get_by_label(f"Compare {run}").check()
    expect(page.locator("table.runs input:checked")).to_have_count(2)
    expect(page.get_by_label(f"Compare {third}")).to_be_checked()
    page.get_by_label(f"Compare {third}").uncheck()
    expect(page.get_by_text("Select two runs to compare them.")).to_be_visible()


def test_the_same_answers_are_said_to_be_the_same(visit: Visit, pair: tuple[str, str]) -> None:
    visit.ready("h1")
    visit.go("compare", pair[0], pair[0])
    expect(visit.page.get_by_text("They are the same.")).to_be_visible()
    expect(visit.page.get_by_text("The plans differ.")).to_have_count(0)


def test_a_run_that_is_not_there_is_said_not_to_be(visit: Visit, pair: tuple[str, str]) -> None:
    visit.ready("h1")
    visit.go("compare", pair[0], "nobody")
    expect(visit.page.get_by_role("alert")).to_contain_text("nobody")


def test_the_list_shows_what_was_predicted_and_measured(
    visit: Visit, client: httpx2.Client, pair: tuple[str, str]
) -> None:
    page = visit.page
    page.get_by_label("Search").fill(pair[0])
    row = page.locator("table.runs tbody tr")
    expect(row).to_have_count(1)
    expect(row.locator("td").nth(4)).not_to_have_text(NONE)
    figures = client.get("/v1/runs", params={"search": pair[0], "figures": True}).json()["runs"][0]["figures"]
    assert row.locator("td").nth(4).inner_text() == shown_seconds(figures["path_seconds"])
    assert row.locator("td").nth(5).inner_text() == shown_seconds(figures["predicted_seconds"])
    page.set_viewport_size({"width": 360, "height": 900})
    expect(row.locator("td").nth(5)).to_be_visible()
    assert "Predicted" in row.locator("td").nth(5).evaluate("cell => getComputedStyle(cell, '::before').content")


def shown_seconds(seconds: float) -> str:
    """Return a duration of less than a minute as the page shows it in English."""
    return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"
