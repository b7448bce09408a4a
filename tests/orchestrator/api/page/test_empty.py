"""A view without data says what will appear in it, and how to get it, in both languages."""

from collections.abc import Iterator
from typing import Final

import pytest
from playwright.sync_api import Browser, expect

from tests.orchestrator.api.callers import daemon_with
from tests.orchestrator.api.daemon_process import Running, lasting, submitted
from tests.orchestrator.api.page.browser import PATIENCE, check_view, link_of, visiting
from tests.orchestrator.api.page.test_files import WORDS
from tests.orchestrator.api.page.test_plan_edit import planned

expect.set_options(timeout=PATIENCE)

VIEWS: Final = {
    "runs": ["no_runs_yet"],
    "new": ["new_plan_none"],
    "learning": [*["learn_no_choices"] * 3, "learn_no_values", "learn_no_trainings"],
    "procedures": ["proc_no_schedules", "proc_none", "proc_audit_none"],
    "doctor": ["log_none"],
}
CANCELLED: Final = {"": ["none_selected", "answer_none_ended"], "steps/S2": ["attempts_none"]}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A daemon in which nothing has happened."""
    with daemon_with(tmp_path_factory.mktemp("empty"), {}, ORCHESTRATOR_MEMORY_USE="shadow") as running:
        yield running


@pytest.mark.parametrize(("locale", "width"), [("en-US", 1440), ("de-DE", 360)])
def test_an_empty_view_says_what_will_be_there(daemon: Running, browser: Browser, locale: str, width: int) -> None:
    language = 1 if locale == "de-DE" else 0
    options = {"viewport": {"width": width, "height": 900}, "bypass_csp": True}
    with daemon.client() as client, visiting(browser, daemon, link_of(client), locale=locale, **options) as visit:
        page = visit.page

        def check(keys: list[str]) -> None:
            expect(page.locator(".empty")).to_contain_text([WORDS[key][language].replace("`", "") for key in keys])
            check_view(visit, width)

        visit.ready("table, .empty")
        for place, keys in VIEWS.items():
            visit.go(place)
            if place == "procedures":
                page.locator("summary").click()
            if place == "doctor":
                page.get_by_label(WORDS["log_level"][language]).select_option("error")
            check(keys)


def test_a_forecast_without_data_has_no_times(daemon: Running, browser: Browser) -> None:
    with daemon.client() as client, visiting(browser, daemon, link_of(client)) as visit:
        figures = planned(visit).locator(".figures > div")
        for name in ("predicted", "new_direct_time"):
            figure = figures.filter(has=visit.page.get_by_text(WORDS[name][0], exact=True))
            expect(figure.locator("dd")).to_have_text(WORDS["new_no_data"][0])


def test_a_run_without_an_answer_says_what_would_be_there(daemon: Running, browser: Browser) -> None:
    with daemon.client() as client, visiting(browser, daemon, link_of(client)) as visit:
        visit.ready("h1")
        run = submitted(client, lasting())
        client.post(f"/v1/runs/{run}/cancel")
        for place, keys in CANCELLED.items():
            visit.go("runs", run, *filter(None, place.split("/")))
            words = [WORDS[key][0].replace("`", "") for key in keys]
            expect(visit.page.locator(".empty")).to_have_text(words)
