"""Write the spans of a run in the Trace Event Format, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

The format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU. Times (`ts`, `dur`) are in
microseconds since the run was accepted. The spans of one row have to nest, so spans that overlap get rows of their own
with the same name.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from orchestrator.run.record.spans import Fact, Span

Event = dict[str, Any]

PROCESS: Final = 1  # a trace is of one run
CRITICAL_COLOUR: Final = "terrible"  # red in chrome://tracing, whose colours have fixed names
RUN_ROW: Final = "run"
PATH_ROW: Final = "critical path"
# In ASCII, so that control characters and those that change the direction of writing are escaped.
_json: Final = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


@dataclass(slots=True)
class _Row:
    # A row, and those below it for spans that would overlap. Of each, when its last span ends.
    name: str
    threads: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)


def chrome_trace(run: Span) -> str:
    """Return the spans of a run as a JSON object of the Trace Event Format, an event a line."""
    about = {key: value for key, value in _arguments(run).items() if key in ("status", "mode", "request")}
    lines = ",\n".join(_json(event) for event in _Trace(run).events())
    return f'{{"displayTimeUnit":"ms","otherData":{_json({"run": run.name} | about)},"traceEvents":[\n{lines}\n]}}\n'


class _Trace:
    def __init__(self, run: Span) -> None:
        self._run = run
        self._rows: dict[str, _Row] = {}
        self._threads = 0
        self._slices: list[Event] = []

    def events(self) -> Iterator[Event]:
        """Yield all events: names of rows, then slices and counters by time."""
        for name in (RUN_ROW, PATH_ROW, *dict.fromkeys(span.model for span in _generations(self._run))):
            self._row(name)  # first, since rows have the order of their making
        steps = [span for span in self._run.children if span.step]
        self._place(self._run, self._row(RUN_ROW), [span for span in self._run.children if not span.step])
        self._place_path([span for span in steps if span.facts.get("critical")])
        for span in sorted(_generations(self._run), key=lambda span: span.start):
            self._place(span, self._row(span.model), span.children, name=span.step or "plan")
        for span in sorted(steps, key=lambda span: span.start):
            self._place(span, self._row(f"step {span.step}"), span.children)
        yield _named("process_name", 0, {"name": f"run {self._run.name}"})
        for at, (thread, name) in enumerate(
            (thread, row.name) for row in self._rows.values() for thread in row.threads
        ):
            yield _named("thread_name", thread, {"name": name})
            yield _named("thread_sort_index", thread, {"sort_index": at})
        yield from sorted([*self._slices, *_counters(self._run)], key=lambda event: int(event["ts"]))

    def _row(self, name: str) -> _Row:
        return self._rows.setdefault(name, _Row(name))

    def _place(self, span: Span, row: _Row, children: Sequence[Span], name: str = "") -> None:
        # In the first row in which nothing overlaps it; its children in the same row, unless they overlap each other.
        start, end = _microseconds(span.start), _microseconds(span.end)
        place = next((at for at, free in enumerate(row.ends) if free <= start), None)
        if place is None:
            self._threads += 1
            place = len(row.ends)
            row.threads.append(self._threads)
            row.ends.append(end)
        row.ends[place] = end
        self._slice(span, row.threads[place], name)
        self._nest(children, row, row.threads[place], start)

    def _nest(self, spans: Sequence[Span], row: _Row, thread: int, free: int) -> None:
        for span in sorted(spans, key=lambda span: (span.start, span.end)):
            if _microseconds(span.start) < free:
                self._place(span, row, span.children)
                continue
            free = _microseconds(span.end)
            self._slice(span, thread)
            self._nest(span.children, row, thread, _microseconds(span.start))

    def _place_path(self, steps: Sequence[Span]) -> None:
        # A step that gathers others starts before them, but is on the path only after them.
        row, free = self._row(PATH_ROW), 0.0
        for span in sorted(steps, key=lambda span: span.end):
            if span.kind == "step" and span.end >= free:
                on_path = Span(
                    kind="step",
                    name=span.name,
                    start=max(free, span.start),
                    end=span.end,
                    is_open=span.is_open,
                    facts=span.facts,
                )
                self._place(on_path, row, ())
                free = span.end

    def _slice(self, span: Span, thread: int, name: str = "") -> None:
        start = _microseconds(span.start)
        event: Event = {
            "name": name or span.name,
            "cat": span.kind,
            "ph": "X",
            "ts": start,
            "dur": _microseconds(span.end) - start,
            "pid": PROCESS,
            "tid": thread,
            "args": _arguments(span),
        }
        if span.facts.get("critical"):
            event["cname"] = CRITICAL_COLOUR
        self._slices.append(event)


def _generations(span: Span) -> Iterator[Span]:
    if span.kind == "generation":
        yield span
    for child in span.children:
        yield from _generations(child)


def _counters(run: Span) -> Iterator[Event]:
    """Yield the tokens of the whole run so far: computed and reused ones of prompts, and written ones."""
    changes: list[tuple[float, str, int]] = []
    for span in _generations(run):
        if (usage := span.usage) is not None:
            read = next((part.end for part in span.children if part.kind == "prompt"), span.end)
            changes += [
                (read, "computed", usage.prompt_tokens - usage.cached_tokens),
                (read, "reused", usage.cached_tokens),
                (span.end, "written", usage.output_tokens),
            ]
    tokens = {"computed": 0, "reused": 0, "written": 0}
    so_far = {0: {**tokens}}
    for at, kind, count in sorted(changes):
        tokens[kind] += count
        so_far[_microseconds(at)] = {**tokens}
    for time, arguments in so_far.items():
        yield {"name": "tokens", "ph": "C", "ts": time, "pid": PROCESS, "tid": 0, "args": arguments}


def _named(kind: str, thread: int, arguments: Mapping[str, Fact]) -> Event:
    return {"name": kind, "ph": "M", "pid": PROCESS, "tid": thread, "args": {**arguments}}


def _arguments(span: Span) -> dict[str, Fact]:
    facts = {**span.facts, **span.texts}
    facts |= {"failure": span.failure} if span.failure else {}
    facts |= {"has not ended": True} if span.is_open else {}
    facts |= {"model": span.model} if span.model else {}
    return {name: fact for name, fact in facts.items() if not isinstance(fact, float) or math.isfinite(fact)}


def _microseconds(seconds: float) -> int:
    return round(seconds * 1e6)
