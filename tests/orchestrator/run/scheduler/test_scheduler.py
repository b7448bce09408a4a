"""What the scheduler does with a plan that is known, case by case; the other files have the other cases.

That it does so in every mixture is in test_scheduler_machine.
"""

import pytest

from orchestrator.run.scheduler.commands import FinishRun, StartAttempt
from orchestrator.task.events import (
    AttemptCancelled,
    AttemptFailed,
    AttemptGenerated,
    AttemptStarted,
    AttemptSucceeded,
    Failure,
    FailureKind,
    PlanFailed,
    PlanFinished,
    PlanningStarted,
    RunAccepted,
    StepExpanded,
    StepGathered,
    StepsPlanned,
    Usage,
)
from orchestrator.task.states import (
    FINAL,
    TRANSITIONS,
    IllegalTransition,
    State,
)
from tests.orchestrator.scheduler_driver import Driver, planned, step


def test_a_step_starts_the_moment_its_last_dependency_is_done() -> None:
    driver = planned(step(1), step(2), step(3, 1, 2))
    assert list(driver.working) == ["S1", "S2"]
    driver.succeed("S2")
    assert list(driver.working) == ["S1"]
    driver.succeed("S1")
    assert driver.latest == [StartAttempt(driver.state.graph.steps["S3"], 1, "worker", "first attempt")]


def test_data_flow_is_waited_for() -> None:
    driver = planned(step(1), step(2, inputs=("a1",)))
    assert list(driver.working) == ["S1"]


def test_a_run_is_done_when_its_steps_are() -> None:
    driver = planned(step(1), step(2, 1))
    driver.succeed("S1")
    driver.succeed("S2")
    assert driver.latest == [FinishRun("done")]
    assert driver.state.status == "running"
    driver.end()
    assert driver.state.status == "done"


def test_the_status_follows_the_run() -> None:
    driver = Driver({})
    assert driver.state.status == "queued"
    driver.send(RunAccepted(at=0, run="r", mode="as-planned", request="Do it."))
    driver.send(PlanningStarted(at=0, role="frontdoor", model="m"))
    assert driver.state.status == "planning"
    driver.plan(step(1), closed=False)
    assert driver.state.status == "running"


def test_the_states_of_a_step() -> None:
    driver = planned(step(1), step(2, 1), step(3, 2))
    for step_id in ("S1", "S2"):
        driver.start(step_id)
        driver.generate(step_id)
        driver.succeed(step_id)
    driver.start("S3")
    driver.fail("S3", FailureKind.TIMEOUT)
    assert [str(state) for state in driver.state.steps["S2"].state_history] == [
        "waiting",
        "ready",
        "running",
        "checking",
        "done",
    ]
    assert driver.states() == {"S1": "done", "S2": "done", "S3": "failed"}


def test_nothing_leaves_a_final_state() -> None:
    """But for the one repair of a doubtful answer, after which the step is done again whatever happens."""
    assert [pair for pair in TRANSITIONS if pair[0] in FINAL] == [(State.DONE, State.READY)]
    assert {to for _, to in TRANSITIONS} == set(State) - {State.WAITING}


STARTED = AttemptStarted(at=0, step="S1", number=1, role="worker", persona=None, model="m", reason="")
GENERATED = AttemptGenerated(at=0, step="S1", number=1, usage=Usage())
SUCCEEDED = AttemptSucceeded(at=0, step="S1", number=1, outputs={})
FAILED = AttemptFailed(at=0, step="S1", number=1, failure=Failure(FailureKind.CODE, ""))


@pytest.mark.parametrize(
    ("before", "event"),
    [
        ([STARTED], STARTED),
        ([], GENERATED),
        ([], SUCCEEDED),
        ([], FAILED),
        ([], AttemptCancelled(at=0, step="S1", number=1)),
        ([STARTED], AttemptCancelled(at=0, step="S1", number=1)),
        ([STARTED, GENERATED], GENERATED),
        ([STARTED, SUCCEEDED], SUCCEEDED),
        ([STARTED, SUCCEEDED], STARTED),
        ([STARTED, SUCCEEDED], FAILED),
        ([STARTED, FAILED], SUCCEEDED),
        ([STARTED], AttemptSucceeded(at=0, step="S1", number=2, outputs={})),
        ([], AttemptSucceeded(at=0, step="S2", number=1, outputs={})),
        ([], AttemptSucceeded(at=0, step="S9", number=1, outputs={})),
        ([], StepExpanded(at=0, step="S1", count=1)),
        ([], StepExpanded(at=0, step="S3", count=1)),
        ([STARTED, SUCCEEDED], StepGathered(at=0, step="S3", outputs={})),
        ([STARTED, SUCCEEDED, StepExpanded(at=0, step="S3", count=1)], StepExpanded(at=0, step="S3", count=1)),
        ([STARTED, SUCCEEDED, StepExpanded(at=0, step="S3", count=1)], StepGathered(at=0, step="S3", outputs={})),
        (
            [STARTED, SUCCEEDED, StepExpanded(at=0, step="S3", count=1)],
            AttemptFailed(at=0, step="S3", number=0, failure=Failure(FailureKind.CODE, "")),
        ),
        ([STARTED, SUCCEEDED], AttemptSucceeded(at=0, step="S3", number=0, outputs={})),
        ([STARTED, SUCCEEDED], AttemptStarted(at=0, step="S3", number=0, role="r", persona=None, model="m", reason="")),
        ([], PlanFinished(at=0, origin="planned")),
        ([], PlanFailed(at=0, failure=Failure(FailureKind.CODE, ""))),
        ([], StepsPlanned(at=0, steps=(step(9),))),
    ],
)
def test_what_cannot_happen_is_refused_and_changes_nothing(before: list[object], event: object) -> None:
    driver = planned(step(1), step(2, 1), step(3, foreach="a1"))
    driver.state.handle(*before)  # type: ignore[arg-type]
    states = dict(driver.state.steps)
    with pytest.raises(IllegalTransition):
        driver.state.handle(event)  # type: ignore[arg-type]
    assert dict(driver.state.steps) == states
    assert driver.state.handle() == []


def test_an_illegal_transition_tells_the_step_s_story() -> None:
    driver = planned(step(1))
    driver.succeed("S1")
    with pytest.raises(IllegalTransition, match=r"S1: unexpected attempt_failed.*waiting → ready → running → done"):
        driver.state.handle(FAILED)


def test_views_cannot_change_the_run() -> None:
    driver = planned(step(1))
    with pytest.raises(AttributeError):
        driver.state.steps["S1"].state = State.DONE  # type: ignore[misc]
    with pytest.raises(TypeError):
        driver.state.steps["S2"] = driver.state.steps["S1"]  # type: ignore[index]
