"""Remove runs and chats beyond the retention limits, and what no run uses: objects, folders, free pages.

Objects that a run's events name stay, even if another run made them, so that a follow-up run can still read them. What
learning needs of a removed run stays until a purge: the outcomes of its attempts, and their prompts.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import structlog

from orchestrator.errors import InputError
from orchestrator.run.journal.errors import JournalCorrupt, UnknownRun
from orchestrator.run.journal.home import RUN_NAME
from orchestrator.run.journal.journal import Journal
from orchestrator.run.journal.outcomes import AttemptOutcome
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.record.outcomes import attempt_outcomes
from orchestrator.run.record.view import RunView
from orchestrator.service.configuration import RetentionSettings
from orchestrator.task.states import IllegalTransition

log = structlog.get_logger(__name__)

N = TypeVar("N", int, float)

DAY_SECONDS: Final = 86_400
RUNS_AT_ONCE: Final = 100  # deleted by one transaction, so that other writers do not wait for long


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumRequest:
    """What a vacuum is asked for. A limit of None is the configuration's, and 0 stands for no limit."""

    days: float | None = None  # after the end of a run, and the start of a chat
    runs: int | None = None  # the newest
    bytes: int | None = None  # of artifacts, those of the newest runs
    chats: int | None = None  # of those whose model the router chose, the newest
    outcomes: bool = False  # also remove what is kept for learning: the outcomes of removed runs, and all chats
    dry_run: bool = False  # remove nothing, only say what would be


@dataclass(frozen=True, slots=True)
class Retention:
    """Which runs that have ended are kept; None: no limit. Runs that have not ended are always kept."""

    days: float | None = None  # after the end of a run, and the start of a chat
    runs: int | None = None  # the newest
    bytes: int | None = None  # of artifacts, those of the newest runs; those of runs that have not ended count
    chats: int | None = None  # of those whose model the router chose, the newest

    @classmethod
    def of(cls, settings: RetentionSettings, request: VacuumRequest) -> "Retention":
        """Return the limits of a request, which override the settings; 0 stands for no limit in both."""
        return cls(
            _limit(request.days, settings.max_days),
            _limit(request.runs, settings.max_runs),
            _limit(request.bytes, settings.max_bytes),
            _limit(request.chats, settings.max_chats),
        )


@dataclass(frozen=True, slots=True)
class RunObjects:
    """The objects that the events of a run name."""

    run: str
    finished: float | None  # seconds since the epoch; None if it has not ended
    digests: frozenset[str]


@dataclass(frozen=True, slots=True)
class VacuumResult:
    """What a vacuum has removed, or would remove, and what is left."""

    dry_run: bool  # nothing was removed: the numbers say what would be
    runs: tuple[str, ...]  # ids of those that were removed
    objects: int  # how many were removed
    object_bytes: int  # of those that were removed
    folders: int  # removed folders of runs that the journal does not know
    outcomes: int  # purged, each of one attempt of a run that was removed earlier
    chats: int  # how many were removed
    database_bytes_before: int  # of its pages
    database_bytes: int  # of its pages, now
    runs_left: int
    object_bytes_left: int


def expired(run_objects: Sequence[RunObjects], sizes: Mapping[str, int], retention: Retention, now: float) -> list[str]:
    """Return the runs that are not kept, newest first. `sizes` maps digests of objects to bytes. Pure."""
    ended = sorted(
        (entry for entry in run_objects if entry.finished is not None), key=lambda entry: -(entry.finished or 0.0)
    )
    kept_digests = {digest for entry in run_objects if entry.finished is None for digest in entry.digests}
    total, expired_runs = sum(sizes.get(digest, 0) for digest in kept_digests), []
    for place, entry in enumerate(ended):
        total += sum(sizes.get(digest, 0) for digest in entry.digests - kept_digests)
        kept_digests |= entry.digests
        age = now - (entry.finished or 0.0)
        beyond = (
            retention.days is not None and age > retention.days * DAY_SECONDS,
            retention.runs is not None and place >= retention.runs,
            retention.bytes is not None and total > retention.bytes,
        )
        if any(beyond):
            expired_runs.append(entry.run)
    return expired_runs


def vacuum(
    journal: Journal,
    retention: Retention,
    now: float,
    *,
    dry_run: bool = False,
    exclusive: bool = False,
    purge_outcomes: bool = False,
    keep_going: Callable[[], bool] = lambda: True,
) -> VacuumResult:
    """Remove the runs that `retention` does not keep, and data that no run uses. Other runs continue meanwhile.

    `now` is in seconds since the epoch, by the clock of events. Blocks on the disk. Raises JournalError.

    With `purge_outcomes`, all chats and the outcomes of all removed runs are removed too. With `exclusive` nobody else
    uses the state folder, and the database is rewritten without gaps. The work ends early, with everything in order,
    when `keep_going` returns false.
    """
    before, sizes = journal.database_bytes(), journal.objects.sizes()
    # Folders before runs, so that the folder of a run that is accepted meanwhile stays.
    folders = _folders(journal)
    run_objects = _run_objects(journal)
    expired_runs = expired(run_objects, sizes, retention, now)
    outcomes = journal.count_outcomes() if purge_outcomes else 0
    began_before = None if retention.days is None else now - retention.days * DAY_SECONDS
    beyond = 0 if purge_outcomes else retention.chats
    strays = sorted(folders - {entry.run for entry in run_objects})
    if dry_run:
        removed = frozenset(expired_runs)
        remaining = {digest for entry in run_objects if entry.run not in removed for digest in entry.digests}
        chats = journal.count_chats(began_before, beyond)
        objects = journal.objects.unnamed(lambda: remaining | journal.prompt_objects())
    else:
        outcomes_of = _no_outcomes if purge_outcomes else _outcomes
        expired_runs, strays = (
            _deleted(journal, expired_runs, outcomes_of, keep_going),
            _deleted(journal, strays, outcomes_of, keep_going),
        )
        outcomes = journal.purge_outcomes() if purge_outcomes else 0
        chats = journal.delete_chats(began_before, beyond)
        objects = journal.sweep(keep_going)
        journal.shrink(keep_going, rewrite=exclusive)
    freed = sum(sizes.get(digest, 0) for digest in objects)
    return VacuumResult(
        dry_run=dry_run,
        runs=tuple(expired_runs),
        objects=len(objects),
        object_bytes=freed,
        folders=len(strays),
        outcomes=outcomes,
        chats=chats,
        database_bytes_before=before,
        database_bytes=journal.database_bytes(),
        runs_left=len(run_objects) - len(expired_runs),
        object_bytes_left=sum(sizes.values()) - freed,
    )


def _run_objects(journal: JournalReader) -> list[RunObjects]:
    rows, named = journal.runs(), defaultdict[str, set[str]](set)
    for run, digest in journal.named_objects():
        named[run].add(digest)
    return [RunObjects(row.run, row.finished, frozenset(named[row.run])) for row in rows]


def _folders(journal: JournalReader) -> set[str]:
    return {path.name for path in journal.home.runs.glob("*") if RUN_NAME.match(path.name)}


def _deleted(
    journal: Journal,
    runs: Sequence[str],
    outcomes_of: Callable[[JournalReader, str], list[AttemptOutcome]],
    keep_going: Callable[[], bool],
) -> list[str]:
    deleted: list[str] = []
    while len(deleted) < len(runs) and keep_going():
        batch = runs[len(deleted) : len(deleted) + RUNS_AT_ONCE]
        journal.delete(*batch, outcomes=[outcome for run in batch for outcome in outcomes_of(journal, run)])
        deleted += batch
    return deleted


def _outcomes(journal: JournalReader, run: str) -> list[AttemptOutcome]:
    try:
        return list(attempt_outcomes(RunView.of(event for _, event in journal.events(run))))
    except UnknownRun:  # only its folder is left
        return []
    except (JournalCorrupt, IllegalTransition, InputError) as error:
        log.warning("no outcomes are kept of a run that cannot be read", run=run, error=str(error))
        return []


def _no_outcomes(_journal: JournalReader, _run: str) -> list[AttemptOutcome]:
    return []


def _limit(requested: N | None, settled: N) -> N | None:
    return (settled if requested is None else requested) or None
