"""The views of the machine in Chromium: *Machine*, *What if*, *Doctor* with the log."""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from playwright.sync_api import Browser, Route, expect

from tests.orchestrator.api.callers import client_of, daemon_with
from tests.orchestrator.api.daemon_process import RECORDS, Running, executed, lasting, submitted
from tests.orchestrator.api.page.browser import PATIENCE, SIZES, Visit, check_view, link_of, visiting
from tests.orchestrator.api.page.plots import columns, cursor
from tests.orchestrator.api.page.test_views import REQUEST
from tests.orchestrator.api.test_machine import until_history

SECRET = "a-key-that-nobody-may-see"  # noqa: S105 (of the test)

expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A daemon of its own, with a secret in its environment; the token `reader` sees all and changes nothing."""
    folder = tmp_path_factory.mktemp("machine")
    variables = {"ORCHESTRATOR_MEMORY_USE": "shadow", "SOME_API_KEY": SECRET}
    with daemon_with(folder, {"reader": "read:all"}, **variables) as running:
        yield running


@pytest.fixture(scope="module")
def planned(daemon: Running) -> dict[str, Any]:
    with daemon.client() as client:
        return executed(client, {"request": REQUEST, "directory": str(RECORDS)})


@pytest.fixture
def visit(browser: Browser, daemon: Running, client: httpx2.Client) -> Iterator[Visit]:
    with visiting(browser, daemon, link_of(client)) as opened:
        opened.ready("h1:has-text('Runs')")
        yield opened


def region(visit: Visit, name: str) -> Any:
    return visit.page.get_by_role("region", name=name)


def test_a_machine_that_works_shows_who_works(visit: Visit, client: httpx2.Client) -> None:
    page = visit.page
    page.get_by_role("link", name="Machine").click()
    expect(page.get_by_role("heading", name="Machine")).to_be_visible()
    run = submitted(client, lasting())
    cores = region(visit, "Cores")
    used = cores.locator("tr", has_text="tiny-large").locator("td").first
    expect(used).to_have_text(re.compile(r"^(0\.[1-9]|0\.0[1-9]|[1-9])"))
    expect(cores.locator("tr", has_text="the daemon")).to_be_visible()
    queue = region(visit, "Queue by class")
    expect(queue.locator("tr", has_text="interactive").locator("td").nth(1)).to_have_text("1")
    panel = page.locator("section.panel", has=page.get_by_role("heading", name="Cores"))
    plot = page.get_by_role("img", name="Cores over time")
    expect(panel.locator(".legend li", has_text="tiny-large")).to_contain_text(re.compile(r"[1-9]"))
    drawn = columns(plot, "--bar-write")
    assert drawn is not None
    assert 0.5 < drawn.first < drawn.last < 1, "of the last two minutes, some seconds have values"
    panel.get_by_text("The picture as a table").click()
    series = region(visit, "Cores over time")
    expect(series.locator("thead th", has_text="tiny-large")).to_have_count(1)
    expect(series.locator("tbody td").filter(has_text=re.compile("[1-9]")).first).to_be_visible()
    engine = page.locator("section.panel", has=page.get_by_role("heading", name="tiny-large"))
    expect(engine.locator("tr", has_text="worker")).to_be_visible()
    expect(engine.locator("p", has_text="Latest: ")).to_contain_text("sequences")
    assert columns(engine.get_by_role("img", name="Time of a step"), "--critical") is not None, "the latest step"
    costs = engine.get_by_role("region", name="Time of a step by its tokens").locator("tbody tr")
    sizes = [int(text) for text in costs.locator("th").all_inner_texts()]
    assert sizes[0] == 1
    assert sizes == sorted(set(sizes))
    client.post(f"/v1/runs/{run}/cancel")
    expect(queue.locator("tr", has_text="interactive").locator("td").nth(1)).to_have_text("0")


def test_the_last_hour_is_there_when_the_view_is_opened(visit: Visit, client: httpx2.Client) -> None:
    page, answers = visit.page, list[dict[str, Any]]()

    def answer_once(route: Route) -> None:
        if answers:
            route.abort()
            return
        answer = route.fetch()
        answers.append(answer.json() | {"at": answer.json()["at"] + 60})  # as a minute later
        route.fulfill(response=answer, json=answers[0])

    history = until_history(client, 2)
    visit.go("machine")
    expect(region(visit, "Cores").locator("tr", has_text="the daemon")).to_be_visible()
    visit.go("runs")
    page.reload()
    page.route("**/v1/machine*", answer_once)
    visit.go("machine")
    panel = page.locator("section.panel", has=page.get_by_role("heading", name="Cores"))
    panel.get_by_text("The picture as a table").click()
    (answer,) = answers
    assert answer["history"][0] == history[0]
    oldest = region(visit, "Cores over time").locator("tbody tr").last
    expect(oldest.locator("th")).to_have_text(f"{answer['at'] - history[1]['at']:.0f}")
    plot = page.get_by_role("img", name="Cores over time")

    def age(span: str) -> float:
        page.get_by_label("Period").select_option(span)
        page.evaluate("new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
        plot.focus()
        page.keyboard.press("Home")
        at, length = cursor(plot)
        return length - at

    assert age("the last two minutes") > 200
    in_an_hour = age("the last hour")
    expect(oldest.locator("th")).to_have_text(f"{answer['at'] - history[1]['at']:.0f}")
    assert 30 * in_an_hour == pytest.approx(age("the last two minutes"), abs=30), "a thirtieth as long, within a pixel"


def test_models_are_loaded_pinned_and_unloaded(visit: Visit, client: httpx2.Client) -> None:
    page = visit.page
    visit.go("machine")
    row = region(visit, "Models").locator("tr", has_text="tiny-draft")
    client.post("/v1/pool/tiny-draft/unload")
    expect(row).to_contain_text("not loaded")
    page.get_by_role("button", name="Load: tiny-draft").click()
    expect(row).to_contain_text("ready")
    page.get_by_role("button", name="Pin: tiny-draft", exact=True).click()
    expect(row).to_contain_text("pinned")
    expect(page.get_by_role("button", name="Unload: tiny-draft")).to_have_count(0)
    page.get_by_role("button", name="Unpin: tiny-draft").click()
    page.get_by_role("button", name="Unload: tiny-draft").click()
    expect(row).to_contain_text("not loaded")
    state = next(model for model in client.get("/v1/pool").json()["models"] if model["model"] == "tiny-draft")
    assert (state["state"], state["pinned"]) == ("unloaded", False)


def test_a_run_is_looked_at_on_other_machines(visit: Visit, planned: dict[str, Any]) -> None:
    page = visit.page
    visit.go("runs", planned["run_id"])
    page.get_by_role("link", name="What if").click()
    rows = region(visit, "What if").locator("tbody tr")
    expect(rows).to_have_count(5)
    expect(rows.first).to_contain_text("measured")
    expect(rows.nth(2)).to_contain_text("16 cores")
    expect(rows.nth(3)).to_contain_text("96 cores")
    expect(rows.nth(4)).to_contain_text("replicas: 4")
    for row in rows.all():
        expect(row).to_contain_text("→ S5")
    page.get_by_label("Cores").fill("8")
    page.get_by_label("Replicas").fill("2")
    page.get_by_label("Memory bandwidth").fill("1.5")
    page.keyboard.press("Enter")
    expect(rows).to_have_count(6)
    expect(rows.nth(5)).to_contain_text("8 cores, replicas: 2, bandwidth")
    page.get_by_label("Cores").fill("1")
    page.get_by_role("button", name="Simulate").click()
    expect(page.get_by_role("alert")).to_contain_text("2 replicas cannot share 1 cores")
    page.get_by_role("link", name="The whole run").click()
    expect(page.get_by_role("heading", name=REQUEST)).to_be_visible()


def test_the_doctor_says_what_to_do_and_the_log_goes_on(
    visit: Visit, daemon: Running, client: httpx2.Client, planned: dict[str, Any]
) -> None:
    page = visit.page
    page.get_by_role("link", name="Doctor").click()
    checks = region(visit, "Doctor").locator("tbody tr")
    names = client.get("/v1/doctor").json()["checks"]
    expect(checks).to_have_count(len(names))
    mended = next((check for check in names if check["mend"]), None)
    if mended is not None:
        expect(checks.filter(has_text=mended["name"]).first).to_contain_text(f"→ {mended['mend']}")
    log = region(visit, "Log").locator("tbody tr")
    expect(log.filter(has_text=planned["run_id"]).first).to_be_visible()
    later = executed(client, {"request": REQUEST, "directory": str(RECORDS)})["run_id"]
    expect(log.filter(has_text=later).first).to_be_visible()
    page.get_by_label("Level").select_option("error")
    expect(log.filter(has_text=later)).to_have_count(0)
    text = page.evaluate("document.body.textContent")
    assert SECRET not in text
    assert daemon.token not in text


def test_only_what_the_caller_may_do_is_offered(browser: Browser, daemon: Running, planned: dict[str, Any]) -> None:
    with client_of(daemon, "reader") as reader, visiting(browser, daemon, link_of(reader)) as visit:
        page = visit.page
        visit.ready("h1:has-text('Runs')")
        expect(page.get_by_role("link", name="Doctor")).to_have_count(0)
        visit.go("doctor")
        expect(page.get_by_text("lacks the permission operate")).to_be_visible()
        visit.go("machine")
        expect(region(visit, "Models").locator("tr", has_text="tiny-large")).to_be_visible()
        expect(page.get_by_role("button", name="Load: ")).to_have_count(0)
        visit.go("runs", planned["run_id"])
        visit.ready("[role=option]")
        expect(page.get_by_role("link", name="What if")).to_have_count(0)


def test_the_views_speak_german(
    browser: Browser, daemon: Running, client: httpx2.Client, planned: dict[str, Any]
) -> None:
    with visiting(browser, daemon, link_of(client), locale="de-DE") as visit:
        page = visit.page
        visit.ready("h1:has-text('Läufe')")
        visit.go("machine")
        expect(page.get_by_role("heading", name="Warteschlange")).to_be_visible()
        visit.go("doctor")
        expect(page.get_by_role("heading", name="Protokoll")).to_be_visible()
        visit.go("runs", planned["run_id"], "what-if")
        expect(page.get_by_role("heading", name="Was wäre, wenn")).to_be_visible()


@SIZES
def test_every_view_fits_and_is_accessible(
    browser: Browser, daemon: Running, client: httpx2.Client, planned: dict[str, Any], width: int, scheme: str
) -> None:
    options = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme, "bypass_csp": True}
    views = {
        ("machine",): ".cards .series",
        ("runs", planned["run_id"], "what-if"): ".list",
        ("doctor",): ".state",
    }
    with visiting(browser, daemon, link_of(client), **options) as visit:
        visit.ready("h1:has-text('Runs')")
        for place, selector in views.items():
            visit.go(*place)
            visit.ready(selector)
            if place == ("machine",):
                visit.page.get_by_text("The picture as a table").click()
                visit.ready(".series-table tbody tr")
            if place[-1] == "what-if":
                visit.page.get_by_label("Replicas").fill("99")
                visit.page.get_by_label("Cores").fill("1")
                visit.page.get_by_role("button", name="Simulate").click()
                visit.ready("[role=alert]")
            check_view(visit, width)


def test_hostile_lines_of_the_log_stay_text(visit: Visit, daemon: Running) -> None:
    evil = "<img src=x onerror=window.ran=1>\u202etxt"
    with client_of(daemon, "reader") as reader:
        assert reader.post(f"/v1/pool/{quote(evil)}/load").status_code == 403
    visit.go("doctor")
    log = region(visit, "Log").locator("tbody tr")
    expect(log.filter(has_text="onerror=window.ran=1").first).to_contain_text("⟨U+202E⟩")
    assert visit.page.locator("img").count() == 0
    assert visit.page.evaluate("window.ran") == 0
