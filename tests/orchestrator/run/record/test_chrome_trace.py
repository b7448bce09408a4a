"""The trace file of a run: valid by the published format, whatever the run did, and true to its events."""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import jsonschema
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.run.record.chrome_trace import chrome_trace
from orchestrator.run.record.report import build_report
from orchestrator.run.record.spans import Span, run_spans
from orchestrator.run.record.view import RunView
from orchestrator.task.events import (
    AttemptFailed,
    AttemptGenerated,
    AttemptStarted,
    AttemptSucceeded,
    Event,
    Failure,
    FailureKind,
    GateResult,
    PlanFinished,
    PlanningStarted,
    RunAccepted,
    RunBegun,
    RunFinished,
    StepsPlanned,
    ToolCalled,
    Usage,
)
from tests.orchestrator.run.record.run_courses import recorded
from tests.orchestrator.scheduler_driver import step as planned_step

NAMED = {"enum": ["process_name", "thread_name"]}
FORMAT = {
    "$comment": "What the Trace Event Format says about the object form, and about events of the phases X, C and M.",
    "type": "object",
    "required": ["traceEvents"],
    "properties": {
        "displayTimeUnit": {"enum": ["ms", "ns"]},
        "otherData": {"type": "object"},
        "traceEvents": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name", "ph", "pid", "tid", "args"],
                "properties": {
                    "name": {"type": "string"},
                    "cat": {"type": "string", "pattern": "^[a-z]+(,[a-z]+)*$"},
                    "ph": {"enum": ["X", "C", "M"]},
                    "ts": {"type": "integer", "minimum": 0},
                    "dur": {"type": "integer", "minimum": 0},
                    "pid": {"type": "integer"},
                    "tid": {"type": "integer"},
                    "cname": {"enum": ["terrible"]},
                    "args": {"type": "object"},
                },
                "additionalProperties": False,
                "allOf": [
                    {
                        "if": {"properties": {"ph": {"const": "X"}}},
                        "then": {"required": ["ts", "dur", "cat"]},
                        "else": {"not": {"required": ["dur"]}},
                    },
                    {
                        "if": {"properties": {"ph": {"const": "C"}}},
                        "then": {
                            "required": ["ts"],
                            "properties": {
                                "args": {"minProperties": 1, "additionalProperties": {"type": "number", "minimum": 0}}
                            },
                        },
                    },
                    {
                        "if": {"properties": {"ph": {"const": "M"}}},
                        "then": {
                            "if": {"properties": {"name": NAMED}},
                            "then": {"properties": {"args": {"properties": {"name": {"type": "string"}}}}},
                            "else": {
                                "properties": {
                                    "name": {"const": "thread_sort_index"},
                                    "args": {"properties": {"sort_index": {"type": "integer"}}},
                                }
                            },
                        },
                    },
                ],
            },
        },
    },
}
VALID = jsonschema.Draft202012Validator(FORMAT)


def spans_of(events: Sequence[Event], now: float | None = None) -> Span:
    view = RunView.of(events)
    return run_spans(view, build_report(view, lambda digest: b""), now)


def traced(events: Sequence[Event], now: float | None = None) -> list[dict[str, Any]]:
    """Return the events of the trace file of a run, after checking that it is valid."""
    text = chrome_trace(spans_of(events, now))
    assert text.isascii()
    assert not {character for character in text if ord(character) < 32} - {"\n"}
    read = json.loads(text)
    VALID.validate(read)
    found: list[dict[str, Any]] = read["traceEvents"]
    assert_nested(found)
    return found


def assert_nested(events: Sequence[dict[str, Any]]) -> None:
    """Assert that the slices of each row, in the order of the file, lie inside of each other or apart."""
    open_ends: dict[int, list[int]] = defaultdict(list)
    latest = 0
    for event in events:
        if event["ph"] == "M":
            continue
        assert event["ts"] >= latest, "the events are in the order of time"
        latest = event["ts"]
        if event["ph"] == "X":
            ends, end = open_ends[event["tid"]], event["ts"] + event["dur"]
            while ends and ends[-1] <= event["ts"]:
                ends.pop()
            assert not ends or end <= ends[-1], event
            ends.append(end)


def walk(span: Span) -> Iterator[Span]:
    yield span
    for child in span.children:
        yield from walk(child)


@given(recorded(), st.none() | st.floats(0, 1e6))
def test_the_trace_of_any_run_is_valid_at_any_time(events: list[Event], now: float | None) -> None:
    traced(events, now)


@given(recorded(), st.none() | st.floats(0, 1e6))
def test_every_span_lies_in_its_parent(events: list[Event], now: float | None) -> None:
    for span in walk(spans_of(events, now)):
        assert 0 <= span.start <= span.end
        for child in span.children:
            assert span.start <= child.start
            assert child.end <= span.end


@given(recorded(), st.data())
def test_only_a_run_that_has_not_ended_has_open_spans(events: list[Event], data: st.DataObject) -> None:
    ended = isinstance(events[-1], RunFinished)
    run = spans_of(events)
    assert run.is_open != ended
    if ended:
        assert not [span for span in walk(run) if span.is_open]


PLAN = Usage(prompt_tokens=30, output_tokens=5, prefill_seconds=0.5, decode_seconds=0.5)
FIRST = Usage(
    prompt_tokens=100, cached_tokens=60, output_tokens=20, queued_seconds=1.0, prefill_seconds=2.0, decode_seconds=3.0
)


def attempt(step: str, number: int, at: float, model: str = "small") -> AttemptStarted:
    return AttemptStarted(at=at, step=step, number=number, role="worker", persona=None, model=model, reason="r")


def a_run() -> list[Event]:
    """Return a run: it waits, is planned, S1 is done at its second attempt, and then S2, whose model calls a tool."""
    failure = Failure(FailureKind.SCHEMA, "no JSON")
    gates = (
        GateResult("schema", "failed", "no JSON", 0.5, FailureKind.SCHEMA, offset_seconds=0.0),
        GateResult("format", "passed", "", 0.2, offset_seconds=0.1),
        GateResult("judge", "not run", "gate schema failed before it"),
    )
    return [
        RunAccepted(at=100.0, run="R", mode="as-planned", request='say "hi"\n', max_replans=0),
        RunBegun(at=101.0),
        PlanningStarted(at=101.0, role="frontdoor", model="front"),
        StepsPlanned(at=102.0, steps=(planned_step(1), planned_step(2, 1))),
        PlanFinished(at=102.0, origin="planned", usage=PLAN),
        attempt("S1", 1, 102.0),
        AttemptGenerated(at=108.5, step="S1", number=1, usage=FIRST),
        AttemptFailed(at=109.0, step="S1", number=1, failure=failure, gates=gates),
        attempt("S1", 2, 111.0),
        AttemptGenerated(at=113.0, step="S1", number=2, usage=Usage(output_tokens=4, decode_seconds=2.0)),
        AttemptSucceeded(at=113.0, step="S1", number=2, outputs={}),
        attempt("S2", 1, 113.0, "large"),
        ToolCalled(at=115.0, step="S2", number=1, tool="grep", arguments="{}", outcome="done", seconds=0.5),
        AttemptGenerated(at=117.0, step="S2", number=1, usage=Usage(output_tokens=6, decode_seconds=3.0)),
        AttemptSucceeded(at=117.0, step="S2", number=1, outputs={}),
        RunFinished(at=117.5, status="done"),
    ]


def rows_of(events: Sequence[dict[str, Any]]) -> dict[str, list[tuple[str, float, float]]]:
    """Return by name of the row what is in it: name, start and end in seconds."""
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    rows: dict[str, list[tuple[str, float, float]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            start = event["ts"] / 1e6
            rows[names[event["tid"]]].append((event["name"], start, round(start + event["dur"] / 1e6, 6)))
    return rows


def test_a_trace_has_a_row_for_each_model_and_step_with_what_it_did_when() -> None:
    events = traced(a_run())
    assert [event["args"]["name"] for event in events if event["name"] == "process_name"] == ["run R"]
    rows = rows_of(events)
    assert rows["run"] == [
        ("R", 0.0, 17.5),
        ("waiting in the queue", 0.0, 1.0),
        ("plan", 1.0, 2.0),
        ("front", 1.0, 2.0),
        ("prompt", 1.0, 1.5),
        ("decode", 1.5, 2.0),
    ]
    assert rows["step S1"] == [
        ("S1", 2.0, 13.0),
        ("attempt 1", 2.0, 9.0),
        ("waiting for small", 2.5, 3.5),
        ("small", 3.5, 8.5),
        ("prompt", 3.5, 5.5),
        ("decode", 5.5, 8.5),
        ("schema", 8.5, 9.0),
        ("format", 8.6, 8.8),
        ("waiting to be tried again", 9.0, 11.0),
        ("attempt 2", 11.0, 13.0),
        ("small", 11.0, 13.0),
        ("prompt", 11.0, 11.0),
        ("decode", 11.0, 13.0),
    ]
    assert rows["step S2"] == [
        ("waiting for S1", 2.0, 13.0),
        ("S2", 13.0, 17.0),
        ("attempt 1", 13.0, 17.0),
        ("large", 13.0, 17.0),
        ("grep", 14.5, 15.0),
    ]
    assert rows["small"][:3] == [("S1", 3.5, 8.5), ("prompt", 3.5, 5.5), ("decode", 5.5, 8.5)]
    assert rows["large"] == [("S2", 13.0, 17.0), ("grep", 14.5, 15.0)]


def test_attempts_and_generations_name_their_nodes() -> None:
    spread = [
        replace(event, usage=replace(event.usage, nodes=("east",)))
        if isinstance(event, AttemptGenerated) and event.step == "S1" and event.number == 1
        else replace(event, nodes=("east", "west"))
        if isinstance(event, AttemptFailed)
        else event
        for event in a_run()
    ]
    slices = [event for event in traced(spread) if event.get("cat") in ("attempt", "generation")]
    named = [(event["cat"], event["name"]) for event in slices if event["args"].get("nodes") == "east, west"]
    assert sorted(named) == [("attempt", "attempt 1"), ("generation", "S1"), ("generation", "small")]
    assert sum("nodes" in event["args"] for event in slices) == len(named)


def test_gates_that_ran_at_the_same_time_are_in_rows_of_their_own() -> None:
    gates = [event for event in traced(a_run()) if event.get("cat") == "gate"]
    assert [event["args"]["status"] for event in gates] == ["failed", "passed"], "the judge did not run"
    assert len({event["tid"] for event in gates}) == 2


def test_the_critical_path_is_marked() -> None:
    events = traced(a_run())
    assert rows_of(events)["critical path"] == [("S1", 2.0, 13.0), ("S2", 13.0, 17.0)]
    marked = {event["name"] for event in events if event.get("cname") == "terrible"}
    assert marked == {"S1", "S2"}


def test_the_counters_are_the_tokens_of_the_run_so_far() -> None:
    counters = [event for event in traced(a_run()) if event["ph"] == "C"]
    assert counters[0] == {
        **counters[0],
        "name": "tokens",
        "ts": 0,
        "args": {"computed": 0, "reused": 0, "written": 0},
    }
    first = next(event for event in counters if event["args"]["reused"])
    assert (first["ts"], first["args"]) == (5_500_000, {"computed": 70, "reused": 60, "written": 5})
    assert counters[-1]["args"] == {"computed": 70, "reused": 60, "written": 35}


def test_a_run_that_has_not_ended_is_shown_up_to_now() -> None:
    events = traced(a_run()[:6], now=7.0)
    (running,) = [event for event in events if event["name"] == "attempt 1"]
    assert (running["ts"], running["dur"]) == (2_000_000, 5_000_000)
    assert running["args"]["has not ended"] is True
    (waiting,) = [event for event in events if event["name"] == "waiting for S1"]
    assert waiting["dur"] == 5_000_000
    assert traced(a_run()[:6])[-1]["ts"] == 2_000_000, "up to the latest event"


def test_an_attempt_that_a_restart_interrupted_ends_when_the_run_continues() -> None:
    events = traced([*a_run()[:6], RunBegun(at=150.0), attempt("S1", 2, 151.0)], now=60.0)
    interrupted, again = [event for event in events if event.get("cat") == "attempt"]
    assert (interrupted["dur"], interrupted["args"]["failure"]) == (48_000_000, "interrupted")
    assert again["args"]["has not ended"] is True
    assert "waiting after a restart" in {event["name"] for event in events}


def test_a_run_in_the_queue_waits_for_nothing_else() -> None:
    accepted, _, _, planned, *_ = a_run()
    events = traced([accepted, planned], now=3.0)
    assert rows_of(events) == {"run": [("R", 0.0, 3.0), ("waiting in the queue", 0.0, 3.0)]}
    (waiting,) = [event for event in events if event.get("cat") == "wait"]
    assert waiting["args"] == {"cause": "queue", "has not ended": True}


def test_a_step_that_will_be_tried_again_waits_until_then() -> None:
    events = traced(a_run()[:8], now=9.5)
    (waiting,) = [event for event in events if event["name"] == "waiting to be tried again"]
    assert (waiting["ts"], waiting["dur"], waiting["args"]["has not ended"]) == (9_000_000, 500_000, True)
