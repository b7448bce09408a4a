"""Build a run's state from its first event. Nothing else decides its course."""

from collections.abc import Iterable

from orchestrator.critical_path import predict_step
from orchestrator.events import Event, Priority, RunAccepted
from orchestrator.failures import Ladder
from orchestrator.journal import JournalReader
from orchestrator.scheduler import RunState
from orchestrator.taskir import REQUEST_LABEL


def fresh_state(accepted: RunAccepted) -> RunState:
    """Return the state of a run that was only just accepted."""
    task = accepted.task
    escalation = task.escalation if task else None
    ladder = Ladder(
        accepted.rungs,
        max_level=escalation.max_level if escalation else "B3",
        on_second_failure=escalation.on_second_failure if escalation else False,
    )
    return RunState(
        mode=accepted.mode,
        ladder=ladder,
        parallelism=task.plan.parallelism if task else None,
        agents=task.agents if task else (),
        labels=task.labels if task else (REQUEST_LABEL,),
        files=accepted.files,
        estimate=lambda step: predict_step(step, accepted.rates),
        max_replans=accepted.max_replans,
    )


def accepted_in(events: Iterable[Event]) -> RunAccepted:
    """Return the event that a journaled run begins with."""
    accepted = next(iter(events))
    assert isinstance(accepted, RunAccepted), "a run's first event is RunAccepted"
    return accepted


def unfinished_runs(journal: JournalReader) -> list[tuple[str, Priority]]:
    """Return the runs that have not ended, oldest first, with their classes of priority. Blocks on the disk."""
    return [(row.run, accepted_in([journal.first_event(row.run)]).priority) for row in journal.unfinished()]
