"""Derive the outcome of each attempt of a run, which is kept for learning when its events are removed."""

from collections.abc import Iterator

from orchestrator.run.journal.outcomes import AttemptOutcome, Rating
from orchestrator.run.record.view import AttemptRow, RatingRow, RunView


def attempt_outcomes(view: RunView) -> Iterator[AttemptOutcome]:
    """Yield the outcome of each attempt of a run, the steps in topological order."""
    run_ratings = _ratings(view, None)
    for step in view.steps():
        for row in view.attempts.get(step.id, ()):
            yield _outcome(view, step.id, step.step.action, row, run_ratings)


def _outcome(view: RunView, step: str, action: str, row: AttemptRow, run_ratings: tuple[Rating, ...]) -> AttemptOutcome:
    task = view.accepted.task
    return AttemptOutcome(
        run=view.accepted.run,
        task_type=None if task is None else task.task_type,
        step=step,
        action=action,
        attempt=row.number,
        role=row.role,
        persona=row.persona,
        model=row.model,
        reason=row.reason,
        propensity=row.propensity,
        prompts=row.prompts,
        started=view.accepted.at + row.started,
        seconds=None if row.finished is None else row.finished - row.started,
        outcome=str(row.outcome),
        prompt_tokens=row.usage.prompt_tokens,
        output_tokens=row.usage.output_tokens,
        run_status=view.status,
        ratings=_ratings(view, step),
        run_ratings=run_ratings,
    )


def _ratings(view: RunView, step: str | None) -> tuple[Rating, ...]:
    return tuple(_rating(view, row) for row in view.ratings.get(step, ()))


def _rating(view: RunView, row: RatingRow) -> Rating:
    return Rating(view.accepted.at + row.at, row.score, row.by, row.note)
