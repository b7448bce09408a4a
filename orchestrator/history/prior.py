"""Find the artifacts of earlier runs, for a run that builds on them."""

from collections.abc import Iterable

from orchestrator.errors import InputError, Problem
from orchestrator.history.view import RunView
from orchestrator.journal import JournalReader, UnknownRun

PRIOR_RUNS = "context.prior_task_ids"
"""Where in a document earlier runs are named, as problems with them say."""


def prior_artifacts(journal: JournalReader, runs: Iterable[str]) -> dict[str, str]:
    """Return the artifacts of earlier runs: `RUN/NAME` → digest. A run is named by its id or its task's `task_id`.

    A name is looked up as an id first; of several runs of one task the newest counts. Blocks on the disk. Raises
    InputError for runs that are unknown or have not ended.
    """
    found: dict[str, str] = {}
    for name in runs:
        view = _view(journal, name)
        outputs = (digests for digests in view.outputs.values())
        found |= {f"{name}/{artifact}": digest for digests in outputs for artifact, digest in digests.items()}
    return found


def _view(journal: JournalReader, name: str) -> RunView:
    try:
        events = [event for _, event in journal.events(_run_named(journal, name))]
    except UnknownRun as error:
        raise InputError(
            Problem(PRIOR_RUNS, f"there is no run {name!r}", "the id of an earlier run, or its task_id")
        ) from error
    view = RunView.of(events)
    if not view.ended:
        raise InputError(Problem(PRIOR_RUNS, f"run {name} has not ended: {view.status}", "a run that has ended"))
    return view


def _run_named(journal: JournalReader, name: str) -> str:
    try:
        return journal.run(name).run
    except UnknownRun:
        return journal.run_of_task(name) or name
