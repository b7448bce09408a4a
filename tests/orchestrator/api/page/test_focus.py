"""Every action by keyboard leaves the focus in the page: in each frame until its effect is seen, and after it."""

from collections.abc import Callable, Iterator
from typing import Final

import httpx2
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.orchestrator.api.callers import daemon_with
from tests.orchestrator.api.daemon_process import RECORDS, Running, executed, lasting, submitted, summary
from tests.orchestrator.api.page.browser import PATIENCE, Visit, link_of, visiting
from tests.orchestrator.api.page.test_plan_edit import planned, step_form, steps_of
from tests.orchestrator.api.page.test_procedures import NOTE
from tests.orchestrator.api.page.test_views import REQUEST

expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A daemon of its own, since models are loaded and pinned, with a procedure that writes a note."""
    folder = tmp_path_factory.mktemp("focus")
    own = folder / "own"
    own.mkdir()
    (own / "take-note.yaml").write_text(NOTE)
    settings = {"ORCHESTRATOR_PROCEDURES_FOLDER": str(own), "ORCHESTRATOR_MEMORY_USE": "shadow"}
    with daemon_with(folder, {}, **settings) as running:
        yield running


@pytest.fixture(scope="module")
def done(daemon: Running) -> str:
    """A run that is done, after another one."""
    with daemon.client() as client:
        executed(client, summary())
        return str(executed(client, {"request": REQUEST, "directory": str(RECORDS)})["run_id"])


@pytest.fixture
def live(daemon: Running) -> Iterator[str]:
    """A run that lasts until the end of the test."""
    with daemon.client() as client:
        run = submitted(client, lasting())
        yield run
        client.post(f"/v1/runs/{run}/cancel")


@pytest.fixture
def visit(browser: Browser, daemon: Running, client: httpx2.Client) -> Iterator[Visit]:
    with visiting(browser, daemon, link_of(client)) as opened:
        opened.ready("h1:has-text('Runs')")
        yield opened


def press(control: Locator, key: str = "Enter") -> None:
    expect(control).not_to_have_attribute("aria-disabled", "true")
    control.focus()
    control.page.keyboard.press(key)


def button(page: Page, name: str) -> Locator:
    return page.get_by_role("button", name=name, exact=True)


def focus_is_in(page: Page, name: str) -> None:
    """Expect that a button with this name has the focus."""
    expect(button(page, name)).to_be_focused()


def remove_steps(visit: Visit, run: str) -> None:
    page, plan = visit.page, planned(visit)
    press(button(page, "Remove S2"))
    expect(step_form(page, "S2")).to_have_count(0)
    focus_is_in(page, "Remove S3")
    press(button(page, "Remove S4"))
    expect(steps_of(plan)).to_have_count(2)
    focus_is_in(page, "Remove S3")
    press(button(page, "Edit the plan"))
    expect(page.locator(".editor")).to_have_count(0)
    press(button(page, "Run this plan"))
    expect(page.locator("#content.run")).to_be_focused()


def remove_files(visit: Visit, run: str) -> None:
    page = visit.page
    visit.go("new")
    files = page.get_by_label("Files: drop them here")
    for name in "ab":
        files.set_input_files(str(RECORDS / f"{name}.txt"))
        expect(page.locator(".drop li", has_text=f"{name}.txt")).to_be_visible()
    press(button(page, "Remove a.txt"))
    focus_is_in(page, "Remove b.txt")
    page.keyboard.press("Enter")
    expect(page.locator(".drop li")).to_have_count(0)
    expect(files).to_be_focused()


def plan_a_request(visit: Visit, run: str) -> None:
    page = visit.page
    visit.go("new")
    page.get_by_label("What should be done?").fill("Summarize it.")
    press(button(page, "Show the plan"))
    visit.ready(".plan")
    focus_is_in(page, "Show the plan")
    press(button(page, "Run without preview"))
    expect(page.locator("#content.run")).to_be_focused()


def stop_and_repeat_a_run(visit: Visit, run: str) -> None:
    page = visit.page
    visit.go("runs", run)
    press(button(page, "Stop the run"))
    focus_is_in(page, "Stop now")
    press(button(page, "Keep it"))
    focus_is_in(page, "Stop the run")
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name="What if")).to_be_focused()
    press(button(page, "Run again"))
    page.wait_for_function("run => !location.hash.includes(run)", arg=run)
    press(button(page, "Stop the run"))
    page.keyboard.press("Enter")
    expect(page.locator(".head .state").first).to_have_text("cancelled")


def steer_a_step(visit: Visit, run: str) -> None:
    page = visit.page
    visit.go("runs", run)
    steps = page.get_by_role("listbox")
    steps.focus()
    page.keyboard.press("End")
    press(button(page, "Do this step first"))
    expect(page.get_by_text("goes first")).to_be_visible()
    steps.focus()
    page.keyboard.press("Home")
    expect(page.get_by_role("option", name="S1, running")).to_be_visible()
    press(button(page, "Try this step again"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("option", name="S1, running")).to_be_visible()
    press(button(page, "Stop this step"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("option", name="S1, cancelled")).to_be_visible()
    steps.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Step S1")).to_be_visible()
    press(page.get_by_role("link", name="The whole run"))
    expect(page.locator("#content.run")).to_be_focused()


def rate_and_repeat_a_step(visit: Visit, run: str) -> None:
    page = visit.page
    visit.go("runs", run, "steps", "S5")
    press(page.get_by_label("Note"))  # the form is sent
    expect(page.get_by_text("Rated 1.00 by").first).to_be_visible()
    expect(page.get_by_label("Note")).to_be_focused()
    press(button(page, "Run again from this step"))
    expect(page.get_by_role("alert")).to_contain_text("folders of [runs]")  # a session may not name this folder
    focus_is_in(page, "Run again from this step")


def compare_runs(visit: Visit, run: str) -> None:
    page = visit.page
    for number in range(2):
        press(page.get_by_role("checkbox").nth(number), "Space")
    press(page.get_by_role("link", name="Compare two runs"))
    expect(page.locator("#content.compare")).to_be_focused()
    page.get_by_label("Language").focus()
    page.keyboard.press("d")  # selects what starts with it
    expect(page.get_by_role("heading", name="Zwei Läufe vergleichen")).to_be_visible()


def load_a_model(visit: Visit, run: str) -> None:
    page = visit.page
    visit.go("machine")
    page.evaluate("fetch('/v1/pool/tiny-draft/unload', { method: 'POST' })")
    press(button(page, "Load: tiny-draft"))
    focus_is_in(page, "Unload: tiny-draft")
    press(button(page, "Pin: tiny-draft"))
    focus_is_in(page, "Unpin: tiny-draft")
    page.keyboard.press("Enter")
    press(button(page, "Unload: tiny-draft"))
    focus_is_in(page, "Load: tiny-draft")
    page.get_by_label("Period").focus()
    page.keyboard.press("ArrowUp")
    expect(page.get_by_label("Period")).to_have_value("span_hour")


def simulate_a_machine(visit: Visit, run: str) -> None:
    page = visit.page
    visit.go("runs", run, "what-if")
    expect(page.locator(".list tbody tr")).to_have_count(5)
    page.get_by_label("Cores").fill("8")
    press(button(page, "Simulate"))
    expect(page.locator(".list tbody tr")).to_have_count(6)
    focus_is_in(page, "Simulate")


def compare_routers(visit: Visit, run: str) -> None:
    page = visit.page
    visit.go("learning")
    press(button(page, "Reload"))
    press(button(page, "Compare on past choices"))
    compared = page.get_by_role("region", name="What other routers would have earned")
    expect(compared.locator("table, [role=alert]").first).to_be_visible()
    focus_is_in(page, "Compare on past choices")


def carry_out_a_procedure(visit: Visit, run: str) -> None:
    page = visit.page
    visit.go("procedures")
    press(page.get_by_role("link", name="take-note"))
    page.get_by_label("text:").fill("a note")
    press(button(page, "Show the plan"))
    visit.ready(".plan")
    press(button(page, "Approve and run"))
    expect(page.locator(".head .state")).to_have_text("done")
    press(button(page, "Roll back"))
    press(button(page, "Not now"))
    focus_is_in(page, "Roll back")
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    expect(page.locator(".head .state")).to_have_text("rolled back")
    press(page.get_by_role("link", name="Procedures").last)
    press(page.locator("summary", has_text="Audit log"))  # the view before has another one
    press(button(page, "Check the log"))
    expect(page.get_by_role("status").filter(has_text="entries")).to_be_visible()


def look_again(visit: Visit, run: str) -> None:
    page = visit.page
    visit.go("doctor")
    press(button(page, "Check again"))
    visit.ready(".list .state")
    focus_is_in(page, "Check again")
    page.get_by_label("Level").focus()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_label("Level")).to_have_value("warning")


def log_out(visit: Visit, run: str) -> None:
    press(button(visit.page, "Log out"))
    visit.ready(".login")


ON_LIVE: Final = (stop_and_repeat_a_run, steer_a_step)
ON_DONE: Final = (
    *(remove_steps, remove_files, plan_a_request, rate_and_repeat_a_step, compare_runs),
    *(compare_routers, carry_out_a_procedure, look_again, log_out),
    *(pytest.param(act, marks=pytest.mark.slow) for act in (load_a_model, simulate_a_machine)),
)


def check(act: Callable[[Visit, str], None], visit: Visit, run: str) -> None:
    act(visit, run)
    page = visit.page
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert page.evaluate("window.unfocused") == []
    assert page.evaluate("document.activeElement !== document.body")


@pytest.mark.parametrize("act", ON_DONE, ids=lambda act: act.__name__)
def test_an_action_keeps_the_focus(act: Callable[[Visit, str], None], visit: Visit, done: str) -> None:
    check(act, visit, done)


@pytest.mark.parametrize("act", ON_LIVE, ids=lambda act: act.__name__)
def test_an_action_on_a_live_run_keeps_the_focus(act: Callable[[Visit, str], None], visit: Visit, live: str) -> None:
    check(act, visit, live)
