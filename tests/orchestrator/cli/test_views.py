"""Events, folded into what the user sees: the live table, the report, an explanation."""

import io
import json
import re
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console, RenderableType

from orchestrator.cli.explain_view import print_explanation
from orchestrator.cli.forecast_view import print_forecast
from orchestrator.cli.live import progress_line, render
from orchestrator.cli.report_view import compare_with_serial, format_speedup, print_report
from orchestrator.cli.terminal import ASCII, UNICODE, Glyphs, seconds
from orchestrator.run.planning import planned_task
from orchestrator.run.record.documents import forecast_document
from orchestrator.run.record.forecast import Forecast, JobForecast
from orchestrator.run.record.report import Report, build_report, explanation_json
from orchestrator.run.record.view import RunView
from orchestrator.run.updates import Progress
from orchestrator.task.analysis import analyze_task
from orchestrator.task.events import (
    AttemptCancelled,
    AttemptFailed,
    AttemptGenerated,
    AttemptStarted,
    AttemptSucceeded,
    CancelRequested,
    Event,
    Failure,
    FailureKind,
    GateResult,
    ModelAwaited,
    PlanFinished,
    PlanningStarted,
    Prediction,
    ReplanFinished,
    ReplanOutcome,
    ReplanStarted,
    RoleRates,
    RunAccepted,
    RunFinished,
    Shipped,
    StepExpanded,
    StepsPlanned,
    Usage,
    encode_event,
)
from orchestrator.task.prediction import predict_step
from orchestrator.task.taskir.models import Step
from orchestrator.task.taskir.parse import dump_task

ANSWER = "Zilthir 214,\tHaklon 305; \x1b[2Jhighest Haklon."
HOSTILE = "[bold]a.txt[/bold] \x1b[31m"


def _step(number: int, action: str, *reads: str, foreach: str | None = None) -> Step:
    return Step(
        id=f"S{number}", actor="worker", action=action, inputs=reads, outputs=(f"s{number}.txt",), foreach=foreach
    )


STEPS = (
    _step(1, f"Summarize {HOSTILE}.", "a.txt"),
    _step(2, "Summarize b.txt.", "b.txt"),
    _step(3, "Compare the summaries.", "s1.txt", "s2.txt"),
)


def _accepted(steps: tuple[Step, ...] = STEPS) -> list[Event]:
    request = "Summarize a and b, then compare them"
    return [
        RunAccepted(at=100.0, run="r1", mode="as-planned", request=request, files=("a.txt", "b.txt")),
        PlanningStarted(at=100.0, role="frontdoor", model="large"),
        StepsPlanned(at=100.1, steps=steps),
        PlanFinished(at=100.2, origin="planned"),
    ]


def _started(step: str, at: float, number: int = 1) -> Event:
    return AttemptStarted(
        at=at, step=step, number=number, role="worker", persona=None, model="small", reason="role worker: the actor"
    )


def _done(step: str, at: float, number: int = 1, *gates: GateResult) -> list[Event]:
    usage = Usage(prompt_tokens=50, cached_tokens=10, output_tokens=20, decode_seconds=0.1)
    digest = {f"s{step[1:]}.txt": "0" * 64}
    return [
        AttemptGenerated(at=at - 0.01, step=step, number=number, usage=usage),
        AttemptSucceeded(at=at, step=step, number=number, outputs=digest, gates=gates),
    ]


def _finished_run() -> list[Event]:
    failure = Failure(FailureKind.SCHEMA, "not JSON")
    return [
        *_accepted(),
        _started("S1", 100.1),
        _started("S2", 100.1),
        *_done(
            "S1",
            100.4,
            1,
            GateResult("schema", "passed", seconds=0.5, work_seconds=0.1),
            GateResult("lint", "not run", "there is no lint"),
        ),
        AttemptFailed(at=100.5, step="S2", number=1, failure=failure),
        _started("S2", 100.5, 2),
        *_done("S2", 100.9, 2),
        _started("S3", 100.9),
        *_done("S3", 101.2),
        RunFinished(at=101.25, status="done"),
    ]


def _report(events: list[Event]) -> Report:
    return build_report(RunView.of(events), lambda digest: ANSWER.encode())


def _console(width: int = 80) -> tuple[Console, io.StringIO]:
    written = io.StringIO()
    return Console(file=written, width=width, force_terminal=False, markup=False, highlight=False), written


def _text(shown: RenderableType, width: int = 80) -> str:
    console, written = _console(width)
    console.print(shown)
    return "\n".join(line.rstrip() for line in written.getvalue().splitlines())


def _frame(events: list[Event], *, height: int = 20, tail: tuple[str, str] = ("", ""), signs: Glyphs = UNICODE) -> str:
    return _text(render(RunView.of(events), 100.6, height, "ctrl-C cancels", tail, signs))


def test_a_frame_tells_state_role_and_speed_of_each_step() -> None:
    lines = _frame(_finished_run()[:10], tail=("S2", "Koldin:\nowner")).splitlines()
    assert lines[:3] == ["Summarize a and b, then compare them", "r1  running  as-planned  1 of 3 done  0.60 s", ""]
    assert lines[3].startswith("✓    S1  done     worker  200 tok/s  0.30 s  Summarize [bold]a.txt[/bold] ")
    assert lines[4].startswith("│ ●  S2  running  worker             0.50 s  attempt 2: Summarize b.txt.")
    assert lines[5].startswith("○─╯  S3  waiting  worker                     Compare the summaries.")
    assert lines[7] == "ctrl-C cancels  S2: Koldin: owner"


def test_what_we_say_is_never_cut_off_for_what_a_step_writes() -> None:
    frame = _text(render(RunView.of(_accepted()), 100.6, 20, "ctrl-C again ends at once", ("S2", "la " * 100), UNICODE))
    assert "ctrl-C again ends at once" in frame


def test_progress_shows_the_rate_of_a_running_step() -> None:
    run, heard = RunView.of(_finished_run()[:6]), {"S2": Progress("S2", 1, 12, 98.4, "la")}
    assert "98 tok/s" in _text(render(run, 100.6, 20, "", ("", ""), UNICODE, heard))
    earlier = {"S2": Progress("S2", 0, 12, 98.4, "la")}
    assert "98 tok/s" not in _text(render(run, 100.6, 20, "", ("", ""), UNICODE, earlier)), "it is of another attempt"


def test_a_step_says_what_it_waits_for() -> None:
    run = RunView.of(_finished_run()[:6])
    reading = {"S2": Progress("S2", 1, 0, 0.0, "", read_tokens=300, prompt_tokens=660)}
    checking = {"S2": Progress("S2", 1, 9, 0.0, "", gates=("lint", "typecheck"), waits_for_core=True)}
    earlier = {"S2": Progress("S2", 0, 0, 0.0, "", ahead=0)}
    assert "read 300 of 660 tokens" in _text(render(run, 100.6, 20, "", ("", ""), UNICODE, reading))
    assert "checking: lint, typecheck, waiting for a core" in _text(
        render(run, 100.6, 20, "", ("", ""), UNICODE, checking), 160
    )
    assert "queue" not in _text(render(run, 100.6, 20, "", ("", ""), UNICODE, earlier)), "it is of another attempt"
    ended = RunView.of(_finished_run())
    assert "read 300" not in _text(render(ended, 100.6, 20, "", ("", ""), UNICODE, reading))


def test_the_table_names_nodes_only_if_there_are_any() -> None:
    run = RunView.of(_finished_run()[:6])
    plain = _text(render(run, 100.6, 20, "", ("", ""), UNICODE, {"S2": Progress("S2", 1, 12, 98.4, "la")}))
    assert re.search("S2  running  worker  98 tok/s", plain)
    there = {"S2": Progress("S2", 1, 0, 0.0, "", nodes=("east", "west"))}
    lines = _text(render(run, 100.6, 20, "", ("", ""), UNICODE, there), 120).splitlines()
    assert re.search(r"S1  running  worker   +0.50 s", lines[3])
    assert re.search(r"S2  running  worker  east, west +0.50 s  waiting for the first token", lines[4])
    earlier = {"S2": Progress("S2", 0, 12, 98.4, "la", nodes=("east",))}
    assert "east" not in _text(render(run, 100.6, 20, "", ("", ""), UNICODE, earlier)), "it is of another attempt"
    usage = Usage(output_tokens=20, nodes=("north",))
    ended = RunView.of([*_finished_run()[:6], AttemptGenerated(at=100.5, step="S1", number=1, usage=usage)])
    assert re.search(r"S1 +checking +worker +north ", _text(render(ended, 100.6, 20, "", ("", ""), UNICODE), 120))


def test_drafts_are_next_to_the_tokens_of_report_and_attempt() -> None:
    drafted = Usage(prompt_tokens=50, output_tokens=45, drafted_tokens=60, accepted_tokens=41)
    events = [
        replace(event, usage=drafted) if isinstance(event, AttemptGenerated) and event.step == "S1" else event
        for event in _finished_run()
    ]
    report = _report(events)
    console, written = _console(120)
    print_report(console, report, RunView.of(events), None, full=False)
    assert "85 output, 41 of 60 drafted tokens accepted " in written.getvalue()
    for step, shown in (
        (0, "45 output tokens, 41 of 60 drafted tokens accepted"),
        (1, "20 output tokens at 200 tok/s"),
    ):
        console, written = _console(120)
        print_explanation(console, report, report.steps[step])
        assert shown in [line.strip().rpartition(" and ")[2] for line in written.getvalue().splitlines()]
    first, second = (row["attempts"][-1]["usage"] for row in report.to_json()["steps"][:2])
    assert (first["drafted_tokens"], first["accepted_tokens"]) == (60, 41)
    assert not {"drafted_tokens", "accepted_tokens"} & second.keys()


def test_the_plan_says_what_it_waits_for() -> None:
    accepted = RunAccepted(at=100.0, run="r", mode="as-planned", request="Go")
    planning = RunView.of([accepted, PlanningStarted(at=100.0, role="frontdoor", model="m")])
    heard = {"": Progress("", 0, 0, 0.0, "", read_tokens=300, prompt_tokens=660)}
    frame = _text(render(planning, 100.6, 20, "", ("", ""), UNICODE, heard))
    assert "the frontdoor is making a plan: read 300 of 660 tokens" in frame


def test_a_step_that_waits_for_a_model_says_why_and_for_how_long() -> None:
    reason = "model small is broken: its engine failed 3 times within 60 s; next try in 25 s; the last time: killed"
    waits = ModelAwaited(at=100.2, step="S1", number=1, model="small", reason=reason, seconds=25.0)
    events = [*_accepted(), _started("S1", 100.1), waits]
    waiting = "waits for small, 24.6 s more: model small is broken"
    assert waiting in _text(render(RunView.of(events), 100.6, 20, "", ("", ""), UNICODE), 160)
    heard = {"S1": Progress("S1", 1, 12, 98.4, "la")}
    assert waiting[:9] not in _text(render(RunView.of(events), 100.6, 20, "", ("", ""), UNICODE, heard), 160)
    assert waiting[:9] not in _text(render(RunView.of(events), 126.0, 20, "", ("", ""), UNICODE), 160)
    console, written = _console(160)
    report = _report(events)
    print_explanation(console, report, report.steps[0])
    assert f"waited from 0.20 s on: {reason}" in " ".join(written.getvalue().split())


def test_a_plain_terminal_gets_plain_characters() -> None:
    frame = _frame(_finished_run()[:6], signs=ASCII)
    assert frame.isascii()
    assert "o-'  S3" in frame


def test_a_frame_fits_a_low_terminal_and_shows_what_runs() -> None:
    steps = tuple(_step(number, "Do it.") for number in range(1, 31))
    events = [*_accepted(steps), _started("S1", 100.2), *_done("S1", 100.3), _started("S30", 100.2)]
    lines = _frame(events, height=5).splitlines()
    assert len(lines) <= 5 + 5
    assert "26 more; of all: 29 running, 1 done" in lines
    assert not any("S1 " in line for line in lines), "what is done gives way to what is not"


def test_children_stand_below_their_parent() -> None:
    fan = (_step(1, "List.", "a.txt"), _step(2, "Each.", foreach="s1.txt"), _step(3, "Compare.", "s2.txt"))
    events = [*_accepted(fan), _started("S1", 100.1), *_done("S1", 100.3), StepExpanded(at=100.3, step="S2", count=2)]
    lines = _frame(events).splitlines()
    assert [line.split()[1] for line in lines[3:8]] == ["S1", "S2", "S2[0]", "S2[1]", "S3"]
    assert "2 items: Each." in lines[4]


def test_a_list_ends_with_its_last_child_when_one_has_failed() -> None:
    fan = (_step(1, "Each.", foreach="a.txt"),)
    events = [*_accepted(fan), StepExpanded(at=100.3, step="S1", count=2)]
    events += [_started(f"S1[{child}]", 100.4) for child in range(2)]
    final = Failure(FailureKind.RESOURCE, "too long", final=True)
    events.append(AttemptFailed(at=100.5, step="S1[0]", number=1, failure=final))
    events += [AttemptSucceeded(at=100.75, step="S1[1]", number=1, outputs={"s1.txt[1]": "0" * 64})]
    assert RunView.of(events).times("S1") == (pytest.approx(0.3), pytest.approx(0.75))
    row = _report([*events, RunFinished(at=101.0, status="failed", error="S1: too long")]).steps[-1]
    assert (row.id, row.state) == ("S1", "failed")
    assert (row.started, row.finished) == (pytest.approx(0.3), pytest.approx(0.75))


def test_the_report_ends_with_answer_timeline_and_figures() -> None:
    console, written = _console()
    report = _report(_finished_run())
    print_report(console, report, RunView.of(_finished_run()), None, full=False)
    text = written.getvalue()
    headings = [line.split()[1] for line in text.splitlines() if line.startswith("──")]
    assert headings == ["Steps", "Retries", "Answer", "Timeline", "Figures"]
    assert f"S2  worker on small: schema: not JSON {UNICODE.arrow} worker tries again" in text
    assert "r1  done  as-planned  3 steps  1.25 s  planned" in text
    assert "gate lint of S1: not run (there is no lint)" in text
    assert "\\x1b[2Jhighest Haklon." in text
    marked = [line for line in text.splitlines() if line.startswith("* S")]
    assert [line.split()[1] for line in marked] == ["S2", "S3"]
    assert UNICODE.broken in marked[0]
    assert all("█" in line for line in marked)
    assert "Critical path  S2 → S3" in text
    assert "speedup" not in text.lower(), "it is told only from a pair"
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "\x1b" not in text


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_report_fits_any_width(width: int) -> None:
    console, written = _console(width)
    print_report(console, _report(_finished_run()), RunView.of(_finished_run()), None, full=False)
    assert max(map(len, written.getvalue().splitlines())) <= width


def test_a_failed_run_says_what_went_wrong() -> None:
    failure = Failure(FailureKind.SCHEMA, "not JSON")
    events = [*_accepted(), _started("S2", 100.1), *_done("S2", 100.3)]
    for number in (1, 2):
        events.append(_started("S1", 100.3 + number / 10, number))
        answer = f"{number}" * 64
        events.append(AttemptFailed(at=100.35 + number / 10, step="S1", number=number, failure=failure, answer=answer))
    events.append(RunFinished(at=101.0, status="failed", error="S1: not JSON"))
    console, written = _console()
    print_report(console, _report(events), RunView.of(events), None, full=False)
    text = written.getvalue()
    assert "What went wrong" in text
    assert "  attempts 1 to 2, worker on small: schema: not JSON" in text
    assert re.search(r"  its last answer: `orchestrator show \S+ S1 --attempt 2`", text)
    assert "cancelled: S3" in text


def test_a_cancelled_run_says_so() -> None:
    events = [
        *_accepted(),
        _started("S1", 100.1),
        CancelRequested(at=100.3),
        AttemptCancelled(at=100.4, step="S1", number=1),
        RunFinished(at=100.5, status="cancelled", error="cancelled by the user"),
    ]
    console, written = _console()
    print_report(console, _report(events), RunView.of(events), None, full=False)
    assert "r1  cancelled  as-planned" in written.getvalue()
    assert "cancelled by the user" in written.getvalue()


def _continued_run(outcome: ReplanOutcome = "planned", reason: str = "") -> list[Event]:
    request = "Summarize the files that a.txt names"
    usage = Usage(prompt_tokens=70, output_tokens=30)
    more = _step(2, "Summarize b.txt.", "b.txt").model_copy(update={"depends_on": ("S1",)})
    return [
        RunAccepted(at=100.0, run="r1", mode="as-planned", request=request, files=("a.txt", "b.txt"), max_replans=1),
        PlanningStarted(at=100.0, role="frontdoor", model="large"),
        StepsPlanned(at=100.1, steps=(_step(1, "List each file in a.txt.", "a.txt"),)),
        _started("S1", 100.1),
        PlanFinished(at=100.2, origin="planned", usage=usage, goes_on_after="S1"),
        *_done("S1", 100.4),
        ReplanStarted(at=100.4, after="S1", role="frontdoor", model="large"),
        StepsPlanned(at=100.6, steps=(more,)),
        _started("S2", 100.6),
        ReplanFinished(at=100.7, after="S1", outcome=outcome, reason=reason, usage=usage, goes_on_after="S2"),
        *_done("S2", 100.9),
        RunFinished(at=101.0, status="done"),
    ]


def test_the_report_tells_how_the_plan_went_on() -> None:
    console, written = _console()
    print_report(console, _report(_continued_run()), RunView.of(_continued_run()), None, full=False)
    text = written.getvalue()
    assert "plan continued after S1: 1 more step\n" in text
    assert "plan ends with S2, and was to go on (max_replans is 1)\n" in text
    assert "Critical path  S1 → S2 " in text
    assert "0.80 s (0.20 s for the rest of the plan) of 1.00 s" in text
    assert "140 prompt, 60 output for the plan" in text
    (bar,) = [line for line in text.splitlines() if line.startswith("  plan ")]
    assert len(re.findall(f"{UNICODE.bar}+", bar)) == 2, bar


def test_the_report_tells_why_a_plan_was_stopped() -> None:
    console, written = _console()
    events = _continued_run("stopped", "step 3: no\x1b such file")
    print_report(console, _report(events), RunView.of(events), None, full=False)
    assert "plan stopped after S1, but for 1 more step (step 3: no\\x1b such file)" in written.getvalue()


def test_a_plan_that_goes_on_is_shown_at_every_moment() -> None:
    events = _continued_run()
    told = [line for line in map(progress_line, events) if "plan" in line]
    assert told[3:] == [
        "plan continues after S1, planned",
        "planning the rest, after S1: frontdoor on large",
        "S2 planned: worker: Summarize b.txt.",
        "rest of the plan continues after S2, planned",
    ]
    for count in range(5, len(events)):
        console, written = _console()
        print_report(console, _report(events[:count]), RunView.of(events[:count]), None, full=False)
        assert "after S1" in written.getvalue()


def test_a_frame_says_that_more_steps_may_come() -> None:
    events = _continued_run()
    for count in (4, 6, 8, 10):
        assert "more steps may come" in _frame(events[:count])
    assert "more steps may come" not in _frame(events[:11]), "max_replans is used up"


def test_a_dry_run_says_that_the_plan_goes_on() -> None:
    planned = planned_task("List and summarize", [_step(1, "List each file in a.txt.", "request")], "S1")
    graph = analyze_task(planned.task)
    forecast = _answer(Forecast.of(planned, graph, {}))
    console, written = _console()
    print_forecast(console, forecast, full=False)
    assert "The plan continues after S1, when its output is known; more steps may follow.\n" in written.getvalue()
    assert forecast["goes_on_after"] == "S1"
    assert "continues after S1" in dump_task(planned.task)["context"]["notes"]
    whole = planned_task("List", [_step(1, "List each file in a.txt.", "request")], None)
    assert "context" not in dump_task(whole.task)


def test_an_explanation_tells_waiting_role_attempts_and_gates() -> None:
    report = _report(_finished_run())
    console, written = _console()
    print_explanation(console, report, report.steps[2])
    text = written.getvalue()
    assert "S1: data s1.txt, ended at 0.40 s   " in text
    assert "S2: data s2.txt, ended at 0.90 s, the last of them" in text
    assert "worker on small: role worker: the actor" in text
    assert "on the critical path" in text
    console, written = _console()
    print_explanation(console, report, report.steps[0])
    text = written.getvalue()
    assert "a.txt: a file under --dir" in text
    assert "gate lint: not run: there is no lint" in text
    assert "gate schema: passed in 0.50 s, 0.40 s of it waiting for a core" in text
    assert "Needed by" in text
    told = explanation_json(report, report.steps[2])
    assert told["last_dependency"] == "S2"
    assert [edge["before"] for edge in told["waited_for"]] == ["S1", "S2"]
    assert told["step"]["id"] == "S3"


def test_an_explanation_tells_how_far_a_running_attempt_has_come_and_nothing_of_other_attempts() -> None:
    def checking(step: str, number: int) -> dict[str, Any]:
        gates, since = ("lint", "typecheck"), (100.2, 100.4)
        return Progress(step, number, 9, 0.0, "", gates=gates, gates_since=since, waits_for_core=True).to_json(100.9)

    running, ended = (_report(events) for events in (_finished_run()[:7], _finished_run()))
    (second,) = [step for step in running.steps if step.id == "S2"]
    assert [attempt.outcome for attempt in second.attempts] == ["running"]
    shown = explanation_json(running, second, checking("S2", 1))["progress"]
    assert shown == checking("S2", 1)
    console, written = _console()
    print_explanation(console, running, second, shown)
    lines = [line.strip() for line in written.getvalue().splitlines()]
    at = lines.index("checking: lint, typecheck, waiting for a core")
    assert lines[at + 1 : at + 3] == ["gate lint: 0.70 s so far", "gate typecheck: 0.50 s so far"]
    assert explanation_json(running, second, checking("S2", 2))["progress"] is None, "it is of another attempt"
    assert explanation_json(running, second)["progress"] is None
    for step in ended.steps:
        for number in (1, 2):
            assert explanation_json(ended, step, checking(step.id, number))["progress"] is None, "it has ended"


def test_nodes_that_computed_an_attempt_are_named_and_no_node_is_not_mentioned() -> None:
    alone = _finished_run()
    shipped = (Shipped(1200, 9 << 20, 0.25, "west"), Shipped(300, 1 << 20, 0.05, "head"))
    spread = [
        replace(event, usage=replace(event.usage, nodes=("east", "west"), shipped=shipped))
        if isinstance(event, AttemptGenerated) and event.step == "S1"
        else event
        for event in alone
    ]
    report = _report(spread)
    console, written = _console(120)
    print_explanation(console, report, report.steps[0])
    assert "worker on small, node east, west: role worker" in written.getvalue()
    line = "1,500 tokens shipped from head, west instead of computed: 10.0 MiB in 0.30 s"
    assert line in written.getvalue()
    console, written = _console(120)
    print_report(console, report, RunView.of(spread), None, full=False)
    assert "Nodes          east: 1 attempt, west: 1 attempt" in written.getvalue()
    assert f"Shipped        {line}" in written.getvalue()
    usage = report.to_json()["steps"][0]["attempts"][0]["usage"]
    assert usage["nodes"] == ["east", "west"]
    assert [one["tokens"] for one in usage["shipped"]] == [1200, 300]
    assert not {"nodes", "shipped"} & _report(alone).to_json()["steps"][0]["attempts"][0]["usage"].keys()


def test_a_failed_attempt_names_its_nodes_where_a_succeeded_one_does() -> None:
    alone = _finished_run()
    spread = [replace(event, nodes=("east",)) if isinstance(event, AttemptFailed) else event for event in alone]
    report = _report(spread)
    failed, succeeded = report.steps[1].attempts
    assert (failed.outcome, failed.usage.nodes, succeeded.usage.nodes) == ("schema", ("east",), ())
    console, written = _console(120)
    print_explanation(console, report, report.steps[1])
    assert "worker on small, node east: " in written.getvalue()
    console, written = _console(120)
    print_report(console, report, RunView.of(spread), None, full=False)
    assert "Nodes          east: 1 attempt" in written.getvalue()
    assert report.to_json()["steps"][1]["attempts"][0]["usage"]["nodes"] == ["east"]
    assert all("nodes" not in encode_event(event) for event in alone)


def test_an_explanation_tells_what_its_step_does_not_get() -> None:
    accepted, *rest = _finished_run()
    assert isinstance(accepted, RunAccepted)
    told = "/plan/steps/1/output_schema: if is not enforced while the answer is written"
    report = _report([replace(accepted, warnings=("/agents/0/model_hint: unknown", told)), *rest])
    assert [explanation_json(report, step)["warnings"] for step in report.steps] == [[], [told], []]
    console, written = _console(200)
    print_explanation(console, report, report.steps[1])
    assert f"Warning     {told}" in written.getvalue()


def test_an_explanation_tells_what_was_predicted_why_that_was_wrong_and_for_which_steps() -> None:
    report = _report(_finished_run())
    console, written = _console()
    print_explanation(console, report, report.steps[0])
    text = written.getvalue()
    assert "Predicted" in text
    assert "; assumed" in text
    assert "wrong by more than half" in text
    told = explanation_json(report, report.steps[0])
    assert told["step"]["predicted"]["generations"] == 0
    assert told["misprediction"]["assumed"]
    worst, *others = told["mispredicted"]
    assert {worst["step"], *(one["step"] for one in others)} <= set(report.critical_path.steps)


def test_a_dry_run_shows_a_range_and_what_it_is_known_from() -> None:
    planned = planned_task("Say", [_step(1, "Say hello.", "request"), _step(2, "Say it again.", "s1.txt")], None)
    graph = analyze_task(planned.task)
    rates = {"worker": RoleRates(generations=20, spread=0.1)}
    forecast = _answer(Forecast.of(planned, graph, rates))
    report = forecast["report"]
    low, high = report["critical_path"]["predicted_range"]
    assert 0.8 * report["critical_path"]["predicted_seconds"] < low < high
    assert report["steps"][0]["predicted_from"]["basis"] == "worker"
    console, written = _console()
    print_forecast(console, forecast, full=False)
    assert "in 9 of 10 cases" in " ".join(written.getvalue().split())
    assert "2 of 2 by others of their role" in " ".join(written.getvalue().split())


def test_a_dry_run_without_data_says_so_and_names_no_times() -> None:
    planned = planned_task("Say", [_step(1, "Say hello.", "request"), _step(2, "Say it again.", "s1.txt")], None)
    unknown = _answer(Forecast.of(planned, analyze_task(planned.task), {}), direct=predict_step(STEPS[0], {}))
    console, written = _console()
    print_forecast(console, unknown, full=False)
    text = " ".join(written.getvalue().split())
    assert "Critical path S1 → S2 no data: nothing like these steps has run here" in text
    assert " s " not in text
    assert "Speedup" not in text
    assert not unknown["has_data"]
    assert not unknown["direct_has_data"]


def test_a_dry_run_says_which_steps_are_assumed() -> None:
    steps = [
        _step(1, "Say hello.", "request"),
        _step(2, "Say it again.", "s1.txt").model_copy(update={"actor": "coder"}),
    ]
    planned = planned_task("Say", steps, None)
    rates = {"worker": RoleRates(generations=20, spread=0.1)}
    forecast = _answer(Forecast.of(planned, analyze_task(planned.task), rates))
    console, written = _console()
    print_forecast(console, forecast, full=False)
    assert forecast["has_data"]
    known = "Known from 1 of 2 by others of their role, 1 of 2 by nothing but assumptions"
    assert known in " ".join(written.getvalue().split())


def test_a_dry_run_says_what_a_direct_answer_and_its_models_take() -> None:
    planned = planned_task("Say", [_step(1, "Say hello.", "request")], None)
    rates = {"worker": RoleRates(generations=20, spread=0.1)}
    direct = predict_step(planned.task.plan.steps[0], rates)
    forecast = Forecast.of(planned, analyze_task(planned.task), rates)
    for known, what in ((direct, ""), (replace(direct, generations=0), " (assumed, no data)")):
        console, written = _console()
        print_forecast(console, _answer(forecast, direct=known), full=False)
        lines = [" ".join(line.split()) for line in written.getvalue().splitlines()]
        assert f"Direct answer {seconds(direct.seconds)}{what}" in lines
        assert "Memory 3.0 MiB of 1.0 GiB for its models, 2.0 MiB still to load" in lines


def _answer(forecast: Forecast, direct: Prediction | None = None) -> dict[str, Any]:
    expected = JobForecast(
        forecast=forecast,
        warnings=(),
        models={"worker": "small"},
        bytes_to_load={"small": 2 << 20},
        memory_bytes=3 << 20,
        memory_budget=1 << 30,
        direct=direct,
    )
    answer = json.loads(forecast_document(expected))
    assert isinstance(answer, dict)
    return answer


def test_every_event_has_a_line_without_control_characters() -> None:
    lines = [progress_line(event) for event in _finished_run()]
    assert lines[0] == "run r1 accepted, as-planned"
    assert lines[2] == "3 steps planned: S1 to S3"
    assert "S2 failed: schema: not JSON" in lines
    assert "S2 started (attempt 2): worker on small" in lines
    assert lines[-1] == "run done"
    assert "\x1b" not in progress_line(StepsPlanned(at=0.0, steps=(STEPS[0],)))


def test_a_speedup_comes_only_from_a_pair_that_did_the_same_work() -> None:
    fast = _report(_finished_run())
    slow_events = _finished_run()
    slow_events[-1] = RunFinished(at=102.5, status="done")
    speedup = compare_with_serial(fast, _report(slow_events))
    assert speedup.value == pytest.approx(2.0)
    assert format_speedup(speedup) == "2.00 = 1.25 s against 2.50 s serially (run r1)"
    other = compare_with_serial(fast, _report(_accepted()))
    assert other.value is None
    assert other.to_json()["speedup"] is None
    assert "the runs ended as done and running" in format_speedup(other)
