"""What the cancellation of a run comes to when all of its steps are done, and its answer is only repaired."""

from orchestrator.events import (
    AnswerChecked,
    AnswerDoubt,
    AttemptStarted,
    AttemptSucceeded,
    Event,
    PlanFinished,
    PlanningStarted,
    RunAccepted,
    RunBegun,
    StepsPlanned,
)
from orchestrator.history.view import RunView
from orchestrator.service.cancelling import cancellation
from orchestrator.taskir import Step

STEP = Step(id="S1", actor="worker", action="Give tips.", outputs=("s1.txt",))


def begun(number: int) -> AttemptStarted:
    return AttemptStarted(at=3.0, step="S1", number=number, role="worker", persona=None, model="m", reason="r")


EVENTS: list[Event] = [
    RunAccepted(at=1.0, run="R", mode="as-planned", request="Give me 5 tips."),
    RunBegun(at=1.0),
    PlanningStarted(at=1.0, role="frontdoor", model="m"),
    StepsPlanned(at=2.0, steps=(STEP,)),
    PlanFinished(at=2.0, origin="planned"),
    begun(1),
    AttemptSucceeded(at=4.0, step="S1", number=1, outputs={"s1.txt": "d"}),
    AnswerChecked(at=4.0, doubts=(AnswerDoubt("You asked for 5 tips; the answer has 3.", "S1"),)),
    begun(2),
]


def test_a_run_that_repairs_its_answer_ends_with_the_answer_that_it_has() -> None:
    done = cancellation(RunView.of(EVENTS), None)
    assert (done.ended, done.steps) == (None, ("S1",))
    assert done.describe("R", None) == "run R ends with the answer that it has, and its repair is cancelled"


def test_a_run_that_is_still_at_work_is_cancelled() -> None:
    assert cancellation(RunView.of(EVENTS[:6]), None).describe("R", None) == "run R is cancelled"
