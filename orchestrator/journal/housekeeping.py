"""Say which objects the events of a database name, and give the room that it does not need back to the disk."""

from typing import Final

from orchestrator.journal.store import Store, sqlite_errors

FREED_PAGES: Final = 1000
"""That are given back at a time."""


class MaintenanceStore(Store):
    """A connection for what takes a while: others read and write with theirs."""

    def named_objects(self) -> list[tuple[str, str]]:
        """Return which runs name which objects, as outputs of their own or as artifacts of earlier runs."""
        return self._rows(
            """
            SELECT run, named.value FROM events, json_each(body, '$.outputs') AS named
            WHERE kind IN ('attempt_succeeded', 'step_gathered')
            UNION ALL
            SELECT run, named.value FROM events, json_each(body, '$.prior') AS named WHERE kind = 'run_accepted'
            """
        )

    def prompt_objects(self) -> list[str]:
        """Return the objects with the prompts of attempts, also of attempts that only their outcomes are left of."""
        rows = self._rows(
            """
            SELECT body ->> '$.prompts.system', body ->> '$.prompts.persona' FROM events WHERE kind = 'attempt_started'
            UNION
            SELECT body ->> '$.prompts.system', body ->> '$.prompts.persona' FROM outcomes
            """
        )
        return [digest for row in rows for digest in row if digest]

    def purge_outcomes(self) -> int:
        """Remove the outcomes that were kept of all runs that are gone, and return how many there were.

        Their texts are overwritten, and not only given up. Raises `JournalError`.
        """
        with sqlite_errors(self.path):
            self._connection.execute("PRAGMA secure_delete = ON").fetchall()
            with self._transaction():
                return self._connection.execute("DELETE FROM outcomes").rowcount

    def free_some(self) -> bool:
        """Give some of the pages that are free back to the disk, and return whether there may be more.

        Writers wait meanwhile, which takes milliseconds. Databases of early versions keep theirs until `rewrite`.
        Raises `JournalError`.
        """
        before = self._free_pages()
        with sqlite_errors(self.path):
            self._connection.execute(f"PRAGMA incremental_vacuum({FREED_PAGES})").fetchall()
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        return 0 < self._free_pages() < before

    def rewrite(self) -> None:
        """Write the database anew, without gaps. Nobody else can write meanwhile. Raises `JournalError`."""
        with sqlite_errors(self.path):
            self._connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            self._connection.execute("VACUUM")
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def bytes(self) -> int:
        """Return what all pages take, free ones included."""
        return self._number("page_count") * self._number("page_size")

    def _free_pages(self) -> int:
        return self._number("freelist_count")

    def _number(self, pragma: str) -> int:
        return int(self._rows(f"PRAGMA {pragma}")[0][0])
