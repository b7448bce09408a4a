"""What the page offers for one step of a run: try it again, put it first, rate it."""

from dataclasses import asdict

import httpx2
import pytest
from playwright.sync_api import Browser, Route, expect

from orchestrator.api.sse import format_event
from orchestrator.run.updates import Progress
from tests.orchestrator.api.callers import client_of, daemon_with
from tests.orchestrator.api.daemon_process import RECORDS, Running, executed, finished, lasting, submitted
from tests.orchestrator.api.page.browser import PATIENCE, Visit, link_of, visiting

expect.set_options(timeout=PATIENCE)

SUMMARY = {"id": "S1", "actor": "worker", "action": "Summarize it.", "inputs": ["a"], "outputs": ["s1"]}
NEXT = {"id": "S2", "actor": "worker", "action": "Shorten it.", "inputs": ["s1"], "outputs": ["s2"]}
TASK = {
    "objective": "two steps",
    "inputs": [{"type": "text", "label": "a", "value": (RECORDS / "a.txt").read_text()}],
    "plan": {"steps": [{**step, "max_tokens": 48} for step in (SUMMARY, NEXT)]},
}


@pytest.fixture(scope="module")
def ended(daemon: Running) -> str:
    """A run of two steps that are done."""
    with daemon.client() as client:
        return str(executed(client, {"task": TASK})["run_id"])


def test_a_step_is_made_again_in_a_new_run(visit: Visit, client: httpx2.Client, ended: str) -> None:
    page = visit.page
    visit.ready("h1")
    visit.go("runs", ended)
    page.get_by_role("option", name="S2").click()
    expect(page.get_by_text("This starts a new run")).to_be_visible()
    page.get_by_role("button", name="Run again from this step").click()
    page.wait_for_function("run => !location.hash.includes(run)", arg=ended)
    again = page.url.rpartition("/")[2]
    assert finished(client, again)["status"] == "done"
    page.get_by_role("option", name="S1, done").click()
    page.get_by_role("link", name=f"made by run {ended}").click()
    page.wait_for_function("run => location.hash.endsWith(run)", arg=ended)
    assert [step["reused"] for step in client.get(f"/v1/runs/{again}").json()["steps"]] == [ended, None]


def test_a_running_step_is_tried_again_and_another_put_first(visit: Visit, client: httpx2.Client) -> None:
    run = submitted(client, lasting())
    page = visit.page
    visit.ready("h1")
    visit.go("runs", run)
    page.get_by_role("option", name="S1, running").click()
    page.get_by_role("button", name="Try this step again").click()
    page.get_by_role("button", name="Stop now").click()
    page.get_by_text("What happened").click()
    expect(page.locator(".events")).to_contain_text("S1 is stopped, to be tried again")
    expect(page.locator(".events")).to_contain_text("S1 starts attempt 2")
    page.get_by_role("option", name="S5, waiting").click()
    page.get_by_role("button", name="Do this step first").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".panel .onpath", has_text="goes first")).to_be_visible()
    expect(page.locator(".events")).to_contain_text("S5 goes first")
    expect(page.get_by_role("button", name="Do this step first")).to_have_count(0)
    client.post(f"/v1/runs/{run}/cancel")
    expect(page.locator(".head .state").first).to_have_text("cancelled")


def test_a_step_has_the_same_actions_in_its_own_view(visit: Visit, client: httpx2.Client) -> None:
    run = submitted(client, lasting())
    visit.ready("h1")
    visit.go("runs", run, "steps", "S3")
    visit.page.get_by_role("button", name="Do this step first").click()
    expect(visit.page.locator(".onpath", has_text="goes first")).to_be_visible()
    visit.page.get_by_role("button", name="Stop this step").click()
    visit.page.get_by_role("button", name="Stop now").click()
    expect(visit.page.locator(".pairs .state").first).to_have_text("cancelled")
    client.post(f"/v1/runs/{run}/cancel")
    finished(client, run)


def test_a_run_and_its_steps_are_rated(visit: Visit, client: httpx2.Client, ended: str) -> None:
    page = visit.page
    visit.ready("h1")
    visit.go("runs", ended)
    page.get_by_role("option", name="S1").click()
    step = page.locator("section", has=page.locator("#step-title"))
    step.get_by_label("Rating of the step, 0 (bad)").and_(page.locator("input")).fill("0.25")
    step.get_by_label("Note").fill("too <b>long</b>")
    step.get_by_role("button", name="Rate").click()
    expect(step.locator("li", has_text="Rated 0.25")).to_contain_text("too <b>long</b>")
    whole = page.locator("section", has=page.locator("#answer-title"))
    whole.get_by_role("button", name="Rate").click()
    expect(whole.locator("li", has_text="Rated 1.00")).to_be_visible()
    report = client.get(f"/v1/runs/{ended}").json()
    assert [(row["score"], row["note"]) for row in report["steps"][0]["ratings"]] == [(0.25, "too <b>long</b>")]
    assert [row["score"] for row in report["ratings"]] == [1.0]
    page.get_by_text("What happened").click()
    count = sum(line.startswith("id: ") for line in client.get(f"/v1/runs/{ended}/events").text.splitlines())
    expect(page.locator(".events li")).to_have_count(count)
    numbers = page.locator(".events li").evaluate_all("lines => lines.map((line) => Number(line.dataset.number))")
    assert numbers == list(range(1, count + 1)), "each event once, though the run was loaded again"


@pytest.mark.parametrize("button", ["Run again", "Run again from this step"])
def test_two_clicks_start_one_run(visit: Visit, client: httpx2.Client, ended: str, button: str) -> None:
    page, waiting = visit.page, list[Route]()
    visit.ready("h1")
    visit.go("runs", ended)
    page.get_by_role("option", name="S2").click()
    page.route("**/retry", lambda route: waiting.append(route))
    with page.expect_request("**/retry"):
        page.get_by_role("button", name=button, exact=True).dblclick()
    expect(page.get_by_role("button", name="Run again", exact=True)).to_be_disabled()
    expect(page.get_by_role("button", name="Run again from this step")).to_be_disabled()
    (request,) = waiting
    request.continue_()
    page.wait_for_function("run => !location.hash.includes(run)", arg=ended)
    assert finished(client, page.url.rpartition("/")[2])["status"] == "done"


def test_a_step_shows_the_end_of_what_it_writes(visit: Visit, client: httpx2.Client) -> None:
    run = submitted(client, lasting())
    page = visit.page
    visit.ready("h1")
    visit.go("runs", run)
    page.get_by_role("option", name="S1, running").click()
    page.wait_for_function(
        """() => {
          const box = document.querySelector(".pair pre");
          return box.scrollHeight > box.clientHeight && box.scrollTop + box.clientHeight >= box.scrollHeight - 8;
        }"""
    )
    client.post(f"/v1/runs/{run}/cancel")
    finished(client, run)


def test_thoughts_are_shown_while_they_are_written(visit: Visit, client: httpx2.Client) -> None:
    run = submitted(client, lasting())
    thoughts = Progress(
        step="S1", attempt=1, output_tokens=7, tokens_per_second=9.0, text_tail="Is it <b>short</b>?", thinking=True
    )

    def think(route: Route) -> None:
        route.fulfill(content_type="text/event-stream", body=format_event(asdict(thoughts), "progress"))

    page = visit.page
    visit.ready("h1")
    page.route(f"**/runs/{run}/events", think)
    visit.go("runs", run)
    page.get_by_role("option", name="S1, running").click()
    expect(page.locator(".pair .text.thinking")).to_have_text("Is it <b>short</b>?")
    expect(page.locator(".pace")).to_have_text("Thoughts: 9 tokens a second, 7 so far")
    client.post(f"/v1/runs/{run}/cancel")
    finished(client, run)


def test_thoughts_are_shown_when_the_step_has_ended(visit: Visit, ended: str) -> None:
    def thinking(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json={**answer.json(), "reasoning": "Is it <b>short</b>?"})

    page = visit.page
    visit.ready("h1")
    page.route("**/attempts/1", thinking)
    visit.go("runs", ended)
    page.get_by_role("option", name="S1").click()
    page.get_by_text("Thoughts", exact=True).click()
    expect(page.locator(".pair .text.thinking")).to_have_text("Is it <b>short</b>?")


def test_a_refusal_is_shown(visit: Visit, client: httpx2.Client, ended: str) -> None:
    run = executed(client, {"task": TASK})["run_id"]
    visit.ready("h1")
    visit.go("runs", run)
    visit.page.get_by_role("option", name="S2").click()
    client.delete(f"/v1/runs/{run}").raise_for_status()
    visit.page.get_by_role("button", name="Run again from this step").click()
    expect(visit.page.get_by_role("alert").first).to_contain_text(run)


def test_who_may_neither_submit_nor_teach_is_offered_nothing(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with daemon_with(tmp_path_factory.mktemp("reading"), {"reader": "read:all"}) as daemon:
        with daemon.client() as client:
            run = executed(client, {"task": TASK})["run_id"]
        with client_of(daemon, "reader") as reader, visiting(browser, daemon, link_of(reader)) as visit:
            visit.ready("h1")
            visit.go("runs", run)
            visit.page.get_by_role("option", name="S1").click()
            expect(visit.page.get_by_role("link", name="Open the step")).to_be_visible()
            assert visit.page.locator("section button").count() == 0
