"""The picture of a run: rows and lines of its graph, what attempts spent their time on, and what is expected."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.run.journal.journal import Journal
from orchestrator.run.record import cache
from orchestrator.run.record.picture import (
    NODE,
    TRACK,
    Drawing,
    Part,
    Picture,
    Sketch,
    Window,
    drawing,
    picture,
    picture_json,
)
from orchestrator.run.record.report import build_report
from orchestrator.run.record.view import RunView
from orchestrator.task.events import (
    AttemptFailed,
    AttemptGenerated,
    AttemptStarted,
    AttemptSucceeded,
    Event,
    Failure,
    FailureKind,
    GateResult,
    PlanFinished,
    Prediction,
    RatingGiven,
    RunAccepted,
    RunBegun,
    RunFinished,
    StepExpanded,
    StepGathered,
    StepReused,
    StepsPlanned,
    ToolCalled,
    Usage,
)
from orchestrator.task.taskir.models import Step
from tests.orchestrator.run.record.run_courses import recorded

T0 = 1000.0


def predicted(seconds: float) -> Prediction:
    return Prediction(seconds, seconds, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.5, 0, "")


def planned(after: Mapping[str, Sequence[str]], seconds: float = 2.0) -> list[Event]:
    steps = tuple(
        Step(id=name, actor="worker", action=f"Do {name}.", outputs=(f"out{name}",), depends_on=tuple(before))
        for name, before in after.items()
    )
    return [
        RunAccepted(at=T0, run="R", mode="as-planned", request="x"),
        StepsPlanned(at=T0, steps=steps, predicted={step.id: predicted(seconds) for step in steps}),
        PlanFinished(at=T0, origin="planned"),
    ]


def started(step: str, at: float, number: int = 1, reason: str = "first attempt") -> Event:
    return AttemptStarted(at=T0 + at, step=step, number=number, role="worker", persona=None, model="m", reason=reason)


def done(step: str, at: float, number: int = 1) -> Event:
    return AttemptSucceeded(at=T0 + at, step=step, number=number, outputs={f"out{step}": "0" * 64})


def drawn(events: Sequence[Event], now: float = 0.0) -> Picture:
    view = RunView.of(events)
    return picture(view, build_report(view, lambda digest: b"text"), now)


def places(shown: Picture) -> dict[str, float]:
    return {row.id: row.x for row in shown.rows}


def test_columns_are_depths_and_rows_follow_what_they_wait_for() -> None:
    shown = drawn(planned({"S3": ["S1", "S2"], "S1": [], "S2": ["S1"]}))
    assert [row.id for row in shown.rows] == ["S1", "S2", "S3"]
    assert places(shown)["S1"] < places(shown)["S2"] < places(shown)["S3"]
    assert {(line.before, line.after) for line in shown.lines} == {(0, 1), (0, 2), (1, 2)}
    assert all(line.before < line.after for line in shown.lines)
    assert shown.width == places(shown)["S3"] + NODE


def test_lines_of_a_fan_share_a_track_and_others_do_not_overlap() -> None:
    fan = drawn(planned({"S1": [], "S2": [], "S3": [], "S4": ["S1", "S2", "S3"]}))
    assert len({line.x for line in fan.lines}) == 1
    crossing = drawn(planned({"S1": [], "S2": [], "S3": ["S1"], "S4": ["S2"]}))
    first, second = sorted(line.x for line in crossing.lines)
    assert second - first == pytest.approx(TRACK)
    assert all(places(crossing)["S1"] < x < places(crossing)["S3"] for x in (first, second))


def test_a_wide_plan_keeps_few_tracks() -> None:
    width = 40
    before = {f"S{number}": list[str]() for number in range(width)}
    shown = drawn(planned({**before, **{f"S{width + number}": [f"S{number}"] for number in range(width)}}))
    assert shown.width < 100


def test_an_attempt_is_split_by_what_it_spent_its_time_on() -> None:
    usage = Usage(queued_seconds=0.5, prefill_seconds=1.0, decode_seconds=2.0)
    gates = (
        GateResult("lint", "passed", seconds=1.0, work_seconds=0.25),
        GateResult("typecheck", "passed", seconds=1.0, work_seconds=0.75, offset_seconds=1.0),
        GateResult("schema", "not run"),
    )
    events = [
        *planned({"S1": []}),
        started("S1", 1.0),
        AttemptGenerated(at=T0 + 5, step="S1", number=1, usage=usage),
        AttemptSucceeded(at=T0 + 7, step="S1", number=1, outputs={"outS1": "0" * 64}, gates=gates),
        RunFinished(at=T0 + 7, status="done"),
    ]
    (row,) = drawn(events).rows
    (bar,) = row.bars
    assert (bar.number, bar.start, bar.end, bar.outcome) == (1, 1.0, 7.0, "done")
    assert bar.parts == (
        Part("other", 1.0, 1.5),
        Part("queued", 1.5, 2.0),
        Part("read", 2.0, 3.0),
        Part("write", 3.0, 5.0),
        Part("core", 5.0, 6.0),
        Part("gates", 6.0, 7.0),
    )


def test_tools_interrupt_the_writing() -> None:
    call = {"step": "S1", "number": 1, "arguments": "{}", "outcome": "done"}
    events = [
        *planned({"S1": []}),
        started("S1", 0.0),
        ToolCalled(at=T0 + 2, tool="grep", seconds=1.0, **call),  # type: ignore[arg-type]
        AttemptGenerated(at=T0 + 3, step="S1", number=1, usage=Usage(decode_seconds=2.0)),
        AttemptSucceeded(at=T0 + 3, step="S1", number=1, outputs={"outS1": "0" * 64}),
        RunFinished(at=T0 + 3, status="done"),
    ]
    (row,) = drawn(events).rows
    assert row.bars[0].parts == (Part("write", 0.0, 1.0), Part("tools", 1.0, 2.0), Part("write", 2.0, 3.0))


def test_waits_before_a_step_are_those_for_others_and_for_its_turn() -> None:
    events = [*planned({"S1": [], "S2": ["S1"]}), RunBegun(at=T0), started("S1", 0.0), done("S1", 1.0)]
    rows = {row.id: row for row in drawn([*events, started("S2", 1.5)], now=2.0).rows}
    assert rows["S2"].waits == (Part("dependencies", 0.0, 1.0), Part("queued", 1.0, 1.5))


def test_a_part_that_runs_has_no_end() -> None:
    events = [*planned({"S1": []}), RunBegun(at=T0), started("S1", 0.5)]
    (row,) = drawn(events, now=2.0).rows
    assert [(bar.start, bar.end, bar.parts) for bar in row.bars] == [(0.5, None, ())]


def test_steps_that_have_not_ended_are_expected_after_each_other() -> None:
    events = [*planned({"S1": [], "S2": ["S1"], "S3": []}), started("S1", 0.0), started("S3", 0.0), done("S3", 0.5)]
    shown = drawn(events, now=1.0)
    rows = {row.id: row for row in shown.rows}
    assert rows["S1"].expected == (0.0, 2.0)
    assert rows["S2"].expected == (2.0, 4.0)
    assert rows["S3"].expected is None
    assert (shown.seconds, shown.expected_end) == (1.0, 4.0)
    assert shown.path == ("S1", "S2")
    assert [rows[name].critical for name in rows] == [True, True, False]
    assert rows["S3"].slack == pytest.approx(3.5)
    late = drawn(events, now=5.0)
    assert {row.id: row.expected for row in late.rows}["S2"] == (5.0, 7.0), "a late step moves those after it"


def test_an_ended_run_shows_the_measured_path_and_expects_nothing() -> None:
    events = [*planned({"S1": [], "S2": ["S1"], "S3": []})]
    events += [
        started("S1", 0.0),
        started("S3", 0.0),
        done("S1", 1.0),
        started("S2", 1.0),
        done("S3", 1.5),
        done("S2", 3.0),
    ]
    shown = drawn([*events, RunFinished(at=T0 + 3, status="done")], now=99.0)
    assert (shown.seconds, shown.expected_end, shown.path) == (3.0, None, ("S1", "S2"))
    assert all(row.expected is None for row in shown.rows)
    assert {(shown.rows[line.before].id, line.critical) for line in shown.lines} == {("S1", True)}


def test_children_stand_between_what_they_wait_for_and_their_parent() -> None:
    steps = (
        Step(id="S1", actor="worker", action="List.", outputs=("names.json",)),
        Step(id="S2", actor="worker", action="Say.", outputs=("item",), foreach="names.json", inputs=("names.json",)),
    )
    events: list[Event] = [
        RunAccepted(at=T0, run="R", mode="as-planned", request="x"),
        StepsPlanned(at=T0, steps=steps, predicted={step.id: predicted(1.0) for step in steps}),
        PlanFinished(at=T0, origin="planned"),
        started("S1", 0.0),
        AttemptSucceeded(at=T0 + 1, step="S1", number=1, outputs={"names.json": "0" * 64}),
        StepExpanded(at=T0 + 1, step="S2", count=2),
        started("S2[0]", 1.0),
        started("S2[1]", 1.0),
        AttemptSucceeded(at=T0 + 2, step="S2[0]", number=1, outputs={"item[0]": "0" * 64}),
        AttemptSucceeded(at=T0 + 3, step="S2[1]", number=1, outputs={"item[1]": "0" * 64}),
        StepGathered(at=T0 + 3, step="S2", outputs={"item": "0" * 64}),
        RunFinished(at=T0 + 3, status="done"),
    ]
    shown = drawn(events)
    assert [(row.id, row.parent, row.children) for row in shown.rows] == [
        ("S1", None, 0),
        ("S2[0]", "S2", 0),
        ("S2[1]", "S2", 0),
        ("S2", None, 2),
    ]
    assert {line.reason for line in shown.lines} == {"data", "item"}
    assert places(shown)["S2[0]"] == places(shown)["S2[1]"] < places(shown)["S2"]


def test_each_attempt_has_its_bar() -> None:
    failure = Failure(FailureKind.FORMAT, "no JSON")
    events = [
        *planned({"S1": []}),
        started("S1", 0.0),
        AttemptFailed(at=T0 + 1, step="S1", number=1, failure=failure),
        started("S1", 1.0, number=2),
    ]
    (row,) = drawn(events, now=1.5).rows
    assert [(bar.number, bar.start, bar.end, bar.outcome) for bar in row.bars] == [
        (1, 0.0, 1.0, "format"),
        (2, 1.0, None, "running"),
    ]


def test_a_long_chain_is_laid_out() -> None:
    count = 5000
    names = [f"S{number}" for number in range(count)]
    chain = {name: [before] if before else [] for before, name in zip(["", *names], names, strict=False)}
    shown = drawn(planned(chain))
    assert len(shown.lines) == count - 1
    assert shown.path == tuple(names)


@given(recorded(), st.lists(st.floats(0, 50), min_size=8, max_size=8))
def test_a_picture_does_not_depend_on_those_before(events: list[Event], moments: list[float]) -> None:
    view, sketch = RunView.of(events[:1]), Sketch()
    for number, event in enumerate(events[1:]):
        view.apply(event)
        report = build_report(view, lambda digest: b"text")
        now = moments[number % len(moments)]
        assert picture(view, report, now, sketch) == picture(view, report, now)


def test_a_wait_is_drawn_once_it_is_clear_that_the_run_has_left_its_queue() -> None:
    """Runs of early versions have no event for that, so a step can end before."""
    accepted, plan, _ = planned({"S1": [], "S2": []})
    assert isinstance(plan, StepsPlanned)
    steps = (plan.steps[0], plan.steps[1].model_copy(update={"foreach": "outS1"}))
    made = StepReused(at=T0, step="S1", run="earlier", outputs={}, reads={}, originals={})
    failed = AttemptFailed(at=T0 + 1, step="S2", number=0, failure=Failure(FailureKind.FORMAT, "no list"))
    view, sketch = RunView.of([accepted, replace(plan, steps=steps), made, failed]), Sketch()
    assert picture(view, build_report(view, lambda digest: b"text"), 1.0, sketch).rows[1].waits == ()
    view.apply(RunFinished(at=T0 + 1, status="failed", error="no list"))
    waits = picture(view, build_report(view, lambda digest: b"text"), 1.0, sketch).rows[1].waits
    assert waits == (Part("queued", 0.0, 1.0),)


def test_an_ended_step_is_drawn_once() -> None:
    events = [*planned({"S1": [], "S2": ["S1"]}), started("S1", 0.0), done("S1", 1.0)]
    view, sketch = RunView.of(events), Sketch()
    first = picture(view, build_report(view, lambda digest: b"text"), 1.0, sketch)
    view.apply(started("S2", 1.0))
    second = picture(view, build_report(view, lambda digest: b"text"), 1.5, sketch)
    assert first.rows[0].bars is second.rows[0].bars
    assert first.rows[1].bars != second.rows[1].bars


def test_a_picture_as_json_has_all_but_the_seconds() -> None:
    shown = drawn([*planned({"S1": [], "S2": ["S1"]}), started("S1", 0.0)], now=1.0)
    body = json.loads(picture_json(shown))
    totals = {"done": 0, "prompt_tokens": 0, "reused_tokens": 0, "output_tokens": 0}
    more = {"first": 0, "count": 2, "totals": totals, "step": None}
    assert body.keys() == {"rows", "lines", "width", "planning", "path", "expected_end", *more}
    assert {name: body[name] for name in more} == more
    assert body["rows"][0]["bars"] == [{"number": 1, "start": 0.0, "end": None, "outcome": "running", "parts": []}]


def window(events: Sequence[Event], first: int, count: int, step: str | None) -> dict[str, Any]:
    view = RunView.of(events)
    shown = drawing(view, build_report(view, lambda digest: b"text"), 1.0, Sketch())
    body: dict[str, Any] = json.loads(shown.json(Window(first, count, step)))
    return body


def test_a_window_has_its_rows_and_the_lines_that_cross_it() -> None:
    events = planned({"S1": [], "S2": ["S1"], "S3": [], "S4": ["S1"], "S5": ["S4"]})
    whole, part = json.loads(picture_json(drawn(events, now=1.0))), window(events, 1, 2, "S5")
    assert part["rows"] == whole["rows"][1:3]
    assert [(edge["before"], edge["after"]) for edge in part["lines"]] == [(0, 1), (0, 3)]
    assert (part["first"], part["count"], part["step"]) == (1, 5, whole["rows"][4])
    assert part["totals"] == whole["totals"]
    for edge in whole["lines"]:
        assert (edge["start"], edge["end"]) == (whole["rows"][edge["before"]]["x"], whole["rows"][edge["after"]]["x"])
    beyond = window(events, 9, 2, "S9")
    assert (beyond["rows"], beyond["lines"], beyond["step"]) == ([], [], None)


@given(recorded(), st.integers(0, 6), st.integers(1, 6), st.integers(0, 6))
def test_a_window_shows_what_the_whole_picture_shows(events: list[Event], first: int, count: int, row: int) -> None:
    whole = json.loads(picture_json(drawn(events, now=1.0)))
    rows, lines, end = whole["rows"], whole["lines"], first + count
    step = rows[row] if row < len(rows) else None
    part = window(events, first, count, step["id"] if step else None)
    if first or count < len(rows):
        whole |= {"rows": rows[first:end], "first": first, "step": step}
        whole["lines"] = [edge for edge in lines if edge["before"] < end and edge["after"] >= first]
    assert part == whole


async def test_a_picture_is_drawn_once_for_all_who_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 0

    def counted(*arguments: Any) -> Drawing:
        nonlocal count
        count += 1
        return drawing(*arguments)

    monkeypatch.setattr(cache, "drawing", counted)
    events = [*planned({"S1": [], "S2": ["S1"]}), started("S1", 0.0), done("S1", 1.0), started("S2", 1.0)]
    with Journal.open(tmp_path) as journal:
        await journal.append("R", events)
        views = cache.ViewCache(journal)
        first = views.picture("R", T0 + 2.0)
        assert views.picture("R", T0 + 2.0 + cache.PICTURE_SECONDS / 2) == first
        assert count == 1
        views.picture("R", T0 + 3.0 + cache.PICTURE_SECONDS)
        assert count == 2, "what is expected depends on the time"
        await journal.append("R", [done("S2", 4.0), RunFinished(at=T0 + 4, status="cancelled", error="a test")])
        report, ended = views.picture("R", T0 + 4.0)
        assert (report.status, count) == ("cancelled", 3)
        assert views.picture("R", T0 + 4000.0)[1] is ended, "as JSON, too"
        await journal.append("R", [RatingGiven(at=T0 + 5000.0, score=1.0, by="user:ann")])
        assert views.picture("R", T0 + 5000.0)[0].events == len(events) + 3
