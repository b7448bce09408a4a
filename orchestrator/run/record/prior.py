"""Find the artifacts of earlier runs, for a run that builds on them."""

from collections.abc import Iterable

from orchestrator.errors import InputError, Problem
from orchestrator.run.journal.errors import UnknownRun
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.record.view import RunView
from orchestrator.task.taskir.fields import PRIOR_RUNS


def prior_artifacts(journal: JournalReader, runs: Iterable[str], owner: str | None = None) -> dict[str, str]:
    """Return the artifacts of earlier runs: `RUN/NAME` → digest. A run is named by its id or its task's `task_id`.

    Ids come first; of several runs of a task the newest counts. With an `owner` the runs of others are unknown. Blocks
    on the disk. Raises InputError for runs that are unknown or have not ended.
    """
    artifacts: dict[str, str] = {}
    for name in runs:
        view = _view(journal, name, owner)
        outputs = (digests for digests in view.outputs.values())
        artifacts |= {f"{name}/{artifact}": digest for digests in outputs for artifact, digest in digests.items()}
    return artifacts


def _view(journal: JournalReader, name: str, owner: str | None) -> RunView:
    try:
        events = [event for _, event in journal.events(_run_named(journal, name, owner))]
    except UnknownRun as error:
        raise InputError(
            Problem(PRIOR_RUNS, f"there is no run {name!r}", "the id of an earlier run, or its task_id")
        ) from error
    view = RunView.of(events)
    if not view.ended:
        raise InputError(Problem(PRIOR_RUNS, f"run {name} has not ended: {view.status}", "a run that has ended"))
    return view


def _run_named(journal: JournalReader, name: str, owner: str | None) -> str:
    """Raises UnknownRun."""
    try:
        row = journal.run(name)
    except UnknownRun:
        row = None
    if row is not None and owner in (None, row.owner):
        return row.run
    if (run := journal.run_of_task(name, owner)) is None:
        raise UnknownRun(journal.home.database, name)
    return run
