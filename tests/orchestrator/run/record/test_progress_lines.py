"""What is told of a run while its answer is waited for."""

from dataclasses import replace

from orchestrator.run.record.progress_lines import ProgressLines
from orchestrator.task.events import (
    AttemptFailed,
    AttemptGenerated,
    AttemptStarted,
    AttemptSucceeded,
    CancelRequested,
    EscalationTarget,
    Event,
    Failure,
    FailureKind,
    ModeChoice,
    PlanFailed,
    PlanFinished,
    PlanningStarted,
    PlanReplaced,
    ReplanFinished,
    ReplanStarted,
    RunAccepted,
    RunFinished,
    StepExpanded,
    StepGathered,
    StepsPlanned,
    ToolCalled,
    Usage,
)
from orchestrator.task.taskir.models import Step

RUNGS = {"worker": EscalationTarget("coder"), "coder": EscalationTarget("architect")}
ACCEPTED = RunAccepted(at=0, run="r1", mode="as-planned", request="Go.", rungs=RUNGS)
STEPS = (
    Step(id="S1", actor="worker", action="Sum up\nthe  text.", inputs=("a.txt",), outputs=("o.txt",)),
    Step(id="S2", actor="coder", action="Go on.", outputs=("p",), depends_on=("S1",), foreach="list"),
)


def started(number: int, role: str = "worker", step: str = "S1") -> AttemptStarted:
    return AttemptStarted(at=0, step=step, number=number, role=role, persona=None, model="m", reason="")


def failed(message: str = "no\nmatch") -> AttemptFailed:
    return AttemptFailed(at=0, step="S1", number=1, failure=Failure(FailureKind.SCHEMA, message))


def told(*events: Event) -> list[str]:
    lines = ProgressLines()
    return [line for event in (ACCEPTED, *events) for line in lines.lines(event)][1:]


def test_the_plan_is_told_step_by_step() -> None:
    assert ProgressLines().lines(ACCEPTED) == ("Run r1 is accepted.",)
    events = (
        PlanningStarted(at=0, role="frontdoor", model="m"),
        StepsPlanned(at=0, steps=STEPS),
        PlanFinished(at=0, origin="planned"),
    )
    assert told(*events) == [
        "frontdoor plans, on m.",
        "S1, worker: Sum up the text. Reads a.txt. Writes o.txt.",
        "S2, coder: Go on. Once for each item of list. After S1. Writes p.",
        "The plan has 2 steps.",
    ]


def test_a_direct_answer_is_told_with_its_reason() -> None:
    choice = ModeChoice(reason="the request has nothing to split", propensity=1.0, router="rules")
    lines = ProgressLines()
    assert lines.lines(replace(ACCEPTED, mode="direct", mode_choice=choice)) == (
        "Run r1 is accepted.",
        "It is answered directly: the request has nothing to split",
    )
    assert lines.lines(PlanningStarted(at=0, role="frontdoor", model="m", direct=True)) == ()


def test_a_direct_answer_in_the_place_of_a_plan_is_told() -> None:
    answer = Step(id="S3", actor="worker", action="Go.", outputs=("s3.txt",))
    assert told(PlanReplaced(at=0, answer=answer, reason="S2: no list")) == [
        "The plan has failed: S2: no list",
        "The request is answered directly. S3, worker: Go. Writes s3.txt.",
    ]


def test_why_a_plan_is_another_one_and_where_it_goes_on_is_told() -> None:
    assert told(PlanFinished(at=0, origin="fallback", reason="it was no JSON", goes_on_after="S1")) == [
        "The plan has 0 steps, and continues after S1 (fallback: it was no JSON)."
    ]
    assert told(
        ReplanStarted(at=0, after="S1", role="frontdoor", model="m"),
        ReplanFinished(at=0, after="S1", outcome="stopped", reason="no JSON"),
        ReplanFinished(at=0, after="S1", outcome="planned"),
        PlanFailed(at=0, failure=Failure(FailureKind.INFRASTRUCTURE, "it died")),
    ) == [
        "frontdoor plans what follows S1, on m.",
        "The plan after S1 is stopped: no JSON",
        "The plan after S1 is planned.",
        "There is no plan: it died",
    ]


def test_retries_escalations_and_interruptions_are_told_apart() -> None:
    assert told(started(1), failed(), started(2), failed(), started(3, "architect"), started(4, "architect")) == [
        "S1 begins: worker on m.",
        "S1 failed (schema): no match",
        "S1 is tried again: worker on m (attempt 2).",
        "S1 failed (schema): no match",
        "S1 escalates from worker to architect, on m (attempt 3).",
        "S1 is begun again after an interruption: architect on m (attempt 4).",
    ]
    down = told(started(1, "architect"), failed(), started(2, "coder"))
    assert down[-1] == "S1 is tried again: coder on m (attempt 2).", "a router has chosen it, and it is no stronger one"


def test_what_else_happens_to_steps_is_told() -> None:
    called = ToolCalled(at=0, step="S1", number=1, tool="shell", arguments="{}", outcome="failed", message="exit 1")
    assert told(
        StepExpanded(at=0, step="S2", count=3),
        StepExpanded(at=0, step="S2", count=2, read_as="asked", items=("a", "b")),
        StepExpanded(at=0, step="S2", count=1, read_as="whole"),
        called,
        AttemptGenerated(at=0, step="S1", number=1, usage=Usage()),
        AttemptSucceeded(at=0, step="S1", number=1, outputs={}),
        StepGathered(at=0, step="S2", outputs={}),
        CancelRequested(at=0, reason="quota"),
        RunFinished(at=0, status="cancelled", error="quota"),
        RunFinished(at=0, status="done"),
    ) == [
        "S2 runs 3 times, once for each item of its list.",
        "S2 runs 2 times, once for each item of its list. The list was asked for again, as the first text was none.",
        "S2 runs once for all of the text, which is no list.",
        "S1 has called shell: failed: exit 1",
        "S1 is done.",
        "S2 is done.",
        "The run is to be cancelled: quota",
        "The run is cancelled: quota",
        "The run is done.",
    ]


def test_long_messages_are_shortened() -> None:
    (line,) = told(failed("x" * 1000))
    assert len(line) < 350
    assert line.endswith("…")
