"""A run as one HTML file: it shows what the page shows, from a file, without a daemon and without a network."""

import asyncio
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from orchestrator.api.page.bundle import bundle
from orchestrator.api.page.exported import ENTRY
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.record.report import load_report
from tests.orchestrator.api.daemon_process import RECORDS, ROOT, executed, lasting, running_daemon, submitted
from tests.orchestrator.api.page.browser import PATIENCE, SIZES, Visit, check_view, opening
from tests.orchestrator.api.page.test_hostile import EVIL, NAME, RUN, check_harmless, write
from tests.orchestrator.api.page.test_views import REQUEST, TWO_ATTEMPTS, write_two_attempts
from tests.orchestrator.cli.cli_command import make_command

expect.set_options(timeout=PATIENCE)


@dataclass(frozen=True)
class Exported:
    """Files of a request, of runs with gates and with drafts, of one that was interrupted, and of a hostile one."""

    home: Path
    planned: str
    gated: str
    interrupted: str
    folder: Path

    def file(self, run: str) -> Path:
        return self.folder / f"{run}.html"


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """Everything is written before the browser's event loop starts; the daemon has ended by then."""
    folder = tmp_path_factory.mktemp("exported")
    home = folder / "home"
    asyncio.run(write(home))
    asyncio.run(write_two_attempts(home))
    task = json.loads((ROOT / "examples" / "gates.json").read_text())
    with running_daemon(home, ORCHESTRATOR_MEMORY_USE="shadow") as daemon, daemon.client() as client:
        planned = executed(client, {"request": REQUEST, "directory": str(RECORDS)})["run_id"]
        gated = executed(client, {"task": task})["run_id"]
        interrupted = submitted(client, lasting())
        with client.stream("GET", f"/v1/runs/{interrupted}/events") as events:
            next(line for line in events.iter_lines() if "attempt_started" in line)
    exports = Exported(home, planned, gated, interrupted, folder)
    for run in (planned, gated, interrupted, TWO_ATTEMPTS, RUN):
        written = make_command(home)("export", run, "--html", exports.file(run), "--json")
        assert written.json["html"] == str(exports.file(run))
    return exports


def show(browser: Browser, file: Path, **options: Any) -> Any:
    return opening(browser, file.as_uri(), file.as_uri(), offline=True, **options)


def requested(visit: Visit) -> list[str]:
    """Return what the page has loaded since then, other than the file itself."""
    addresses: list[str] = []
    visit.page.on("request", lambda request: addresses.append(request.url))
    visit.page.reload()
    visit.ready("h1")
    return [address for address in addresses if not address.startswith(("blob:", visit.base))]


def test_drafts_of_an_attempt_are_shown_from_a_file(exported: Exported, browser: Browser) -> None:
    with show(browser, exported.file(TWO_ATTEMPTS)) as visit:
        visit.ready("svg.times")
        visit.go("runs", TWO_ATTEMPTS, "steps", "S1")
        expect(visit.page.get_by_text("41 of 60 drafted tokens accepted")).to_be_visible()


def test_a_run_is_shown_from_a_file(exported: Exported, browser: Browser) -> None:
    with show(browser, exported.file(exported.planned)) as visit:
        page = visit.page
        visit.ready("svg.times")  # drawn last
        assert page.locator("[role=option] .id").all_inner_texts() == ["S1", "S2", "S3", "S4", "S5"]
        assert page.locator("svg.graph path.line").count() == 4
        assert page.locator("svg.times .bar-write").count() >= 5
        expect(page.get_by_role("heading", name=REQUEST)).to_be_visible()
        expect(page.locator(".answer")).to_contain_text("length")
        page.get_by_text("The picture as a table").click()
        expect(page.get_by_role("table", name="Steps").locator("tbody tr")).to_have_count(5)
        page.get_by_text("What happened").click()
        with JournalReader.open_to_read(exported.home) as journal:
            count = len(journal.events(exported.planned))
        expect(page.locator(".events li")).to_have_count(count)
        page.get_by_text("Changes to your files").click()
        expect(page.locator("details pre").first).to_contain_text("+++")
        for action in ("Run again", "Stop the run", "Log out"):
            expect(page.get_by_role("button", name=action)).to_have_count(0)
        expect(page.get_by_role("link", name="Everything as an archive")).to_have_count(0)
        assert requested(visit) == []


def test_files_are_in_the_file(exported: Exported, browser: Browser) -> None:
    with JournalReader.open_to_read(exported.home) as journal:
        report = load_report(journal, exported.planned)
        content = journal.get(report.artifacts[report.results[0].name])
    with show(browser, exported.file(exported.planned)) as visit:
        visit.ready(".answer")
        with visit.page.expect_download() as expected:
            visit.page.get_by_role("link", name=f"Download: {report.results[0].name}").first.click()
        assert Path(expected.value.path()).read_bytes() == content


def test_a_step_is_shown_from_a_file(exported: Exported, browser: Browser) -> None:
    with show(browser, exported.file(exported.planned), locale="de-DE") as visit:
        page = visit.page
        visit.ready("[role=option]")
        page.get_by_role("listbox").focus()
        page.keyboard.press("End")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Schritt S5")).to_be_visible()
        expect(page.locator(".part.shared").first).to_contain_text("beginnt wie S1")
        page.get_by_label("Sprache").select_option("en")
        page.locator(".pairs").get_by_role("link", name="S1").first.click()
        expect(page.get_by_role("heading", name="Step S1")).to_be_visible()
        expect(page.locator(".part").last).to_contain_text("Summarize")
        page.get_by_role("link", name="The whole run").click()
        expect(page.get_by_role("heading", name=REQUEST)).to_be_visible()
    with show(browser, exported.file(exported.gated)) as visit:
        visit.ready("[role=option]")
        visit.go("runs", exported.gated, "steps", "S1")
        expect(visit.page.get_by_role("table", name="Gates")).to_contain_text("passed")


def test_a_run_that_has_not_ended_is_shown_as_it_was(exported: Exported, browser: Browser) -> None:
    with show(browser, exported.file(exported.interrupted)) as visit:
        visit.ready("svg.times")
        expect(visit.page.locator(".head .state").first).to_have_text("running")
        expect(visit.page.get_by_role("option", name="S5")).to_contain_text("S5")
        assert visit.page.locator("svg.times .now").count() == 0


def test_a_hostile_run_stays_text_in_a_file(exported: Exported, browser: Browser) -> None:
    text = exported.file(RUN).read_text()
    assert text.count("<script") == 2
    assert "window.ran = 1</script>" not in text
    with show(browser, exported.file(RUN)) as visit:
        page = visit.page
        visit.ready(".answer")
        page.get_by_text("What happened").click()
        page.get_by_role("listbox").get_by_role("option").first.click()
        expect(page.locator(".pair pre").first).to_contain_text("<script>")
        check_harmless(visit)
        page.get_by_text("All artifacts").click()
        with page.expect_download() as expected:
            page.get_by_role("link", name="Download: <img").click()
        assert Path(expected.value.path()).read_bytes() == EVIL.encode()
        visit.go("runs", RUN, "steps", "S1")
        visit.ready(".listing .finding")
        expect(page.get_by_role("table", name="Tool calls")).to_contain_text("<script>")
        check_harmless(visit)
    assert NAME.startswith("<img")


def test_the_policy_lets_only_the_own_script_run(exported: Exported, browser: Browser) -> None:
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', exported.file(RUN).read_text())
    assert policy is not None
    assert "unsafe" not in policy[1]
    assert len(re.findall(r"'sha256-[A-Za-z0-9+/=]{44}'", policy[1])) == 2
    with show(browser, exported.file(RUN)) as visit:
        visit.ready(".answer")
        visit.page.evaluate(
            """() => {
              const script = document.createElement("script");
              try { script.textContent = "window.ran = 1"; } catch { return; }
              document.body.append(script);
            }"""
        )
        assert visit.page.evaluate("window.ran") == 0
        assert visit.page.evaluate("fetch('http://127.0.0.1:9/').then(() => 1, () => 0)") == 0
        visit.errors.clear()  # the refusals


@SIZES
def test_a_file_fits_and_is_accessible(exported: Exported, browser: Browser, width: int, scheme: str) -> None:
    options = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme, "bypass_csp": True}
    with show(browser, exported.file(exported.gated), **options) as visit:
        visit.ready(".answer")
        check_view(visit, width)
        visit.go("runs", exported.gated, "steps", "S1")
        visit.ready(".gates")
        check_view(visit, width)


def test_the_file_names_the_licences_of_what_it_contains(exported: Exported) -> None:
    text = exported.file(exported.planned).read_text(encoding="utf-8")
    comment = text[text.index("<!-- Licences") : text.index("-->", text.index("<!-- Licences"))]
    for words in ("Preact", "MIT License", "Apache License", "Permission is hereby granted"):
        assert words.casefold() in comment.casefold()


def test_a_bundle_has_each_module_once_and_no_module_syntax() -> None:
    script = bundle(ENTRY.read_text())
    names = re.findall(r"^const (module\d+) = ", script, re.MULTILINE)
    assert len(names) == len(set(names)) >= 12
    assert not re.search(r"^\s*(import|export)\b", script, re.MULTILINE)
