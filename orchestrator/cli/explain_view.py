"""Explain one step of a run, or a chat: who did it and why, and how each attempt or answer ended."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from orchestrator.cli.report_view import (
    expected_seconds,
    facts,
    format_drafts,
    format_gates,
    format_losses,
    format_nodes,
    format_rating,
    format_reuse,
    format_shipped,
)
from orchestrator.cli.terminal import STATE_STYLES, counted, glyphs, one_line, printable, seconds
from orchestrator.run.journal.chats import ChatRecord
from orchestrator.run.record.report import Report, StepRow, last_dependency
from orchestrator.run.record.view import AttemptRow
from orchestrator.task.analysis import Edge
from orchestrator.task.events import GateResult

WAIT_SHOWN = 0.05  # seconds; a gate that waited less had its core at once
WRONG_SHOWN = 3  # how many steps whose predictions were wrong are named


def print_explanation(
    console: Console, report: Report, step: StepRow, progress: Mapping[str, Any] | None = None
) -> None:
    """`progress` is that of the latest attempt, which then runs, as in the JSON of the explanation."""
    table = facts()
    head = Text(f"{step.id}  ", style="bold")
    head.append(one_line(step.action))
    console.print(head)
    console.print(Text(f"{report.run_id}  {one_line(report.request)}", style="dim"), no_wrap=True, overflow="ellipsis")
    console.print()
    table.add_row("State", _state(step))
    table.add_row("Role", _role(step))
    _add_mode(table, report, step)
    _add_waiting(table, report, step)
    table.add_row("Time", _time(report, step))
    _add_prediction(table, report, step)
    if step.gates:
        table.add_row("Gates", Text(format_gates(step.gates)))
    for warning in report.warnings_of(step):
        table.add_row("Warning", Text(one_line(warning), style="yellow"))
    for doubt in report.doubts_of(step):
        table.add_row("Doubtful", Text(one_line(doubt), style="yellow"))
    if step.children:
        table.add_row("Items", Text(f"{len(step.children)}: {step.children[0]} to {step.children[-1]}"))
    for attempt in step.attempts:
        _add_attempt(table, attempt)
    if progress is not None:
        _add_progress(table, progress)
    for row in step.ratings:
        table.add_row("Rated", Text(format_rating(row)))
    if step.outputs:
        table.add_row("Outputs", Text(one_line(", ".join(step.outputs))))
    needed = [edge.after for edge in report.graph.edges if edge.before == (step.parent or step.id) and not edge.dropped]
    table.add_row("Needed by", Text(", ".join(dict.fromkeys(needed)) or "no step"))
    console.print(table)
    if not step.attempts and not step.children:
        arrow = glyphs(console).arrow
        console.print(Text(f"{arrow} it has made no attempt", style="dim"))


def print_chat(console: Console, record: ChatRecord) -> None:
    routed = record.routed
    table = facts()
    console.print(Text(routed.chat, style="bold"))
    console.print(Text(one_line(routed.objective), style="dim"), no_wrap=True, overflow="ellipsis")
    console.print()
    persona = f", persona {routed.persona}" if routed.persona else ""
    table.add_row("Role", Text(f"{routed.role} on {routed.model}{persona}: {one_line(routed.reason)}"))
    table.add_row("Router", Text(f"{one_line(routed.router)}, with a probability of {routed.propensity:.3g}"))
    for candidate in routed.candidates:
        with_persona = f", persona {candidate.persona}" if candidate.persona else ""
        table.add_row("", Text(f"{candidate.role} on {candidate.model}{with_persona}: score {candidate.score:.3g}"))
    for answer in record.answers:
        outcome = Text(answer.finish, style="red" if answer.failure is not None else "")
        if answer.failure is not None:
            outcome.append(f": {answer.failure}: {printable(answer.message)}", style="not bold")
        table.add_row(f"Answer {answer.answer + 1}", outcome)
        tokens = f"{answer.usage.prompt_tokens} prompt and {answer.usage.output_tokens} output tokens"
        tokens += format_drafts(answer.usage)
        table.add_row("", Text(f"{tokens}, took {seconds(answer.seconds)}{format_nodes(answer.usage)}"))
        if answer.usage.shipped:
            table.add_row("", Text(format_shipped(answer.usage.shipped)))
    for rating in record.ratings:
        note = f": {one_line(rating.note)}" if rating.note else ""
        table.add_row("Rated", Text(f"{rating.score:g} by {one_line(rating.by)}{note}"))
    console.print(table)


def _state(step: StepRow) -> Text:
    text = Text(step.state, style=STATE_STYLES.get(step.state, ""))
    if step.cause:
        text.append(f": {one_line(step.cause)}", style="not bold")
    return text


def _role(step: StepRow) -> Text:
    if not step.attempts:
        return Text(step.role)
    last = step.attempts[-1]
    persona = f", persona {last.persona}" if last.persona else ""
    return Text(f"{last.role} on {last.model}{persona}: {one_line(last.reason)}")


def _add_mode(table: Table, report: Report, step: StepRow) -> None:
    if step.id == report.answered_by:
        table.add_row("Mode", Text("it answers the request directly, because the plan has failed", style="yellow"))
        return
    if report.mode_choice is None:
        return
    direct = report.why_direct
    text = Text("direct: " if direct else f"{report.mode}: ").append(one_line(direct or report.mode_choice.reason))
    if (forecast := report.forecast) is not None:
        direct_answer = expected_seconds(forecast.direct_seconds, assumed=forecast.direct_assumed)
        text.append(f"; predicted: a direct answer {direct_answer}", style="dim")
        if forecast.plan_seconds is not None:
            text.append(
                f", the plan {expected_seconds(forecast.plan_seconds, assumed=forecast.plan_assumed)}", style="dim"
            )
    table.add_row("Mode", text)


def _add_waiting(table: Table, report: Report, step: StepRow) -> None:
    planned = step.parent or step.id
    title = "Waited for"
    last = last_dependency(report, step)
    finished = {row.id: row.finished for row in report.steps}
    for edge in report.graph.edges:
        if edge.after == planned:
            when = finished.get(edge.before)
            ended = f", ended at {seconds(when)}" if when is not None else ""
            latest = ", the last of them" if edge.before == last and not edge.dropped else ""
            table.add_row(title, Text(f"{edge.before}: {_why(edge)}{ended}{latest}"))
            title = ""
    if title:
        table.add_row(title, "no other step")
    for name, source in report.graph.sources.get(planned, {}).items():
        if source.kind != "artifact":
            where = "an input of the task" if source.kind == "input" else "a file under --dir"
            table.add_row("Reads", Text(f"{one_line(name)}: {where}"))


def _why(edge: Edge) -> str:
    passed = f" {one_line(edge.artifact)}" if edge.artifact else ""
    dropped = ", dropped in mode discover: the step did not wait for it" if edge.dropped else ""
    return f"{edge.reason}{passed}{dropped}"


def _time(report: Report, step: StepRow) -> Text:
    if step.started is None:
        return Text("never started")
    ended = f", took {seconds(step.finished - step.started)}" if step.finished is not None else ", not ended"
    critical = step.id in report.critical_path.steps
    spare = "on the critical path" if critical else f"slack {seconds(step.slack)}"
    return Text(f"started at {seconds(step.started)}{ended}; {spare}")


def _add_prediction(table: Table, report: Report, step: StepRow) -> None:
    if (expected := step.predicted) is None:
        return
    low, high = expected.range
    evidence = (
        f"from {counted(expected.generations, 'generation')} of {expected.basis}" if expected.basis else "assumed"
    )
    table.add_row("Predicted", Text(f"{seconds(expected.seconds)}, {seconds(low)} to {seconds(high)}; {evidence}"))
    if (wrong := step.misprediction) is not None:
        table.add_row("", Text("wrong by more than half", style="yellow"))
        for cause in wrong.causes:
            by = f"{seconds(abs(cause.seconds))} {'more' if cause.seconds > 0 else 'less'}"
            table.add_row("", Text(f"{by}: {cause.why}"))
    wrong_steps = report.mispredicted if report.critical_path.predicted_wrongly else ()
    if wrong_steps and wrong_steps[0].step != step.id:
        listing = ", ".join(
            f"{row.step} ({seconds(row.seconds)}, not {seconds(row.predicted_seconds)})"
            for row in wrong_steps[:WRONG_SHOWN]
        )
        table.add_row("", Text(f"wrong by more than half on the critical path: {listing}", style="yellow"))


def _add_attempt(table: Table, attempt: AttemptRow) -> None:
    usage = attempt.usage
    outcome = Text(attempt.outcome, style=STATE_STYLES.get(attempt.outcome, "red"))
    if attempt.message:
        outcome.append(f": {printable(attempt.message)}", style="not bold")
    table.add_row(f"Attempt {attempt.number}", outcome)
    where = f"{attempt.model}{format_nodes(usage)}"
    table.add_row("", Text(f"{attempt.role} on {where}: {one_line(attempt.reason)}", style="dim"))
    if usage.prompt_tokens:
        shared = f" ({usage.cached_tokens} shared)" if usage.cached_tokens else ""
        rate = f" at {usage.output_tokens / usage.decode_seconds:.0f} tok/s" if usage.decode_seconds > 0 else ""
        about = "about " if usage.estimated_tokens else ""
        thought = f", {usage.reasoning_tokens} of thoughts" if usage.reasoning_tokens else ""
        tokens = f"{usage.prompt_tokens} prompt{shared} and {usage.output_tokens} output tokens{thought}{rate}"
        table.add_row("", f"{about}{tokens}{format_drafts(usage)}")
        table.add_row("", f"queued {seconds(usage.queued_seconds)}, prefill {seconds(usage.prefill_seconds)}")
    if usage.shipped:
        table.add_row("", Text(format_shipped(usage.shipped)))
    if usage.reuse.expected_tokens:
        table.add_row("", format_reuse(usage.reuse))
    for loss in format_losses(usage.reuse):
        table.add_row("", Text(loss, style="yellow"))
    if attempt.reasoning:
        table.add_row("", Text(f"thoughts: object {attempt.reasoning}", style="dim"))
    for wait in attempt.waits:
        table.add_row("", Text(f"waited from {seconds(wait.since)} on: {one_line(wait.reason)}", style="yellow"))
    for call in attempt.calls:
        why = f": {one_line(call.message)}" if call.message else ""
        table.add_row("", Text(f"{one_line(call.tool)} {one_line(call.arguments)}: {call.outcome}{why}"))
    for gate in attempt.gates:
        evidence = f": {one_line(gate.evidence)}" if gate.evidence else ""
        score = f", score {gate.score} of 9" if gate.score is not None else ""
        table.add_row("", Text(f"gate {gate.gate}: {gate.status}{score}{_gate_seconds(gate)}{evidence}"))


def _add_progress(table: Table, progress: Mapping[str, Any]) -> None:
    table.add_row("", Text(one_line(progress["words"]), style="cyan"))
    for gate, taken in progress["gate_seconds"].items():
        table.add_row("", Text(f"gate {gate}: {seconds(taken)} so far"))


def _gate_seconds(gate: GateResult) -> str:
    if gate.status == "not run":
        return ""
    waited = gate.seconds - gate.work_seconds if gate.work_seconds is not None and not gate.tokens else 0.0
    waiting = f", {seconds(waited)} of it waiting for a core" if waited >= WAIT_SHOWN else ""
    return f" in {seconds(gate.seconds)}{waiting}"
