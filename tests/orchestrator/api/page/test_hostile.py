"""A run whose texts attack the page: names, outputs, thoughts and tool results with scripts and hidden characters."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Route, expect

from orchestrator.run.journal.journal import Journal
from orchestrator.task.events import (
    AnswerChecked,
    AnswerDoubt,
    AttemptFailed,
    AttemptGenerated,
    AttemptStarted,
    AttemptSucceeded,
    Event,
    Failure,
    FailureKind,
    GateResult,
    NoteChanged,
    PlanFinished,
    PromptDigests,
    RatingGiven,
    RunAccepted,
    RunFinished,
    StepPrioritised,
    StepsPlanned,
    ToolCalled,
    Usage,
)
from orchestrator.task.taskir.models import Step
from tests.orchestrator.api.daemon_process import Running, running_daemon
from tests.orchestrator.api.page.browser import PATIENCE, Visit, link_of, visiting

SCRIPT: Final = (
    "<script>window.ran = 1</script><img src=x onerror='window.ran = 1'><svg onload='window.ran = 1'>"
    '<a href="javascript:window.ran = 1">link</a><style>body { display: none }</style>'
    "<iframe srcdoc='<script>parent.ran = 1</script>'></iframe>${window.ran = 1}{{window.ran = 1}}</pre></textarea>"
)
INVISIBLE: Final = "\u034f\u115f\u3164\ufe0f\U000e0041\U000e0100"  # some of them count as printable
HIDDEN: Final = f"\u202egnp.exe\u202c \u2066x\u2069 \u200b\u200d\ufeff \x1b[31mred\x1b[0m \x07\x08 {INVISIBLE}"
EVIL: Final = f"\u202e{INVISIBLE}{SCRIPT} {HIDDEN}"
NAME: Final = "<img src=x onerror=window.ran=1>\u202etxt.exe"
RUN: Final = "20260101-000000-hostile"
OTHER: Final = "20260101-000001-hostile"

expect.set_options(timeout=PATIENCE)


def hostile_events(journal: Journal, run: str, text: str) -> list[Event]:
    evil = journal.put(text.encode())
    steps = (
        Step(id="S1", actor="worker", action=EVIL, outputs=(NAME,)),
        Step(id="S2", actor="worker", action=EVIL, inputs=(NAME,), outputs=("answer",)),
    )
    failure = Failure(FailureKind.CODE, EVIL, EVIL)
    gates = (GateResult("lint", "failed", f"{NAME}:1: {EVIL}", kind=FailureKind.CODE),)
    prompts = PromptDigests(system=evil, persona=evil)
    first = {"step": "S1", "role": "<b>worker</b>", "persona": EVIL, "model": EVIL, "reason": EVIL, "prompts": prompts}
    return [
        RunAccepted(at=1.0, run=run, mode="as-planned", request=EVIL, warnings=(EVIL,), owner=f"token:{SCRIPT}"),
        StepsPlanned(at=1.0, steps=steps),
        PlanFinished(at=1.0, origin="planned", reason=EVIL),
        AttemptStarted(at=1.0, number=1, **first),  # type: ignore[arg-type]
        ToolCalled(at=2.0, step="S1", number=1, tool=EVIL, arguments=EVIL, outcome="failed", message=EVIL, seconds=0.5),
        NoteChanged(at=2.0, step="S1", number=1, note=EVIL, change="added", text=EVIL),
        AttemptFailed(at=2.0, step="S1", number=1, failure=failure, gates=gates, reasoning=evil, answer=evil),
        AttemptStarted(at=2.0, number=2, **first),  # type: ignore[arg-type]
        AttemptGenerated(at=3.0, step="S1", number=2, usage=Usage(prompt_tokens=9, output_tokens=9)),
        AttemptSucceeded(at=3.0, step="S1", number=2, outputs={NAME: evil}, reasoning=evil),
        StepPrioritised(at=3.0, step="S2"),
        AttemptStarted(at=3.0, step="S2", number=1, role="worker", persona=None, model="m", reason=EVIL),
        AttemptSucceeded(at=4.0, step="S2", number=1, outputs={"answer": evil}),
        AnswerChecked(at=4.0, doubts=(AnswerDoubt(EVIL, "S2"),), corrections=(AnswerDoubt(EVIL, "S1"),)),
        RunFinished(at=4.0, status="done", error=EVIL, doubt=EVIL),
        RatingGiven(at=5.0, score=0.5, by=SCRIPT, note=EVIL),
        RatingGiven(at=5.0, score=0.5, by=SCRIPT, note=EVIL, step="S1"),
    ]


async def write(home: Path) -> None:
    with Journal.open(home) as journal:
        await journal.append(RUN, hostile_events(journal, RUN, EVIL))
        await journal.append(OTHER, hostile_events(journal, OTHER, f"{EVIL}\n{EVIL}"))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A daemon with the hostile run in its journal, which is written before the browser's event loop starts."""
    home = tmp_path_factory.mktemp("hostile") / "home"
    asyncio.run(write(home))
    with running_daemon(home, ORCHESTRATOR_MEMORY_USE="shadow") as running:
        yield running


@pytest.fixture(scope="module")
def visit(hostile: Running, browser: Browser) -> Iterator[Visit]:
    with hostile.client() as client, visiting(browser, hostile, link_of(client)) as opened:
        yield opened


def check_harmless(visit: Visit) -> None:
    """Check that texts have become neither elements nor styles, and that no character hides or reorders others."""
    page = visit.page
    assert page.evaluate("window.ran") == 0
    for element in ("iframe", "img", "#page script", "#page style", "a[href^='javascript:']"):
        assert page.locator(element).count() == 0, element
    assert page.locator("svg [onload], [onerror], [onload]").count() == 0
    text = page.evaluate("document.body.textContent")
    assert "<script>window.ran = 1</script>" in text
    hidden = [sign for sign in set(HIDDEN) if sign in INVISIBLE or not sign.isprintable()]
    assert not [sign for sign in hidden if sign in text]
    assert "⟨U+202E⟩" in text
    assert "⟨U+E0041⟩⟨U+E0100⟩" in text
    assert visit.errors == []


def test_the_list_of_runs_is_harmless(visit: Visit) -> None:
    visit.ready("table.runs")
    check_harmless(visit)


def test_a_run_is_harmless(visit: Visit) -> None:
    page = visit.page
    visit.go("runs", RUN)
    visit.ready(".answer")
    visit.ready("svg.times")
    page.get_by_text("What happened").click()
    page.get_by_text("The picture as a table").click()
    page.get_by_role("listbox").get_by_role("option").first.click()
    expect(page.locator(".pair pre").first).to_contain_text("<script>")
    expect(page.locator(".events li")).to_have_count(17)
    expect(page.get_by_text("Rated 0.50").first).to_contain_text("<script>")
    check_harmless(visit)
    name = page.get_by_role("link", name="Download: <img")
    page.get_by_text("All artifacts").click()
    with page.expect_download() as expected:
        name.click()
    assert Path(expected.value.path()).read_bytes() == EVIL.encode()


def test_a_step_is_harmless(visit: Visit) -> None:
    page = visit.page
    visit.go("runs", RUN, "steps", "S1")
    visit.ready(".listing .finding")
    assert page.locator(".attempt").count() == 2
    for thoughts in page.get_by_text("Thoughts").all():
        thoughts.click()
    expect(page.get_by_role("table", name="Tool calls")).to_contain_text("<script>")
    check_harmless(visit)
    visit.go("runs", RUN, "steps", "S2")
    expect(page.locator(".part").last).to_be_visible()
    check_harmless(visit)


def test_two_runs_side_by_side_are_harmless(visit: Visit) -> None:
    visit.go("compare", RUN, OTHER)
    expect(visit.page.locator(".compare pre")).to_contain_text("<script>")
    check_harmless(visit)


def test_a_plan_in_a_form_is_harmless(visit: Visit) -> None:
    page = visit.page
    visit.go("new")
    page.get_by_label("A TaskIR document").check()
    step = {"id": "S1", "actor": "worker", "action": EVIL, "outputs": ["out"]}
    page.get_by_label("TaskIR, as JSON").fill(json.dumps({"objective": EVIL, "plan": {"steps": [step]}}))
    page.get_by_role("button", name="Edit the plan").click()
    persona = page.get_by_label("Persona")
    persona.fill(SCRIPT)
    persona.press("Tab")
    expect(page.locator(".editor .cause")).to_contain_text("is refused")
    check_harmless(visit)


FREE: Final = frozenset(
    "action approved_by best caller changed description digest error event evidence file found kind look_at maker mend "
    "message model model_id name note path persona procedure reason request role roles says schedule shown step taken "
    "task_type text undo version why why_not why_retired".split()
)  # fields that hold texts of users, models and files in some answer


def hostile_document(value: Any, key: str = "") -> Any:
    """Return a JSON document with the attack at the end of each text in a field of `FREE`, and of names of its maps."""
    if isinstance(value, dict):
        named = key in ("cells_by_role", "engines", "facts", "outputs", "bytes_to_load")
        return {f"{name}{EVIL}" if named else name: hostile_document(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [hostile_document(item, key) for item in value]
    return f"{value}{EVIL}" if isinstance(value, str) and key in FREE else value


def make_hostile(route: Route) -> None:
    answer = route.fetch()
    is_json = answer.headers.get("content-type", "").startswith("application/json")
    if is_json:
        route.fulfill(response=answer, json=hostile_document(answer.json()))
    else:
        route.fulfill(response=answer)


VIEWS: Final = {
    ("machine",): (".cards .scale", ["machine*"]),
    ("learning",): ("#learn_choices + .scroll", ["memory", "memory/**", "personas*"]),
    ("procedures",): ("table.list", ["procedures", "procedures/**"]),
    ("procedures", "backup"): ("main summary", ["procedures/**"]),
    ("runs", RUN, "what-if"): ("[role=alert], table.list", ["runs/**"]),
    ("doctor",): ("[aria-label=Log] tbody tr", ["doctor", "log*"]),
}


@pytest.mark.parametrize("place", VIEWS, ids="/".join)
def test_every_other_view_is_harmless(visit: Visit, place: tuple[str, ...]) -> None:
    selector, paths = VIEWS[place]
    page = visit.page
    for path in paths:
        page.route(f"**/v1/{path}", make_hostile)
    try:
        visit.go(*place)
        visit.ready(selector)
        for summary in page.locator("summary").all():
            summary.click()
        check_harmless(visit)
    finally:
        page.unroute_all(behavior="wait")
