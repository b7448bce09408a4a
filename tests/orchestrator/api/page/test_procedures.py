"""The view *Procedures* in Chromium: planned, approved, followed and undone, with the rights of the caller."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.orchestrator.api.callers import client_of, daemon_with
from tests.orchestrator.api.daemon_process import Running
from tests.orchestrator.api.page.browser import PATIENCE, SIZES, Visit, check_view, link_of, visiting

HEAD = "version: 1.0.0\ncategory: test\n"
NOTE = f"""\
id: take-note
{HEAD}description: Writes a note.
permissions: {{roles: [owner]}}
inputs:
  text: {{type: string, description: What is written.}}
  loud: {{type: boolean, description: Whether it is loud., default: false}}
  tone: {{type: string, description: How it is said., choices: [kind, stern], default: kind}}
steps:
  - id: note
    description: Keeps the text.
    file_write: {{path: "{{{{ places.home }}}}/note.txt", content: "{{{{ inputs.text }}}}\\n"}}
outputs:
  file: {{value: "{{{{ steps.note.path }}}}", description: The file that was written.}}
"""
BURN = f"""\
id: burn
{HEAD}description: Removes what cannot be restored.
permissions: {{roles: [owner], destructive: true}}
steps:
  - id: wait
    irreversible: it is gone
    wait: {{seconds: 0}}
"""
PAUSE = f"""\
id: pause
{HEAD}description: Waits.
permissions: {{roles: [owner, operator], requires_approval: false}}
inputs: {{seconds: {{type: number, description: How long., default: 0}}}}
steps:
  - id: wait
    wait: {{seconds: "{{{{ inputs.seconds }}}}"}}
"""

expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A daemon with procedures of its own; `clerk` may run those of owners and approve nothing, `reader` only sees."""
    folder = tmp_path_factory.mktemp("procedures")
    own = folder / "own"
    own.mkdir()
    for name, text in {"take-note": NOTE, "pause": PAUSE, "burn": BURN, "broken": "id: [\n"}.items():
        (own / f"{name}.yaml").write_text(text)
    callers = {"clerk": "owner", "reader": "read:all"}
    settings = {
        "ORCHESTRATOR_PROCEDURES_FOLDER": str(own),
        "ORCHESTRATOR_PROCEDURES_SCHEDULES": "0 0 1 1 * backup",
    }
    with daemon_with(folder, callers, **settings) as running:
        yield running


@pytest.fixture
def visit(browser: Browser, daemon: Running, client: httpx2.Client) -> Iterator[Visit]:
    with visiting(browser, daemon, link_of(client)) as opened:
        opened.ready("h1")
        yield opened


@pytest.fixture
def note(daemon: Running) -> Path:
    file = daemon.home / "note.txt"
    file.unlink(missing_ok=True)
    return file


def state(visit: Visit) -> Locator:
    return visit.page.locator(".head .state")


def plan_note(visit: Visit, text: str) -> None:
    visit.go("procedures", "take-note")
    visit.page.get_by_label("text:").fill(text)
    visit.page.get_by_role("button", name="Show the plan").click()
    visit.ready(".plan")


def begun(client: httpx2.Client, name: str, **inputs: Any) -> str:
    answer = client.post(f"/v1/procedures/{name}/executions", json={"inputs": inputs})
    return str(answer.raise_for_status().json()["id"])


def test_procedures_are_listed(visit: Visit) -> None:
    page = visit.page
    page.get_by_role("link", name="Procedures").click()
    rows = page.get_by_role("region", name="Procedures").locator("tbody tr")
    expect(rows.filter(has_text="take-note")).to_contain_text("Writes a note.")
    expect(rows.filter(has_text="take-note")).to_contain_text("approval")
    expect(rows.filter(has_text="burn")).to_contain_text("removes what cannot be restored")
    expect(page.locator(".notices")).to_contain_text("broken.yaml")
    expect(page.get_by_role("region", name="Schedules")).to_contain_text("0 0 1 1 * backup")
    rows.filter(has_text="pause").get_by_role("link").click()
    expect(page.get_by_role("heading", name="pause")).to_be_visible()


def test_a_plan_is_shown_approved_followed_and_rolled_back(visit: Visit, note: Path) -> None:
    page = visit.page
    plan_note(visit, "hello")
    expect(page.locator(".plan .added")).to_contain_text("+hello")
    expect(page.locator(".plan")).to_contain_text("what it changes is put back")
    assert not note.exists()
    page.get_by_role("button", name="Approve and run").click()
    expect(state(visit)).to_have_text("done")
    assert note.read_text() == "hello\n"
    expect(page.get_by_role("region", name="Steps")).to_contain_text("note")
    expect(page.get_by_text(f'file = "{note}"')).to_be_visible()
    page.get_by_text("What happened").click()
    expect(page.locator(".events li")).to_have_count(8)
    page.get_by_role("button", name="Roll back").click()
    page.get_by_role("button", name="Not now").click()
    page.get_by_role("button", name="Roll back").click()
    page.get_by_role("button", name="Yes, do it").click()
    expect(state(visit)).to_have_text("rolled back")
    assert not note.exists()


def test_another_plan_needs_another_look(visit: Visit, note: Path) -> None:
    page = visit.page
    plan_note(visit, "first")
    page.get_by_label("tone:").select_option("stern")
    expect(page.locator(".plan")).to_have_count(0)
    page.get_by_role("button", name="Show the plan").click()
    visit.ready(".plan")
    note.write_text("meanwhile\n")  # so that the plan is another one by now
    page.get_by_role("button", name="Approve and run").click()
    expect(page.get_by_role("alert")).to_contain_text("the plan is another one now")
    assert note.read_text() == "meanwhile\n"


def test_what_others_changed_since_is_put_back_on_request_only(visit: Visit, note: Path) -> None:
    page = visit.page
    plan_note(visit, "mine")
    page.get_by_role("button", name="Approve and run").click()
    expect(state(visit)).to_have_text("done")
    note.write_text("theirs\n")
    page.get_by_role("button", name="Roll back").click()
    page.get_by_role("button", name="Yes, do it").click()
    expect(page.get_by_role("alert")).to_contain_text("note.txt")
    assert note.read_text() == "theirs\n"
    page.get_by_label("also what others changed since").check()
    page.get_by_role("button", name="Roll back").click()
    page.get_by_role("button", name="Yes, do it").click()
    expect(state(visit)).to_have_text("rolled back")
    assert not note.exists()


def test_a_missing_input_is_said(visit: Visit) -> None:
    visit.go("procedures", "take-note")
    visit.page.get_by_role("button", name="Show the plan").click()
    expect(visit.page.get_by_role("alert")).to_contain_text("is required: What is written.")


def test_a_procedure_that_runs_is_followed_and_stopped(visit: Visit, client: httpx2.Client) -> None:
    page = visit.page
    visit.go("procedures", "pause")
    page.get_by_label("seconds:").fill("600")
    page.get_by_role("button", name="Show the plan").click()
    page.get_by_role("button", name="Run", exact=True).click()
    expect(state(visit)).to_have_text("running")
    expect(page.get_by_role("region", name="Steps")).to_contain_text("acting")
    page.get_by_role("button", name="Stop and undo").click()
    page.get_by_role("button", name="Yes, do it").click()
    expect(state(visit)).to_have_text("rolled back")
    execution = page.url.rpartition("/")[2]
    assert client.get(f"/v1/procedures/executions/{execution}").json()["state"] == "rolled back"


def test_an_execution_that_others_approve_is_followed(visit: Visit, client: httpx2.Client, note: Path) -> None:
    execution = begun(client, "take-note", text="proposed")
    visit.go("procedures", "executions", execution)
    expect(state(visit)).to_have_text("planned")
    expect(visit.page.locator(".plan .added")).to_contain_text("+proposed")
    digest = client.get(f"/v1/procedures/executions/{execution}").json()["plan"]
    client.post(f"/v1/procedures/executions/{execution}/approve", json={"digest": digest}).raise_for_status()
    expect(state(visit)).to_have_text("done")
    assert note.read_text() == "proposed\n"


def test_a_plan_that_waits_is_approved_or_withdrawn(visit: Visit, client: httpx2.Client, note: Path) -> None:
    page = visit.page
    visit.go("procedures", "executions", begun(client, "take-note", text="later"))
    page.get_by_role("button", name="Withdraw").click()
    expect(state(visit)).to_have_text("withdrawn")
    visit.go("procedures", "executions", begun(client, "take-note", text="now"))
    expect(state(visit)).to_have_text("planned")
    page.get_by_role("button", name="Approve and run").click()
    expect(state(visit)).to_have_text("done")
    assert note.read_text() == "now\n"


def test_what_cannot_be_restored_is_confirmed_twice(visit: Visit) -> None:
    page = visit.page
    visit.go("procedures", "burn")
    page.get_by_role("button", name="Show the plan").click()
    expect(page.locator(".plan .notices")).to_contain_text("removes what cannot be restored")
    page.get_by_role("button", name="Approve and run").click()
    page.get_by_role("button", name="Yes, do it").click()
    expect(state(visit)).to_have_text("done")


def test_what_cannot_be_restored_is_confirmed_twice_when_it_waits_too(visit: Visit, client: httpx2.Client) -> None:
    page = visit.page
    visit.go("procedures", "executions", begun(client, "burn"))
    page.get_by_role("button", name="Approve and run").click()
    page.get_by_role("button", name="Not now").click()
    expect(state(visit)).to_have_text("planned")
    page.get_by_role("button", name="Approve and run").click()
    page.get_by_role("button", name="Yes, do it").click()
    expect(state(visit)).to_have_text("done")


def test_the_audit_log_is_shown_and_checked(visit: Visit, client: httpx2.Client) -> None:
    page = visit.page
    begun(client, "take-note", text="for the log")
    visit.go("procedures")
    page.get_by_text("Audit log", exact=True).click()
    log = page.get_by_role("region", name="Audit log").locator("tbody tr")
    expect(log.first).to_contain_text("take-note")
    page.get_by_role("button", name="Check the log").click()
    count = client.get("/v1/procedures/audit/verify").json()["verified"]
    expect(page.get_by_role("status").filter(has_text="entries")).to_have_text(f"{count} entries are what was written")


def test_who_may_not_approve_keeps_a_plan_for_others(browser: Browser, daemon: Running, note: Path) -> None:
    with client_of(daemon, "clerk") as clerk, visiting(browser, daemon, link_of(clerk)) as visit:
        page = visit.page
        visit.ready("h1")
        plan_note(visit, "please")
        expect(page.get_by_role("button", name="Approve and run")).to_have_count(0)
        page.get_by_role("button", name="Keep it for approval").click()
        expect(state(visit)).to_have_text("planned")
        expect(page.get_by_role("button", name="Approve and run")).to_have_count(0)
        expect(page.get_by_role("button", name="Withdraw")).to_be_visible()
        assert not note.exists()


def test_who_has_none_of_the_roles_sees_what_there_is(browser: Browser, daemon: Running) -> None:
    with client_of(daemon, "reader") as reader, visiting(browser, daemon, link_of(reader)) as visit:
        page = visit.page
        visit.ready("h1")
        visit.go("procedures", "take-note")
        expect(page.get_by_text("Callers with one of these roles may plan and run it: owner")).to_be_visible()
        expect(page.get_by_role("button", name="Show the plan")).to_have_count(0)
        page.get_by_text("The file").click()
        expect(page.locator("details pre")).to_contain_text("id: take-note")


def test_what_is_not_there_is_said(visit: Visit) -> None:
    visit.go("procedures", "no-such-thing")
    expect(visit.page.get_by_role("alert")).to_contain_text("no-such-thing")
    visit.go("procedures", "executions", "no-such-execution")
    expect(visit.page.get_by_role("alert")).to_contain_text("no-such-execution")
    visit.go("procedures", "executions")
    expect(visit.page.get_by_text("There is nothing at this address.")).to_be_visible()


@SIZES
def test_procedures_fit_and_are_accessible(
    browser: Browser, daemon: Running, client: httpx2.Client, note: Path, width: int, scheme: str
) -> None:
    options = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme, "bypass_csp": True}
    language = "de-DE" if width == 360 else "en-US"
    execution = begun(client, "take-note", text="x" * 200)
    with visiting(browser, daemon, link_of(client), **options, locale=language) as visit:
        visit.ready("h1")
        visit.go("procedures")
        visit.page.locator("summary").click()
        visit.ready("details table")
        check_view(visit, width)
        visit.go("procedures", "take-note")
        visit.page.get_by_label("text:").fill("hello")
        visit.page.locator("form button").click()
        visit.ready(".plan")
        check_view(visit, width)
        visit.go("procedures", "executions", execution)
        visit.ready(".plan")
        visit.page.locator("summary").click()
        check_view(visit, width)
