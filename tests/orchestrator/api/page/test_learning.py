"""The view *Learning* in Chromium: what the router has chosen and learned, and how the frontdoor was trained."""

import asyncio
from collections.abc import Iterator
from typing import Final

import pytest
from playwright.sync_api import Browser, expect

from orchestrator.memrl.parl.curves import CurvePoint, write_curves
from orchestrator.memrl.parl.trainings import FOLDER, TrainingResult, write_result
from tests.memrl.advised_runs import PERSONA, write_advised_runs
from tests.memrl.test_endpoints import learned_from
from tests.orchestrator.api.callers import client_of, daemon_with
from tests.orchestrator.api.daemon_process import Running
from tests.orchestrator.api.page.browser import PATIENCE, SIZES, Visit, check_view, link_of, visiting
from tests.orchestrator.api.page.plots import columns

RUNS: Final = 60
COLORS: Final = ("--bar-write", "--critical", "--bar-tools")  # of the lines of a picture

expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A daemon that has learned from runs, and whose frontdoor was trained; `ann` sees her own things only."""
    folder = tmp_path_factory.mktemp("learning")
    asyncio.run(write_advised_runs(folder / "home", RUNS))
    training = folder / "home" / FOLDER / "training-0"
    training.mkdir(parents=True)
    numbers = dict.fromkeys(CurvePoint.__slots__, 0.5)
    points = [CurvePoint(**{**numbers, "update": number, "reward": number / 10}) for number in range(1, 6)]  # type: ignore[arg-type]
    write_curves(training, points)
    write_result(
        training,
        TrainingResult(updates=5, requests=60, gain=0.05, low=0.01, high=0.09, better=True, promoted=True),
    )
    with daemon_with(folder, {"ann": "read:own"}, ORCHESTRATOR_MEMORY_USE="shadow") as running:
        with running.client() as client:
            learned_from(client, RUNS)
        yield running


@pytest.fixture
def visit(daemon: Running, browser: Browser) -> Iterator[Visit]:
    with daemon.client() as client, visiting(browser, daemon, link_of(client)) as opened:
        opened.ready("h1")
        opened.page.get_by_role("link", name="Learning").click()
        opened.ready("h1:has-text('Learning')")
        yield opened


def test_choices_are_listed_with_what_came_of_them(visit: Visit) -> None:
    page = visit.page
    figures = page.locator(".figures")
    expect(figures).to_contain_text("50 / 200")  # of one caller, no more count
    expect(figures).to_contain_text("compared with the rules, not followed")
    choices = page.get_by_role("region", name="Choices", exact=True).locator("table tbody tr")
    expect(choices).to_have_count(50)
    expect(choices.first).to_contain_text(f"worker on tiny-large with persona {PERSONA}")
    expect(choices.nth(3)).to_contain_text("tried on purpose")
    expect(choices.nth(3)).to_contain_text("0.400")
    page.get_by_role("button", name="10 more").click()
    expect(choices).to_have_count(RUNS)
    expect(page.get_by_role("button", name="10 more")).to_have_count(0)
    choices.first.get_by_role("link").click()
    expect(page.get_by_role("heading", name="Step S1")).to_be_visible()


def test_pictures_have_tables_with_the_same_facts(visit: Visit) -> None:
    page = visit.page
    rewards = page.get_by_role("region", name="Rewards over time").first
    plot = rewards.get_by_role("img", name="Rewards over time")
    for color in COLORS:
        drawn = columns(plot, color)
        assert drawn is not None
        assert drawn.first < 0.2
        assert drawn.last > 0.9, "from the first choices to the last"
    rewards.get_by_text("The picture as a table").click()
    expect(rewards.locator("table tbody tr")).to_have_count(RUNS // 5)
    calibration = page.get_by_role("region", name="Calibration").first
    circles = columns(calibration.get_by_role("img", name="Calibration"), COLORS[0])
    assert circles is not None
    assert 0.3 < circles.first < 0.6 < circles.last < 0.9, "at expected rewards of 0.4 and 0.8"
    calibration.get_by_text("The picture as a table").click()
    expect(calibration.locator("table tbody tr")).to_have_count(2)
    expect(calibration.locator("table tbody tr").first).to_contain_text("0.40")


def test_personas_have_their_evidence(visit: Visit) -> None:
    personas = visit.page.get_by_role("region", name="Personas").locator("table").first
    row = personas.locator("tr", has_text=PERSONA)
    expect(row).to_contain_text("worker")
    expect(row).to_contain_text("100 %")
    values = visit.page.get_by_role("region", name="Q by task type").locator("table").first
    expect(values.locator("tbody tr")).to_have_count(2)


def test_trainings_show_their_curves_and_what_came_of_them(visit: Visit) -> None:
    training = visit.page.get_by_role("article").filter(has_text="training-0")
    expect(training).to_contain_text("gain 0.050 (0.010 \u2013 0.090) on 60 requests")
    expect(training).to_contain_text("promoted")
    plot = training.get_by_role("img", name="training-0")
    assert columns(plot, COLORS[0]) is not None
    assert columns(plot, COLORS[1]) is not None
    assert columns(plot, COLORS[2]) is None
    training.get_by_text("The picture as a table").click()
    expect(training.locator("tbody tr")).to_have_count(5)


def test_routers_are_compared_on_request(visit: Visit) -> None:
    page = visit.page
    page.get_by_role("button", name="Compare on past choices").click()
    compared = page.get_by_role("region", name="What other routers would have earned").locator("tbody tr")
    expect(compared).to_have_count(4)
    expect(compared.first).to_contain_text("rules")


def test_learning_is_reached_by_keyboard(daemon: Running, browser: Browser) -> None:
    with daemon.client() as client, visiting(browser, daemon, link_of(client)) as visit:
        visit.ready("table.runs")
        visit.page.get_by_role("link", name="Learning").focus()
        visit.page.keyboard.press("Enter")
        visit.ready("h1:has-text('Learning')")
        summary = visit.page.get_by_text("The picture as a table").first
        summary.focus()
        visit.page.keyboard.press("Enter")
        expect(visit.page.locator("details[open] table")).to_be_visible()


def test_values_of_a_picture_are_read_by_keyboard(visit: Visit) -> None:
    page = visit.page
    training = page.get_by_role("article").filter(has_text="training-0")
    update, reward = (training.locator(".legend li").nth(at) for at in (0, 1))
    expect(update).to_have_text("Update 5")  # the latest
    training.get_by_role("img", name="training-0").focus()
    page.keyboard.press("ArrowLeft")
    expect(update).to_have_text("Update 4")
    expect(reward).to_have_text("Reward 0.400")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    expect(update).to_have_text("Update 2")
    expect(reward).to_have_text("Reward 0.200")
    page.keyboard.press("Tab")
    expect(update).to_have_text("Update 5")


def test_pictures_follow_the_scheme_and_the_width_of_the_window(visit: Visit) -> None:
    page = visit.page
    plot = page.get_by_role("img", name="Rewards over time")
    light = page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--bar-write')")
    assert columns(plot, "--bar-write") is not None
    page.emulate_media(color_scheme="dark")
    page.evaluate("light => document.documentElement.style.setProperty('--light', light)", light)
    assert columns(plot, "--bar-write") is not None
    assert columns(plot, "--light") is None, "the colours of the light scheme are gone"
    tall = plot.bounding_box()
    page.set_viewport_size({"width": 360, "height": 900})
    page.wait_for_function("() => document.querySelector('.series canvas').clientWidth < 360")
    narrow = plot.bounding_box()
    assert tall is not None
    assert narrow is not None
    assert narrow["height"] == tall["height"]
    visit.go("runs")
    visit.ready("table.runs")
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": 800, "height": 900})
    assert page.locator(".uplot").count() == 0


def test_who_sees_only_runs_of_their_own_is_not_offered_it(daemon: Running, browser: Browser) -> None:
    with client_of(daemon, "ann") as ann, visiting(browser, daemon, link_of(ann)) as visit:
        visit.ready("h1:has-text('Runs')")
        expect(visit.page.get_by_role("link", name="Learning")).to_have_count(0)
        expect(visit.page.get_by_role("link", name="Procedures")).to_have_count(0)
        visit.go("learning")
        expect(visit.page.get_by_text("ann lacks the permission read:all")).to_be_visible()


@SIZES
def test_learning_fits_and_is_accessible(daemon: Running, browser: Browser, width: int, scheme: str) -> None:
    options = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme, "bypass_csp": True}
    language = "de-DE" if width == 360 else "en-US"
    with (
        daemon.client() as client,
        visiting(browser, daemon, link_of(client), **options, locale=language) as visit,
    ):
        visit.ready("h1")
        visit.go("learning")
        visit.ready(".square")
        for summary in visit.page.locator("summary").all():
            summary.click()
        visit.page.locator("section[aria-labelledby=compared] button").click()
        visit.ready("section[aria-labelledby=compared] table")
        check_view(visit, width)
