"""A run that makes a step of an ended run again starts with the plan and with what is done; the rest is made."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import InputError
from orchestrator.run.record.repeated import repeated_events
from orchestrator.run.record.report import build_report
from orchestrator.run.record.view import RunView
from orchestrator.run.scheduler.commands import StartAttempt
from orchestrator.run.scheduler.run import fresh_state
from orchestrator.task.events import (
    AttemptStarted,
    AttemptSucceeded,
    Event,
    NoteChanged,
    PlanFinished,
    PlanReplaced,
    ReplanFinished,
    ReplanStarted,
    RunAccepted,
    RunFinished,
    StepExpanded,
    StepGathered,
    StepReused,
    StepsPlanned,
)
from orchestrator.task.states import FINAL, State
from orchestrator.task.taskir.models import Step
from tests.orchestrator.run.record.run_courses import courses
from tests.orchestrator.scheduler_driver import step as planned_step

SAME = {"a.txt": "A", "b.txt": "B"}
NONE: Mapping[str, str] = {}


def accepted(**more: object) -> RunAccepted:
    return RunAccepted(at=0.0, run="R", mode="as-planned", request="x", files=tuple(SAME), max_replans=1, **more)  # type: ignore[arg-type]


def plan(*steps: Step, goes_on_after: str | None = None) -> list[Event]:
    return [
        accepted(),
        StepsPlanned(at=0.0, steps=steps, written="the plan"),
        PlanFinished(at=1.0, origin="planned", goes_on_after=goes_on_after, wanted=(f"a{len(steps)}",)),
    ]


def done(name: str, reads: Mapping[str, str] = NONE, originals: Mapping[str, str] = NONE) -> list[Event]:
    made = f"a{name[1:]}"
    started = AttemptStarted(at=2.0, step=name, number=1, role="worker", persona=None, model="m", reason="")
    return [
        started,
        AttemptSucceeded(at=3.0, step=name, number=1, outputs={made: made}, reads=reads, originals=originals),
    ]


def ended(events: Sequence[Event]) -> list[Event]:
    return [*events, RunFinished(at=9.0, status="cancelled")]


def again(events: Sequence[Event], step: str, files: Mapping[str, str] = SAME) -> list[Event]:
    new = replace(accepted(), run="N", at=100.0)
    return [new, *repeated_events(ended(events), step, new, lambda name: files.get(name, ""))]


def reused(events: Sequence[Event]) -> list[str]:
    return [event.step for event in events if isinstance(event, StepReused)]


def next_steps(events: Sequence[Event]) -> list[str]:
    """Return the steps with which the scheduler starts after these events."""
    first = events[0]
    assert isinstance(first, RunAccepted)
    state = fresh_state(first)
    state.handle(*events)
    return [command.step.id for command in state.resume() if isinstance(command, StartAttempt)]


CHAIN = plan(planned_step(1), planned_step(2, inputs=("a1",)), planned_step(3), planned_step(4, inputs=("a2", "a3")))
ALL = [event for number in range(1, 5) for event in done(f"S{number}")]


@pytest.mark.parametrize(
    ("step", "stands", "made"),
    [
        ("S1", ["S3"], ["S1"]),
        ("S2", ["S1", "S3"], ["S2"]),
        ("S3", ["S1", "S2"], ["S3"]),
        ("S4", ["S1", "S2", "S3"], ["S4"]),
    ],
)
def test_the_step_and_what_waits_for_it_is_made_again(step: str, stands: list[str], made: list[str]) -> None:
    events = again([*CHAIN, *ALL], step)
    assert reused(events) == stands
    assert next_steps(events) == made


def test_what_was_not_done_is_made_too() -> None:
    events = again([*CHAIN, *done("S3"), *done("S1")], "S4")
    assert reused(events) == ["S3", "S1"]
    assert next_steps(events) == ["S2"]


def test_the_plan_is_the_same_and_costs_nothing_again() -> None:
    events = again([*CHAIN, *ALL], "S4")
    planned, finished = events[1], events[2]
    assert isinstance(planned, StepsPlanned)
    assert (planned.at, planned.written) == (100.0, "the plan")
    assert planned.predicted.keys() == {"S1", "S2", "S3", "S4"}
    assert isinstance(finished, PlanFinished)
    assert (finished.wanted, finished.usage.output_tokens) == (("a4",), 0)


READING = plan(planned_step(1, inputs=("a.txt",)), planned_step(2, inputs=("b.txt",)), planned_step(3, 1, 2))


@pytest.mark.parametrize(
    ("files", "stands"),
    [(SAME, ["S1", "S2"]), ({**SAME, "b.txt": "new"}, ["S1"]), ({"b.txt": "B"}, ["S2"])],
)
def test_a_step_whose_file_has_changed_is_made_again(files: Mapping[str, str], stands: list[str]) -> None:
    course = [*READING, *done("S1", {"a.txt": "A"}), *done("S2", {"b.txt": "B"}), *done("S3")]
    assert reused(again(course, "S3", files)) == stands


def test_a_step_of_which_nobody_has_recorded_what_it_read_is_made_again() -> None:
    course = [*READING, *done("S1", {"a.txt": "A"}), *done("S2"), *done("S3")]
    assert reused(again(course, "S3")) == ["S1"]


def test_a_new_version_stands_only_for_the_file_that_it_replaces() -> None:
    course = [*READING, *done("S1", {"a.txt": "A"}, originals={"a1": "old"}), *done("S2", {"b.txt": "B"})]
    assert reused(again(course, "S3", {**SAME, "a1": "old"})) == ["S1", "S2"]
    assert reused(again(course, "S3", {**SAME, "a1": "new"})) == ["S2"]


LIST = plan(planned_step(1), planned_step(2, foreach="a1"), planned_step(3, inputs=("a2",)))


def listed(*items: int) -> list[Event]:
    expanded = StepExpanded(at=4.0, step="S2", count=3, read_as="asked", items=("x", "y", "z"))
    return [*LIST, *done("S1"), expanded, *(event for item in items for event in done(f"S2[{item}]"))]


def test_items_of_a_list_stand_alone() -> None:
    gathered = StepGathered(at=5.0, step="S2", outputs={"a2": "all"})
    whole = again([*listed(0, 1, 2), gathered, *done("S3")], "S3")
    assert reused(whole) == ["S1", "S2[0]", "S2[1]", "S2[2]", "S2"]
    item = again([*listed(0, 1, 2), gathered, *done("S3")], "S2[1]")
    assert reused(item) == ["S1", "S2[0]", "S2[2]"]
    assert next_steps(item) == ["S2[1]"]
    missing = again(listed(0, 2), "S3")
    assert (reused(missing), next_steps(missing)) == (["S1", "S2[0]", "S2[2]"], ["S2[1]"])


@pytest.mark.parametrize("step", ["S1", "S2"])
def test_a_list_that_is_made_again_is_read_again(step: str) -> None:
    events = again(listed(0, 1, 2), step)
    assert not any(isinstance(event, StepExpanded) for event in events)
    assert reused(events) == ([] if step == "S1" else ["S1"])


@pytest.mark.parametrize(("version", "stands"), [("A", ["S1[0]"]), ("new", [])])
def test_a_list_in_a_file_is_read_again_if_it_has_changed(version: str, stands: list[str]) -> None:
    course = [
        *plan(planned_step(1, foreach="a.txt"), planned_step(2)),
        StepExpanded(at=4.0, step="S1", count=2),
        *done("S1[0]", {"a.txt": "A"}),
    ]
    assert reused(again(course, "S2", {"a.txt": version})) == stands


def continued(*more: Event) -> list[Event]:
    return [
        *plan(planned_step(1), planned_step(2), goes_on_after="S2"),
        *done("S1"),
        *done("S2"),
        ReplanStarted(at=4.0, after="S2", role="frontdoor", model="m"),
        StepsPlanned(at=5.0, steps=(planned_step(3, inputs=("a2",)),)),
        ReplanFinished(at=6.0, after="S2", outcome="planned"),
        *more,
    ]


def test_the_rest_of_a_plan_stands_with_the_step_that_it_follows_from() -> None:
    events = again(continued(*done("S3")), "S3")
    assert reused(events) == ["S1", "S2"]
    assert next_steps(events) == ["S3"]
    remade = again(continued(*done("S3")), "S2")
    assert reused(remade) == ["S1"]
    view = RunView.of(remade)
    assert list(view.graph.steps) == ["S1", "S2"], "the rest is planned when S2 is done"
    assert view.replans[0].outcome == "waiting"


def test_a_step_that_has_replaced_the_plan_is_not_made_again_alone() -> None:
    answer = planned_step(9)
    course = [*plan(planned_step(1), planned_step(2, 1)), PlanReplaced(at=4.0, answer=answer, reason="it failed")]
    with pytest.raises(InputError, match="in place of a plan"):
        again(course, "S9")
    with pytest.raises(InputError, match="has no step 'S7'"):
        again(course, "S7")
    assert [event.kind for event in again([*course, *done("S9")], "S2")] == [
        "run_accepted",
        "steps_planned",
        "plan_finished",
    ]


def test_notes_stand_with_the_steps_that_wrote_them() -> None:
    notes: list[Event] = [
        NoteChanged(at=3.0, step=name, number=1, note=name, change="added", text="t") for name in ("S1", "S3")
    ]
    events = again([*CHAIN, *done("S1"), *done("S3"), *notes], "S3")
    assert [event.step for event in events if isinstance(event, NoteChanged)] == ["S1"]


def test_a_reused_step_took_no_time_and_was_not_predicted_wrongly() -> None:
    events = [*again([*CHAIN, *ALL], "S4"), RunFinished(at=110.0, status="cancelled")]
    report = build_report(RunView.of(events), lambda digest: b"")
    row = report.steps[0]
    assert (row.state, row.reused, row.started, row.finished, row.misprediction) == ("done", "R", 0.0, 0.0, None)
    assert report.steps[3].reused is None
    assert report.artifacts == {"a1": "a1", "a2": "a2", "a3": "a3"}


@given(courses(), st.data())
def test_whatever_a_run_did_another_one_can_continue_from_it(events: list[Event], data: st.DataObject) -> None:
    view = RunView.of(events)
    if not view.ended:
        events = [*events, RunFinished(at=events[-1].at, status="cancelled")]
        view = RunView.of(events)
    step = data.draw(st.sampled_from(sorted(view.state.steps)))
    new = replace(view.accepted, run="N")
    repeated: list[Event] = [new, *repeated_events(events, step, new, lambda name: "")]
    after = RunView.of(repeated)
    state = fresh_state(new)
    state.handle(*repeated)
    for name, row in after.state.steps.items():
        assert (state.steps.state_of(name) in FINAL) == (row.state in FINAL)
        if row.state is State.DONE:
            assert after.outputs[name] == view.outputs[name]
            assert all(after.state.steps.state_of(before) is State.DONE for before in after.graph.before.get(name, ()))
    assert after.state.steps.state_of(step) not in FINAL if step in after.state.steps else True
    build_report(after, lambda digest: b"")


def test_what_ended_while_the_rest_was_planned_stands() -> None:
    course = continued(*done("S3"))
    late = [event for event in course if getattr(event, "step", "") == "S1"]
    events = again([*(event for event in course if event not in late), *late], "S2")
    assert reused(events) == ["S1"]
    assert next_steps(events) == ["S2"]
