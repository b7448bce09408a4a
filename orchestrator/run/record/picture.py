"""Lay out a run, or a plan, as rows: the DAG at the left, where a column is a depth, and next to it when each step ran.

The same layout serves a live run: steps that have not started have an expected time, and slack and critical path count
with it. Times are in seconds since the run was accepted.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from orchestrator.run.record.report import Report, StepRow
from orchestrator.run.record.spans import Scene, Span, left_queue, plan_spans, step_spans
from orchestrator.run.record.view import RatingRow, RunView
from orchestrator.task.analysis import Edge, StepGraph
from orchestrator.task.critical_path import critical_path, slack
from orchestrator.task.states import FINAL, State

if TYPE_CHECKING:  # commands that show runs do not import what plans them
    from orchestrator.run.record.forecast import Forecast

# What a step did or waited for: other steps, a place in a queue, a model that had failed too often or another attempt,
# reading the prompt, writing, tools, a core for its gates, gates; and the rest, such as loading a model.
PartKind = Literal["dependencies", "queued", "paused", "read", "write", "tools", "core", "gates", "other"]
NODE: Final = 18.0  # width of a column without its lines
TRACK: Final = 6.0  # distance of the lines in front of a column
MAX_TRACKS: Final = 6  # in front of one column; more lines share these
SHORTEST: Final = 1e-3  # seconds; shorter parts are left out
_KINDS: Final[Mapping[str, PartKind]] = {
    "dependencies": "dependencies",
    "start": "queued",
    "slot": "queued",
    "model paused": "paused",
    "retry": "paused",
    "repair": "paused",
    "restart": "paused",
}  # by the cause of a wait


class Part(msgspec.Struct, frozen=True, gc=False):
    kind: PartKind
    start: float
    end: float


class Bar(msgspec.Struct, frozen=True, gc=False):
    """An attempt, or the making of a plan.

    `end` is None while it runs. The parts do not overlap; those of an attempt that has ended have no gaps.
    """

    number: int
    start: float
    end: float | None
    outcome: str
    parts: tuple[Part, ...] = ()


class PictureRow(msgspec.Struct, frozen=True, gc=False):
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
    waits: tuple[Part, ...]  # outside of attempts
    bars: tuple[Bar, ...]
    prompt_tokens: int
    reused_tokens: int  # of the prompts, from the cache
    output_tokens: int
    reused: str | None = None  # the earlier run that has made its outputs
    first: bool = False  # whether the user wants it before others
    ratings: tuple[RatingRow, ...] = ()


class Line(msgspec.Struct, frozen=True, gc=False):
    """An edge: from the node of row `before` right to `x`, along it to row `after`, and right to the node there."""

    before: int
    after: int
    x: float
    start: float  # x of the node of `before`
    end: float  # x of the node of `after`
    reason: str  # as of an edge of the graph; "item" between a `foreach` step and its children
    artifact: str | None
    critical: bool


class Picture(msgspec.Struct, frozen=True, gc=False):
    rows: tuple[PictureRow, ...]
    lines: tuple[Line, ...]
    width: float  # of the DAG
    planning: tuple[Bar, ...]  # the first plan, and its continuations
    path: tuple[str, ...]  # the critical path; of a run that has not ended, the expected one
    seconds: float  # until the end, or until now
    expected_end: float | None  # None if the run has ended


class Sketch:
    """What the next picture of a run takes over from the one before: the layout, and the bars of ended steps.

    So the picture of a run that has not ended costs little more than the steps that have not. Not thread-safe.
    """

    def __init__(self) -> None:
        self._graph: StepGraph | None = None
        self._layout: _Layout | None = None
        self._strips: dict[str, tuple[tuple[object, ...], _Strip]] = {}

    def layout(self, graph: StepGraph, before: Mapping[str, Sequence[str]]) -> "_Layout":
        # Children of `foreach` steps are not in the graph.
        if self._layout is None or graph is not self._graph or len(before) != len(self._layout.before):
            self._graph, self._layout = graph, _Layout.of(graph, before)
        return self._layout

    def strip(self, step: StepRow, scene: Scene) -> "_Strip":
        """Return what a step did when. That of a step that has ended only depends on when it could have started."""
        has_ended = step.state in FINAL and step.started is not None and step.finished is not None
        if not has_ended or any(attempt.finished is None for attempt in step.attempts):
            return _Strip.of(step_spans(step, scene))
        ends = tuple(scene.times[name][1] for name in scene.report.graph.before.get(step.parent or step.id, ()))
        key = (step.state, step.finished, len(step.attempts), ends, left_queue(scene.view))
        earlier = self._strips.get(step.id)
        if earlier is not None and earlier[0] == key:
            return earlier[1]
        strip = _Strip.of(step_spans(step, scene))
        self._strips[step.id] = key, strip
        return strip


def picture(view: RunView, report: Report, now: float, sketch: Sketch | None = None) -> Picture:
    """Return the picture of a run at `now`, in seconds since it was accepted. `report` is of the same events.

    `sketch` is of earlier pictures of the same run.
    """
    return drawing(view, report, now, Sketch() if sketch is None else sketch).whole()


def drawing(view: RunView, report: Report, now: float, sketch: Sketch) -> "Drawing":
    """Return what `picture` returns, but draw its rows and lines when somebody looks at them."""
    steps = {step.id: step for step in _ordered(report.steps)}
    before = {name: tuple(dict.fromkeys(filter(steps.__contains__, row.depends_on))) for name, row in steps.items()}
    order = tuple(steps)
    ended = report.status in ("done", "failed", "cancelled")
    seconds = report.wall_seconds if ended else max(now, report.wall_seconds)
    durations = {name: _duration(row, seconds) for name, row in steps.items()}
    path = report.critical_path.steps if ended else critical_path(before, order, durations).steps
    expected = {} if ended else _expected(steps, before, durations, seconds)
    scene = Scene.of(view, report, now)
    return Drawing(
        steps=steps,
        layout=sketch.layout(report.graph, before),
        slack={name: row.slack for name, row in steps.items()} if ended else slack(before, order, durations),
        expected=expected,
        facts={
            "planning": tuple(_planning(scene)),
            "path": tuple(path),
            "seconds": seconds,
            "expected_end": None if ended else max((end for _, end in expected.values()), default=None),
        },
        scene=scene,
        sketch=sketch,
    )


class Window(msgspec.Struct, frozen=True):
    """The visible part of a picture: `count` rows from the row `first`, and the row of a step."""

    first: int
    count: int
    step: str | None = None


class Drawing:
    """A picture whose rows and lines are drawn when somebody looks at them: a run may have 10,000 steps.

    It is of no use when later events were applied to the view. Not thread-safe.
    """

    def __init__(
        self,
        *,
        steps: Mapping[str, StepRow],  # in the order of the rows
        layout: "_Layout",
        slack: Mapping[str, float],
        expected: Mapping[str, tuple[float, float]],
        facts: Mapping[str, Any],  # fields of the picture besides rows, lines and width
        scene: Scene,
        sketch: Sketch,
    ) -> None:
        self._steps = steps
        self._layout = layout
        self._slack = slack
        self._expected = expected
        self._facts = {"width": layout.width, **facts}
        self._scene = scene
        self._sketch = sketch
        self._critical = frozenset(self._facts["path"])
        self._whole = b""

    def whole(self) -> Picture:
        return Picture(
            rows=tuple(map(self._row, self._steps)), lines=tuple(self._lines(0, len(self._steps))), **self._facts
        )

    def json(self, window: Window | None = None) -> bytes:
        """Return the rows in the window with the lines that cross it, or all, as `picture_json` has them.

        The JSON of all is made once for all who want it.
        """
        count = len(self._steps)
        if window is not None and (window.first > 0 or window.count < count):
            end = min(count, window.first + window.count)
            rows = [self._row(name) for name in islice(self._steps, window.first, end)]
            lines = list(self._lines(window.first, end))
            step = None if window.step is None or window.step not in self._steps else self._row(window.step)
            part = {"rows": rows, "lines": lines, "first": window.first, "count": count, "step": step}
            return _json({**self._facts, **part, "totals": self._totals})
        self._whole = self._whole or picture_json(self.whole())
        return self._whole

    @cached_property
    def _totals(self) -> Mapping[str, int]:
        steps = self._steps.values()
        return {
            "done": sum(step.state == State.DONE for step in steps),
            "prompt_tokens": sum(step.prompt_tokens for step in steps),
            "reused_tokens": sum(map(_reused_tokens, steps)),
            "output_tokens": sum(step.output_tokens for step in steps),
        }

    def _row(self, name: str) -> PictureRow:
        strip = self._sketch.strip(self._steps[name], self._scene)
        shown = (self._layout.x(name), name in self._critical, self._slack[name], self._expected.get(name))
        return _row(self._steps[name], strip, *shown)

    def _lines(self, first: int, end: int) -> Iterator[Line]:
        # Those that cross the rows from `first` to before `end`.
        layout, critical = self._layout, frozenset(pairwise(self._facts["path"]))
        for name, earlier in islice(layout.before.items(), first, None):
            for step in earlier:
                if layout.place[step] < end:
                    yield layout.line(step, name, self._steps[name].parent or name, (step, name) in critical)


def picture_json(shown: Picture) -> bytes:
    """Return a picture as a JSON object without its `seconds`: those of a run that has not ended pass.

    `first` is the number of the first of its `rows`, and `totals` are of all `count` rows.
    """
    rows = shown.rows
    totals = {
        "done": sum(row.state == State.DONE for row in rows),
        "prompt_tokens": sum(row.prompt_tokens for row in rows),
        "reused_tokens": sum(row.reused_tokens for row in rows),
        "output_tokens": sum(row.output_tokens for row in rows),
    }
    fields = {name: getattr(shown, name) for name in Picture.__struct_fields__}
    return _json({**fields, "first": 0, "count": len(rows), "totals": totals, "step": None})


def _json(fields: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode({name: value for name, value in fields.items() if name != "seconds"})


def planned_picture(forecast: "Forecast", models: Mapping[str, str]) -> Picture:
    """Return the picture of a plan that does not run yet. `models` are those of the roles, by role."""
    graph, order = forecast.graph, forecast.graph.order
    layout = _Layout.of(graph, {name: graph.before[name] for name in order})
    on_path, critical = frozenset(forecast.path.steps), frozenset(pairwise(forecast.path.steps))
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
                waits=(),
                bars=(),
                prompt_tokens=round(prediction.prompt_tokens),
                reused_tokens=0,
                output_tokens=round(prediction.output_tokens),
            )
        )
    return Picture(
        rows=tuple(rows),
        lines=tuple(
            layout.line(step, name, name, (step, name) in critical) for name in order for step in graph.before[name]
        ),
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
    place: Mapping[str, int]  # the number of each row
    edges: Mapping[tuple[str, str], Edge]  # of the plan

    @classmethod
    def of(cls, graph: StepGraph, before: Mapping[str, Sequence[str]]) -> "_Layout":
        columns = _columns(before)
        place = {name: index for index, name in enumerate(before)}
        tracks = _tracks(before, columns, place)
        edges = {(edge.before, edge.after): edge for edge in graph.edges if not edge.dropped}
        return cls(before, columns, tracks, _starts(columns, tracks), place, edges)

    @property
    def width(self) -> float:
        return max(self.starts, default=0.0) + NODE

    def x(self, step: str) -> float:
        return self.starts[self.columns[step]]

    def turn(self, earlier: str, later: str) -> float:
        """Return where the line between two steps turns down."""
        return self.x(later) - NODE / 2 - TRACK * self.tracks[earlier, later]

    def line(self, earlier: str, later: str, planned: str, critical: bool) -> Line:
        """Return the line between two steps; `planned` is the step of the plan that the later one belongs to."""
        edge = self.edges.get((earlier, planned))
        return Line(
            before=self.place[earlier],
            after=self.place[later],
            x=self.turn(earlier, later),
            start=self.x(earlier),
            end=self.x(later),
            reason="item" if edge is None else edge.reason,
            artifact=None if edge is None else edge.artifact,
            critical=critical,
        )


def _ordered(steps: Sequence[StepRow]) -> Iterator[StepRow]:
    # In the order of the document, but each step comes after those that it waits for.
    unplaced, placed = {step.id: step for step in steps}, set[str]()
    pending_ids = set(unplaced)
    for step in steps:
        pending = [step]
        while pending:
            row = pending[-1]
            missing = [name for name in row.depends_on if name in pending_ids and name not in placed]
            if row.id in placed:
                pending.pop()
            elif missing:
                pending += [unplaced[name] for name in reversed(missing)]
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


def _tracks(
    before: Mapping[str, Sequence[str]], columns: Mapping[str, int], place: Mapping[str, int]
) -> dict[tuple[str, str], int]:
    """Return the track of each edge in front of the column that it leads to, from 0.

    Edges from one step, or to one step, share a track: those of whichever has more. Other edges get another track if
    they overlap, while there are fewer than `MAX_TRACKS`.
    """
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
        key: (min([place[earlier] for earlier, _ in edges]), max([place[later] for _, later in edges]))
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


def _row(
    row: StepRow, strip: "_Strip", x: float, critical: bool, spare: float, expected: tuple[float, float] | None
) -> PictureRow:
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
        waits=strip.waits,
        bars=strip.bars,
        prompt_tokens=row.prompt_tokens,
        reused_tokens=_reused_tokens(row),
        output_tokens=row.output_tokens,
        reused=row.reused,
        first=row.first,
        ratings=row.ratings,
    )


def _reused_tokens(row: StepRow) -> int:
    return sum(attempt.usage.cached_tokens for attempt in row.attempts)


@dataclass(frozen=True, slots=True)
class _Strip:
    """The waits and attempts of a step, in order of time."""

    waits: tuple[Part, ...]
    bars: tuple[Bar, ...]

    @classmethod
    def of(cls, spans: Iterable[Span]) -> "_Strip":
        waits, bars = list[Part](), list[Bar]()
        for span in spans:
            for part in (span, *span.children) if span.kind == "step" else (span,):
                if part.kind == "wait":
                    waits.append(_wait(part))
                elif part.kind == "attempt":
                    bars.append(_bar(part))
        return cls(tuple(waits), tuple(bars))


def _planning(scene: Scene) -> Iterator[Bar]:
    for number, span in enumerate(plan_spans(scene)):
        yield Bar(number, span.start, None if span.is_open else span.end, span.failure or "done")


def _bar(attempt: Span) -> Bar:
    parts = sorted(filter(_is_long, _parts(attempt)), key=lambda part: part.start)
    end = None if attempt.is_open else attempt.end
    whole = parts if end is None else [*_with_gaps(attempt.start, end, parts)]
    return Bar(attempt.number, attempt.start, end, str(attempt.facts["outcome"]), tuple(whole))


def _parts(attempt: Span) -> Iterator[Part]:
    for span in attempt.children:
        if span.kind == "wait":
            yield _wait(span)
        elif span.kind == "generation":
            yield from _generation(span)
    yield from _gates([span for span in attempt.children if span.kind == "gate"])


def _wait(span: Span) -> Part:
    return Part(_KINDS[str(span.facts["cause"])], span.start, span.end)


def _generation(span: Span) -> Iterator[Part]:
    at = span.start
    for child in span.children:
        if child.kind == "tool":
            yield Part("write", at, child.start)
            yield Part("tools", max(at, child.start), child.end)
            at = max(at, child.end)
        else:
            yield Part("read" if child.kind == "prompt" else "write", child.start, child.end)
            at = child.end
    if not span.is_open:
        yield Part("write", at, span.end)


def _gates(gates: Sequence[Span]) -> Iterator[Part]:
    # Gates overlap. Of the time of all together, as large a part is a wait for a core as of the sum of their times.
    if not gates:
        return
    start, end = min(gate.start for gate in gates), max(gate.end for gate in gates)
    seconds = sum(gate.end - gate.start for gate in gates)
    waited = sum(map(_waited, gates)) / seconds if seconds > 0 else 0.0
    turn = start + waited * (end - start)
    yield Part("core", start, turn)
    yield Part("gates", turn, end)


def _waited(gate: Span) -> float:
    seconds, work = gate.end - gate.start, gate.facts.get("work_seconds")
    # A judge asks a model: what is not its work is the model's work for others.
    return max(0.0, seconds - work) if isinstance(work, float) and not gate.facts.get("tokens") else 0.0


def _with_gaps(start: float, end: float, parts: Sequence[Part]) -> Iterator[Part]:
    at = start
    for part in parts:
        if part.start - at >= SHORTEST:
            yield Part("other", at, part.start)
        bar_start = max(at, part.start)
        if part.end - bar_start >= SHORTEST:
            yield part if bar_start == part.start else Part(part.kind, bar_start, part.end)
        at = max(at, part.end)
    if end - at >= SHORTEST:
        yield Part("other", at, end)


def _is_long(part: Part) -> bool:
    return part.end - part.start >= SHORTEST
