"""What the printed report says of steps that needed more than one attempt."""

import io

from rich.console import Console

from orchestrator.cli.report_view import print_report, print_retries
from orchestrator.cli.terminal import glyphs
from orchestrator.run.record.report import StepRow, build_report
from orchestrator.run.record.view import AttemptRow, RunView
from orchestrator.task.events import (
    AttemptFailed,
    AttemptGenerated,
    AttemptStarted,
    AttemptSucceeded,
    Event,
    Failure,
    FailureKind,
    PlanFinished,
    RunAccepted,
    RunBegun,
    RunFinished,
    StepsPlanned,
    Usage,
)
from tests.orchestrator.scheduler_driver import step as planned_step


def attempt(number: int, role: str, outcome: str, message: str = "") -> AttemptRow:
    return AttemptRow(
        number, role, None, f"m-{role}", float(number), "", float(number) + 1, outcome=outcome, message=message
    )


def row(name: str, *attempts: AttemptRow) -> StepRow:
    return StepRow(name, "Go.", "worker", None, "done", (), 0.0, 0.0, 1.0, attempts, {}, None, None, ())


def printed(*steps: StepRow, full: bool = True) -> list[str]:
    console = Console(file=io.StringIO(), width=200)
    print_retries(console, list(steps), glyphs(console), full=full)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_who_failed_why_and_who_tried_next() -> None:
    arrow = glyphs(Console(file=io.StringIO())).arrow
    lines = printed(
        row(
            "S1",
            attempt(1, "worker", "code", "gate lint failed: a.py:1: F821 Undefined name `u`"),
            attempt(2, "worker", "timeout", "not done within 5 s"),
            attempt(3, "coder", "done"),
        )
    )
    assert lines == [
        f"S1  worker on m-worker: code: gate lint failed: a.py:1: F821 Undefined name `u` {arrow} worker tries again",
        f"S1  worker on m-worker: timeout: not done within 5 s {arrow} coder on m-coder takes over",
    ]


def test_the_last_failure_of_a_step_that_was_given_up_is_printed() -> None:
    lines = printed(row("S1", attempt(1, "worker", "interrupted"), attempt(2, "worker", "logic", "judged wrong")))
    assert lines[0].endswith("run again")
    assert lines[1] == "S1  worker on m-worker: logic: judged wrong"


def test_of_many_steps_the_first_are_printed() -> None:
    steps = [row(f"S{number}", attempt(1, "worker", "code"), attempt(2, "worker", "done")) for number in range(1, 60)]
    assert printed(*steps, full=False)[-1] == "19 more steps"
    assert len(printed(*steps)) == 59


def report_lines(*events: Event) -> list[str]:
    view = RunView.of([RunAccepted(at=0.0, run="R", mode="as-planned", request="Go"), RunBegun(at=0.0), *events])
    console = Console(file=io.StringIO(), width=80)
    print_report(console, build_report(view, lambda _: b""), view, None, full=True)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_an_interrupted_attempt_is_drawn_until_the_next_one() -> None:
    first, second = (
        AttemptStarted(at=at, step="S1", number=number, role="worker", persona=None, model="m", reason="r")
        for number, at in enumerate((0.0, 10.0), start=1)
    )
    lines = report_lines(
        StepsPlanned(at=0.0, steps=(planned_step(1),)),
        PlanFinished(at=0.0, origin="taskir"),
        first,
        RunBegun(at=9.0),
        second,
        AttemptSucceeded(at=20.0, step="S1", number=2, outputs={}),
        RunFinished(at=20.0, status="done"),
    )
    signs = glyphs(Console(file=io.StringIO()))
    (bar,) = (line for line in lines if signs.broken in line and line.startswith("* S1"))
    drawn = bar.removeprefix("* S1").split()[0]
    assert drawn.rstrip(signs.critical).strip(signs.broken) == "", "the attempt that failed comes first"
    assert abs(drawn.count(signs.broken) - drawn.count(signs.critical)) <= 2


def test_a_run_without_steps_has_no_list_of_steps() -> None:
    lines = report_lines(RunFinished(at=1.0, status="cancelled", error="cancelled by the user"))
    assert "cancelled by the user" in lines
    assert not any("Steps" in line for line in lines)


def test_a_failed_run_has_only_figures_of_what_it_did() -> None:
    failure = Failure(FailureKind.RESOURCE, "no memory")
    first = AttemptStarted(at=1.0, step="S1", number=1, role="worker", persona=None, model="m", reason="r")
    plan = (StepsPlanned(at=0.0, steps=(planned_step(1),)), PlanFinished(at=0.0, origin="taskir"), first)
    failed = (
        AttemptFailed(at=1.0, step="S1", number=1, failure=failure),
        RunFinished(at=2.0, status="failed", error="no memory"),
    )
    usage = Usage(prompt_tokens=9, output_tokens=4, work_seconds=0.5, alone_seconds=0.5, packed_seconds=0.5)
    done = (
        AttemptGenerated(at=2.0, step="S1", number=1, usage=usage),
        AttemptSucceeded(at=2.0, step="S1", number=1, outputs={}),
        RunFinished(at=2.0, status="done"),
    )
    assert figures(*plan, *failed) == ["Critical path", "Width"]
    assert figures(*plan, *done) == ["Critical path", "Concurrency", "Bound", "Width", "Tokens"]


def figures(*events: Event) -> list[str]:
    lines = report_lines(*events)
    table = lines[next(number for number, line in enumerate(lines) if "Figures" in line) + 1 :]
    return [line[:13].strip() for line in table if line[:13].strip()]
