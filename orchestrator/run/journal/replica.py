"""Keep a copy of a journal on another machine: what changes there, and how the copy is changed likewise.

The copy has the same numbers of events, since it gets the same rows in the same order. Objects come before the events
that name them. What only saves space is not repeated: the sweep of objects, and freed pages.
"""

import os
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import msgspec

from orchestrator.run.journal.chats import decode_chat_event
from orchestrator.run.journal.errors import JournalCorrupt, write_error
from orchestrator.run.journal.home import Home
from orchestrator.run.journal.housekeeping import MaintenanceStore
from orchestrator.run.journal.migrations import VERSION
from orchestrator.run.journal.objects import ObjectStore
from orchestrator.run.journal.outcomes import AttemptOutcome, decode_outcome, encode_outcome
from orchestrator.run.journal.store import ChatRow, JournalRow, chat_row, event_row
from orchestrator.task.events import decode_event
from orchestrator.task.personas import MadePersona, decode_persona, encode_persona

SCHEMA = VERSION
_LOGS = ("-wal", "-shm")


class Row(msgspec.Struct, frozen=True, array_like=True):
    stream: str  # a run, or a chat
    body: str
    is_chat: bool


class Appended(msgspec.Struct, frozen=True, tag=True):
    """Groups of events. `position` is that of the journal afterwards, see `Store.position`."""

    groups: tuple[tuple[Row, ...], ...]
    position: tuple[int, int]


class Deleted(msgspec.Struct, frozen=True, tag=True):
    """Runs are gone, and the outcomes of their attempts are kept."""

    runs: tuple[str, ...]
    outcomes: tuple[str, ...]


class PersonasKept(msgspec.Struct, frozen=True, tag=True):
    personas: tuple[str, ...]


class OutcomesPurged(msgspec.Struct, frozen=True, tag=True):
    pass


class ChatsDeleted(msgspec.Struct, frozen=True, tag=True):
    """See `Store.surplus_chats`."""

    before: float | None
    beyond: int | None


Change = Appended | Deleted | PersonasKept | OutcomesPurged | ChatsDeleted


class Replication(Protocol):
    """What a journal tells of its changes. Thread-safe."""

    def check(self) -> None:
        """Raise JournalError if this process may not write."""

    def note_object(self, digest: str) -> None:
        """Note that an object was stored."""

    def commit(self, change: Change) -> None:
        """Return when what was committed here is also where it has to be. Blocks.

        Raises JournalError if it may not be, so that nobody may hear of the change.
        """


def appended(groups: Iterable[Sequence[JournalRow]], position: tuple[int, int]) -> Appended:
    return Appended(tuple(tuple(map(_row, rows)) for rows in groups), position)


def deleted(runs: Iterable[str], outcomes: Iterable[AttemptOutcome]) -> Deleted:
    return Deleted(tuple(runs), tuple(map(encode_outcome, outcomes)))


def personas_kept(personas: Iterable[MadePersona]) -> PersonasKept:
    return PersonasKept(tuple(map(encode_persona, personas)))


def _row(row: JournalRow) -> Row:
    if isinstance(row, ChatRow):
        return Row(row.chat, row.body, True)
    return Row(row.run, row.body, False)


def _journal_row(row: Row) -> JournalRow:
    # With the text as it was written, which another version would write in another way.
    if row.is_chat:
        return replace(chat_row(decode_chat_event(row.body)), body=row.body)
    return replace(event_row(row.stream, decode_event(row.body)), body=row.body)


class Replica:
    """The copy of a journal in a state folder that this process owns. Blocks on the disk. Raises JournalError."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._objects = ObjectStore(home.objects)
        self._store: MaintenanceStore | None = None
        home.objects.mkdir(exist_ok=True)
        self._objects.clean()

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None

    def replace_database(self, copy: Path) -> None:
        """Put a whole database in the place of the one that is there."""
        self.close()
        database = self._home.database
        try:
            with open(copy, "rb") as file:
                os.fsync(file.fileno())
            for end in _LOGS:  # they belong to the old one
                database.with_name(f"{database.name}{end}").unlink(missing_ok=True)
            copy.replace(database)
        except OSError as error:
            raise write_error(database, "cannot be replaced", error) from error
        self._store = MaintenanceStore.open_to_write(database)

    def missing(self, digests: Iterable[str]) -> list[str]:
        """Return which of these objects are not here."""
        return [digest for digest in digests if not self._objects.path(digest).exists()]

    def put(self, data: bytes) -> None:
        self._objects.release([self._objects.put(data)])

    def apply(self, change: Change) -> None:
        """Change the copy, durably. Raises JournalCorrupt if it is no copy any more."""
        assert self._store is not None, "a whole database comes first"
        match change:
            case Appended(groups, position):
                self._append(self._store, groups, position)
            case Deleted(runs, outcomes):
                self._store.delete(*runs, outcomes=map(decode_outcome, outcomes))
            case PersonasKept(personas):
                self._store.keep_personas(*map(decode_persona, personas))
            case OutcomesPurged():
                self._store.purge_outcomes()
            case ChatsDeleted(before, beyond):
                self._store.delete_chats(before, beyond)

    def _append(self, store: MaintenanceStore, groups: Sequence[Sequence[Row]], position: tuple[int, int]) -> None:
        if store.position() >= position:
            return  # the database was copied after this
        try:
            refused = [error for error in store.append([*map(_journal_row, rows)] for rows in groups) if error]
        except ValueError as error:
            raise JournalCorrupt(self._home.database, str(error)) from error
        if refused or store.position() != position:
            why = refused[0] if refused else f"it is at {store.position()}, and the head at {position}"
            raise JournalCorrupt(self._home.database, f"it is not the same as the head's: {why}")


def copy_database(home: Home, target: Path) -> None:
    """Write what is committed now into a new file. Raises JournalError."""
    with closing(MaintenanceStore.open_to_read(home.database)) as store:
        store.copy_to(target)


def list_objects(home: Home) -> list[str]:
    """Return the digests of all objects. Raises JournalError."""
    return [*ObjectStore(home.objects).sizes()]
