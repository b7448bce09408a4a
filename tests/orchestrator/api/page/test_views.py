"""The views of the page in Chromium: what they show, and every action that they offer."""

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

import httpx2
import pytest
from playwright.sync_api import Browser, Route, expect

from orchestrator.run.journal.journal import Journal
from orchestrator.task.events import (
    AttemptFailed,
    AttemptGenerated,
    AttemptStarted,
    Event,
    Failure,
    FailureKind,
    GateResult,
    PlanFinished,
    RunAccepted,
    RunFinished,
    Shipped,
    StepsPlanned,
    Usage,
)
from orchestrator.task.reuse import Reuse
from orchestrator.task.taskir.models import Step
from tests.orchestrator.api.callers import client_of, daemon_with
from tests.orchestrator.api.daemon_process import RECORDS, ROOT, Running, executed, lasting, submitted, summary
from tests.orchestrator.api.page.browser import PATIENCE, SIZES, Visit, check_view, link_of, visiting

TWO_FILES: Final = "20260101-000000-two-files"
TWO_ATTEMPTS: Final = "20260101-000000-two-attempts"
SHIPPED: Final = (Shipped(tokens=704, bytes=3 << 20, seconds=0.1, source="west"),)
REQUEST: Final = "Summarize a, b, c and d, then compare them"

expect.set_options(timeout=PATIENCE)


async def write_two_files(home: Path) -> None:
    """Write a run into a journal whose step wrote two files; a gate found one thing in each, at lines 2 and 3."""
    step = Step(id="S1", actor="worker", action="Write two files.", outputs=("one.py", "two.py"))
    evidence = "one.py:2: F821 wrong in one.py\n    one = 2\ntwo.py:3: F821 wrong in two.py\n    two = 3"
    failure = Failure(FailureKind.CODE, "lint failed", evidence)
    gate = GateResult("lint", "failed", evidence, kind=FailureKind.CODE)
    texts = {name: "\n".join(f"{name[:3]} = {at}" for at in (1, 2, 3)) for name in step.outputs}
    of_step: dict[str, Any] = {"step": "S1", "number": 1}
    with Journal.open(home) as journal:
        outputs = {name: journal.put(text.encode()) for name, text in texts.items()}
        whole = journal.put("\n\n".join(f"[{name}]\n{text}" for name, text in texts.items()).encode())
        events: list[Event] = [
            RunAccepted(at=1.0, run=TWO_FILES, mode="as-planned", request="two files"),
            StepsPlanned(at=1.0, steps=(step,)),
            PlanFinished(at=1.0, origin="taskir"),
            AttemptStarted(at=1.0, role="worker", persona=None, model="m", reason="a test", **of_step),
            AttemptGenerated(
                at=2.0,
                usage=Usage(prompt_tokens=9, output_tokens=9, nodes=("east",)),
                outputs=outputs,
                **of_step,
            ),
            AttemptFailed(at=3.0, failure=failure, gates=(gate,), answer=whole, **of_step),
            RunFinished(at=3.0, status="failed", error="S1 failed"),
        ]
        await journal.append(TWO_FILES, events)


async def write_two_attempts(home: Path) -> None:
    """Write a run into a journal whose step had prompts that were computed in part, and a third that was never read."""
    step = Step(id="S1", actor="worker", action="Write.", outputs=("text",))
    lost = Reuse(1000, {"prompt differs": 40, "evicted": 160})
    usages = (
        Usage(
            prompt_tokens=1000, cached_tokens=800, reuse=lost, shipped=SHIPPED, drafted_tokens=60, accepted_tokens=41
        ),
        Usage(prompt_tokens=1200, output_tokens=9, estimated_tokens=1209),
    )
    events: list[Event] = [
        RunAccepted(at=1.0, run=TWO_ATTEMPTS, mode="as-planned", request="two attempts"),
        StepsPlanned(at=1.0, steps=(step,)),
        PlanFinished(at=1.0, origin="taskir"),
    ]
    for number in (1, 2, 3):
        of_step: dict[str, Any] = {"step": "S1", "number": number}
        events.append(AttemptStarted(at=number, role="worker", persona=None, model="m", reason="a test", **of_step))
        if number <= len(usages):
            events.append(AttemptGenerated(at=number + 0.5, usage=usages[number - 1], **of_step))
        events.append(AttemptFailed(at=number + 0.5, failure=Failure(FailureKind.CODE, "wrong"), **of_step))
    events.append(RunFinished(at=4.0, status="failed", error="S1 failed"))
    with Journal.open(home) as journal:
        await journal.append(TWO_ATTEMPTS, events)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A daemon of its own, so that its runs are those of this file; the token `reader` sees all and changes nothing."""
    folder = tmp_path_factory.mktemp("views")
    with ThreadPoolExecutor(1) as pool:  # in the thread of the tests the browser's event loop may run
        for write in (write_two_files, write_two_attempts):
            pool.submit(asyncio.run, write(folder / "home")).result()
    with daemon_with(folder, {"reader": "read:all"}, ORCHESTRATOR_MEMORY_USE="shadow") as running:
        yield running


@pytest.fixture(scope="module")
def planned(daemon: Running) -> dict[str, Any]:
    """A request in words that was planned and done."""
    with daemon.client() as client:
        return executed(client, {"request": REQUEST, "directory": str(RECORDS)})


@pytest.fixture(scope="module")
def gated(daemon: Running) -> dict[str, Any]:
    """A task whose answers gates have checked; one of them fails first."""
    task = json.loads((ROOT / "examples" / "gates.json").read_text())
    with daemon.client() as client:
        return executed(client, {"task": task})


@pytest.fixture(scope="module")
def direct(daemon: Running) -> dict[str, Any]:
    """A request that was answered directly."""
    with daemon.client() as client:
        return executed(client, {"request": "Summarize a.txt.", "directory": str(RECORDS), "mode": "direct"})


def shown_ids(visit: Visit) -> list[str]:
    return visit.page.locator("[role=option] .id").all_inner_texts()


def test_the_link_logs_in_once_and_leaves_no_code(browser: Browser, daemon: Running, client: httpx2.Client) -> None:
    link = link_of(client)
    with visiting(browser, daemon, link) as visit:
        visit.ready("h1:has-text('Runs')")
        assert "login" not in visit.page.url
        assert visit.page.evaluate("document.cookie") == ""
        visit.page.reload()
        visit.ready("h1:has-text('Runs')")
        visit.page.get_by_role("button", name="Log out").click()
        expect(visit.page.get_by_role("heading", name="You are not logged in")).to_be_visible()
        expect(visit.page.get_by_text("orchestrator ui")).to_be_visible()
    with visiting(browser, daemon, link) as visit:
        expect(visit.page.get_by_role("alert")).to_contain_text("was used before")


def test_nobody_is_said_to_be_logged_out_who_is_not(browser: Browser, daemon: Running, client: httpx2.Client) -> None:
    with visiting(browser, daemon, link_of(client)) as visit:
        page = visit.page
        visit.ready("h1:has-text('Runs')")
        logout = page.get_by_role("button", name="Log out")
        page.route("**/v1/session", lambda route: route.abort())
        with page.expect_event("requestfailed", lambda request: request.url.endswith("/v1/session")):
            logout.click()
        expect(page.locator(".notice")).to_contain_text("orchestrator serve")
        page.unroute("**/v1/session")
        refusal = {"error": {"message": "not now"}}
        page.route("**/v1/session", lambda route: route.fulfill(status=503, json=refusal))
        logout.click()
        expect(page.get_by_role("alert")).to_contain_text("not now")
        expect(page.get_by_role("heading", name="Runs")).to_be_visible()
        page.unroute("**/v1/session")
        page.route("**/v1/session", lambda route: route.fulfill(status=401, json=refusal))  # it has ended meanwhile
        logout.click()
        expect(page.get_by_role("heading", name="You are not logged in")).to_be_visible()


def test_a_link_opened_in_a_page_that_is_there_logs_in(
    browser: Browser, daemon: Running, client: httpx2.Client
) -> None:
    with visiting(browser, daemon, f"http://127.0.0.1:{daemon.port}/") as visit:
        visit.ready("h1:has-text('You are not logged in')")
        visit.page.goto(link_of(client))
        visit.ready("h1:has-text('Runs')")


def test_runs_are_filtered_and_searched(visit: Visit, planned: dict[str, Any], gated: dict[str, Any]) -> None:
    page = visit.page
    visit.ready("h1")
    expect(page.get_by_role("link", name=REQUEST).first).to_be_visible()
    page.get_by_label("Search").fill("TWO FUNCTIONS that pass")
    expect(page.get_by_role("link", name=REQUEST)).to_have_count(0)
    expect(page.locator("table.runs tbody tr")).to_have_count(1)
    page.get_by_label("Search").fill(planned["run_id"])
    expect(page.locator("table.runs tbody tr")).to_have_count(1)
    page.get_by_label("State").select_option("failed")
    expect(page.get_by_text("No run matches.")).to_be_visible()
    page.get_by_label("Search").fill("")
    page.get_by_label("State").select_option("done")
    page.get_by_role("link", name=REQUEST).first.click()
    expect(page.get_by_role("heading", name=REQUEST)).to_be_visible()


def test_older_runs_follow_on_request(browser: Browser, tmp_path: Path) -> None:
    with daemon_with(tmp_path, {}, ORCHESTRATOR_RUNS_MAX_QUEUED="1000") as daemon, daemon.client() as client:
        for number in range(51):
            submitted(client, summary(output=f"{number}.txt", limits={"seconds": 600}))
        with visiting(browser, daemon, link_of(client)) as visit:
            rows = visit.page.locator("table.runs tbody tr")
            expect(rows).to_have_count(50)
            visit.page.get_by_role("button", name="Older runs").click()
            expect(rows).to_have_count(51)


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York"])
def test_times_are_in_the_zone_of_the_reader(
    browser: Browser, daemon: Running, client: httpx2.Client, planned: dict[str, Any], zone: str
) -> None:
    accepted = client.get(f"/v1/runs/{planned['run_id']}").json()["accepted_at"]
    local = datetime.fromtimestamp(accepted, ZoneInfo(zone))
    with visiting(browser, daemon, link_of(client), timezone_id=zone) as visit:
        row = visit.page.locator("tbody tr", has_text=REQUEST).first
        expect(row.locator("time")).to_contain_text(f"{local:%b} {local.day}, {local.year}")
        expect(row.locator("time")).to_contain_text(f"{local.hour % 12 or 12}:{local:%M}")


def test_a_run_shows_its_graph_and_one_selection(visit: Visit, planned: dict[str, Any]) -> None:
    page = visit.page
    visit.ready("h1")
    visit.go("runs", planned["run_id"])
    visit.ready("svg.times")  # drawn last
    assert shown_ids(visit) == ["S1", "S2", "S3", "S4", "S5"]
    assert page.locator("svg.graph path.line").count() == 4
    assert page.locator("svg.graph .line.critical").count() == 1
    assert page.locator("svg.times .bar-write").count() >= 5
    assert page.locator("svg.times .bar-slack").count() >= 1
    expect(page.locator(".answer")).to_contain_text("length")
    box = page.locator("svg.times").bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 26 * 2 + 13)  # the third row
    expect(page.locator("[role=option][aria-selected=true]")).to_have_attribute("id", "row-2")
    expect(page.locator("#step-title")).to_have_text("Step S3")
    assert page.locator(".band").count() == 1


def test_a_run_is_used_by_keyboard(visit: Visit, planned: dict[str, Any]) -> None:
    page = visit.page
    visit.ready("h1")
    visit.go("runs", planned["run_id"])
    visit.ready("[role=option]")
    steps = page.get_by_role("listbox")
    steps.focus()
    page.keyboard.press("End")
    expect(steps).to_have_attribute("aria-activedescendant", "row-4")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    expect(page.locator("[role=option][aria-selected=true]")).to_contain_text("S2")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Step S2")).to_be_visible()


def test_the_picture_has_a_table_with_the_same_facts(
    visit: Visit, client: httpx2.Client, planned: dict[str, Any]
) -> None:
    page = visit.page
    visit.ready("h1")
    visit.go("runs", planned["run_id"])
    page.get_by_text("The picture as a table").click()
    steps = page.get_by_role("table", name="Steps")
    expect(steps.locator("tbody tr")).to_have_count(5)
    expect(steps.locator("tbody tr").nth(4)).to_contain_text("S1, S2, S3, S4")
    edges = page.get_by_role("table", name="Which step waits for which")
    expect(edges.locator("tbody tr")).to_have_count(4)
    drawn = client.get(f"/v1/runs/{planned['run_id']}/picture").json()
    parts = [(row["id"], part) for row in drawn["rows"] for part in row["waits"]]
    parts += [(row["id"], part) for row in drawn["rows"] for bar in row["bars"] for part in bar["parts"]]
    times = page.get_by_role("table", name="What each step did when").locator("tbody tr")
    expect(times).to_have_count(len(parts) + len(drawn["planning"]))
    assert times.filter(has_text="waits for steps").count() == sum(part["kind"] == "dependencies" for _, part in parts)
    causes = page.get_by_role("table", name="Time by cause").locator("tbody tr")
    expect(causes).to_have_count(len({part["kind"] for _, part in parts}) + bool(drawn["planning"]))
    assert f"{drawn['rows'][0]['predicted_seconds']:.2f} s" in steps.locator("tbody tr").first.inner_text()


def test_files_are_downloaded(visit: Visit, client: httpx2.Client, planned: dict[str, Any]) -> None:
    page = visit.page
    visit.ready("h1")
    visit.go("runs", planned["run_id"])
    name = planned["results"][0]
    with page.expect_download() as expected:
        page.get_by_role("link", name=f"Download: {name}").first.click()
    content = client.get(f"/v1/runs/{planned['run_id']}/artifacts/{name}").content
    assert expected.value.suggested_filename == name
    assert Path(expected.value.path()).read_bytes() == content
    with page.expect_download() as expected:
        page.get_by_role("link", name="Everything as an archive").click()
    assert expected.value.suggested_filename.endswith(".tar.gz")
    page.get_by_text("Changes to your files").click()
    expect(page.locator("details pre").first).to_be_visible()


def test_a_step_shows_its_prompt_and_what_it_shares(visit: Visit, planned: dict[str, Any]) -> None:
    page = visit.page
    visit.ready("h1")
    visit.go("runs", planned["run_id"], "steps", "S5")
    visit.ready(".prompt")
    assert page.locator(".part h5").count() >= 6, "role, four inputs, task"
    expect(page.locator(".part.shared").first).to_contain_text("starts like S1")
    expect(page.locator(".part").last).to_contain_text("Compare the summaries.")
    facts = page.locator(".pairs")
    expect(facts).to_contain_text("worker on tiny-large")
    expect(page.locator(".attempt")).to_contain_text("Why: first attempt; role worker: the step's actor")
    facts.get_by_role("link", name="S1").first.click()
    expect(page.get_by_role("heading", name="Step S1")).to_be_visible()
    page.get_by_role("link", name="The whole run").click()
    expect(page.get_by_role("heading", name=REQUEST)).to_be_visible()


def test_each_attempt_says_how_many_tokens_were_saved(visit: Visit) -> None:
    page = visit.page
    visit.ready("h1")
    visit.go("runs", TWO_ATTEMPTS, "steps", "S1")
    attempts = [page.get_by_role("article", name=f"Attempt {number}") for number in (1, 2, 3)]
    saved = [attempt.get_by_role("list", name="Tokens of the prompt") for attempt in attempts]
    expect(saved[0].get_by_role("listitem")).to_have_text(
        [
            "800 tokens reused (80 % saved)",
            "200 tokens computed",
            "160 of them computed again: the cache was full and had dropped them",
            "40 of them computed again: the text before them differs",
            "704 tokens shipped from west (3.1 MB)",
        ]
    )
    expect(saved[1].get_by_role("listitem")).to_have_text(["≈ 0 tokens reused (0 % saved)", "≈ 1,200 tokens computed"])
    expect(attempts[2].get_by_text("Prompt", exact=True)).to_be_visible()
    expect(saved[2]).to_have_count(0)
    widths = [attempts[0].locator(f".saved rect.saved-{kind}") for kind in ("reused", "lost", "computed")]
    assert [rect.get_attribute("width") for rect in widths] == ["800", "1000", "1000"], "each covers the one before"
    page.get_by_label("Language").select_option("de")
    expect(saved[0]).to_have_count(0)
    german = page.get_by_role("list", name="Token des Prompts").first
    expect(german).to_contain_text("800 Token wiederverwendet (80 % gespart)")
    expect(german).to_contain_text("160 davon erneut berechnet: der Cache war voll und hatte sie verworfen")


def test_an_attempt_says_what_drafts_did_for_it(visit: Visit) -> None:
    page = visit.page
    visit.ready("h1")
    visit.go("runs", TWO_ATTEMPTS, "steps", "S1")
    expect(page.get_by_role("article")).to_have_count(3)
    drafts = page.get_by_text("drafted tokens accepted")
    expect(drafts).to_have_text(["41 of 60 drafted tokens accepted"])
    expect(page.get_by_role("article", name="Attempt 1").locator(drafts)).to_be_visible()
    page.get_by_label("Language").select_option("de")
    expect(page.get_by_text("41 von 60 entworfenen Token angenommen")).to_be_visible()


def test_a_prompt_that_an_engine_has_read_before_is_saved(visit: Visit, client: httpx2.Client) -> None:
    run = [executed(client, summary(output="saved.txt"))["run_id"] for _ in range(2)][-1]
    usage = client.get(f"/v1/runs/{run}/steps/S1").json()["step"]["attempts"][0]["usage"]
    assert 0 < usage["cached_tokens"] < usage["prompt_tokens"]
    visit.ready("h1")
    visit.go("runs", run, "steps", "S1")
    saved = visit.page.get_by_role("list", name="Tokens of the prompt").get_by_role("listitem")
    expect(saved.first).to_contain_text(f"{usage['cached_tokens']} tokens reused")
    expect(saved.nth(1)).to_have_text(f"{usage['prompt_tokens'] - usage['cached_tokens']} tokens computed")


def test_a_step_shows_its_gates(visit: Visit, gated: dict[str, Any]) -> None:
    visit.ready("h1")
    visit.go("runs", gated["run_id"], "steps", "S1")
    gates = visit.page.get_by_role("table", name="Gates")
    expect(gates.locator("tbody tr").first).to_be_visible()
    expect(gates).to_contain_text("unit")
    expect(gates).to_contain_text("passed")


def test_findings_are_at_their_line_of_the_right_output(visit: Visit) -> None:
    visit.ready("h1")
    visit.go("runs", TWO_FILES, "steps", "S1")
    expect(visit.page.locator(".attempt .facts")).to_contain_text("node east")
    outputs = visit.page.locator(".output")
    expect(outputs).to_have_count(2)
    for at, name in enumerate(("one.py", "two.py")):
        expect(outputs.nth(at).get_by_role("heading")).to_have_text(name)
        expect(outputs.nth(at).locator("li")).to_have_count(3)
        expect(outputs.nth(at).locator(".finding")).to_have_text(f"lint: F821 wrong in {name}")
        expect(outputs.nth(at).locator("li").nth(at + 1).locator(".finding")).to_have_count(1)


def test_what_a_run_does_not_show_is_said(visit: Visit, planned: dict[str, Any]) -> None:
    page, refusal = visit.page, {"error": {"message": "not <b>now</b>"}}
    run = planned["run_id"]
    visit.ready("h1")
    for path in ("diff", "steps/S1/attempts/*", "artifacts"):
        page.route(f"**/v1/runs/{run}/{path}", lambda route: route.fulfill(status=500, json=refusal))
    visit.go("runs", run)
    answer = page.locator("section", has=page.locator("#answer-title"))
    expect(answer.get_by_role("alert")).to_contain_text("not <b>now</b>")
    page.get_by_role("option", name="S1").click()
    step = page.locator("section", has=page.locator("#step-title"))
    expect(step.get_by_role("alert")).to_contain_text("not <b>now</b>")
    page.unroute(f"**/v1/runs/{run}/artifacts")
    visit.go("runs")
    visit.go("runs", run)
    page.get_by_text("Changes to your files").click()
    expect(answer.get_by_role("alert")).to_contain_text("not <b>now</b>")
    page.unroute(f"**/v1/runs/{run}/diff")
    answer.get_by_role("button", name="Try again").click()
    expect(answer.locator("details pre").first).to_contain_text("+++")


def test_a_run_is_stopped_and_run_again(visit: Visit, client: httpx2.Client) -> None:
    run = submitted(client, lasting())
    page = visit.page
    visit.ready("h1")
    visit.go("runs", run)
    page.get_by_role("button", name="Stop the run").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Stop now")).to_be_focused()
    page.get_by_role("button", name="Keep it").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Stop the run")).to_be_focused()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Stop now").click()
    expect(page.locator(".head .state").first).to_have_text("cancelled")
    expect(page.locator(".head").get_by_role("link", name="What if")).to_be_focused()  # the button is gone
    assert client.get(f"/v1/runs/{run}").json()["status"] == "cancelled"
    page.get_by_role("button", name="Run again").click()
    page.wait_for_function("run => !location.hash.includes(run)", arg=run)
    again = page.url.rpartition("/")[2]
    assert again != run
    expect(page.get_by_role("heading", name="a long test")).to_be_visible()
    client.post(f"/v1/runs/{again}/cancel")
    expect(page.locator(".head .state").first).to_have_text("cancelled")


def test_a_step_is_stopped_alone(visit: Visit, client: httpx2.Client) -> None:
    body = lasting()
    body["task"]["plan"]["steps"][1]["depends_on"] = []
    run = submitted(client, body)
    page = visit.page
    visit.ready("h1")
    visit.go("runs", run)
    page.get_by_role("option", name="S1").click()
    page.get_by_role("button", name="Stop this step").click()
    page.get_by_role("button", name="Stop now").click()
    expect(page.get_by_role("option", name="S1, cancelled")).to_be_visible()
    client.post(f"/v1/runs/{run}/cancel")
    expect(page.locator(".head .state").first).not_to_have_text("running")


@pytest.mark.parametrize(
    ("view", "width", "language"),
    [
        ("run", 360, "de-DE"),
        ("step", 1440, "en-US"),
        pytest.param("run", 1440, "en-US", marks=pytest.mark.slow),
        pytest.param("step", 360, "de-DE", marks=pytest.mark.slow),
    ],
)
def test_nothing_moves_while_tokens_arrive_and_a_run_ends(
    browser: Browser, daemon: Running, client: httpx2.Client, view: str, width: int, language: str
) -> None:
    size = {"width": width, "height": 2000}  # all is in view
    with visiting(browser, daemon, link_of(client), viewport=size, locale=language) as visit:
        page = visit.page
        visit.go("new")
        visit.ready("textarea")  # not the list of runs, which gets a row
        run = submitted(client, lasting(256))
        page.evaluate("window.moved = []; window.shift = 0")
        if view == "step":
            visit.go("runs", run, "steps", "S1")
        else:
            visit.go("runs", run)
            visit.ready("svg.times .bar-expected")
            page.get_by_role("listbox").focus()
            page.keyboard.press("Home")
            expect(page.locator(".figures")).to_contain_text("S1 → S2")  # the critical path that is expected
        expect(page.locator(".written > .text")).not_to_be_empty()
        expect(page.locator(".written > .cause")).to_contain_text("cut off")  # so it is tried again
        expect(page.locator(".written .spent")).to_be_visible()
        expect(page.locator(".pairs, .facts").locator(".state.failed").first).to_be_visible()  # with all tries
        expect(page.locator("form", has=page.get_by_role("spinbutton")).first).to_be_visible()  # the run has ended
        if view == "run":
            expect(page.locator(".figures > div").nth(2).locator("dd")).to_have_text("S1")  # the others never ran
        page.evaluate("new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
        assert page.evaluate("[window.shift, window.moved]") == [0, []]


@pytest.mark.parametrize(("tokens", "outcome"), [(1024, "cancelled"), (512, "failed")])
def test_a_new_attempt_does_not_move_those_before_it(
    visit: Visit, client: httpx2.Client, tokens: int, outcome: str
) -> None:
    run = submitted(client, lasting(tokens))
    page = visit.page
    page.set_viewport_size({"width": 1440, "height": 2400})  # all is in view: Chromium corrects nothing by scrolling
    visit.ready("h1")
    visit.go("runs", run, "steps", "S1")
    first = page.get_by_role("article", name="Attempt 1")
    read = first.get_by_text("Write a list of 1 numbers.")
    expect(read).to_be_visible()
    expect(page.get_by_role("region", name="What it wrote").locator("pre")).not_to_be_empty()
    before = read.bounding_box()
    if outcome == "cancelled":  # else its answer is too long
        client.post(f"/v1/runs/{run}/retry", json={"step": "S1"}).raise_for_status()
    expect(page.get_by_role("article", name="Attempt 2").get_by_text("Write a list of 1 numbers.")).to_be_visible()
    expect(first.locator(".state").first).to_contain_text(outcome)
    assert read.bounding_box() == before
    titles = [text.splitlines()[0] for text in page.get_by_role("article").all_inner_texts()]
    assert titles[:2] == ["Attempt 1", "Attempt 2"], "a third one may have begun"
    client.post(f"/v1/runs/{run}/cancel")
    expect(page.locator(".pairs .state").first).to_have_text("cancelled")


def test_a_request_is_planned_priced_and_run(visit: Visit, client: httpx2.Client, planned: dict[str, Any]) -> None:
    page = visit.page
    visit.ready("h1")
    page.get_by_role("link", name="New").click()
    look = page.get_by_role("button", name="Show the plan")
    expect(look).to_be_disabled()
    page.get_by_label("What should be done?").fill(REQUEST)
    drop_files(visit, [RECORDS / f"{name}.txt" for name in "abcd"])
    expect(page.locator(".drop li")).to_have_count(4)
    look.click()
    plan = page.get_by_role("region", name="The plan")
    expect(page.locator(".plan, .problem, .problems")).to_be_visible()
    assert page.locator(".problem, .problems").all_inner_texts() == []
    assert page.locator("#plan-title").inner_text() == "The plan"
    expect(plan.get_by_role("listbox").get_by_role("option")).to_have_count(5)
    expect(plan.locator(".figures")).to_contain_text("tiny-large: ")
    expect(plan.locator(".figures")).to_contain_text("Direct answer")
    expect(plan.locator("svg.times")).to_be_attached()
    assert plan.locator(".bar-expected").count() >= 5
    page.get_by_role("button", name="Remove d.txt").click()
    expect(plan).to_have_count(0)  # it was made with that file
    page.get_by_label("Files: drop them here").set_input_files(str(RECORDS / "d.txt"))
    expect(page.locator(".drop li")).to_have_count(4)
    look.click()
    page.get_by_role("button", name="Run this plan").click()
    expect(page.locator(".answer")).to_contain_text("Koldin")
    run = page.url.rpartition("/")[2]
    assert client.get(f"/v1/runs/{run}").json()["plan_origin"] == "taskir"
    assert client.get("/v1/files").json()["data"] == []


def test_the_places_stay_where_they_are(visit: Visit) -> None:
    page = visit.page
    visit.ready("table.runs")

    def boxes() -> list[Any]:
        return [link.bounding_box() for link in page.get_by_role("navigation").get_by_role("link").all()]

    before = boxes()
    for place in ("new", "machine", "doctor"):
        visit.go(place)
        expect(page.locator("nav [aria-current]")).to_have_attribute("href", f"#/{place}")
        assert boxes() == before


def test_a_job_is_submitted_once(visit: Visit, client: httpx2.Client) -> None:
    page, sent = visit.page, list[Route]()
    visit.ready("h1")
    visit.go("new")
    page.get_by_label("A TaskIR document").check()
    document = page.get_by_label("TaskIR, as JSON")
    step = {"id": "S1", "actor": "worker", "action": "Say hello.", "outputs": ["hello"], "max_tokens": 16}
    document.fill(json.dumps({"objective": "once", "plan": {"steps": [step]}}))
    expect(page.locator("#document-state")).to_have_text("valid")
    run = page.get_by_role("button", name="Run", exact=True)
    page.route("**/v1/runs", lambda route: sent.append(route))
    with page.expect_request("**/v1/runs"):
        run.dblclick()
    written = document.input_value()
    document.fill("{}")
    expect(page.locator(".problem, .problems")).to_be_visible()  # the check of the other document has ended
    expect(run).to_be_disabled()
    document.fill(written)
    sent[0].fetch()
    sent[0].abort()  # the run is there, the answer is lost
    expect(page.get_by_role("alert")).to_contain_text("orchestrator serve")
    page.unroute("**/v1/runs")
    before = [row["run_id"] for row in client.get("/v1/runs").json()["runs"]]
    run.click()
    page.wait_for_function("() => location.hash.startsWith('#/runs/')")
    assert len(sent) == 1
    assert page.url.rpartition("/")[2] == before[0]
    assert [row["run_id"] for row in client.get("/v1/runs").json()["runs"]] == before


def drop_files(visit: Visit, paths: list[Path]) -> None:
    """Drop files onto the page, as from a file manager."""
    script = """files => {
        const transfer = new DataTransfer();
        for (const [name, text] of files) transfer.items.add(new File([text], name));
        return transfer;
    }"""
    transfer = visit.page.evaluate_handle(script, [[path.name, path.read_text()] for path in paths])
    visit.page.dispatch_event(".drop", "dragover", {"dataTransfer": transfer})
    expect(visit.page.locator(".drop.over")).to_be_visible()
    visit.page.dispatch_event(".drop", "drop", {"dataTransfer": transfer})


def test_a_request_is_answered_directly_on_request(visit: Visit, client: httpx2.Client) -> None:
    page = visit.page
    visit.ready("h1")
    visit.go("new")
    page.get_by_label("What should be done?").fill(REQUEST)
    drop_files(visit, [RECORDS / f"{name}.txt" for name in "abcd"])
    expect(page.locator(".drop li")).to_have_count(4)
    page.get_by_role("button", name="Show the plan").click()
    page.get_by_role("button", name="Answer directly instead").click()
    expect(page.get_by_role("heading", name=REQUEST)).to_be_visible()
    run = page.url.rpartition("/")[2]
    assert client.get(f"/v1/runs/{run}").json()["mode"] == "direct"


def test_a_direct_answer_that_was_shown_is_what_runs(visit: Visit, client: httpx2.Client) -> None:
    page = visit.page
    visit.ready("h1")
    visit.go("new")
    page.get_by_label("What should be done?").fill("Summarize a.txt.")
    drop_files(visit, [RECORDS / "a.txt"])
    expect(page.locator(".drop li")).to_have_count(1)
    page.get_by_role("button", name="Show the plan").click()
    expect(page.get_by_role("heading", name="It is answered directly")).to_be_visible()
    with page.expect_request(lambda request: request.method == "POST" and request.url.endswith("/v1/runs")) as sent:
        page.locator(".plan .actions button.main").click()
    assert (sent.value.post_data_json or {})["mode"] == "direct"
    expect(page.get_by_role("heading", name="Summarize a.txt.")).to_be_visible()


def test_a_document_is_checked_while_it_is_written(visit: Visit, client: httpx2.Client) -> None:
    page = visit.page
    visit.ready("h1")
    visit.go("new")
    page.get_by_label("A TaskIR document").check()
    document = page.get_by_label("TaskIR, as JSON")
    document.fill("{")
    expect(page.locator("#document-state")).to_contain_text("This is no JSON")
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_disabled()
    task = summary(output="written.txt")["task"]
    wrong = {**task, "plan": {"steps": [{**task["plan"]["steps"][0], "actor": "nobody"}]}}
    document.fill(json.dumps(wrong))
    expect(page.get_by_role("alert")).to_contain_text("/plan/steps/0/actor")
    page.get_by_label("Files: drop them here").set_input_files(str(RECORDS / "a.txt"))
    document.fill(json.dumps(task))
    expect(page.locator("#document-state")).to_have_text("valid")
    expect(page.get_by_role("region", name="The plan").get_by_role("listbox").get_by_role("option")).to_have_count(1)
    page.get_by_text("Folder, priority, limits").click()
    page.get_by_label("Limit of time, in seconds").fill("600")
    page.get_by_label("Limit of artifacts, in bytes").fill("1000000")
    page.get_by_label("Priority").select_option("batch")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator(".answer")).not_to_be_empty()
    run = page.url.rpartition("/")[2]
    assert client.get(f"/v1/runs/{run}").json()["artifacts"].keys() == {"written.txt"}
    accepted = client.get(f"/v1/runs/{run}/events").text.partition("run_accepted")[0].rpartition("data: ")[2]
    assert '"bytes":1000000' in accepted.replace(" ", "")


def test_what_a_folder_needs_is_said(visit: Visit) -> None:
    page = visit.page
    visit.ready("h1")
    visit.go("new")
    page.get_by_label("What should be done?").fill(REQUEST)
    page.get_by_text("Folder, priority, limits").click()
    page.get_by_label("Folder on the daemon's machine").fill("/etc")
    page.get_by_role("button", name="Run without preview").click()
    expect(page.get_by_role("alert")).to_contain_text("folders of [runs]")


def test_only_what_the_caller_may_do_is_offered(browser: Browser, daemon: Running, planned: dict[str, Any]) -> None:
    with client_of(daemon, "reader") as reader, visiting(browser, daemon, link_of(reader)) as visit:
        page = visit.page
        visit.ready("h1")
        visit.go("runs", planned["run_id"])
        visit.ready("[role=option]")
        expect(page.get_by_role("button", name="Log out")).to_be_visible()
        expect(page.get_by_role("button", name="Run again")).to_have_count(0)
        expect(page.get_by_role("link", name="New")).to_have_count(0)
        for view, permission in (
            (("new",), "submit"),
            (("doctor",), "operate"),
            (("runs", planned["run_id"], "what-if"), "submit"),
        ):
            visit.go(*view)
            expect(page.get_by_text(f"lacks the permission {permission} for this.")).to_be_visible()


def test_the_page_speaks_german(
    browser: Browser, daemon: Running, client: httpx2.Client, planned: dict[str, Any]
) -> None:
    with visiting(browser, daemon, link_of(client), locale="de-DE") as visit:
        page = visit.page
        expect(page.get_by_role("heading", name="Läufe")).to_be_visible()
        assert page.evaluate("document.documentElement.lang") == "de"
        visit.go("runs", planned["run_id"])
        expect(page.get_by_role("heading", name="Antwort")).to_be_visible()
        expect(page.locator(".figures")).to_contain_text(" s")
        page.get_by_label("Sprache").select_option("en")
        expect(page.get_by_role("heading", name="Answer")).to_be_visible()
        page.reload()
        expect(page.get_by_role("heading", name="Answer")).to_be_visible()


def test_what_is_not_there_is_said(visit: Visit, planned: dict[str, Any]) -> None:
    page = visit.page
    visit.ready("h1")
    visit.go("runs", "no-such-run")
    expect(page.get_by_role("alert")).to_contain_text("no-such-run")
    visit.go("runs", planned["run_id"], "steps", "S99")
    expect(page.get_by_role("alert")).to_contain_text("S99")
    visit.go("nothing")
    expect(page.get_by_text("There is nothing at this address.")).to_be_visible()


@SIZES
def test_every_view_fits_and_is_accessible(
    browser: Browser,
    daemon: Running,
    client: httpx2.Client,
    planned: dict[str, Any],
    gated: dict[str, Any],
    direct: dict[str, Any],
    width: int,
    scheme: str,
) -> None:
    options = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme, "bypass_csp": True}
    views = {
        (): "table.runs",
        ("compare", planned["run_id"], gated["run_id"]): ".compare .text",
        ("runs", planned["run_id"]): ".answer",
        ("runs", direct["run_id"]): ".answer",
        ("runs", gated["run_id"], "steps", "S1"): ".gates",
        ("new",): ".drop",
        ("nothing",): "main",
    }
    with visiting(browser, daemon, link_of(client), **options) as visit:
        visit.ready("h1")  # the code of the link has been used, so that the address may change
        for place, selector in views.items():
            visit.go(*place)
            visit.ready(selector)
            if len(place) == 2:
                visit.page.get_by_role("option").last.click()
                visit.page.get_by_text("The picture as a table").click()
                visit.page.get_by_text("What happened").click()
            if place == ("new",):
                visit.page.get_by_label("What should be done?").fill("Summarize it.")
                visit.page.get_by_role("button", name="Show the plan").click()
                visit.ready(".plan")
                check_view(visit, width)
                visit.page.get_by_label("A TaskIR document").check()
                visit.ready(".problems")
                visit.page.get_by_text("Folder, priority, limits").click()
                check_view(visit, width)
                visit.page.get_by_label("TaskIR, as JSON").fill(json.dumps(lasting()["task"]))
                visit.page.get_by_role("button", name="Edit the plan").click()
                visit.page.get_by_role("button", name="Remove S1").click()
                visit.ready(".editor .cause, #document-state .done")
            check_view(visit, width)
        ground = visit.page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 28)"}[scheme]
        visit.page.get_by_role("button", name="Log out").click()
        visit.ready(".login")
        check_view(visit, width)
