"""How a run is measured whose plan goes on: the pause in which the rest is written lies between two steps."""

import pytest

from orchestrator.run.record.report import Report, build_report
from orchestrator.run.record.view import RunView
from orchestrator.task.events import (
    AttemptGenerated,
    AttemptStarted,
    AttemptSucceeded,
    Event,
    PlanFinished,
    PlanningStarted,
    ReplanFinished,
    ReplanStarted,
    RunAccepted,
    RunFinished,
    StepExpanded,
    StepGathered,
    StepsPlanned,
    Usage,
)
from orchestrator.task.modes import Mode
from orchestrator.task.taskir.models import Step


def step(number: int, *after: str, reads: str | None = None) -> Step:
    name = f"s{number}"
    return Step(id=f"S{number}", actor="worker", action="go", outputs=(name,), depends_on=after, foreach=reads)


def planned(at: float, *steps: Step) -> Event:
    return StepsPlanned(at=at, steps=steps)


def ran(name: str, begin: float, end: float, output: str = "") -> list[Event]:
    return [
        AttemptStarted(at=begin, step=name, number=1, role="worker", persona=None, model="m", reason=""),
        AttemptGenerated(at=end, step=name, number=1, usage=Usage(decode_seconds=end - begin)),
        AttemptSucceeded(at=end, step=name, number=1, outputs={output or name.lower(): "0"}),
    ]


def begun(mode: Mode = "as-planned", most: int = 2) -> list[Event]:
    return [
        RunAccepted(at=0.0, run="r", mode=mode, request="x", max_replans=most),
        PlanningStarted(at=0.0, role="frontdoor", model="m"),
        planned(1.0, step(1)),
        PlanFinished(at=2.0, origin="planned", usage=Usage(prompt_tokens=7), goes_on_after="S1"),
        *ran("S1", 1.0, 4.0),
    ]


def rest(at: float, after: str) -> Event:
    return ReplanStarted(at=at, after=after, role="frontdoor", model="m")


def whole(mode: Mode = "as-planned") -> list[Event]:
    """S1 takes 3 s, then the plan goes on: S2 is there after 0.5 s and takes 2 s, S3 after 1 s and takes 5 s."""
    events = [
        rest(4.0, "S1"),
        planned(4.5, step(2, "S1")),
        planned(5.0, step(3, "S1")),
        ReplanFinished(
            at=5.5, after="S1", outcome="planned", usage=Usage(prompt_tokens=9, decode_seconds=0.5), asked=2
        ),
        *ran("S2", 4.5, 6.5),
        *ran("S3", 5.0, 10.0),
        RunFinished(at=10.0, status="done"),
    ]
    return sorted(begun(mode) + events, key=lambda event: event.at)


def report(events: list[Event]) -> Report:
    return build_report(RunView.of(events), lambda digest: b"text")


def test_the_critical_path_goes_through_the_pause() -> None:
    told = report(whole())
    path = told.critical_path
    assert path.steps == ("S1", "S3"), "only steps are named"
    assert path.replan_seconds == pytest.approx(0.5), "until the first new step, not until all of them are there"
    assert path.seconds == pytest.approx(3 + 0.5 + 5)
    assert path.seconds <= told.wall_seconds
    assert path.work_seconds == pytest.approx(3 + 0.5 + 2 + 5), "the frontdoor's work in the pause counts"
    assert path.bound == pytest.approx(10.5 / 8.5)
    assert path.critical_steps == 1 + 2 + 2, "a plan, its rest with a repair, and two waves"
    assert {row.id: row.slack for row in told.steps} == pytest.approx({"S1": 0.0, "S2": 3.0, "S3": 0.0})
    assert [row.depends_on for row in told.steps] == [(), ("S1",), ("S1",)]


def test_rows_tell_what_came_of_the_plan() -> None:
    told = report(whole())
    (row,) = told.replans
    assert (row.after, row.outcome, row.steps, row.model) == ("S1", "planned", ("S2", "S3"), "m")
    assert (row.started, row.finished, row.pause_seconds) == (4.0, 5.5, 0.5)
    assert (told.plan_usage.prompt_tokens, row.usage.prompt_tokens) == (7, 9)
    assert (told.plan_origin, told.planning_seconds) == ("planned", 2.0)


def test_an_order_that_is_dropped_is_a_pause_all_the_same() -> None:
    told = report(whole("discover"))
    assert told.graph.before["S3"] == ()
    assert told.critical_path.steps == ("S1", "S3")
    assert told.answer == "[s2]\ntext\n\n[s3]\ntext", "what the plan went on from is no answer"


def test_a_rest_without_steps_ends_the_path() -> None:
    events = [*begun(), rest(4.0, "S1"), ReplanFinished(at=6.0, after="S1", outcome="planned")]
    told = report([*events, RunFinished(at=6.0, status="done")])
    assert (told.critical_path.steps, told.critical_path.seconds) == (("S1",), 5.0)
    assert told.replans[0].pause_seconds == 2.0
    assert told.answer == "text"


def test_a_restart_does_not_begin_the_pause_anew() -> None:
    events = [*begun(), rest(4.0, "S1"), rest(6.0, "S1"), planned(7.0, step(2, "S1"))]
    (row,) = report(events).replans
    assert (row.started, row.pause_seconds, row.outcome) == (4.0, 3.0, "planning")


def test_items_of_a_list_wait_for_the_pause_too() -> None:
    events = [
        *begun(),
        rest(4.0, "S1"),
        planned(5.0, step(2, reads="s1")),
        ReplanFinished(at=5.0, after="S1", outcome="planned"),
        StepExpanded(at=5.0, step="S2", count=1),
        *ran("S2[0]", 5.0, 7.0, "s2[0]"),
        StepGathered(at=7.5, step="S2", outputs={"s2": "0"}),
        RunFinished(at=7.5, status="done"),
    ]
    path = report(events).critical_path
    assert path.steps == ("S1", "S2[0]", "S2")
    assert path.seconds == pytest.approx(3 + 1 + 2 + 0.5)


def test_what_may_not_go_on_is_refused_and_what_never_does_is_cancelled() -> None:
    (row,) = report(begun(most=0)).replans
    assert (row.outcome, row.reason) == ("refused", "max_replans is 0")
    waiting = report(begun()[:4]).replans[0]
    assert (waiting.outcome, waiting.pause_seconds) == ("waiting", None)
    ended = report([*begun()[:4], RunFinished(at=5.0, status="cancelled")])
    assert ended.replans[0].outcome == "cancelled"
