"""Compare two runs: their figures, their steps by id, and their answers. Times are in seconds."""

from dataclasses import dataclass

from orchestrator.run.record.diffs import unified_diff
from orchestrator.run.record.report import Report, StepRow
from orchestrator.task.modes import Mode, RunStatus


@dataclass(frozen=True, slots=True)
class RunFigures:
    """What a run was expected to take, and took so far. Failed attempts count, too."""

    predicted_seconds: float  # critical path
    path_seconds: float
    steps: int  # children of `foreach` steps included
    attempts: int
    prompt_tokens: int
    output_tokens: int

    @classmethod
    def of(cls, report: Report) -> "RunFigures":
        path, steps = report.critical_path, report.steps
        return cls(
            predicted_seconds=path.predicted_seconds,
            path_seconds=path.seconds,
            steps=len(steps),
            attempts=sum(len(step.attempts) for step in steps),
            prompt_tokens=sum(step.prompt_tokens for step in steps),
            output_tokens=sum(step.output_tokens for step in steps),
        )


@dataclass(frozen=True, slots=True)
class RunSide:
    """One of the runs."""

    run_id: str
    status: RunStatus
    mode: Mode
    request: str
    accepted_at: float  # seconds since the epoch
    seconds: float
    path: tuple[str, ...]  # the critical path
    concurrency: float
    figures: RunFigures


@dataclass(frozen=True, slots=True)
class StepSide:
    """A step in one of the runs."""

    state: str
    role: str
    model: str  # of the latest attempt; empty before the first
    attempts: int
    seconds: float | None  # None if it has not ended
    predicted_seconds: float | None
    prompt_tokens: int
    output_tokens: int
    critical: bool


@dataclass(frozen=True, slots=True)
class StepPair:
    """A step in both runs; None in a run that does not have it."""

    id: str
    action: str
    sides: tuple[StepSide | None, StepSide | None]


@dataclass(frozen=True, slots=True)
class Comparison:
    runs: tuple[RunSide, RunSide]
    same_plan: bool  # whether both have the same steps, with the same actions, that wait for the same steps
    steps: tuple[StepPair, ...]  # in the order of the first run, then those that only the second has
    answers: str  # how the second answer differs from the first, as a unified diff; empty if it does not


def compare(first: Report, second: Report) -> Comparison:
    """Return how two runs, which need not have ended, compare."""
    rows = {step.id: step for step in second.steps} | {step.id: step for step in first.steps}
    ids = dict.fromkeys([*(step.id for step in first.steps), *(step.id for step in second.steps)])
    sides = [_sides(report) for report in (first, second)]
    return Comparison(
        runs=(_run(first), _run(second)),
        same_plan=_plan(first) == _plan(second),
        steps=tuple(StepPair(name, rows[name].action, (sides[0].get(name), sides[1].get(name))) for name in ids),
        answers=unified_diff("answer", (first.answer or "").encode(), (second.answer or "").encode()),
    )


def _run(report: Report) -> RunSide:
    path = report.critical_path
    return RunSide(
        run_id=report.run_id,
        status=report.status,
        mode=report.mode,
        request=report.request,
        accepted_at=report.accepted_at,
        seconds=report.wall_seconds,
        path=path.steps,
        concurrency=path.concurrency,
        figures=RunFigures.of(report),
    )


def _sides(report: Report) -> dict[str, StepSide]:
    path = frozenset(report.critical_path.steps)
    return {step.id: _step(step, step.id in path) for step in report.steps}


def _step(step: StepRow, critical: bool) -> StepSide:
    ended = step.started is not None and step.finished is not None
    return StepSide(
        state=step.state,
        role=step.role,
        model=step.attempts[-1].model if step.attempts else "",
        attempts=len(step.attempts),
        seconds=(step.finished or 0.0) - (step.started or 0.0) if ended else None,
        predicted_seconds=None if step.predicted is None else step.predicted.seconds,
        prompt_tokens=step.prompt_tokens,
        output_tokens=step.output_tokens,
        critical=critical,
    )


def _plan(report: Report) -> dict[str, tuple[str, tuple[str, ...]]]:
    # Children are left out: how many there are depends on what a step has written.
    steps = report.graph.steps.values()
    return {step.id: (step.action, report.graph.before[step.id]) for step in steps}
