"""Turn the report of a run into the row of the benchmark, and rows into the summary of a workload. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, Final, Literal

from orchestrator.bench.paired import ratio
from orchestrator.run.record.report import Report, StepRow
from orchestrator.task.events import MODEL_CALLS

Way = Literal["as-planned", "serial"]
# The most steps of a run whose bars are kept. The rest are those that are shortest and not critical.
BARS: Final = 120
WIDTHS_KEPT: Final = 400  # the most points that are kept of the width over time
# The number of measured runs of a workload before its prediction is compared with them.
LEARNED: Final = 2


@dataclass(frozen=True, slots=True)
class PathTime:
    """Where the time of a run went, seen from the steps of its critical path. In seconds; the sum is the wall time."""

    queued: float = 0.0  # waiting for a slot of a model
    prefill: float = 0.0
    decode: float = 0.0
    gates: float = 0.0
    tools: float = 0.0
    # The rest of the steps' time: prompts, counting, artifacts, and what the models and gates waited for us.
    ours: float = 0.0
    # The time in which no step of the path ran: the journal, the scheduler, planning, and steps that it waited
    # for without depending on them.
    between: float = 0.0


@dataclass(frozen=True, slots=True)
class StepBar:
    """When a step ran, in seconds since the run was accepted."""

    step: str
    start: float
    end: float
    critical: bool
    queued: float  # how much of it, from the start, the step's attempts waited for a slot
    tries: int


@dataclass(frozen=True, slots=True)
class TaskMeasurement:
    """One run of a task. Times are in seconds."""

    workload: str
    task: str
    way: Way
    # 0 for the first run after models were loaded, when no prefix of the task is in their caches (cold); then 1,
    # 2, … for the paired rounds (warm).
    number: int
    run: str
    status: str
    wall: float
    predicted: float  # the critical path before the run, by rates of earlier runs
    path: float  # the critical path as it was measured
    path_steps: tuple[str, ...]
    critical_steps: int
    serial_estimate: float
    best: float  # what the best schedule would have taken at least on these cores
    bound: float
    concurrency: float
    steps: int
    done: int
    retried: int  # the steps that took more than one attempt
    tokens_on_path: int
    tokens_off_path: int
    cached_tokens: int
    width: int
    mean_width: float
    peak_bytes: int  # the most memory of this process and its engines together; 0 where that is not known
    where: PathTime
    widths: tuple[tuple[float, int], ...] = ()  # how many steps were running, from each of these times on
    bars: tuple[StepBar, ...] = ()

    @property
    def efficiency(self) -> float:
        """What the best schedule would have taken, divided by the wall time."""
        return self.best / self.wall if self.wall > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Interval:
    """A median with a 95 % interval; without one, where there is only one round."""

    median: float
    low: float | None
    high: float | None
    rounds: int


@dataclass(frozen=True, slots=True)
class WorkloadSummary:
    """What the rows of one task of a workload say together: medians over the warm rounds. Times are in seconds."""

    workload: str
    task: str
    rounds: int
    statuses: Mapping[str, int]
    cold: float | None
    wall: float
    predicted: float
    # The predicted critical path of the last run over the measured one, less 1; None before it was run twice.
    prediction_error: float | None
    path: float
    path_steps: tuple[str, ...]
    critical_steps: int
    serial_estimate: float
    serial: float | None  # what serial runs took; None without them
    speedup: Interval | None  # serial runs over runs as planned, by paired rounds in which both were done
    bound: float
    best: float
    efficiency: float
    concurrency: float
    steps: int
    done: int
    retried: int
    tokens_on_path: int
    tokens_off_path: int
    cached_tokens: int
    width: int
    mean_width: float
    peak_bytes: int
    where: PathTime
    walls: tuple[float, ...] = field(default=())  # the wall time of each warm round as planned, for comparisons

    def to_json(self) -> dict[str, Any]:
        """Return the summary as JSON."""
        return asdict(self)


def row_of(report: Report, workload: str, task: str, way: Way, number: int, peak_bytes: int) -> TaskMeasurement:
    """Return the row of a run that has ended."""
    path = report.critical_path
    on_path = frozenset(path.steps)
    ran = [step for step in report.steps if not step.children and step.started is not None]
    widths = _widths(ran, report.wall_seconds)
    tokens = {step.id: step.prompt_tokens + step.output_tokens for step in report.steps}
    counted = sum(tokens[name] for name in on_path if name in tokens)
    return TaskMeasurement(
        workload=workload,
        task=task,
        way=way,
        number=number,
        run=report.run_id,
        status=report.status,
        wall=report.wall_seconds,
        predicted=path.predicted_seconds,
        path=path.seconds,
        path_steps=path.steps,
        critical_steps=path.critical_steps,
        serial_estimate=path.serial_seconds,
        best=path.best_seconds,
        bound=path.bound,
        concurrency=path.concurrency,
        steps=len(report.steps),
        done=sum(step.state == "done" for step in report.steps),
        retried=sum(len(step.attempts) > 1 for step in report.steps),
        tokens_on_path=counted,
        tokens_off_path=sum(tokens.values()) - counted,
        cached_tokens=sum(attempt.usage.cached_tokens for step in report.steps for attempt in step.attempts),
        width=max((count for _, count in widths), default=0),
        mean_width=_mean_width(widths, report.wall_seconds),
        peak_bytes=peak_bytes,
        where=_where([step for step in report.steps if step.id in on_path], report.wall_seconds),
        widths=tuple(widths[:: max(1, -(-len(widths) // WIDTHS_KEPT))]),
        bars=_bars(ran, on_path, report.wall_seconds),
    )


def summaries(rows: Sequence[TaskMeasurement]) -> list[WorkloadSummary]:
    """Return a summary for each task, in the order of their rows. Tasks without a run as planned have none."""
    names = dict.fromkeys((row.workload, row.task) for row in rows)
    grouped = [[row for row in rows if (row.workload, row.task) == name] for name in names]
    return [_summary(task_rows) for task_rows in grouped if any(row.way == "as-planned" for row in task_rows)]


def _summary(rows: Sequence[TaskMeasurement]) -> WorkloadSummary:
    planned = [row for row in rows if row.way == "as-planned"]
    cold = next((row for row in planned if row.number == 0), None)
    warm = [row for row in planned if row.number > 0] or planned
    serial = {row.number: row for row in rows if row.way == "serial"}
    pairs = [
        (serial[row.number].wall, row.wall)
        for row in warm
        if row.number in serial and row.status == serial[row.number].status == "done" and row.wall > 0
    ]
    last = warm[-1]
    return WorkloadSummary(
        workload=last.workload,
        task=last.task,
        rounds=len(warm),
        statuses={status: sum(row.status == status for row in warm) for status in sorted({row.status for row in warm})},
        cold=None if cold is None else cold.wall,
        wall=median(row.wall for row in warm),
        predicted=last.predicted,
        prediction_error=last.predicted / last.path - 1 if len(planned) > LEARNED and last.path > 0 else None,
        path=median(row.path for row in warm),
        path_steps=last.path_steps,
        critical_steps=last.critical_steps,
        serial_estimate=median(row.serial_estimate for row in warm),
        serial=median(wall for wall, _ in pairs) if pairs else None,
        speedup=_speedup(pairs),
        bound=median(row.bound for row in warm),
        best=median(row.best for row in warm),
        efficiency=median(row.efficiency for row in warm),
        concurrency=median(row.concurrency for row in warm),
        steps=last.steps,
        done=last.done,
        retried=last.retried,
        tokens_on_path=last.tokens_on_path,
        tokens_off_path=last.tokens_off_path,
        cached_tokens=last.cached_tokens,
        width=max(row.width for row in warm),
        mean_width=median(row.mean_width for row in warm),
        peak_bytes=max(row.peak_bytes for row in planned),
        where=_typical(warm),
        walls=tuple(row.wall for row in warm),
    )


def _speedup(pairs: Sequence[tuple[float, float]]) -> Interval | None:
    if not pairs:
        return None
    interval = ratio([serial for serial, _ in pairs], [planned for _, planned in pairs])
    alone = interval.rounds == 1
    return Interval(interval.median, None if alone else interval.low, None if alone else interval.high, interval.rounds)


def _typical(rows: Sequence[TaskMeasurement]) -> PathTime:
    """Return where the time of the median run went: by wall time, and the mean of two if their number is even."""
    ranked = sorted(rows, key=lambda row: row.wall)
    middle = [row.where for row in ranked[(len(ranked) - 1) // 2 : len(ranked) // 2 + 1]]
    names = PathTime.__dataclass_fields__
    return PathTime(**{name: sum(getattr(where, name) for where in middle) / len(middle) for name in names})


def _where(path: Iterable[StepRow], wall: float) -> PathTime:
    """Return where the time went. What a step did at once with something else, as calls side by side, counts once."""
    queued = prefill = decode = gates = tools = inside = 0.0
    for step in path:
        if step.started is None or step.finished is None:
            continue
        usages = [attempt.usage for attempt in step.attempts]
        parts = [
            sum(usage.queued_seconds for usage in usages),
            sum(usage.prefill_seconds for usage in usages),
            sum(usage.decode_seconds for usage in usages),
            sum(gate.seconds for attempt in step.attempts for gate in attempt.gates),
            sum(call.seconds for attempt in step.attempts for call in attempt.calls if call.tool not in MODEL_CALLS),
        ]
        whole = _own_seconds(step)
        fits = min(1.0, whole / sum(parts)) if sum(parts) > 0 else 1.0
        inside += whole
        queued, prefill, decode, gates, tools = (
            total + fits * part for total, part in zip((queued, prefill, decode, gates, tools), parts, strict=True)
        )
    ours = max(0.0, inside - queued - prefill - decode - gates - tools)
    return PathTime(queued, prefill, decode, gates, tools, ours, max(0.0, wall - inside))


def _own_seconds(step: StepRow) -> float:
    """Return how long a step ran itself. A step that gathers its children has no attempts, and took hardly any time."""
    if step.children or step.started is None or step.finished is None:
        return 0.0
    return max(0.0, step.finished - step.started)


def _widths(steps: Iterable[StepRow], wall: float) -> list[tuple[float, int]]:
    """Return how many steps were running, as times from which on the number holds."""
    changes: dict[float, int] = {}
    for step in steps:
        assert step.started is not None, "only steps that ran are counted"
        end = wall if step.finished is None else step.finished
        changes[step.started] = changes.get(step.started, 0) + 1
        changes[end] = changes.get(end, 0) - 1
    running, widths = 0, [(0.0, 0)]
    for at in sorted(changes):
        running += changes[at]
        widths.append((at, running))
    return widths


def _mean_width(widths: Sequence[tuple[float, int]], wall: float) -> float:
    ends = [at for at, _ in widths[1:]] + [wall]
    area = sum(count * max(0.0, end - at) for (at, count), end in zip(widths, ends, strict=True))
    return area / wall if wall > 0 else 0.0


def _bars(steps: Sequence[StepRow], on_path: frozenset[str], wall: float) -> tuple[StepBar, ...]:
    bars = []
    for step in steps:
        assert step.started is not None, "only steps that ran have bars"
        end = wall if step.finished is None else step.finished
        queued = min(end - step.started, sum(attempt.usage.queued_seconds for attempt in step.attempts))
        bars.append(StepBar(step.id, step.started, end, step.id in on_path, max(0.0, queued), len(step.attempts)))
    most_important = sorted(bars, key=lambda bar: (not bar.critical, bar.start - bar.end))[:BARS]
    return tuple(sorted(most_important, key=lambda bar: (bar.start, bar.end)))
