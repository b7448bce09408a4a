"""Remove the runs and chats that the retention limits do not keep, and what no run uses: objects, folders, free pages.

Objects that a run's events name are kept, even if another run made them, so that a follow-up run can still read them.
What learning needs of a run is kept too, until somebody asks for it to be purged: the outcomes of its attempts, and the
prompts that they used.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import structlog

from orchestrator.errors import InputError
from orchestrator.run.clock import Clock, SystemClock
from orchestrator.run.journal import AttemptOutcome, Journal, JournalCorrupt, JournalReader, UnknownRun
from orchestrator.run.journal.home import RUN_NAME
from orchestrator.run.record.outcomes import attempt_outcomes
from orchestrator.run.record.view import RunView
from orchestrator.run.scheduler import IllegalTransition
from orchestrator.service.configuration import RetentionSettings

log = structlog.get_logger(__name__)

N = TypeVar("N", int, float)

DAY_SECONDS: Final = 86_400
RUNS_AT_ONCE: Final = 100
"""How many runs one transaction deletes, so that others who write do not wait for long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumRequest:
    """What somebody asks a vacuum for. A limit that is None is the configuration's, and 0 stands for no limit."""

    days: float | None = None
    """For how many days a run is kept after its end, and a chat after its start."""
    runs: int | None = None
    """How many runs are kept, the newest."""
    bytes: int | None = None
    """How many bytes of artifacts are kept, those of the newest runs."""
    chats: int | None = None
    """How many chats are kept of those whose model the router has chosen, the newest."""
    outcomes: bool = False
    """Whether what is kept for learning is removed too: the outcomes of removed runs, and all chats."""
    dry_run: bool = False
    """Whether nothing is removed, and only said what would be."""


@dataclass(frozen=True, slots=True)
class Retention:
    """Which runs that have ended are kept. None stands for no limit. Runs that have not ended are always kept."""

    days: float | None = None
    """How many days a run is kept after its end."""
    runs: int | None = None
    """How many runs are kept, the newest."""
    bytes: int | None = None
    """How many bytes of artifacts are kept, those of the newest runs. Artifacts of runs that have not ended count."""
    chats: int | None = None
    """How many chats are kept of those whose model the router has chosen, the newest. `days` holds for them as well."""

    @classmethod
    def of(cls, settings: RetentionSettings, request: VacuumRequest) -> "Retention":
        """Return the limits of a request, which go before the settings; 0 stands for no limit in both."""
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
    finished: float | None
    """When the run ended, in seconds since the epoch; None if it has not."""
    digests: frozenset[str]


@dataclass(frozen=True, slots=True)
class VacuumResult:
    """What a vacuum has removed, or would remove, and what is left."""

    dry_run: bool
    """Whether this says only what would be removed."""
    runs: tuple[str, ...]
    """The ids of the runs that were removed."""
    objects: int
    """How many objects were removed."""
    object_bytes: int
    """The bytes of the objects that were removed."""
    folders: int
    """How many folders were removed of runs that the journal does not know."""
    outcomes: int
    """How many outcomes were purged, each of one attempt of a run that was removed earlier."""
    chats: int
    """How many chats were removed."""
    database_bytes_before: int
    """What the pages of the database took before, in bytes."""
    database_bytes: int
    """What the pages of the database take now, in bytes."""
    runs_left: int
    """How many runs are left."""
    object_bytes_left: int
    """The bytes of the objects that are left."""


def expired(run_objects: Sequence[RunObjects], sizes: Mapping[str, int], retention: Retention, now: float) -> list[str]:
    """Return the runs that are not kept, newest first. `sizes` maps digests of objects to bytes. Pure."""
    ended = sorted((one for one in run_objects if one.finished is not None), key=lambda one: -(one.finished or 0.0))
    held = {digest for one in run_objects if one.finished is None for digest in one.digests}
    taken, gone = sum(sizes.get(digest, 0) for digest in held), []
    for place, one in enumerate(ended):
        taken += sum(sizes.get(digest, 0) for digest in one.digests - held)
        held |= one.digests
        age = now - (one.finished or 0.0)
        beyond = (
            retention.days is not None and age > retention.days * DAY_SECONDS,
            retention.runs is not None and place >= retention.runs,
            retention.bytes is not None and taken > retention.bytes,
        )
        if any(beyond):
            gone.append(one.run)
    return gone


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
    """Remove the runs that `retention` does not keep, and data that no run uses, and return what was removed.

    `now` is in seconds since the epoch, by the clock of events. Blocks on the disk.

    With `purge_outcomes` the outcomes of runs that are gone are removed too, and none are kept of those that go now; so
    are all chats, since they are kept for learning alone.

    Runs go on meanwhile. With `exclusive` nobody else uses the state folder, and the database is written anew, without
    gaps. The work ends early, with everything in order, when `keep_going` returns false. Raises JournalError.
    """
    before, sizes = journal.database_bytes(), journal.objects.sizes()
    folders = _folders(
        journal
    )  # before the runs are read, so that the folder of a run that is accepted meanwhile stays
    run_objects = _run_objects(journal)
    gone = expired(run_objects, sizes, retention, now)
    outcomes = journal.count_outcomes() if purge_outcomes else 0
    began_before = None if retention.days is None else now - retention.days * DAY_SECONDS
    beyond = 0 if purge_outcomes else retention.chats
    strays = sorted(folders - {one.run for one in run_objects})
    if dry_run:
        removed = frozenset(gone)
        left = {digest for one in run_objects if one.run not in removed for digest in one.digests}
        chats = journal.count_chats(began_before, beyond)
        objects = journal.objects.unnamed(lambda: left | journal.prompt_objects())
    else:
        kept = _no_outcomes if purge_outcomes else _outcomes
        gone, strays = _deleted(journal, gone, kept, keep_going), _deleted(journal, strays, kept, keep_going)
        outcomes = journal.purge_outcomes() if purge_outcomes else 0
        chats = journal.delete_chats(began_before, beyond)
        objects = journal.sweep(keep_going)
        journal.shrink(keep_going, rewrite=exclusive)
    freed = sum(sizes.get(digest, 0) for digest in objects)
    return VacuumResult(
        dry_run=dry_run,
        runs=tuple(gone),
        objects=len(objects),
        object_bytes=freed,
        folders=len(strays),
        outcomes=outcomes,
        chats=chats,
        database_bytes_before=before,
        database_bytes=journal.database_bytes(),
        runs_left=len(run_objects) - len(gone),
        object_bytes_left=sum(sizes.values()) - freed,
    )


def vacuum_without_daemon(
    home: Path,
    retention: Retention,
    *,
    dry_run: bool = False,
    purge_outcomes: bool = False,
    keep_going: Callable[[], bool] = lambda: True,
    clock: Callable[[float], Clock] = SystemClock,
) -> VacuumResult:
    """Vacuum a state folder that no daemon owns. Raises HomeLocked while another process owns it, JournalError.

    `clock` makes the clock that events are timed by from the time of the journal's last event.
    """
    with Journal.open(home) as journal:
        now = clock(journal.last_time()).now()
        return vacuum(
            journal,
            retention,
            now,
            dry_run=dry_run,
            exclusive=True,
            purge_outcomes=purge_outcomes,
            keep_going=keep_going,
        )


def _run_objects(journal: JournalReader) -> list[RunObjects]:
    rows, named = journal.runs(), defaultdict[str, set[str]](set)
    for run, digest in journal.named_objects():
        named[run].add(digest)
    return [RunObjects(row.run, row.finished, frozenset(named[row.run])) for row in rows]


def _folders(journal: JournalReader) -> set[str]:
    """Return the ids of the runs that have a folder."""
    return {path.name for path in journal.home.runs.glob("*") if RUN_NAME.match(path.name)}


def _deleted(
    journal: Journal,
    runs: Sequence[str],
    kept: Callable[[JournalReader, str], list[AttemptOutcome]],
    keep_going: Callable[[], bool],
) -> list[str]:
    """Delete runs and their folders, as long as `keep_going` returns true, and return them.

    `kept` returns the outcomes that are kept of a run.
    """
    gone: list[str] = []
    while len(gone) < len(runs) and keep_going():
        batch = runs[len(gone) : len(gone) + RUNS_AT_ONCE]
        journal.delete(*batch, outcomes=[outcome for run in batch for outcome in kept(journal, run)])
        gone += batch
    return gone


def _outcomes(journal: JournalReader, run: str) -> list[AttemptOutcome]:
    """Return the outcomes of a run's attempts; none if it cannot be read, or if only its folder is left."""
    try:
        return list(attempt_outcomes(RunView.of(event for _, event in journal.events(run))))
    except UnknownRun:
        return []
    except (JournalCorrupt, IllegalTransition, InputError) as error:
        log.warning("no outcomes are kept of a run that cannot be read", run=run, error=str(error))
        return []


def _no_outcomes(_journal: JournalReader, _run: str) -> list[AttemptOutcome]:
    return []


def _limit(asked: N | None, settled: N) -> N | None:
    return (settled if asked is None else asked) or None
