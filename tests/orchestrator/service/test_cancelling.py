"""What a request to cancel comes to, by the state that the run is in."""

import pytest

from orchestrator.errors import InputError
from orchestrator.run.record.view import RunView
from orchestrator.service.cancelling import Cancellation, cancellation
from orchestrator.task.events import (
    AnswerChecked,
    AnswerDoubt,
    AttemptStarted,
    AttemptSucceeded,
    Event,
    PlanFinished,
    RunAccepted,
    RunFinished,
    StepExpanded,
    StepsPlanned,
)
from orchestrator.task.taskir.models import Step


def step(name: str, *inputs: str, foreach: str | None = None) -> Step:
    return Step(id=name, actor="worker", action="go", inputs=inputs, outputs=(f"o{name}",), foreach=foreach)


def planned(*steps: Step) -> list[Event]:
    return [
        RunAccepted(at=1.0, run="R", mode="as-planned", request="x", prior={"list": "0" * 64}, files=("list",)),
        StepsPlanned(at=1.0, steps=steps),
        PlanFinished(at=1.0, origin="planned"),
    ]


def done(name: str) -> list[Event]:
    return [
        AttemptStarted(at=1.0, step=name, number=1, role="worker", persona=None, model="m", reason="r"),
        AttemptSucceeded(at=2.0, step=name, number=1, outputs={f"o{name}": "0" * 64}),
    ]


CHAIN = planned(step("S1"), step("S2", "oS1"), step("S3", "oS2"), step("S4", "oS1"))


def test_a_step_is_cancelled_with_everything_that_waits_for_it() -> None:
    view = RunView.of([*CHAIN, *done("S1")])
    found = cancellation(view, "S2")
    assert found == Cancellation(None, ("S2", "S3"))
    assert found.describe("R", "S2") == "step S2 of run R is cancelled, and what depends on it: S3"
    assert cancellation(view, "S3").describe("R", "S3") == "step S3 of run R is cancelled"


def test_what_has_ended_is_not_cancelled() -> None:
    view = RunView.of([*CHAIN, *done("S1")])
    found = cancellation(view, "S1")
    assert (found, found.describe("R", "S1")) == (Cancellation("done"), "step S1 of run R had ended before: done")
    assert cancellation(view, None) == Cancellation(None, ("S2", "S3", "S4"))
    ended = RunView.of([*CHAIN, *done("S1"), RunFinished(at=3.0, status="cancelled")])
    assert cancellation(ended, None).describe("R", None) == "run R had ended before: cancelled"
    assert cancellation(ended, "S3") == Cancellation("cancelled")


def test_the_parent_of_a_child_that_is_cancelled_and_what_waits_for_it_end_too() -> None:
    begun = StepExpanded(at=1.0, step="S1", count=2)
    view = RunView.of([*planned(step("S1", "list", foreach="list"), step("S2", "oS1")), begun])
    assert cancellation(view, "S1[0]").steps == ("S1[0]", "S1", "S2")
    assert set(cancellation(view, "S1").steps) == {"S1", "S1[0]", "S1[1]", "S2"}


def test_an_unknown_step_is_refused() -> None:
    with pytest.raises(InputError, match="has no step 'S9'"):
        cancellation(RunView.of(CHAIN), "S9")


def test_a_run_that_repairs_its_answer_ends_with_the_answer_that_it_has() -> None:
    doubted = AnswerChecked(at=2.0, doubts=(AnswerDoubt("You asked for 5 tips; the answer has 3.", "S1"),))
    found = cancellation(RunView.of([*planned(step("S1")), *done("S1"), doubted]), None)
    assert found == Cancellation(None, ("S1",), answered=True)
    assert found.describe("R", None) == "run R ends with the answer that it has, and its repair is cancelled"
