"""Maintain the database: list the objects that its events name, remove outcomes and chats, free unused pages."""

from typing import Final

from orchestrator.run.journal.store import Store, sqlite_errors

FREED_PAGES: Final = 1000  # at a time


class MaintenanceStore(Store):
    """A separate connection for slow work, so that others can read and write meanwhile."""

    def named_objects(self) -> list[tuple[str, str]]:
        """Return pairs of a run and an object that its events name."""
        return self._rows(
            """
            SELECT run, named.value FROM events, json_each(body, '$.outputs') AS named
            WHERE kind IN ('attempt_generated', 'attempt_succeeded', 'step_gathered')
            UNION ALL
            SELECT run, named.value FROM events, json_each(body, '$.originals') AS named
            WHERE kind IN ('attempt_succeeded', 'step_gathered') AND named.value != ''
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
