"""Read and write the journal of a state folder: events of runs, and the objects that they name."""

import asyncio
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import structlog

from orchestrator.run.journal.chats import ChatEvent, ChatRecord, chat_records, decode_chat_event
from orchestrator.run.journal.codec import decode_event
from orchestrator.run.journal.errors import (
    DiskFull,
    JournalClosed,
    JournalCorrupt,
    JournalError,
    UnknownChat,
    UnknownRun,
)
from orchestrator.run.journal.home import Home, HomeLock
from orchestrator.run.journal.housekeeping import MaintenanceStore
from orchestrator.run.journal.objects import ObjectStore
from orchestrator.run.journal.outcomes import AttemptOutcome, decode_outcome
from orchestrator.run.journal.presence import Presence
from orchestrator.run.journal.store import (
    EventRow,
    GenerationRow,
    PersonaUse,
    RefusedEvents,
    RunRow,
    Store,
    chat_row,
    event_row,
)
from orchestrator.run.journal.survey import SurveyStore, refuse_damaged
from orchestrator.run.journal.writer import Writer
from orchestrator.task.events import (
    AttemptFailed,
    AttemptGenerated,
    AttemptSucceeded,
    Event,
    PlanFinished,
    ReplanFinished,
    RunStatus,
    StepGathered,
)
from orchestrator.task.made_personas import MadePersona, decode_persona
from orchestrator.task.prediction import COMPARED_RUNS, EarlierRun
from orchestrator.task.reuse import Reuse

MEASURED_GENERATIONS = 2000

log = structlog.get_logger(__name__)


class JournalReader:
    """Reads what is committed to the journal of a state folder, without a lock. All calls may block on the disk.

    Every call raises `JournalError` if the state folder cannot be read.
    """

    def __init__(self, home: Home, store: Store) -> None:
        self.home = home
        self.objects = ObjectStore(home.objects)
        self._store = store

    @classmethod
    def open_to_read(cls, home: Path) -> "JournalReader":
        """Open the journal of the state folder at `home`. If there is none, it is read as empty."""
        place = Home(home)
        return JournalReader(place, Store.open_to_read(place.database))

    def close(self) -> None:
        self._store.close()

    def events(self, run: str, after: int = 0, *, skip: int = 0, limit: int | None = None) -> list[tuple[int, Event]]:
        """Return a run's events after number `after`, each with its number in the journal.

        Raises `UnknownRun`, and `JournalCorrupt` for an event that this version cannot read.
        """
        rows = self._store.events(run, after, skip, limit)
        if not rows:
            self.run(run)  # raises UnknownRun
        return [(number, self._decoded(run, number, body)) for number, body in rows]

    def first_event(self, run: str) -> Event:
        """Return the RunAccepted of a run. Raises `UnknownRun`, `JournalCorrupt`."""
        row = self._store.first_event(run)
        if row is None:
            raise UnknownRun(self.home.database, run)
        return self._decoded(run, *row)

    def run(self, run: str) -> RunRow:
        """Raises `UnknownRun`."""
        row = self._store.run(run)
        if row is None:
            raise UnknownRun(self.home.database, run)
        return row

    def runs(
        self,
        limit: int | None = None,
        status: RunStatus | None = None,
        before: str | None = None,
        owner: str | None = None,
    ) -> list[RunRow]:
        """Return the runs, newest first. `before` is the id of a run: only runs accepted before it are returned."""
        return self._store.runs(limit, status, before, owner)

    def run_with_key(self, key: str, owner: str) -> str | None:
        return self._store.run_with_key(key, owner)

    def run_of_task(self, task: str, owner: str | None = None) -> str | None:
        """Return the newest run of the task with this `task_id`, if there is one."""
        return self._store.run_of_task(task, owner)

    def copy_to(self, path: Path) -> None:
        """Copy the database, without the objects, into a new file."""
        with closing(Store.open_to_read(self.home.database)) as store:
            store.copy_to(path)

    def unfinished(self) -> list[RunRow]:
        """Return the runs that have not ended, oldest first."""
        return self._store.unfinished()

    def generations_after(
        self, number: int, also: Collection[int] = (), limit: int = MEASURED_GENERATIONS
    ) -> list[GenerationRow]:
        """Return the last `limit` generations after event `number`, and those with the numbers `also`, newest first."""
        return self._store.generations_after(number, also, limit)

    def reuse(self, limit: int = MEASURED_GENERATIONS) -> Reuse:
        """Return what the last `limit` generations together have reused of earlier prompts."""
        return self._store.reuse(limit)

    def earlier_runs(self, shape: str, limit: int = COMPARED_RUNS) -> list[EarlierRun]:
        """Return the last runs of plans of a shape that are done, newest first."""
        return self._store.earlier_runs(shape, limit)

    def named_objects(self) -> list[tuple[str, str]]:
        """Return pairs of a run and an object that its events name, each at least once. Slow."""
        with closing(MaintenanceStore.open_to_read(self.home.database)) as store:
            return store.named_objects()

    def prompt_objects(self) -> frozenset[str]:
        """Return the digests of the prompts of all attempts and chats, also of removed runs. Slow."""
        with closing(MaintenanceStore.open_to_read(self.home.database)) as store:
            return frozenset(store.prompt_objects())

    def outcomes(self) -> list[AttemptOutcome]:
        """Return the attempt outcomes of removed runs. Raises `JournalCorrupt`."""
        return [self._outcome(run, body) for run, body in self._store.outcomes()]

    def count_outcomes(self) -> int:
        return self._store.count_outcomes()

    def ended_after(self, number: int, limit: int) -> list[tuple[int, str, str]]:
        """Return number, run and kind of the first `limit` events after `number` that end a run or rate one."""
        return self._store.ended_after(number, limit)

    def last_number(self) -> int:
        """Return the number of the latest event of a run, 0 if there is none."""
        return self._store.last_number()

    def personas(self) -> list[MadePersona]:
        """Return all personas made at run time, the retired ones included. Raises `JournalCorrupt`."""
        return [self._persona(name, body) for name, body in self._store.personas()]

    def persona_uses(self) -> list[PersonaUse]:
        """Slow if there are many attempts."""
        with closing(Store.open_to_read(self.home.database)) as store:
            return store.persona_uses()

    def chat(self, chat: str) -> ChatRecord:
        """Raises `UnknownChat`, `JournalCorrupt`."""
        records = chat_records(event for _, event in self._chat_events(self._store.chat(chat)))
        if not records:
            raise UnknownChat(self.home.database, chat)
        return records[0]

    def chats(self, limit: int, owner: str | None = None) -> list[ChatRecord]:
        """Return the newest chats, newest first. Raises `JournalCorrupt`."""
        return chat_records(event for _, event in self._chat_events(self._store.newest_chats(limit, owner)))[::-1]

    def chat_events(self, after: int = 0, limit: int | None = None) -> list[tuple[int, ChatEvent]]:
        """Return the events of all chats after number `after`, each with its number. Raises `JournalCorrupt`."""
        return self._chat_events(self._store.chat_events(after, limit))

    def count_chats(self, before: float | None = None, beyond: int | None = None) -> int:
        """Count the chats that started `before` a time or are not among the newest `beyond`; None: no limit."""
        return len(self._store.surplus_chats(before, beyond))

    def database_bytes(self) -> int:
        """Return the size of all pages, free ones included."""
        with closing(MaintenanceStore.open_to_read(self.home.database)) as store:
            return store.bytes()

    def last_time(self) -> float:
        """Return the latest time of an event, in seconds since the epoch, 0.0 if there is none."""
        return self._store.last_time()

    def get(self, digest: str) -> bytes:
        """Raises `ObjectMissing`, or `JournalCorrupt` if the bytes are not the stored ones."""
        return self.objects.get(digest)

    def recent(self, digest: str) -> bytes | None:
        """Return an object from memory if it is small and was stored lately by this process, else None."""
        return self.objects.recent(digest)

    def damage(self) -> list[str]:
        """Check the whole database, and return what is wrong with it. Slow."""
        with closing(SurveyStore.open_to_read(self.home.database)) as store:
            return store.damage()

    def _chat_events(self, rows: Iterable[tuple[int, str, str]]) -> list[tuple[int, ChatEvent]]:
        return [(number, self._decoded_chat_event(chat, number, body)) for number, chat, body in rows]

    def _decoded_chat_event(self, chat: str, number: int, body: str) -> ChatEvent:
        try:
            return decode_chat_event(body)
        except ValueError as error:
            raise JournalCorrupt(self.home.database, f"event {number} of chat {chat}: {error}") from error

    def _outcome(self, run: str, body: str) -> AttemptOutcome:
        try:
            return decode_outcome(body)
        except ValueError as error:
            raise JournalCorrupt(self.home.database, f"an outcome of run {run}: {error}") from error

    def _persona(self, name: str, body: str) -> MadePersona:
        try:
            return decode_persona(body)
        except ValueError as error:
            raise JournalCorrupt(self.home.database, f"persona {name}: {error}") from error

    def _decoded(self, run: str, number: int, body: str) -> Event:
        try:
            return decode_event(body)
        except ValueError as error:
            raise JournalCorrupt(self.home.database, f"event {number} of run {run}: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Journal(JournalReader):
    """The journal of the one process that owns the state folder."""

    def __init__(self, home: Home, lock: HomeLock, store: Store, writer: Writer, *, durable: bool = True) -> None:
        super().__init__(home, store)
        self.objects = ObjectStore(home.objects, durable=durable)
        self._lock = lock
        self._writer = writer
        self._presence = Presence(home.used)

    @classmethod
    def open(cls, home: Path, *, durable: bool = True) -> Self:
        """Create the state folder if need be, lock it and open its journal.

        With `durable` false nothing waits for the disk, so a power cut may damage the journal: for temporary folders.
        Raises `HomeLocked`, `JournalTooNew`, `JournalCorrupt`, or `JournalError` for a folder that cannot be used.
        """
        place = Home(home)
        place.create()
        lock = HomeLock(place)
        with ExitStack() as stack:
            lock.acquire()
            stack.callback(lock.release)
            _finish_restoring(place)
            refuse_damaged(place.database)  # reads every page and event: about 3 s per GB in the page cache
            written = stack.enter_context(closing(Store.open_to_write(place.database, durable=durable)))
            written.queue_unfinished()
            read = stack.enter_context(closing(Store.open_to_read(place.database)))
            ObjectStore(place.objects).clean()
            stack.pop_all()
        return cls(place, lock, read, Writer(written), durable=durable)

    async def append(self, run: str, events: Sequence[Event]) -> None:
        """Write events, all or none, and return when they are durable. The first event of a run is `RunAccepted`.

        While the disk is full, this waits for space; only the first events of a run are refused, with `DiskFull`. After
        any other `JournalError` no append succeeds, so that no event is durable without its predecessors.
        """
        rows = self._rows(run, events)
        try:
            await self._writer.append(rows)
        except RefusedEvents as error:
            raise JournalError(self.home.database, f"refuses events of run {run}: {error}") from error
        self.objects.release(_named(events))

    async def append_chat_event(self, event: ChatEvent) -> None:
        """Write an event of a chat, and return when it is durable. Raises `DiskFull`, `JournalError`."""
        await self._writer.append([chat_row(event)])

    def note_chat_event(self, event: ChatEvent) -> None:
        """Write an event of a chat with the next group of events, without waiting.

        It is lost if the machine stops at once; also, with a log message, if the disk is full or the journal is closed.
        """
        try:
            self._writer.append_without_waiting([chat_row(event)])
        except JournalClosed as error:
            log.warning("an event of a chat was not journaled", chat=event.chat, error=str(error))

    async def find_chat(self, chat: str) -> ChatRecord:
        """Return the record of one chat, its latest events included. Raises `UnknownChat`, `JournalError`."""
        try:
            return await asyncio.to_thread(self.chat, chat)
        except UnknownChat:
            await self._writer.append([])  # `note_chat_event` does not wait for the commit
            return await asyncio.to_thread(self.chat, chat)

    @property
    def full(self) -> DiskFull | None:
        """The error for which nothing can be written at the moment, while the disk is full, else None."""
        return self._writer.full

    @property
    def misplaced(self) -> str | None:
        """Which file of the state folder is not in its place now, so that new events might be lost; or None."""
        missing = self._presence.missing()
        return None if missing is None else f"{missing}; accepted: the original put back, or a restart of the daemon"

    async def breakdown(self) -> JournalError:
        """Wait until no append can succeed any more, and return the error."""
        return await asyncio.shield(asyncio.wrap_future(self._writer.broken))

    def put(self, data: bytes) -> str:
        """Store an object, and return its digest once it is durable. Blocks on the disk.

        No sweep removes it until an event that names it is appended. Raises `DiskFull`, `JournalError`.
        """
        return self.objects.put(data)

    def delete(self, *runs: str, outcomes: Iterable[AttemptOutcome] = ()) -> None:
        """Delete runs and their folders. Objects that no run names any more are left to `sweep`.

        Blocks on the disk. Raises `JournalError`.
        """
        folders = [self.home.artifacts(run).parent for run in runs]
        with closing(Store.open_to_write(self.home.database)) as store:
            store.delete(*runs, outcomes=outcomes)
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)

    def keep_personas(self, *personas: MadePersona) -> None:
        """Store personas, replacing those with the same names. Blocks on the disk. Raises `JournalError`."""
        with closing(Store.open_to_write(self.home.database)) as store:
            store.keep_personas(*personas)

    def purge_outcomes(self) -> int:
        """Remove the outcomes of removed runs, and return their number. Blocks on the disk. Raises `JournalError`."""
        with closing(MaintenanceStore.open_to_write(self.home.database)) as store:
            return store.purge_outcomes()

    def delete_chats(self, before: float | None = None, beyond: int | None = None) -> int:
        """Delete chats as in `count_chats`, and return their number. Blocks on the disk. Raises `JournalError`."""
        with closing(MaintenanceStore.open_to_write(self.home.database)) as store:
            return store.delete_chats(before, beyond)

    def sweep(self, keep_going: Callable[[], bool] = lambda: True) -> list[str]:
        """Remove the objects that no event names while `keep_going` returns true, and return their digests.

        One sweep at a time. Blocks on the disk. Raises `JournalError`.
        """
        return self.objects.sweep(
            lambda: self.prompt_objects().union(digest for _, digest in self.named_objects()), keep_going
        )

    def shrink(self, keep_going: Callable[[], bool] = lambda: True, *, rewrite: bool = False) -> None:
        """Give free pages of the database back to the disk while `keep_going` returns true. Blocks on the disk.

        With `rewrite`, the whole database is rewritten first. Raises `JournalError`.
        """
        with closing(MaintenanceStore.open_to_write(self.home.database)) as store:
            if rewrite:
                store.rewrite()
            while keep_going() and store.free_some():
                pass

    def close(self) -> None:
        """Commit the events that wait, and release the state folder."""
        self._writer.close()
        if self._presence.change_of(self.home.path) is None and not self.home.database.exists():
            self._leave_copy()  # for the next owner
        self._presence.close()
        super().close()
        self._lock.release()

    def _leave_copy(self) -> None:
        try:
            self._store.copy_to(self.home.restored)
        except JournalError as error:
            log.error("the journal was moved or deleted, and cannot be written anew", error=str(error))
        else:
            log.warning("the journal was moved or deleted; the next start uses a copy", copy=str(self.home.restored))

    def _rows(self, run: str, events: Sequence[Event]) -> Sequence[EventRow]:
        self.home.artifacts(run)  # refuses names that could not be a folder
        return [event_row(run, event) for event in events]


def _finish_restoring(place: Home) -> None:
    # The restoring process was killed after the old database had been moved away.
    if place.restored.exists() and not place.database.exists():
        # The log of the old database does not belong to the new one.
        for end in ("-wal", "-shm"):
            with suppress(FileNotFoundError):
                place.path.joinpath(f"{place.database.name}{end}").rename(place.path / f"replaced{end}")
        place.restored.rename(place.database)


def _named(events: Sequence[Event]) -> Iterator[str]:
    for event in events:
        if isinstance(event, AttemptSucceeded | AttemptFailed | PlanFinished | ReplanFinished) and event.reasoning:
            yield event.reasoning
        if isinstance(event, AttemptFailed) and event.answer:
            yield event.answer
        if isinstance(event, AttemptGenerated | AttemptSucceeded | StepGathered):
            yield from event.outputs.values()
        if isinstance(event, AttemptSucceeded | StepGathered):
            yield from filter(None, event.originals.values())
