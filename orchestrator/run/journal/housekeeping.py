"""Maintain the database: list the objects that its events name, remove outcomes and chats, free unused pages.

`SurveyStore` checks it for damage before anything is written to it, and finds out which runs are readable.
"""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from orchestrator.run.journal.errors import JournalCorrupt, JournalError
from orchestrator.run.journal.store import Store, sqlite_errors

FREED_PAGES: Final = 1000  # at a time


class MaintenanceStore(Store):
    """A separate connection for slow work, so that others can read and write meanwhile."""

    def named_objects(self) -> list[tuple[str, str]]:
        """Return pairs of a run and an object that its events name."""
        return self._rows(
            """
            SELECT run, named.value FROM events, json_each(body, '$.outputs') AS named
            WHERE kind IN ('attempt_generated', 'attempt_succeeded', 'step_gathered', 'step_reused')
            UNION ALL
            SELECT run, named.value FROM events, json_each(body, '$.originals') AS named
            WHERE kind IN ('attempt_succeeded', 'step_gathered', 'step_reused') AND named.value != ''
            UNION ALL
            SELECT run, named.value FROM events, json_each(body, '$.corrected') AS step, json_each(step.value) AS named
            WHERE kind = 'answer_checked'
            UNION ALL
            SELECT run, named.value FROM events, json_each(body, '$.prior') AS named WHERE kind = 'run_accepted'
            UNION ALL
            SELECT run, body ->> '$.reasoning' FROM events
            WHERE kind IN ('attempt_succeeded', 'attempt_failed', 'plan_finished', 'replan_finished')
                AND body ->> '$.reasoning' != ''
            UNION ALL
            SELECT run, body ->> '$.answer' FROM events WHERE kind = 'attempt_failed' AND body ->> '$.answer' != ''
            """
        )

    def prompt_objects(self) -> list[str]:
        rows = self._rows(
            """
            SELECT body ->> '$.prompts.system', body ->> '$.prompts.persona' FROM events WHERE kind = 'attempt_started'
            UNION
            SELECT body ->> '$.prompts.system', body ->> '$.prompts.persona' FROM outcomes
            UNION
            SELECT body ->> '$.prompts.system', body ->> '$.prompts.persona' FROM chat_events WHERE kind = 'chat_routed'
            """
        )
        return [digest for row in rows for digest in row if digest]

    def purge_outcomes(self) -> int:
        """Remove the outcomes of all removed runs, and return how many there were. Raises `JournalError`."""
        with sqlite_errors(self.path):
            # Zeros, so that no texts are left in the file.
            self._connection.execute("PRAGMA secure_delete = ON").fetchall()
            with self._transaction():
                return self._connection.execute("DELETE FROM outcomes").rowcount

    def delete_chats(self, before: float | None = None, beyond: int | None = None) -> int:
        """Delete the surplus chats, and return their number. Raises `JournalError`."""
        surplus = self.surplus_chats(before, beyond)
        with sqlite_errors(self.path):
            # Zeros, so that no texts are left in the file.
            self._connection.execute("PRAGMA secure_delete = ON").fetchall()
            with self._transaction():
                self._connection.executemany("DELETE FROM chat_events WHERE chat = ?", [(chat,) for chat in surplus])
                self._connection.execute(  # events that followed the deletion of a running chat
                    """
                    DELETE FROM chat_events
                    WHERE chat NOT IN (SELECT chat FROM chat_events WHERE kind = 'chat_routed')
                    """
                )
        return len(surplus)

    def free_some(self) -> bool:
        """Give some free pages back to the disk, and return whether there may be more. Raises `JournalError`.

        Writers wait for some milliseconds meanwhile. Databases of early versions keep free pages until `rewrite`.
        """
        before = self._free_pages()
        with sqlite_errors(self.path):
            self._connection.execute(f"PRAGMA incremental_vacuum({FREED_PAGES})").fetchall()
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        return 0 < self._free_pages() < before

    def rewrite(self) -> None:
        """Rewrite the database without free pages, which blocks all writers. Raises `JournalError`."""
        with sqlite_errors(self.path):
            self._connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            self._connection.execute("VACUUM")
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def bytes(self) -> int:
        """Return the size of all pages in bytes, free ones included."""
        return self._number("page_count") * self._number("page_size")

    def _free_pages(self) -> int:
        return self._number("freelist_count")

    def _number(self, pragma: str) -> int:
        return int(self._rows(f"PRAGMA {pragma}")[0][0])


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
