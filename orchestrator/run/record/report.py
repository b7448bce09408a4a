"""Build the report of a run from its view. The same events always give the same report.

Times are in seconds since the run was accepted.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

import msgspec

from orchestrator.run.gates.planned import PlannedGate, gates_for_step
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.record.steps import PlanRecord, RunStep
from orchestrator.run.record.view import AttemptRow, RatingRow, ReplanRow, RunView
from orchestrator.run.steps.files import NO_FILE
from orchestrator.task.analysis import StepGraph
from orchestrator.task.critical_path import (
    Effort,
    critical_path,
    critical_steps_of,
    figures,
    measured_seconds,
    slack,
)
from orchestrator.task.events import MODEL_CALLS, AnswerDoubt, ModeChoice, ModeForecast, PlanOrigin, Prediction, Usage
from orchestrator.task.modes import Mode, RunStatus
from orchestrator.task.prediction import predict_run
from orchestrator.task.reuse import Reuse
from orchestrator.task.taskir.models import compose_name

Read = Callable[[str], bytes]
Times = Mapping[str, tuple[float | None, float | None]]
# A prediction is wrong if the measured time differs by more than this part of it.
WRONG: Final = 0.5
LEAST_SECONDS: Final = 0.01  # smaller differences are ignored
# A cause is named if it explains at least this part of the difference.
SHARE: Final = 0.15


@dataclass(frozen=True, slots=True)
class MispredictionCause:
    why: str  # in words, as the end of a sentence about the step
    seconds: float  # by which it made the step longer; negative: shorter


@dataclass(frozen=True, slots=True)
class Misprediction:
    """A step whose prediction was wrong by more than half."""

    step: str
    predicted_seconds: float
    seconds: float
    causes: tuple[MispredictionCause, ...]  # the greatest first; they need not add up to the whole difference
    assumed: bool  # nothing like it had been measured


def misprediction(
    step: str, predicted: Prediction, seconds: float, attempts: Sequence[AttemptRow]
) -> Misprediction | None:
    """Return the error of the prediction for a step, and its causes; None if it was right within `WRONG`."""
    late = seconds - predicted.seconds
    if abs(late) < LEAST_SECONDS or abs(late) <= WRONG * predicted.seconds:
        return None
    causes = [cause for cause in _causes(predicted, attempts) if cause.seconds * late > 0]
    named = [cause for cause in causes if abs(cause.seconds) >= SHARE * abs(late)]
    named.sort(key=lambda cause: -abs(cause.seconds))
    if predicted.generations == 0:
        unexplained = late - _seconds_before_last(attempts)
        named.append(MispredictionCause("no generation of such a step was known, so its time was assumed", unexplained))
    return Misprediction(step, predicted.seconds, seconds, tuple(named), assumed=predicted.generations == 0)


def _causes(predicted: Prediction, attempts: Sequence[AttemptRow]) -> Iterable[MispredictionCause]:
    if not attempts:
        return
    *earlier, last = attempts
    if lost := _seconds_before_last(attempts):
        is_restart = all(row.outcome == "interrupted" for row in earlier)
        why = "a restart interrupted it" if is_restart else f"it was tried {len(attempts)} times"
        yield MispredictionCause(why, lost)
    usage = last.usage
    yield MispredictionCause("it waited for a slot", usage.queued_seconds)
    wrote = usage.output_tokens - predicted.output_tokens
    per_token = predicted.decode_seconds / predicted.output_tokens if predicted.output_tokens else 0.0
    expected = f"{predicted.output_tokens:.0f} were expected"
    yield MispredictionCause(f"it wrote {usage.output_tokens} tokens, {expected}", wrote * per_token)
    computed = usage.prompt_tokens - usage.cached_tokens
    read = computed - predicted.prompt_tokens
    per_prompt = predicted.prefill_seconds / predicted.prompt_tokens if predicted.prompt_tokens else 0.0
    expected = f"{predicted.prompt_tokens:.0f} were expected"
    yield MispredictionCause(f"{computed} tokens of its prompt were not in the cache, {expected}", read * per_prompt)
    took = usage.prefill_seconds + usage.decode_seconds
    alone = usage.alone_seconds or took
    normal = predicted.alone_seconds + wrote * per_token + read * per_prompt
    slower = alone - normal
    word = "slower" if slower > 0 else "faster"
    yield MispredictionCause(
        f"the model was {word} than usual: {alone:.2g} s alone for what takes {max(0.0, normal):.2g} s", slower
    )
    beside = predicted.seconds - predicted.alone_seconds - predicted.other_seconds
    crowd = (took - alone) - beside
    yield MispredictionCause(
        "more was computed at the same time" if crowd > 0 else "less was computed at the same time", crowd
    )
    if last.finished is not None:
        remainder = last.finished - last.started - usage.queued_seconds - took - predicted.other_seconds
        yield MispredictionCause(
            "gates, tools and what else is not the model took " + ("longer" if remainder > 0 else "less"), remainder
        )


def _seconds_before_last(attempts: Sequence[AttemptRow]) -> float:
    return attempts[-1].started - attempts[0].started if attempts else 0.0


def answer_outputs(view: RunView) -> dict[str, str]:
    """Return the outputs that are the answer, in order: artifact name to digest."""
    outputs = {name: digest for step in view.graph.steps for name, digest in view.outputs.get(step, {}).items()}
    if answer := {name: outputs[name] for name in view.wanted if name in outputs}:
        return answer
    # If the plan names no wanted outputs, the answer is what no other step depends on.
    continued = {row.after for row in view.replans if row.steps}
    last = [step for step in view.graph.steps if not view.graph.after[step] and step not in continued]
    last_made = {name: step for step in last for name in view.outputs.get(step, {})}
    return {name: outputs[name] for name, step in last_made.items() if name in view.graph.steps[step].outputs}


def answer_text(texts: Mapping[str, str], request: str) -> str:
    """Return the answer as one text: each output under its name, a single one without unless the request names it."""
    if len(texts) == 1:
        ((name, text),) = texts.items()
        if name not in request:
            return text
    return "\n\n".join(f"[{name}]\n{text}" for name, text in texts.items())


@dataclass(frozen=True, slots=True)
class RunResult:
    """An output of a run that the user gets."""

    name: str
    digest: str  # of its newest version
    # The digest of the file in the run's folder that it replaces; `NO_FILE` if there was no such file, and None if the
    # run has not recorded that.
    original: str | None = None
    has_changed: bool = False  # the run saw several versions of that file: somebody changed it meanwhile


def results(view: RunView) -> tuple[RunResult, ...]:
    """Return what a run has made for the user: the wanted outputs, and the files in a direct answer."""
    outputs = answer_outputs(view)
    if not view.wanted:
        # The plan does not say which: the outputs that no other step reads, and all new versions of files.
        outputs |= {name: digest for name, digest in _newest(view).items() if _replaces(view, name)}
    outputs |= _files_in_answers(view)
    return tuple(_result(view, name, digest) for name, digest in outputs.items())


def _files_in_answers(view: RunView) -> dict[str, str]:
    # A direct answer may contain files that its step does not declare.
    return {
        name: digest
        for step in view.graph.steps.values()
        for name, digest in view.outputs.get(step.id, {}).items()
        if name not in step.outputs
    }


def _result(view: RunView, name: str, digest: str) -> RunResult:
    file = compose_name(name)
    return RunResult(name, digest, view.originals.get(file), len(view.versions.get(file, ())) > 1)


def _newest(view: RunView) -> Mapping[str, str]:
    # In document order; no single items of a list.
    return {name: digest for step in view.graph.steps for name, digest in view.outputs.get(step, {}).items()}


def _replaces(view: RunView, name: str) -> bool:
    return view.originals.get(compose_name(name), NO_FILE) != NO_FILE


class StepRow(msgspec.Struct, frozen=True, gc=False):
    """One step, or one child of a `foreach` step. `cause` says why it failed or was cancelled."""

    id: str
    action: str
    role: str
    persona: str | None
    state: str
    depends_on: tuple[str, ...]
    slack: float
    started: float | None
    finished: float | None
    attempts: tuple[AttemptRow, ...]
    outputs: Mapping[str, str]
    cause: str | None
    parent: str | None
    children: tuple[str, ...]
    # The requested gates, with the reasons of those that do not check it; the results are in the attempts.
    gates: tuple[PlannedGate, ...] = ()
    ratings: tuple[RatingRow, ...] = ()
    # As of the acceptance of the run; for a child, of each child. None for a step with children, and for a reused one.
    predicted: Prediction | None = None
    reused: str | None = None  # the earlier run that has made its outputs
    first: bool = False  # whether the user wants it before others

    @property
    def current_attempt(self) -> AttemptRow | None:
        """The latest attempt if it has not ended, else None."""
        return self.attempts[-1] if self.attempts and self.attempts[-1].finished is None else None

    @property
    def misprediction(self) -> Misprediction | None:
        """The error of the prediction; None if it was about right or missing, for a `foreach`, or before the end."""
        if self.predicted is None or self.started is None or self.finished is None or self.children:
            return None
        return misprediction(self.id, self.predicted, self.finished - self.started, self.attempts)

    @property
    def reuse(self) -> Reuse:
        return sum((attempt.usage.reuse for attempt in self.attempts), Reuse())

    @property
    def prompt_tokens(self) -> int:
        return sum(attempt.usage.prompt_tokens for attempt in self.attempts)  # failed attempts included

    @property
    def output_tokens(self) -> int:
        return sum(attempt.usage.output_tokens for attempt in self.attempts)

    @property
    def reasoning_tokens(self) -> int:
        return sum(attempt.usage.reasoning_tokens for attempt in self.attempts)


@dataclass(frozen=True, slots=True)
class PathRow:
    """The critical path of a run, and how parallel the run was. Times are in seconds.

    For fields without a comment see `critical_path.Figures`.
    """

    steps: tuple[str, ...]
    predicted_seconds: float
    seconds: float
    # The part of `seconds` in which none of the path's steps ran because the plan was being continued. What the
    # frontdoor computes in these pauses is work like that of steps.
    replan_seconds: float
    waiting_seconds: float  # the part in which the path's generations waited for a slot
    critical_steps: int
    work_seconds: float
    concurrency: float
    serial_seconds: float
    best_seconds: float
    bound: float

    @property
    def predicted_wrongly(self) -> bool:
        """Whether the measured seconds of the path differ from the predicted ones by more than `WRONG`."""
        return abs(self.seconds - self.predicted_seconds) > WRONG * self.predicted_seconds


@dataclass(frozen=True, slots=True)
class _GraphWithPauses:
    # Each pause is a node between the step after which planning continued and the steps it added.
    before: Mapping[str, tuple[str, ...]]
    order: Sequence[str]
    seconds: Mapping[str, float]  # of the pauses only
    efforts: Mapping[str, Effort]  # of the frontdoor in the pauses


@dataclass(frozen=True, slots=True)
class Report:
    """How a run went, up to its latest event.

    `plan_origin`, `plan_reason` and `plan_usage` are about the first part of the plan, and `replans` about the others.
    """

    run_id: str
    status: RunStatus
    mode: Mode
    request: str
    accepted_at: float
    wall_seconds: float
    planning_seconds: float
    plan_origin: PlanOrigin | None
    plan_reason: str
    plan_usage: Usage
    replans: tuple[ReplanRow, ...]
    answer: str | None
    error: str | None  # also of a run that is done, if its plan was cut short
    steps: tuple[StepRow, ...]
    graph: StepGraph
    waves: tuple[tuple[str, ...], ...]  # the steps at each depth; children replace their `foreach` step
    width: int
    critical_path: PathRow
    artifacts: Mapping[str, str]
    # Of the run as a whole; each step has its own.
    ratings: tuple[RatingRow, ...] = ()
    warnings: tuple[str, ...] = ()  # what the task requested and did not get, but can do without
    doubt: str = ""  # why the answer of a run that is done is doubtful
    doubts: tuple[AnswerDoubt, ...] = ()  # the reasons for that, each with the step that has written the text
    corrections: tuple[AnswerDoubt, ...] = ()  # what was wrong with the models' answer, and was corrected by code
    missing: tuple[str, ...] = ()  # what the request needs and is not here, a sentence for each
    mode_choice: ModeChoice | None = None  # how a router chose the mode; None if no router did
    forecast: ModeForecast | None = None  # predictions for the plan and a direct answer, if they were compared
    answered_by: str | None = None  # the step that has answered directly because the plan has failed
    results: tuple[RunResult, ...] = ()  # what the run has made for the user so far
    events: int = field(default=0, compare=False)  # how many of the run it shows, among them ratings

    @property
    def reuse(self) -> Reuse:
        return sum((step.reuse for step in self.steps), Reuse())

    @property
    def why_direct(self) -> str:
        """Why the request was answered directly; empty if it was not, or if the user wanted it."""
        if self.plan_origin != "direct":
            return ""
        return self.plan_reason or (self.mode_choice.reason if self.mode_choice is not None else "")

    @property
    def mispredicted(self) -> tuple[Misprediction, ...]:
        """The steps of the critical path whose predictions were wrong by more than half, the worst one first."""
        on_path = frozenset(self.critical_path.steps)
        wrong_steps = [wrong for step in self.steps if step.id in on_path and (wrong := step.misprediction) is not None]
        return tuple(
            sorted(wrong_steps, key=lambda step_error: -abs(step_error.seconds - step_error.predicted_seconds))
        )

    def warnings_of(self, step: StepRow) -> tuple[str, ...]:
        """Return the warnings about one of the steps, or about its parent."""
        if not self.warnings:  # most runs have none, and a run may have 10,000 steps
            return ()
        planned = [row.id for row in self.steps if row.parent is None]
        place = f"/plan/steps/{planned.index(step.parent or step.id)}/"
        return tuple(warning for warning in self.warnings if warning.startswith(place))

    def doubts_of(self, step: StepRow) -> list[str]:
        return [doubt.text for doubt in self.doubts if doubt.step == step.id]

    def to_json(self) -> dict[str, Any]:
        """Return the report as the JSON object that `--json` prints."""
        return {
            "run_id": self.run_id,
            "status": self.status,
            "mode": self.mode,
            "mode_choice": _plain(self.mode_choice),
            "forecast": _plain(self.forecast),
            "answered_by": self.answered_by,
            "answer": self.answer,
            "doubt": self.doubt,
            "corrections": [correction.text for correction in self.corrections],
            "error": self.error,
            "missing": [*self.missing],
            "plan_origin": self.plan_origin,
            "plan_reason": self.plan_reason,
            "plan_usage": usage_json(self.plan_usage),
            "replans": [{**_plain(row), "usage": usage_json(row.usage)} for row in self.replans],
            "accepted_at": self.accepted_at,
            "wall_seconds": self.wall_seconds,
            "planning_seconds": self.planning_seconds,
            "steps": [step_json(step) for step in self.steps],
            "edges": _plain(self.graph.edges),
            "waves": [list(wave) for wave in self.waves],
            "width": self.width,
            "critical_path": _plain(self.critical_path),
            "reuse": _reuse_json(self.reuse),
            "artifacts": dict(self.artifacts),
            "results": _plain(self.results),
            "ratings": _plain(self.ratings),
            "warnings": [*self.warnings],
        }

    def result_json(self) -> dict[str, Any]:
        """Return the result as a JSON object, without the steps."""
        return {
            "run_id": self.run_id,
            "status": self.status,
            "answer": self.answer,
            "error": self.error,
            "doubt": self.doubt,
            "corrections": [correction.text for correction in self.corrections],
            "missing": [*self.missing],
            "artifacts": dict(self.artifacts),
            "results": [output.name for output in self.results],
        }


def load_report(journal: JournalReader, run: str) -> Report:
    """Return the report of a journaled run. Raises JournalError (UnknownRun, JournalCorrupt)."""
    # After a restart a run is queued until it is resumed.
    waits = journal.run(run).status == "queued"
    report = build_report(RunView.of(event for _, event in journal.events(run)), journal.get)
    return replace(report, status="queued") if waits else report


def build_report(view: RunView, read: Read) -> Report:
    """Return the report for a view of a run. `read` returns an object, given its digest."""
    state = view.state
    steps = _in_order(state)
    times = {step.id: view.times(step.id) for step in steps}
    seconds = _seconds_at_work(steps, times)
    before, order = _with_children(state)
    direct = None if view.replaced is None else view.replaced.answer.id
    if direct is not None:  # it started when all others had ended
        waited_for = {name for names in before.values() for name in names}
        before[direct] = tuple(name for name in order if name not in (direct, *waited_for))
    pace = _with_pauses(before, order, view.replans, state)
    seconds |= pace.seconds
    expected = _predictions(view)
    predicted = {name: 0.0 if name in view.reused else prediction.seconds for name, prediction in expected.items()}
    spare = slack(pace.before, pace.order, predicted | seconds)
    waves = _waves_with_children(state)
    efforts = {**{step.id: _effort(view.attempts.get(step.id, ())) for step in steps}, **pace.efforts}
    measured = figures(pace.before, pace.order, seconds, efforts, view.wall_seconds)
    path = measured.critical_path
    rows = tuple(
        _row(step, view, times[step.id], before[step.id], spare[step.id], expected[step.parent or step.id])
        for step in steps
    )
    status = view.status
    return Report(
        run_id=view.accepted.run,
        status=status,
        mode=view.accepted.mode,
        warnings=view.accepted.warnings,
        request=view.title,
        accepted_at=view.accepted.at,
        wall_seconds=view.wall_seconds,
        planning_seconds=view.planning_seconds,
        plan_origin=view.origin,
        plan_reason=view.plan_reason,
        plan_usage=view.plan_usage,
        replans=tuple(view.replans),
        answer=_answer(view, read) if status == "done" else None,
        error=view.error,
        doubt=view.doubt,
        doubts=view.checked.doubts if view.checked is not None else (),
        corrections=view.checked.corrections if view.checked is not None else (),
        missing=view.missing,
        steps=rows,
        graph=state.graph,
        waves=waves,
        width=max(map(len, waves), default=0),
        critical_path=PathRow(
            steps=tuple(step for step in path.steps if step not in pace.seconds),
            predicted_seconds=critical_path(state.graph.before, state.graph.order, predicted).seconds,
            seconds=path.seconds,
            replan_seconds=sum(pace.seconds.get(step, 0.0) for step in path.steps),
            waiting_seconds=sum(
                attempt.usage.queued_seconds for step in path.steps for attempt in view.attempts.get(step, ())
            ),
            critical_steps=critical_steps_of(waves, {row.id: len(row.attempts) for row in rows}, view.plannings),
            work_seconds=measured.work_seconds,
            concurrency=measured.concurrency,
            serial_seconds=measured.serial_seconds,
            best_seconds=measured.best_seconds,
            bound=measured.bound,
        ),
        artifacts={name: digest for step in steps for name, digest in view.outputs.get(step.id, {}).items()},
        ratings=view.ratings.get(None, ()),
        mode_choice=view.accepted.mode_choice,
        forecast=view.forecast,
        answered_by=direct,
        results=results(view),
        events=view.events,
    )


def explanation_json(report: Report, step: StepRow, progress: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return as a JSON object the dependencies of a step, its role with the reason, and the ends of its attempts.

    `progress` is the latest one of the step, as `Progress.to_json` returns it. It is left out unless its attempt runs.
    """
    planned = step.parent or step.id
    current = step.current_attempt
    runs = progress is not None and current is not None and current.number == progress["attempt"]
    return {
        "run_id": report.run_id,
        "mode": report.mode,
        "why_direct": report.why_direct,
        "forecast": _plain(report.forecast),
        "step": step_json(step),
        "progress": progress if runs else None,
        "waited_for": [asdict(edge) for edge in report.graph.edges if edge.after == planned],
        "last_dependency": last_dependency(report, step),
        "needed_by": [asdict(edge) for edge in report.graph.edges if edge.before == planned],
        "reads": {name: asdict(source) for name, source in report.graph.sources.get(planned, {}).items()},
        "on_critical_path": step.id in report.critical_path.steps,
        "misprediction": None if step.misprediction is None else asdict(step.misprediction),
        "mispredicted": [asdict(wrong) for wrong in report.mispredicted],
        "warnings": [*report.warnings_of(step)],
        "doubts": report.doubts_of(step),
    }


def last_dependency(report: Report, step: StepRow) -> str | None:
    """Return the dependency that ended last, after which the step could start; None if none has ended."""
    ends = {row.id: row.finished for row in report.steps}
    waited = [(end, name) for name in step.depends_on if (end := ends.get(name)) is not None]
    return max(waited)[1] if waited else None


def _with_pauses(
    before: Mapping[str, tuple[str, ...]], order: Sequence[str], replans: Iterable[ReplanRow], state: PlanRecord
) -> _GraphWithPauses:
    waits, places = dict(before), list(order)
    seconds, efforts = dict[str, float](), dict[str, Effort]()
    for row in replans:
        if row.pause_seconds is None:
            continue
        # A pause lasts until the first new step is there, since steps run while the rest is planned.
        pause = f"replan after {row.after}"
        seconds[pause], waits[pause] = row.pause_seconds, (row.after,)
        efforts[pause] = _generation_effort(row.usage)
        places.insert(places.index(row.after) + 1, pause)
        for step in row.steps:
            for name in state.steps.children_of(step) or (step,):
                waits[name] = (*waits[name], pause)
    return _GraphWithPauses(waits, places, seconds, efforts)


def _effort(attempts: Iterable[AttemptRow]) -> Effort:
    total = Effort()
    for attempt in attempts:
        total += _generation_effort(attempt.usage)
        if not attempt.gates and not attempt.calls:  # as in most of the attempts of a run of 10,000 steps
            continue
        # Gates and tools take nothing of an engine's time. Waiting for an MCP server is no work, but it takes that long
        # also alone. The attempt's usage already includes model calls from a step's code.
        gates = sum(gate.seconds if gate.work_seconds is None else gate.work_seconds for gate in attempt.gates)
        calls = [call for call in attempt.calls if call.tool not in MODEL_CALLS]
        work = gates + sum(call.seconds if call.work_seconds is None else call.work_seconds for call in calls)
        total += Effort(work, work + sum(call.awaited_seconds for call in calls))
    return total


def _generation_effort(usage: Usage) -> Effort:
    # Early versions measured no effort: then it is all the time but the queue's.
    if usage.alone_seconds > 0:
        return Effort(usage.work_seconds, usage.alone_seconds, usage.packed_seconds)
    seconds = usage.prefill_seconds + usage.decode_seconds
    return Effort(seconds, seconds)


def _predictions(view: RunView) -> Mapping[str, Prediction]:
    # Early versions did not journal them, but what they follow from.
    journaled, graph = view.state.predicted, view.graph
    return journaled if journaled.keys() >= graph.steps.keys() else predict_run(graph, view.accepted)


def _in_order(state: PlanRecord) -> list[RunStep]:
    # Document order, children right before the step that gathers them.
    views: list[RunStep] = []
    for step in state.graph.steps:
        view = state.steps[step]
        views += [state.steps[child] for child in view.children or ()]
        views.append(view)
    return views


def _with_children(state: PlanRecord) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    before: dict[str, tuple[str, ...]] = {}
    order: list[str] = []
    for step in state.graph.order:
        children = state.steps.children_of(step)
        before.update(dict.fromkeys(children, state.graph.before[step]))
        before[step] = children or state.graph.before[step]  # children are between a step and its dependencies
        order += [*children, step]
    return before, order


def _waves_with_children(state: PlanRecord) -> tuple[tuple[str, ...], ...]:
    return tuple(
        tuple(name for step in wave for name in state.steps.children_of(step) or (step,)) for wave in state.graph.waves
    )


def _seconds_at_work(views: Sequence[RunStep], times: Times) -> dict[str, float]:
    # Those of a `foreach` step count from the end of its last child.
    seconds = measured_seconds(times)
    for view in views:
        ends = [end for child in view.children or () if (end := times[child][1]) is not None]
        own_end = times[view.id][1]
        if ends and own_end is not None:
            seconds[view.id] = max(0.0, own_end - max(ends))
    return seconds


def _row(
    step: RunStep,
    view: RunView,
    times: tuple[float | None, float | None],
    before: tuple[str, ...],
    spare: float,
    predicted: Prediction,
) -> StepRow:
    attempts = tuple(view.attempts.get(step.id, ()))
    last = attempts[-1] if attempts else None
    return StepRow(
        id=step.id,
        action=step.step.action,
        role=last.role if last else step.role,
        persona=last.persona if last else step.step.persona,
        state=step.state,
        depends_on=before,
        slack=spare,
        started=times[0],
        finished=times[1],
        attempts=attempts,
        outputs=view.outputs.get(step.id, {}),
        cause=str(step.cause) if step.cause else None,
        parent=step.parent,
        children=step.children or (),
        gates=_gates(step, view),
        ratings=view.ratings.get(step.id, ()),
        predicted=None if step.children or step.id in view.reused else predicted,
        reused=view.reused.get(step.id),
        first=step.id in view.first,
    )


def _gates(step: RunStep, view: RunView) -> tuple[PlannedGate, ...]:
    attempts = [attempt for name in (*(step.children or ()), step.id) for attempt in view.attempts.get(name, ())]
    results = attempts[-1].gates if attempts else ()
    # A plan does not know that a gate did not run for lack of a sandbox. The last attempt does, unless a gate failed.
    failed = any(result.status == "failed" for result in results)
    why_not = {result.gate: result.evidence for result in results if result.status == "not run" and not failed}
    plans = gates_for_step(step.step, view.accepted.task)
    return tuple(replace(plan, idle=plan.idle or why_not.get(plan.gate, "")) for plan in plans)


def _answer(view: RunView, read: Read) -> str:
    outputs = answer_outputs(view)
    texts = {name: read(digest).decode(errors="replace").strip() for name, digest in outputs.items()}
    return answer_text(texts, view.title)


def step_json(step: StepRow) -> dict[str, Any]:
    """Return a step as it is in the report."""
    row: dict[str, Any] = _plain(step)
    for attempt in row["attempts"]:
        attempt["usage"] = _without_unused(attempt["usage"])
    row |= {"prompt_tokens": step.prompt_tokens, "output_tokens": step.output_tokens}
    row |= {"reasoning_tokens": step.reasoning_tokens, "reuse": _reuse_json(step.reuse)}
    return row


def usage_json(usage: Usage) -> dict[str, Any]:
    """Return a usage as it is in the report: what has to do with other machines or drafts only if there were any."""
    return _without_unused(_plain(usage))


def _without_unused(usage: dict[str, Any]) -> dict[str, Any]:
    unused = {name for name in ("nodes", "shipped") if not usage[name]}
    if not usage["drafted_tokens"]:
        unused |= {"drafted_tokens", "accepted_tokens"}
    return {name: value for name, value in usage.items() if name not in unused}


def _reuse_json(reuse: Reuse) -> dict[str, Any]:
    return {**asdict(reuse), "reused_tokens": reuse.reused_tokens}


def _plain(value: object) -> Any:
    # Dataclasses as dicts and tuples as lists, at any depth.
    return msgspec.json.decode(msgspec.json.encode(value))
