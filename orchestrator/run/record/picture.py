"""Lay out a run, or a plan, as rows: the DAG at the left, where a column is a depth, and next to it when each step ran.

The same layout serves a live run: steps that have not started have an expected time, and slack and critical path count
with it. Times are in seconds since the run was accepted.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

from orchestrator.run.record.forecast import Forecast
from orchestrator.run.record.report import Report, StepRow
from orchestrator.run.record.view import AttemptRow
from orchestrator.task.analysis import StepGraph
from orchestrator.task.critical_path import critical_path, slack
from orchestrator.task.events import MODEL_CALLS, GateResult
from orchestrator.task.states import FINAL, State

# What an attempt spent its time on, in the order in which the parts are drawn: in the queue of an engine, reading the
# prompt, writing, tools, gates, and gates waiting for a core. The rest is `other`, such as loading a model.
PartKind = Literal["queued", "read", "write", "tools", "gates", "core", "other"]
NODE: Final = 18.0  # width of a column without its lines
TRACK: Final = 6.0  # distance of the lines in front of a column
MAX_TRACKS: Final = 6  # in front of one column; more lines share these
SHORTEST: Final = 1e-3  # seconds; shorter parts are left out


@dataclass(frozen=True, slots=True)
class Part:
    kind: PartKind
    seconds: float


@dataclass(frozen=True, slots=True)
class Bar:
    """An attempt, or the making of the plan. `end` is None while it runs."""

    number: int
    start: float
    end: float | None
    outcome: str
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class PictureRow:
    """A step, or a child of a `foreach` step."""

    id: str
    action: str
    role: str
    model: str  # of the latest attempt; empty before the first
    state: str
    cause: str | None
    depends_on: tuple[str, ...]
    parent: str | None
    children: int
    x: float  # of its node
    critical: bool
    slack: float
    started: float | None
    finished: float | None
    expected: tuple[float, float] | None  # when it will start and end, if it has not started; None if it never will
    predicted_seconds: float | None
    bars: tuple[Bar, ...]
    prompt_tokens: int
    reused_tokens: int  # of the prompts, from the cache
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Line:
    """An edge: from the node of row `before` right to `x`, along it to row `after`, and right to the node there."""

    before: int
    after: int
    x: float
    reason: str  # as of an edge of the graph; "item" between a `foreach` step and its children
    artifact: str | None
    critical: bool


@dataclass(frozen=True, slots=True)
class Picture:
    rows: tuple[PictureRow, ...]
    lines: tuple[Line, ...]
    width: float  # of the DAG
    planning: tuple[Bar, ...]  # the first plan, and its continuations
    path: tuple[str, ...]  # the critical path; of a run that has not ended, the expected one
    seconds: float  # until the end, or until now
    expected_end: float | None  # None if the run has ended


def picture(report: Report, now: float) -> Picture:
    """Return the picture of a run at `now`, in seconds since it was accepted."""
    steps = {step.id: step for step in _ordered(report.steps)}
    before = {name: tuple(dict.fromkeys(filter(steps.__contains__, row.depends_on))) for name, row in steps.items()}
    order = tuple(steps)
    ended = report.status in ("done", "failed", "cancelled")
    seconds = report.wall_seconds if ended else max(now, report.wall_seconds)
    durations = {name: _duration(row, seconds) for name, row in steps.items()}
    path = report.critical_path.steps if ended else critical_path(before, order, durations).steps
    spare = {name: row.slack for name, row in steps.items()} if ended else slack(before, order, durations)
    expected = {} if ended else _expected(steps, before, durations, seconds)
    layout, on_path = _Layout.of(before), frozenset(path)
    rows = tuple(
        _row(row, layout.x(name), name in on_path, spare[name], expected.get(name)) for name, row in steps.items()
    )
    return Picture(
        rows=rows,
        lines=tuple(_lines(report.graph, layout, path, {step.id: step.parent or step.id for step in report.steps})),
        width=layout.width,
        planning=tuple(_planning(report)),
        path=tuple(path),
        seconds=seconds,
        expected_end=None if ended else max((end for _, end in expected.values()), default=None),
    )


def planned_picture(forecast: Forecast, models: Mapping[str, str]) -> Picture:
    """Return the picture of a plan that does not run yet. `models` are those of the roles, by role."""
    graph, order = forecast.graph, forecast.graph.order
    layout, on_path = _Layout.of({name: graph.before[name] for name in order}), frozenset(forecast.path.steps)
    ends: dict[str, float] = {}
    rows = list[PictureRow]()
    for name in order:
        step, prediction = graph.steps[name], forecast.predicted[name]
        start = max((ends[earlier] for earlier in graph.before[name]), default=0.0)
        ends[name] = start + prediction.seconds
        rows.append(
            PictureRow(
                id=name,
                action=step.action,
                role=step.actor,
                model=models.get(step.actor, ""),
                state=State.WAITING,
                cause=None,
                depends_on=graph.before[name],
                parent=None,
                children=0,
                x=layout.x(name),
                critical=name in on_path,
                slack=forecast.slack[name],
                started=None,
                finished=None,
                expected=(start, ends[name]),
                predicted_seconds=prediction.seconds,
                bars=(),
                prompt_tokens=round(prediction.prompt_tokens),
                reused_tokens=0,
                output_tokens=round(prediction.output_tokens),
            )
        )
    return Picture(
        rows=tuple(rows),
        lines=tuple(_lines(graph, layout, forecast.path.steps, {name: name for name in order})),
        width=layout.width,
        planning=(),
        path=forecast.path.steps,
        seconds=0.0,
        expected_end=max(ends.values(), default=None),
    )


@dataclass(frozen=True, slots=True)
class _Layout:
    before: Mapping[str, Sequence[str]]  # in the order of the rows
    columns: Mapping[str, int]
    tracks: Mapping[tuple[str, str], int]  # of each edge
    starts: Sequence[float]  # the middle of the nodes of each column

    @classmethod
    def of(cls, before: Mapping[str, Sequence[str]]) -> "_Layout":
        columns = _columns(before)
        tracks = _tracks(before, columns)
        return cls(before, columns, tracks, _starts(columns, tracks))

    @property
    def width(self) -> float:
        return max(self.starts, default=0.0) + NODE

    def x(self, step: str) -> float:
        return self.starts[self.columns[step]]

    def turn(self, earlier: str, later: str) -> float:
        """Return where the line between two steps turns down."""
        return self.x(later) - NODE / 2 - TRACK * self.tracks[earlier, later]


def _ordered(steps: Sequence[StepRow]) -> Iterator[StepRow]:
    # In the order of the document as far as each step comes after those that it waits for.
    left, placed = {step.id: step for step in steps}, set[str]()
    known = set(left)
    for step in steps:
        pending = [step]
        while pending:
            row = pending[-1]
            missing = [name for name in row.depends_on if name in known and name not in placed]
            if row.id in placed:
                pending.pop()
            elif missing:
                pending += [left[name] for name in reversed(missing)]
            else:
                placed.add(pending.pop().id)
                yield row


def _duration(row: StepRow, now: float) -> float:
    predicted = row.predicted.seconds if row.predicted is not None else 0.0
    if row.children:
        return 0.0  # it only gathers what its children have made
    if row.started is None:
        return 0.0 if row.state in FINAL else predicted
    return row.finished - row.started if row.finished is not None else max(now - row.started, predicted)


def _expected(
    steps: Mapping[str, StepRow], before: Mapping[str, Sequence[str]], durations: Mapping[str, float], now: float
) -> dict[str, tuple[float, float]]:
    # Of the steps that have not ended.
    times: dict[str, tuple[float, float]] = {}
    for name, row in steps.items():
        if row.finished is not None or row.state in FINAL:
            continue
        ends = [times[earlier][1] for earlier in before[name] if earlier in times]
        start = row.started if row.started is not None else max([now, *ends])
        times[name] = start, max([now, start + durations[name], *(ends if row.children else ())])
    return times


def _columns(before: Mapping[str, Sequence[str]]) -> dict[str, int]:
    columns: dict[str, int] = {}
    for name, earlier in before.items():
        columns[name] = max((columns[step] + 1 for step in earlier), default=0)
    return columns


def _tracks(before: Mapping[str, Sequence[str]], columns: Mapping[str, int]) -> dict[tuple[str, str], int]:
    """Return the track of each edge in front of the column that it leads to, from 0.

    Edges from one step, or to one step, share a track: those of whichever has more. Other edges get another track if
    they overlap, while there are fewer than `MAX_TRACKS`.
    """
    place = {name: index for index, name in enumerate(before)}
    fan_out: defaultdict[tuple[str, int], int] = defaultdict(int)
    for name, earlier in before.items():
        for step in earlier:
            fan_out[step, columns[name]] += 1
    bundles: defaultdict[tuple[int, str, str], list[tuple[str, str]]] = defaultdict(list)
    for name, earlier in before.items():
        for step in earlier:
            joins = len(earlier) > fan_out[step, columns[name]]
            bundles[columns[name], "to" if joins else "from", name if joins else step].append((step, name))
    extents = {
        key: (min(min(place[a], place[b]) for a, b in edges), max(max(place[a], place[b]) for a, b in edges))
        for key, edges in bundles.items()
    }
    ends: defaultdict[int, list[int]] = defaultdict(list)  # by column: the last row of each track so far
    tracks: dict[tuple[str, str], int] = {}
    for key in sorted(bundles, key=lambda key: (key[0], extents[key], key[1:])):
        first, last = extents[key]
        taken = ends[key[0]]
        track = next((index for index, end in enumerate(taken) if end <= first), len(taken))
        if track == len(taken) and track < MAX_TRACKS:
            taken.append(last)
        else:
            track = min(track, MAX_TRACKS - 1)
            taken[track] = max(taken[track], last)
        tracks |= dict.fromkeys(bundles[key], track)
    return tracks


def _starts(columns: Mapping[str, int], tracks: Mapping[tuple[str, str], int]) -> list[float]:
    # The middle of the nodes of each column.
    widths = [0] * (max(columns.values(), default=-1) + 1)
    for (_, name), track in tracks.items():
        widths[columns[name]] = max(widths[columns[name]], track + 1)
    starts, x = list[float](), NODE / 2 - NODE
    for width in widths:
        x += NODE + TRACK * width
        starts.append(x)
    return starts


def _lines(graph: StepGraph, layout: _Layout, path: Sequence[str], planned: Mapping[str, str]) -> Iterator[Line]:
    # `planned` has the step of the plan that each row belongs to.
    place = {name: index for index, name in enumerate(layout.before)}
    edges = {(edge.before, edge.after): edge for edge in graph.edges if not edge.dropped}
    critical = frozenset(pairwise(path))
    for name, earlier in layout.before.items():
        for step in earlier:
            edge = edges.get((step, planned[name]))
            yield Line(
                before=place[step],
                after=place[name],
                x=layout.turn(step, name),
                reason="item" if edge is None else edge.reason,
                artifact=None if edge is None else edge.artifact,
                critical=(step, name) in critical,
            )


def _row(row: StepRow, x: float, critical: bool, spare: float, expected: tuple[float, float] | None) -> PictureRow:
    return PictureRow(
        id=row.id,
        action=row.action,
        role=row.role,
        model=row.attempts[-1].model if row.attempts else "",
        state=row.state,
        cause=row.cause,
        depends_on=row.depends_on,
        parent=row.parent,
        children=len(row.children),
        x=x,
        critical=critical,
        slack=spare,
        started=row.started,
        finished=row.finished,
        expected=expected,
        predicted_seconds=None if row.predicted is None else row.predicted.seconds,
        bars=tuple(_bar(attempt) for attempt in row.attempts),
        prompt_tokens=row.prompt_tokens,
        reused_tokens=sum(attempt.usage.cached_tokens for attempt in row.attempts),
        output_tokens=row.output_tokens,
    )


def _planning(report: Report) -> Iterator[Bar]:
    if report.planning_seconds > 0:
        yield Bar(0, 0.0, report.planning_seconds, report.plan_origin or "planning", ())
    for number, row in enumerate(report.replans, 1):
        if row.started is not None:
            yield Bar(number, row.started, row.finished, row.outcome, ())


def _bar(attempt: AttemptRow) -> Bar:
    end = attempt.finished
    if end is None:
        return Bar(attempt.number, attempt.started, None, attempt.outcome, ())
    return Bar(attempt.number, attempt.started, end, attempt.outcome, _parts(attempt, max(0.0, end - attempt.started)))


def _parts(attempt: AttemptRow, seconds: float) -> tuple[Part, ...]:
    usage = attempt.usage
    tools = sum(call.seconds for call in attempt.calls if call.tool not in MODEL_CALLS)
    waits = sum(map(_waited, attempt.gates))
    measured: dict[PartKind, float] = {
        "queued": usage.queued_seconds,
        "read": usage.prefill_seconds,
        "write": usage.decode_seconds,
        "tools": tools,
        "gates": sum(gate.seconds for gate in attempt.gates) - waits,
        "core": waits,
    }
    total = sum(measured.values())
    # Gates and tools may run at the same time, so that their sum exceeds the time of the attempt.
    scale = min(1.0, seconds / total) if total > 0 else 1.0
    measured["other"] = max(0.0, seconds - total)
    return tuple(Part(kind, part * scale) for kind, part in measured.items() if part * scale >= SHORTEST)


def _waited(gate: GateResult) -> float:
    if gate.work_seconds is None or gate.tokens:
        return 0.0
    return max(0.0, gate.seconds - gate.work_seconds)
