"""Read what is committed to the journal of a state folder: events of runs and chats, and the objects that they name."""

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Self, TypeVar

from orchestrator.run.journal.chats import ChatEvent, ChatRecord, chat_records, decode_chat_event
from orchestrator.run.journal.errors import JournalCorrupt, JournalError, UnknownChat, UnknownRun
from orchestrator.run.journal.home import Home
from orchestrator.run.journal.housekeeping import MaintenanceStore, SurveyStore
from orchestrator.run.journal.objects import ObjectStore
from orchestrator.run.journal.outcomes import AttemptOutcome, decode_outcome
from orchestrator.run.journal.store import GenerationRow, PersonaUse, RunRow, Store
from orchestrator.task.events import Event, decode_event
from orchestrator.task.modes import RunStatus
from orchestrator.task.personas import MadePersona, decode_persona
from orchestrator.task.prediction import COMPARED_RUNS, EarlierRun
from orchestrator.task.reuse import Reuse

MEASURED_GENERATIONS = 2000
T = TypeVar("T")


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
        """Open the journal of the state folder at `home`. If there is none, it is read as empty.

        Raises `JournalError`, also if `home` is no folder.
        """
        place = Home(home)
        if home.exists() and not home.is_dir():
            raise JournalError(home, "is not a folder, so it cannot be the state folder")
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
        return [(number, self._decoded(decode_event, body, f"event {number} of run {run}")) for number, body in rows]

    def first_event(self, run: str) -> Event:
        """Return the RunAccepted of a run. Raises `UnknownRun`, `JournalCorrupt`."""
        row = self._store.first_event(run)
        if row is None:
            raise UnknownRun(self.home.database, run)
        number, body = row
        return self._decoded(decode_event, body, f"event {number} of run {run}")

    def newest_choices(self, limit: int) -> list[tuple[str, Event]]:
        """Return the events of the latest choices of a router, each with its run, oldest first.

        They are starts of attempts, and acceptances of runs whose mode a router has chosen. Raises `JournalCorrupt`.
        """
        return [
            (run, self._decoded(decode_event, body, f"event {number} of run {run}"))
            for run, number, body in self._store.newest_choices(limit)
        ]

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
        search: str | None = None,
    ) -> list[RunRow]:
        """Return the runs, newest first. `before` is the id of a run: only runs accepted before it are returned.

        `search` is a part of the title or the id; capital and small letters of ASCII are the same.
        """
        return self._store.runs(limit, status, before, owner, search)

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
        return [self._decoded(decode_outcome, body, f"an outcome of run {run}") for run, body in self._store.outcomes()]

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
        return [self._decoded(decode_persona, body, f"persona {name}") for name, body in self._store.personas()]

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

    def sizes(self, digests: Mapping[str, str]) -> dict[str, int]:
        """Return the bytes of objects by the names that `digests` has for them. Blocks on the disk."""
        return {name: self.objects.size(digest) for name, digest in digests.items()}

    def damage(self) -> list[str]:
        """Check the whole database, and return what is wrong with it. Slow."""
        with closing(SurveyStore.open_to_read(self.home.database)) as store:
            return store.damage()

    def _chat_events(self, rows: Iterable[tuple[int, str, str]]) -> list[tuple[int, ChatEvent]]:
        return [
            (number, self._decoded(decode_chat_event, body, f"event {number} of chat {chat}"))
            for number, chat, body in rows
        ]

    def _decoded(self, decode: Callable[[str], T], body: str, subject: str) -> T:
        try:
            return decode(body)
        except ValueError as error:
            raise JournalCorrupt(self.home.database, f"{subject}: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
