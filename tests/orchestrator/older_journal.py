"""Make a journal one of an earlier version, and tell of which version one is."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from orchestrator.run.journal.migrations import VERSION

WITHOUT_OWNERS: Final = """
DROP INDEX chat_events_by_owner;
DROP INDEX events_by_key;
CREATE UNIQUE INDEX events_by_key ON events (body ->> '$.key') WHERE kind = 'run_accepted';
ALTER TABLE runs DROP COLUMN owner;
ALTER TABLE runs DROP COLUMN doubt;
"""
"""Undoes the last two migrations."""


def downgrade(database: Path) -> None:
    """Make the database of a journal one of a schema version before this one."""
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript(WITHOUT_OWNERS)
        connection.execute("DELETE FROM schema_version WHERE version > ?", (VERSION - 2,))
        connection.commit()


def version_of(database: Path) -> int:
    """Return the schema version of a journal's database."""
    with closing(sqlite3.connect(database)) as connection:
        return int(connection.execute("SELECT max(version) FROM schema_version").fetchone()[0])
