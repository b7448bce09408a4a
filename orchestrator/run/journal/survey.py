"""Check a database for damage before anything is written to it, and find out which runs are readable."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from orchestrator.run.journal.errors import JournalCorrupt, JournalError
from orchestrator.run.journal.store import Store

TABLES: Final = ("runs", "events", "outcomes", "personas", "chat_events")
MOST_NAMED: Final = 5


class SurveyStore(Store):
    """A connection whose calls check the whole database, in time proportional to its size."""

    def page_damage(self) -> list[str]:
        """Check every page and the checksum of every event, and return messages of SQLite or ours.

        It does not check whether tables and indexes agree. About 3 s per GB in the page cache on one core.
        """
        return self._checked("PRAGMA quick_check(20)") or self._wrong_checksums()

    def damage(self) -> list[str]:
        """Check what `page_damage` checks, and whether tables and indexes agree."""
        return self._checked("PRAGMA integrity_check(20)") or self._wrong_checksums()

    def damaged_tables(self) -> list[str]:
        """Return the tables with pages that cannot be read."""
        return [table for table in TABLES if self._checked(f"PRAGMA quick_check({table})")]

    def run_names(self) -> list[str]:
        """Return the ids of the runs from the table of events, oldest first. Raises `JournalError`."""
        query = "SELECT CAST(run AS BLOB) FROM events GROUP BY run ORDER BY min(number)"
        return [_text(run) for (run,) in self._rows(query)]

    def _checked(self, pragma: str) -> list[str]:
        try:
            return [message for (message,) in self._rows(pragma) if message != "ok"]
        except JournalCorrupt as error:
            return [str(error.__cause__)]

    def _wrong_checksums(self) -> list[str]:
        # A page that was half written may be valid for SQLite.
        rows = self._rows(
            """
            SELECT number, CAST(run AS BLOB) FROM events
            WHERE checksum != checksum_of(CAST(run AS BLOB), CAST(body AS BLOB)) LIMIT 20
            """
        )
        chats = self._rows(
            """
            SELECT number, CAST(chat AS BLOB) FROM chat_events
            WHERE checksum != checksum_of(CAST(chat AS BLOB), CAST(body AS BLOB)) LIMIT 20
            """
        )
        return [f"event {number} of run {_text(run)} is not what was written" for number, run in rows] + [
            f"event {number} of chat {_text(chat)} is not what was written" for number, chat in chats
        ]


def refuse_damaged(path: Path) -> None:
    """Raise `JournalCorrupt` if a database is damaged, with what is lost and what can still be read."""
    with closing(SurveyStore.open_to_read(path)) as store:
        if damage := store.page_damage():
            raise JournalCorrupt(path, f"{damage[0]}; {_format_losses(store)}")


def _format_losses(store: SurveyStore) -> str:
    damaged = store.damaged_tables()
    tables = f"the table {' and the table '.join(damaged)} cannot be read whole; " if damaged else ""
    names = _names(store)
    if names is None:
        return f"{tables}it is not known which runs there were"
    lost = [name for name in names if not _can_be_read(store, name)]
    if not lost:
        return f"{tables}all events of all {len(names)} runs can be read"
    return f"{tables}all events can be read of {len(names) - len(lost)} of {len(names)} runs, not of {_listed(lost)}"


def _names(store: SurveyStore) -> list[str] | None:
    # None if neither table can be read.
    runs: dict[str, None] = {}
    readable = False
    for listing in (store.run_names, lambda: [row.run for row in store.runs()]):
        try:
            runs |= dict.fromkeys(listing())
            readable = True
        except JournalError:  # the other table may still be readable
            continue
    return list(runs) if readable else None


def _can_be_read(store: SurveyStore, run: str) -> bool:
    try:
        return bool(store.events(run))
    except JournalError:
        return False


def _listed(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _text(name: bytes) -> str:
    return name.decode(errors="replace")
