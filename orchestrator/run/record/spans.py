"""The spans of a run: when it planned, generated, called tools and checked, and what each step waited for.

Both the trace file and the spans of OpenTelemetry are made from these. Times are in seconds since the run was accepted.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from orchestrator.run.record.report import Report, StepRow
from orchestrator.run.record.view import AttemptRow, RunView
from orchestrator.task.events import Usage

SpanKind = Literal["run", "plan", "step", "attempt", "generation", "prompt", "decode", "wait", "tool", "gate"]
Fact = str | int | float | bool

SHORTEST_WAIT: Final = 0.001  # seconds; a shorter wait is the work of the scheduler


class Span(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A part of a run. Its children lie inside of it, and may overlap each other.

    `facts` hold numbers, names and states only. `texts` may quote prompts and outputs.
    A struct is made several times as fast as a dataclass, and a run of 10,000 steps has 100,000 spans.
    """

    kind: SpanKind
    name: str
    start: float
    end: float  # of a part that has not ended, the time up to which the run is shown
    step: str = ""  # empty for the run and its plan
    number: int = 0  # of the attempt; 0 for what belongs to none
    model: str = ""  # that generates, for plans, attempts and generations
    is_open: bool = False  # whether it has not ended
    failure: str = ""  # the kind of failure, or cancelled or interrupted; empty if it did not fail
    usage: Usage | None = None  # of a generation; None as long as it is unknown
    facts: Mapping[str, Fact] = msgspec.field(default_factory=dict)
    texts: Mapping[str, str] = msgspec.field(default_factory=dict)
    children: tuple["Span", ...] = ()


@dataclass(frozen=True, slots=True)
class Scene:
    """A run up to a moment: what the span of a part depends on in addition to the part itself."""

    view: RunView
    report: Report  # of the same events
    times: Mapping[str, tuple[float | None, float | None]]  # when each step started and ended
    critical: frozenset[str]
    until: float  # up to which parts that have not ended are shown

    @classmethod
    def of(cls, view: RunView, report: Report, now: float | None = None) -> "Scene":
        """Show a run up to the latest event, or up to `now` if that is later and the run has not ended."""
        return cls(
            view,
            report,
            times={step.id: (step.started, step.finished) for step in report.steps},
            critical=frozenset(report.critical_path.steps),
            until=view.wall_seconds if view.ended or now is None else max(view.wall_seconds, now),
        )


def run_spans(view: RunView, report: Report, now: float | None = None) -> Span:
    """Return the span of a whole run, with all others as its children.

    `report` is of the same events. Parts of a run that has not ended are shown up to the latest event, or up to `now`
    (seconds since the run was accepted), if that is later.
    """
    scene = Scene.of(view, report, now)
    until = scene.until
    children = [*_queue(view, until), *plan_spans(scene)]
    for step in report.steps:
        children += step_spans(step, scene)
    facts: dict[str, Fact] = {"id": report.run_id, "status": report.status, "mode": report.mode}
    facts |= {"priority": view.accepted.priority, "steps": len(report.steps)}
    facts |= {"critical_path_seconds": report.critical_path.seconds}
    return Span(
        kind="run",
        name=report.run_id,
        start=0.0,
        end=max(until, *(child.end for child in children)) if children else until,
        is_open=not view.ended,
        failure=report.status if report.status in ("failed", "cancelled") else "",
        facts=facts,
        texts=_given({"request": report.request, "error": report.error or "", "doubt": report.doubt}),
        children=tuple(children),
    )


def _queue(view: RunView, until: float) -> Iterator[Span]:
    queue_left = left_queue(view)
    yield from _wait(
        "waiting in the queue", "queue", 0.0, until if queue_left is None else queue_left, queue_left is None
    )


def left_queue(view: RunView) -> float | None:
    """Return when a run left the queue, in seconds since it was accepted; None while it is in the queue."""
    # Runs of early versions have no such event.
    return None if view.status == "queued" else view.begun[0] if view.begun else 0.0


def _wait(name: str, cause: str, start: float, end: float, is_open: bool = False, step: str = "") -> Iterator[Span]:
    if end - start >= SHORTEST_WAIT:
        yield Span(kind="wait", name=name, start=start, end=end, step=step, is_open=is_open, facts={"cause": cause})


def plan_spans(scene: Scene) -> Iterator[Span]:
    """Yield the spans of the first plan, and of its continuations."""
    view, report, until = scene.view, scene.report, scene.until
    if view.planner:
        is_planned, start = report.plan_origin is not None, view.planning_started
        span = Span(
            kind="plan",
            name="plan",
            start=start,
            end=start + report.planning_seconds if is_planned else until,
            model=view.planner,
            is_open=not is_planned and not view.ended,
            failure=report.status if not is_planned and view.ended else "",
            facts={"origin": report.plan_origin} if report.plan_origin else {},
            texts=_given({"reason": view.plan_reason}),
        )
        yield replace(span, children=tuple(_generation(span, report.plan_usage if is_planned else None)))
    for row in report.replans:
        if row.started is None:
            continue
        span = Span(
            kind="plan",
            name=f"plan after {row.after}",
            start=row.started,
            end=until if row.finished is None else row.finished,
            model=row.model,
            is_open=row.finished is None and not view.ended,
            failure=row.outcome if row.outcome in ("stopped", "cancelled") else "",
            facts={"after": row.after, "outcome": row.outcome},
            texts=_given({"reason": row.reason}),
        )
        yield replace(span, children=tuple(_generation(span, None if row.finished is None else row.usage)))


def step_spans(step: StepRow, scene: Scene) -> Iterator[Span]:
    """Yield the span of a step, if it has started, and those of its waits before."""
    view, report, times, until = scene.view, scene.report, scene.times, scene.until
    queue_left = left_queue(view)
    if queue_left is None:
        return
    planned = max(queue_left, view.planned.get(step.id, 0.0))
    before = report.graph.before.get(step.parent or step.id, ())
    ends = {name: times[name][1] for name in before}
    ended = [end for end in ends.values() if end is not None]
    ready = max((planned, *ended)) if len(ended) == len(ends) else None
    if step.started is None and view.ended:
        return  # it was cancelled before anything was done for it
    last = max(before, key=lambda name: until if (end := ends[name]) is None else end, default="")
    blocked = until if ready is None else ready
    if step.started is not None:
        blocked = min(blocked, step.started)
    if last:
        yield from _wait(f"waiting for {last}", "dependencies", planned, blocked, ready is None, step.id)
    if ready is not None:
        starts = until if step.started is None else step.started
        yield from _wait("waiting to start", "start", ready, starts, step.started is None, step.id)
    if step.started is not None:
        yield _started_step(step, view, scene.critical, until)


def _started_step(step: StepRow, view: RunView, critical: frozenset[str], until: float) -> Span:
    start = step.started or 0.0
    spans: list[Span] = []
    attempts = [
        _attempt(step.id, row, _end(row, step.attempts[at + 1 :], view, until)) for at, row in enumerate(step.attempts)
    ]
    for earlier, later in pairwise(attempts):
        spans += [earlier, *_next_attempt_wait(earlier, later.start, is_open=False)]
    spans += attempts[-1:]
    ended = step.state in ("done", "failed", "cancelled")
    if not ended and attempts and not attempts[-1].is_open:
        spans += _next_attempt_wait(attempts[-1], until, is_open=True)
    end = max([until if step.finished is None else step.finished, *(span.end for span in spans)])
    facts: dict[str, Fact] = {"role": step.role, "state": step.state, "critical": step.id in critical}
    facts |= {"attempts": len(step.attempts), "slack_seconds": step.slack}
    facts |= {"persona": step.persona} if step.persona else {}
    facts |= {"parent": step.parent} if step.parent else {}
    return Span(
        kind="step",
        name=step.id,
        start=start,
        end=end,
        step=step.id,
        is_open=not ended,
        failure=step.state if step.state in ("failed", "cancelled") else "",
        facts=facts,
        texts=_given({"action": step.action, "error": step.cause or ""}),
        children=tuple(spans),
    )


def _next_attempt_wait(earlier: Span, until: float, *, is_open: bool) -> Iterator[Span]:
    cause, name = {
        "done": ("repair", "waiting to be repaired"),
        "interrupted": ("restart", "waiting after a restart"),
    }.get(str(earlier.facts["outcome"]), ("retry", "waiting to be tried again"))
    return _wait(name, cause, earlier.end, until, is_open, earlier.step)


def _end(row: AttemptRow, later: Sequence[AttemptRow], view: RunView, until: float) -> tuple[float, bool]:
    # Returns when an attempt ended, and whether it has not. No event says when one was interrupted: at the latest when
    # the run continued.
    if row.finished is not None:
        return row.finished, False
    continued = [at for at in (*view.begun, *(attempt.started for attempt in later[:1])) if at > row.started]
    if continued and row.outcome != "checking":  # gates continue after a restart
        return min(continued), False
    return until, not view.ended


def _attempt(step: str, row: AttemptRow, ended: tuple[float, bool]) -> Span:
    end, is_open = max(row.started, ended[0]), ended[1]
    failed = row.outcome not in ("running", "checking", "done")
    facts: dict[str, Fact] = {"number": row.number, "role": row.role, "outcome": row.outcome}
    facts |= {"persona": row.persona} if row.persona else {}
    facts |= _node_facts(row.usage)
    span = Span(
        kind="attempt",
        name=f"attempt {row.number}",
        start=row.started,
        end=end,
        step=step,
        number=row.number,
        model=row.model,
        is_open=is_open,
        failure=row.outcome if failed else "",
        facts=facts,
        texts=_given({"reason": row.reason, "message": row.message}),
    )
    generated = end if row.generated is None else min(end, max(row.started, row.generated))
    usage = None if row.generated is None else row.usage
    tools = tuple(_tools(span, row, generated))
    children = [*_generation(span, usage, generated, tools), *_model_waits(span, row, generated)]
    return replace(span, children=(*children, *_gates(span, row, generated)))


def _generation(
    of: Span, usage: Usage | None, end: float | None = None, tools: tuple[Span, ...] = ()
) -> Iterator[Span]:
    """Yield the wait for a slot and the generation, which has prompt and decoding in it, of a plan or an attempt.

    It ends at `end`, or with `of`. Usage has sums of seconds. With calls of tools they are of several turns, whose
    times nobody has recorded, so then there is one span with the calls in it, which are when they were.
    """
    end = of.end if end is None else end
    facts = _usage_facts(usage) if usage is not None else {}
    whole = Span(
        kind="generation",
        name=of.model,
        start=of.start,
        end=end,
        step=of.step,
        number=of.number,
        model=of.model,
        is_open=usage is None and of.is_open,
        usage=usage,
        facts=facts,
        children=tools,
    )
    if tools or usage is None:
        if tools or of.is_open:  # else no model was asked, such as for inputs that could not be read
            yield whole
        return
    seconds = usage.queued_seconds + usage.prefill_seconds + usage.decode_seconds
    if seconds <= 0:
        return
    scale = min(1.0, (end - of.start) / seconds)  # what overlapped takes longer in sum than it took
    decode = max(of.start, end - scale * usage.decode_seconds)
    prompt = max(of.start, decode - scale * usage.prefill_seconds)
    queued = max(of.start, prompt - scale * usage.queued_seconds)
    yield from _wait(f"waiting for {of.model}", "slot", queued, prompt, step=of.step)
    part = replace(whole, start=prompt, usage=None)
    parts = (
        replace(part, kind="prompt", name="prompt", end=decode, facts=_prompt_facts(usage)),
        replace(part, kind="decode", name="decode", start=decode, facts=_decode_facts(usage)),
    )
    yield replace(whole, start=prompt, children=parts)


def _usage_facts(usage: Usage) -> dict[str, Fact]:
    return {
        "queued_seconds": usage.queued_seconds,
        "prompt_seconds": usage.prefill_seconds,
        "decode_seconds": usage.decode_seconds,
        **_prompt_facts(usage),
        **_decode_facts(usage),
        **_node_facts(usage),
    }


def _node_facts(usage: Usage) -> dict[str, Fact]:
    return {"nodes": ", ".join(usage.nodes)} if usage.nodes else {}


def _prompt_facts(usage: Usage) -> dict[str, Fact]:
    return {"prompt_tokens": usage.prompt_tokens, "cached_tokens": usage.cached_tokens}


def _decode_facts(usage: Usage) -> dict[str, Fact]:
    drafts = {"drafted_tokens": usage.drafted_tokens, "accepted_tokens": usage.accepted_tokens}
    return {
        "output_tokens": usage.output_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        **(drafts if usage.drafted_tokens else {}),
    }


def _model_waits(of: Span, row: AttemptRow, generated: float) -> Iterator[Span]:
    # For models that had failed too often. How long a wait was to be is known, or another request decides it.
    for wait in row.waits:
        start = min(max(of.start, wait.since), generated)
        end = min(start + (wait.seconds or 0.0), generated)
        name = f"waiting until {wait.model} is tried again"
        spans = _wait(name, "model paused", start, end, step=of.step)
        yield from (replace(span, texts=_given({"reason": wait.reason})) for span in spans)


def _tools(of: Span, row: AttemptRow, generated: float) -> Iterator[Span]:
    for call in row.calls:
        end = min(max(of.start, call.ended), generated)
        facts: dict[str, Fact] = {"outcome": call.outcome, "awaited_seconds": call.awaited_seconds}
        facts |= {} if call.work_seconds is None else {"work_seconds": call.work_seconds}
        yield Span(
            kind="tool",
            name=call.tool,
            start=max(of.start, end - call.seconds),
            end=end,
            step=of.step,
            number=of.number,
            failure="" if call.outcome == "done" else call.outcome,
            facts=facts,
            texts=_given({"arguments": call.arguments, "message": call.message}),
        )


def _gates(of: Span, row: AttemptRow, generated: float) -> Iterator[Span]:
    ran = [gate for gate in row.gates if gate.status != "not run"]
    # They end with the attempt. After a restart they may have started long after the generation.
    start = max(generated, of.end - max((gate.offset_seconds + gate.seconds for gate in ran), default=0.0))
    for gate in ran:
        gate_start = min(start + gate.offset_seconds, of.end)
        facts: dict[str, Fact] = {"status": gate.status, "tokens": gate.tokens}
        facts |= {} if gate.score is None else {"score": gate.score}
        facts |= {} if gate.work_seconds is None else {"work_seconds": gate.work_seconds}
        yield Span(
            kind="gate",
            name=gate.gate,
            start=gate_start,
            end=min(gate_start + gate.seconds, of.end),
            step=of.step,
            number=of.number,
            failure="" if gate.passed else str(gate.kind or gate.status),
            facts=facts,
            texts=_given({"evidence": gate.evidence}),
        )


def _given(texts: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in texts.items() if text}
