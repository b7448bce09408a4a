"""Write the journal of a state folder: events of runs, and the objects that they name.

System prompts and personas are objects, too, so that events can name the versions that an attempt used.
"""

import asyncio
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import Self

import structlog

from orchestrator.registry.models import Registry
from orchestrator.run.journal.chats import ChatEvent, ChatRecord
from orchestrator.run.journal.errors import DiskFull, JournalClosed, JournalError, UnknownChat
from orchestrator.run.journal.home import Home, HomeLock, Presence
from orchestrator.run.journal.housekeeping import MaintenanceStore, refuse_damaged
from orchestrator.run.journal.objects import ObjectStore, digest_of
from orchestrator.run.journal.outcomes import AttemptOutcome
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.journal.replica import (
    Change,
    ChatsDeleted,
    OutcomesPurged,
    Replication,
    deleted,
    personas_kept,
)
from orchestrator.run.journal.store import EventRow, RefusedEvents, Store, chat_row, event_row
from orchestrator.run.journal.writer import Writer, retry_when_disk_full
from orchestrator.task.events import (
    AnswerChecked,
    AttemptFailed,
    AttemptGenerated,
    AttemptSucceeded,
    Event,
    PlanFinished,
    PromptDigests,
    ReplanFinished,
    StepGathered,
)
from orchestrator.task.personas import MadePersona

log = structlog.get_logger(__name__)


class Journal(JournalReader):
    """The journal of the one process that owns the state folder."""

    def __init__(
        self,
        home: Home,
        lock: HomeLock,
        store: Store,
        writer: Writer,
        *,
        durable: bool = True,
        replication: Replication | None = None,
    ) -> None:
        super().__init__(home, store)
        self._replication = replication
        self.objects = ObjectStore(home.objects, durable=durable)
        self._lock = lock
        self._writer = writer
        self._presence = Presence(home.used)

    @classmethod
    def open(cls, home: Path, *, durable: bool = True, replication: Replication | None = None) -> Self:
        """Create the state folder if need be, lock it and open its journal.

        With `durable` false nothing waits for the disk, so a power cut may damage the journal: for temporary folders.
        With `replication`, what is durable is also where that puts it.
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
        return cls(place, lock, read, Writer(written, replication), durable=durable, replication=replication)

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
        """Why new events might be lost: a file of the state folder was moved or deleted; or None."""
        missing = self._presence.missing()
        return None if missing is None else f"{missing}; accepted: the original put back, or a restart of the daemon"

    async def breakdown(self) -> JournalError:
        """Wait until no append can succeed any more, and return the error."""
        return await asyncio.shield(asyncio.wrap_future(self._writer.broken))

    def put(self, data: bytes) -> str:
        """Store an object, and return its digest once it is durable. Blocks on the disk.

        No sweep removes it until an event that names it is appended. Raises `DiskFull`, `JournalError`.
        """
        digest = self.objects.put(data)
        if self._replication is not None:
            self._replication.note_object(digest)
        return digest

    def delete(self, *runs: str, outcomes: Iterable[AttemptOutcome] = ()) -> None:
        """Delete runs and their folders. Objects that no run names any more are left to `sweep`.

        Blocks on the disk. Raises `JournalError`.
        """
        folders, outcomes = [self.home.artifacts(run).parent for run in runs], tuple(outcomes)
        with self._replicated(deleted(runs, outcomes)), closing(Store.open_to_write(self.home.database)) as store:
            store.delete(*runs, outcomes=outcomes)
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)

    def keep_personas(self, *personas: MadePersona) -> None:
        """Store personas, replacing those with the same names. Blocks on the disk. Raises `JournalError`."""
        with self._replicated(personas_kept(personas)), closing(Store.open_to_write(self.home.database)) as store:
            store.keep_personas(*personas)

    def purge_outcomes(self) -> int:
        """Remove the outcomes of removed runs, and return their number. Blocks on the disk. Raises `JournalError`."""
        with self._maintained(OutcomesPurged()) as store:
            return store.purge_outcomes()

    def delete_chats(self, before: float | None = None, beyond: int | None = None) -> int:
        """Delete chats as in `count_chats`, and return their number. Blocks on the disk. Raises `JournalError`."""
        with self._maintained(ChatsDeleted(before, beyond)) as store:
            return store.delete_chats(before, beyond)

    @contextmanager
    def _replicated(self, change: Change) -> Iterator[None]:
        if self._replication is None:
            yield
            return
        self._replication.check()
        yield
        self._replication.commit(change)

    @contextmanager
    def _maintained(self, change: Change) -> Iterator[MaintenanceStore]:
        with self._replicated(change), closing(MaintenanceStore.open_to_write(self.home.database)) as store:
            yield store

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


async def keep_prompts(journal: Journal, registry: Registry) -> None:
    """Store the prompts of all roles and personas, once the disk has room for them. Raises JournalError."""
    systems = {registry.system(role, model) for role in registry.roles for model in registry.models}
    texts = systems | {persona.text for persona in registry.personas.values()}
    # Never released, since any attempt may name them.
    for text in sorted(texts - {""}):
        await retry_when_disk_full(partial(journal.put, text.encode()))


def prompt_digests(registry: Registry, role: str, persona: str | None, model: str) -> PromptDigests:
    """Return the digests of an attempt's prompts; empty for a role, persona or model that is gone."""
    system = registry.system(role, model) if role in registry.roles else ""
    added = registry.personas[persona].text if persona is not None and persona in registry.personas else ""
    shipped = registry.models[model].prompts.stamp if model in registry.models else ""
    return PromptDigests(_digest(system), _digest(added), shipped)


@lru_cache(maxsize=256)
def _digest(text: str) -> str:
    return digest_of(text.encode()) if text else ""


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
        if isinstance(event, AnswerChecked):
            yield from chain.from_iterable(outputs.values() for outputs in event.corrected.values())
