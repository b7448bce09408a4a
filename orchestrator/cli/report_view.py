"""Print the report of a run: the DAG, the answer, a timeline with the critical path marked, and the figures.

The bars of the timeline are over a common time axis. Critical steps have a mark and a heavier bar, so that they stand
out without colours. There is a speedup over a serial run only if both runs did the same work.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, groupby, pairwise
from typing import Any, Literal

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from orchestrator.cli.step_table import select_steps, step_table
from orchestrator.cli.terminal import STATE_STYLES, Glyphs, counted, glyphs, one_line, printable, seconds
from orchestrator.registry.memory import size as memory_size
from orchestrator.run.gates.planned import PlannedGate
from orchestrator.run.record.report import PathRow, Report, StepRow
from orchestrator.run.record.view import AttemptRow, RatingRow, ReplanRow, RunView
from orchestrator.task.events import Shipped, Usage
from orchestrator.task.reuse import LOSS_TEXTS, Reuse
from orchestrator.task.states import State

BAR_STYLES = {"critical": "bold yellow", "ran": "cyan", "broken": "red"}
MIN_WIDTH = 16  # columns of the axis
MARK = 2  # columns of the mark of a critical step
GAP = 2  # columns between those of the table


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """A span of time, in seconds since the run was accepted. `broken` is an attempt that failed or was cancelled."""

    start: float
    end: float
    kind: Literal["ran", "broken"] = "ran"


@dataclass(frozen=True, slots=True)
class Bar:
    """One line of the timeline: a step and its attempts."""

    label: str
    spans: tuple[TimeSpan, ...]
    critical: bool = False

    @property
    def seconds(self) -> float | None:
        """Seconds from the start of the first attempt to the end of the last one; None without attempts."""
        if not self.spans:
            return None
        return max(span.end for span in self.spans) - min(span.start for span in self.spans)


def timeline(bars: Sequence[Bar], total: float, width: int, signs: Glyphs) -> RenderableType:
    """Return the timeline of a run of `total` seconds, `width` columns wide."""
    labels = max((len(bar.label) for bar in bars), default=0)
    times = max((len(seconds(bar.seconds)) for bar in bars), default=0)
    columns = max(MIN_WIDTH, width - (labels + MARK) - times - 2 * GAP)
    table = Table.grid(padding=(0, GAP, 0, 0), pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, width=columns)
    table.add_column(no_wrap=True, justify="right")
    table.add_row("", Text(axis(total, columns, signs), style="dim"), "")
    for bar in bars:
        mark = "*" if bar.critical else " "
        label = Text(f"{mark} {bar.label}", style="bold" if bar.critical else "")
        table.add_row(label, draw_bar(bar, total, columns, signs), Text(seconds(bar.seconds)))
    return table


def axis(total: float, columns: int, signs: Glyphs) -> str:
    right = f" {seconds(total)}"
    return f"0 {signs.rule * (columns - 2 - len(right))}{right}"


def draw_bar(bar: Bar, total: float, columns: int, signs: Glyphs) -> Text:
    cells = [" "] * columns
    styles = [""] * columns
    for span in bar.spans:
        first, last = _columns(span, total, columns)
        kind = "broken" if span.kind == "broken" else "critical" if bar.critical else "ran"
        sign = {"broken": signs.broken, "critical": signs.critical, "ran": signs.bar}[kind]
        for column in range(first, last + 1):
            cells[column], styles[column] = sign, BAR_STYLES[kind]
    drawn = Text()
    for cell, style in zip(cells, styles, strict=True):
        drawn.append(cell, style=style)
    return drawn


def _columns(span: TimeSpan, total: float, columns: int) -> tuple[int, int]:
    scale = columns / total if total > 0 else 0.0
    # At least one column, so that short spans are visible.
    first = min(columns - 1, max(0, int(span.start * scale)))
    last = min(columns - 1, max(first, round(span.end * scale) - 1))
    return first, last


@dataclass(frozen=True, slots=True)
class Speedup:
    """How much faster a run was than the same task run serially. Times are in seconds and include planning."""

    value: float | None  # wall time of the serial run / that of the other; None if they cannot be compared
    seconds: float
    serial_seconds: float
    serial_run: str  # its id
    why_none: str = ""  # why the runs cannot be compared

    def to_json(self) -> dict[str, Any]:
        """Return what `--compare-serial` adds to the JSON object of a run."""
        pair = {"seconds": self.seconds, "serial_seconds": self.serial_seconds, "serial_run_id": self.serial_run}
        return {"speedup": self.value, "paired": {**pair, "why_not": self.why_none or None}}


def format_speedup(speedup: Speedup) -> str:
    serially = f"{seconds(speedup.serial_seconds)} serially (run {speedup.serial_run})"
    pair = f"{seconds(speedup.seconds)} against {serially}"
    return f"none: {speedup.why_none}; {pair}" if speedup.value is None else f"{speedup.value:.2f} = {pair}"


def compare_with_serial(report: Report, serial: Report) -> Speedup:
    """Return the speedup in wall time of `report` over `serial`, the same task run serially."""
    why = ""
    if "done" != report.status or "done" != serial.status:
        why = f"the runs ended as {report.status} and {serial.status}"
    elif _work(report) != _work(serial):
        why = "the two plans differ"
    elif serial.wall_seconds <= 0 or report.wall_seconds <= 0:
        why = "a run took no time"
    value = None if why else serial.wall_seconds / report.wall_seconds
    return Speedup(value, report.wall_seconds, serial.wall_seconds, serial.run_id, why)


def _work(report: Report) -> list[tuple[str, str, str]]:
    return [(step.id, step.role, step.action) for step in report.steps]


MANY = 40  # the most steps, edges or names that are printed unless the user asks for all
SHOWN_SECONDS = 0.005  # a shorter time would be printed as 0.00 s
PATH_SHOWN = 24  # the most steps of the critical path that are printed
NOT_FAILED = ("running", "checking", "done", "cancelled")  # outcomes of attempts


def print_report(console: Console, report: Report, run: RunView, speedup: Speedup | None, *, full: bool) -> None:
    """Print the report of a run, ended or not. Without `full`, it has at most the 40 steps of most interest."""
    signs = glyphs(console)
    _print_head(console, report)
    if report.steps:
        heading(console, "Steps", signs)
        print_steps(console, run, signs, full=full)
    _print_gates(console, report)
    if retried := [step for step in report.steps if len(step.attempts) > 1]:
        heading(console, "Retries and escalations", signs)
        print_retries(console, retried, signs, full=full)
    if report.status == "failed":
        heading(console, "What went wrong", signs)
        _print_problems(console, report)
    elif report.error:
        console.print(Text(one_line(report.error), style="yellow"))
    if report.answer is not None:
        heading(console, "Answer", signs)
        console.print(Text(printable(report.answer)), soft_wrap=True)
        _print_new_versions(console, report)
    for correction in report.corrections:
        console.print(Text(f"corrected: {one_line(correction.text)}", style="dim"), soft_wrap=True)
    if report.doubt:
        console.print(Text(f"doubtful: {one_line(report.doubt)}", style="yellow"), soft_wrap=True)
    _print_ratings(console, report, signs)
    if any(step.started is not None for step in report.steps):
        heading(console, "Timeline", signs)
        _print_timeline(console, report, signs, full=full)
        heading(console, "Figures", signs)
        console.print(_figures(report, speedup, signs))


def _print_ratings(console: Console, report: Report, signs: Glyphs) -> None:
    of_steps = [(step.id, row) for step in report.steps for row in step.ratings]
    if rated := [(report.run_id, row) for row in report.ratings] + of_steps:
        heading(console, "Ratings", signs)
        for name, row in rated:
            console.print(Text(f"{name}  {format_rating(row)}"))


def print_steps(console: Console, run: RunView, signs: Glyphs, *, full: bool) -> None:
    steps = list(run.steps())
    if full or len(steps) <= MANY:
        console.print(step_table(run, steps, None, signs))
        return
    console.print(step_table(run, select_steps(steps, MANY), None, signs, drawn=False))
    console.print(Text(f"{len(steps) - MANY} more steps: `orchestrator show {run.accepted.run} --all`", style="dim"))


def _print_head(console: Console, report: Report) -> None:
    console.print()
    console.print(Text(one_line(report.request), style="bold"))
    line = Text(f"{report.run_id}  " if report.run_id else "")
    line.append(report.status, style=STATE_STYLES.get(report.status, ""))
    line.append(", doubtful" if report.doubt else "", style="yellow")
    line.append(f"  {report.mode}  {counted(sum(not step.parent for step in report.steps), 'step')}")
    if report.wall_seconds:
        line.append(f"  {seconds(report.wall_seconds)}")
    if report.plan_origin not in (None, "taskir"):
        line.append(f"  {report.plan_origin}")
    console.print(line)
    for warning in report.warnings:
        console.print(Text(f"warning: {one_line(warning)}", style="yellow"))
    if why := report.why_direct:
        console.print(Text(f"answered directly: {one_line(why)}", style="dim"))
    elif report.plan_reason:
        console.print(Text(f"plan {report.plan_origin}: {one_line(report.plan_reason)}", style="yellow"))
    for row in report.replans:
        console.print(Text(_replan(row), style="yellow" if row.reason or row.outcome == "stopped" else ""))


def _print_new_versions(console: Console, report: Report) -> None:
    names = [one_line(result.name) for result in report.results if result.original]
    if names:
        run = report.run_id
        commands = f"`orchestrator diff {run}` shows them, `orchestrator apply {run}` writes them back"
        line = f"New versions ({', '.join(names)}): {commands}"
        console.print()
        console.print(Text(line, style="dim"), soft_wrap=True)


def _replan(row: ReplanRow) -> str:
    added = counted(len(row.steps), "more step") if row.steps else "nothing more to do"
    rest = f", but for {added}" if row.steps else ""
    line = {
        "waiting": f"plan continues after {row.after}",
        "planning": f"plan is being continued after {row.after}",
        "planned": f"plan continued after {row.after}: {added}",
        "repaired": f"plan continued after {row.after}, repaired: {added}",
        "stopped": f"plan stopped after {row.after}{rest}",
        "refused": f"plan ends with {row.after}, and was to go on",
        "cancelled": f"plan did not continue after {row.after}{rest}",
    }[row.outcome]
    return line + (f" ({one_line(row.reason)})" if row.reason else "")


def format_rating(row: RatingRow) -> str:
    return f"{row.score:g} by {one_line(row.by)}" + (f": {one_line(row.note)}" if row.note else "")


def format_gates(plans: Sequence[PlannedGate]) -> str:
    """Return in one line the gates that check a step, and why the other requested ones do not."""
    checking = ", ".join(plan.gate for plan in plans if not plan.idle) or "none"
    idle = "; ".join(f"not {plan.gate}: {plan.idle}" for plan in plans if plan.idle)
    return f"{checking} ({idle})" if idle else checking


def heading(console: Console, title: str, signs: Glyphs) -> None:
    console.print()
    line = Text(f"{signs.rule * 2} ", style="dim")
    line.append(title, style="bold not dim")
    line.append(f" {signs.rule * (console.width - len(title) - 4)}")
    console.print(line, no_wrap=True, overflow="crop")


def _print_gates(console: Console, report: Report) -> None:
    # Steps for which a gate has the same result share a line.
    results: dict[tuple[str, str], dict[str, str]] = {}
    for step in report.steps:
        for gate in step.attempts[-1].gates if step.attempts else ():
            if gate.status != "passed":
                first = gate.evidence.partition("\n")[0]
                results.setdefault((gate.gate, gate.status), {})[step.id] = first
    for (gate_name, status), steps in results.items():
        reasons = set(steps.values())
        why = f" ({one_line(reasons.pop())})" if len(reasons) == 1 and reasons != {""} else ""
        line = f"gate {gate_name} of {listed(list(steps))}: {status}{why}"
        console.print(Text(line, style="yellow" if status == "not run" else "red"))


def print_retries(console: Console, steps: Sequence[StepRow], signs: Glyphs, *, full: bool) -> None:
    """Print each failed attempt and what followed it. Without `full`, only for the first 40 steps."""
    shown = steps if full else steps[:MANY]
    for step in shown:
        for failed, after in pairwise(step.attempts):
            line = Text(f"{step.id}  ", style="bold")
            line.append(_format_attempt(failed), style="not bold")
            line.append(f" {signs.arrow} {_format_retry(failed, after)}", style="not bold yellow")
            console.print(line)
        if (last := step.attempts[-1]).outcome not in NOT_FAILED:
            console.print(Text(f"{step.id}  {_format_attempt(last)}", style="red"))
    if len(steps) > len(shown):
        console.print(Text(f"{len(steps) - len(shown)} more steps", style="dim"))


def _format_retry(failed: AttemptRow, after: AttemptRow) -> str:
    if after.role != failed.role:
        return f"{after.role} on {after.model} takes over"
    if failed.outcome == "done":
        return f"{after.role} repairs the answer"
    return "run again" if failed.outcome == "interrupted" else f"{after.role} tries again"


def _print_problems(console: Console, report: Report) -> None:
    for line in map("missing: {}".format, report.missing) if report.missing else filter(None, [report.error]):
        console.print(Text(one_line(line), style="red"))
    for step in report.steps:
        if step.state != State.FAILED or step.children:
            continue
        console.print(Text(f"{step.id}  {one_line(step.action)}", style="bold"))
        for line, attempts in groupby(step.attempts, key=_format_attempt):
            numbers = [str(attempt.number) for attempt in attempts]
            tried = f"attempt {numbers[0]}" if len(numbers) == 1 else f"attempts {numbers[0]} to {numbers[-1]}"
            console.print(Padding(Text(f"{tried}, {line}"), (0, 0, 0, 2)))
        if report.run_id and step.attempts and (last := step.attempts[-1]).answer:
            command = f"`orchestrator show {report.run_id} {step.id} --attempt {last.number}`"
            console.print(Text(f"  its last answer: {command}", style="dim"), soft_wrap=True)
    cancelled = [step.id for step in report.steps if step.state == State.CANCELLED and not step.parent]
    if cancelled:
        console.print(Text(f"cancelled: {listed(cancelled)}", style="yellow"))


def _format_attempt(attempt: AttemptRow) -> str:
    message = f": {one_line(attempt.message)}" if attempt.message else ""
    return f"{attempt.role} on {attempt.model}: {attempt.outcome}{message}"


def _print_timeline(console: Console, report: Report, signs: Glyphs, *, full: bool) -> None:
    bars = [_bar(step, report) for step in report.steps if step.started is not None and not step.children]
    bars.sort(key=lambda bar: bar.spans[0].start)
    hidden = 0
    if not full and len(bars) > MANY:
        shown = sorted(bars, key=lambda bar: (not bar.critical, -(bar.seconds or 0.0)))[:MANY]
        hidden, bars = len(bars) - MANY, [bar for bar in bars if bar in shown]
    if plans := _plan_spans(report):
        bars.insert(0, Bar("plan", plans))
    total = max(report.wall_seconds, *(span.end for span in chain.from_iterable(bar.spans for bar in bars)))
    console.print(timeline(bars, total, console.width, signs))
    legend = f"* {signs.critical} on the critical path"
    if any(span.kind == "broken" for bar in bars for span in bar.spans):
        legend += f"   {signs.broken} an attempt that failed"
    console.print(Text(f"{legend}   {hidden} more steps" if hidden else legend, style="dim"))


def _plan_spans(report: Report) -> tuple[TimeSpan, ...]:
    first = (TimeSpan(0.0, report.planning_seconds),) if report.planning_seconds else ()
    later = ((row.started, row.finished or report.wall_seconds) for row in report.replans)
    return (*first, *(TimeSpan(start, end) for start, end in later if start is not None))


def _bar(step: StepRow, report: Report) -> Bar:
    # No event says when an attempt was interrupted: at the latest when the next one started.
    latest = (*(attempt.started for attempt in step.attempts[1:]), report.wall_seconds)
    spans = tuple(
        TimeSpan(
            attempt.started,
            end if attempt.finished is None else attempt.finished,
            "ran" if attempt.outcome in ("done", "running", "checking") else "broken",
        )
        for attempt, end in zip(step.attempts, latest, strict=False)
    )
    own = (TimeSpan(step.started or 0.0, step.finished or report.wall_seconds),)
    return Bar(step.id, spans or own, step.id in report.critical_path.steps)


def _figures(report: Report, speedup: Speedup | None, signs: Glyphs) -> RenderableType:
    path = report.critical_path
    # A run that stopped early cannot be compared with the prediction and the best schedule for all of its steps.
    is_whole = report.status not in ("failed", "cancelled")
    table = facts()
    if path.steps:
        table.add_row("Critical path", Text(format_path(path.steps, signs)))
        predicted = f"; predicted {seconds(path.predicted_seconds)}" if is_whole else ""
        table.add_row("", _path_seconds(path, report.wall_seconds) + predicted)
    if is_whole and path.predicted_wrongly and (wrong := report.mispredicted) and not wrong[0].assumed:
        hint = f"the prediction was wrong by more than half, mostly for {wrong[0].step}"
        table.add_row("", Text(f"{hint}: `orchestrator explain {report.run_id} {wrong[0].step}`", style="yellow"))
    if path.work_seconds:
        work = f"{seconds(path.work_seconds)} of work in {seconds(report.wall_seconds)} of wall time"
        table.add_row("Concurrency", f"{path.concurrency:.2f} = {work}")
    if is_whole and path.bound:
        table.add_row("Bound", f"{path.bound:.2f} = {_bound(path)}; by step costs, no schedule does better")
    waves = f"{counted(len(report.waves), 'wave')}, {counted(path.critical_steps, 'critical step')}"
    table.add_row("Width", f"{report.width} in {waves}")
    usages = [attempt.usage for step in report.steps for attempt in step.attempts]
    plans = [report.plan_usage, *(row.usage for row in report.replans)]
    tokens = [_tokens(usages)] if any(usage.prompt_tokens for usage in usages) else []
    if any(usage.prompt_tokens for usage in plans):
        tokens.append(f"{_tokens(plans)} for the plan")
    for label, line in zip(("Tokens", ""), tokens, strict=False):
        table.add_row(label, line)
    if attempts := Counter(node for usage in usages for node in usage.nodes):
        listed = (f"{one_line(node)}: {counted(attempts[node], 'attempt')}" for node in sorted(attempts))
        table.add_row("Nodes", Text(", ".join(listed)))
    if shipments := [shipped for usage in usages for shipped in usage.shipped]:
        table.add_row("Shipped", Text(format_shipped(shipments)))
    _add_reuse(table, report)
    if speedup:
        table.add_row("Speedup", Text(format_speedup(speedup)))
    return table


def _add_reuse(table: Table, report: Report) -> None:
    if not report.reuse.expected_tokens:
        return
    table.add_row("Reuse", format_reuse(report.reuse))
    losses = [(step.id, loss) for step in report.steps for loss in format_losses(step.reuse)]
    for step, loss in losses[:MANY]:
        table.add_row("", Text(f"{step}: {loss}", style="yellow"))
    if len(losses) > MANY:
        table.add_row("", Text(f"{len(losses) - MANY} more: `orchestrator explain {report.run_id} STEP`", style="dim"))


def format_nodes(usage: Usage) -> str:
    """Return the end of a phrase about what computed an answer: the nodes and servers, or nothing for this machine."""
    return f", node {one_line(', '.join(usage.nodes))}" if usage.nodes else ""


def format_shipped(shipments: Sequence[Shipped]) -> str:
    """Return in one line which KV cells came from other machines of a cluster."""
    tokens, size = sum(shipped.tokens for shipped in shipments), sum(shipped.bytes for shipped in shipments)
    sources = ", ".join(sorted({one_line(shipped.source) for shipped in shipments}))
    took = seconds(sum(shipped.seconds for shipped in shipments))
    return f"{tokens:,} tokens shipped from {sources} instead of computed: {memory_size(size)} in {took}"


def format_drafts(*usages: Usage) -> str:
    """Return the end of a phrase about tokens: what speculative decoding did, or nothing without drafts."""
    drafted = sum(usage.drafted_tokens for usage in usages)
    accepted = sum(usage.accepted_tokens for usage in usages)
    return f", {accepted} of {drafted} drafted tokens accepted" if drafted else ""


def format_reuse(reuse: Reuse) -> str:
    """Return in one line how many of the tokens that prompts share with earlier ones were not computed again."""
    return f"{reuse.reused_tokens:,} of {reuse.expected_tokens:,} shared tokens reused"


def format_losses(reuse: Reuse) -> list[str]:
    """Return for each cause a line about the tokens that were computed again."""
    return [f"{count:,} computed again: {LOSS_TEXTS[cause].why}" for cause, count in reuse.losses]


def _tokens(usages: Sequence[Usage]) -> str:
    prompt, cached = sum(usage.prompt_tokens for usage in usages), sum(usage.cached_tokens for usage in usages)
    shared = f" ({cached} shared)" if cached else ""
    thoughts = sum(usage.reasoning_tokens for usage in usages)
    thought = f" ({thoughts} of thoughts)" if thoughts else ""
    output = f"{sum(usage.output_tokens for usage in usages)} output{thought}"
    return f"{prompt} prompt{shared}, {output}{format_drafts(*usages)}"


def _bound(path: PathRow) -> str:
    return f"{seconds(path.serial_seconds)} one by one over {seconds(path.best_seconds)} at best"


def _path_seconds(path: PathRow, wall: float) -> str:
    paused = f" ({seconds(path.replan_seconds)} for the rest of the plan)" if path.replan_seconds else ""
    waited = f", {seconds(path.waiting_seconds)} of it waiting" if path.waiting_seconds >= SHOWN_SECONDS else ""
    return f"{seconds(path.seconds)}{paused} of {seconds(wall)}{waited}"


def facts() -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    return table


def expected_seconds(predicted: float, *, assumed: bool) -> str:
    return f"{seconds(predicted)}{' (assumed, no data)' if assumed else ''}"


def format_path(steps: Sequence[str], signs: Glyphs) -> str:
    if not steps:
        return "-"
    shown = steps if len(steps) <= PATH_SHOWN else (*steps[: PATH_SHOWN - 1], signs.more, steps[-1])
    return f" {signs.arrow} ".join(shown)


def listed(names: Sequence[str]) -> str:
    return ", ".join(names[:MANY]) + (f" and {len(names) - MANY} more" if len(names) > MANY else "")
