"""List the schema of the journal's database, version by version. Entries are never edited, only added."""

_FIRST = """
CREATE TABLE runs (
    run TEXT PRIMARY KEY,
    mode TEXT NOT NULL,
    title TEXT NOT NULL,
    status TEXT NOT NULL,
    accepted REAL NOT NULL,
    finished REAL,
    error TEXT
) STRICT;
CREATE INDEX runs_by_age ON runs (accepted);
CREATE INDEX runs_by_status ON runs (status);
CREATE TABLE events (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    run TEXT NOT NULL REFERENCES runs (run),
    at REAL NOT NULL,
    kind TEXT NOT NULL,
    step TEXT,
    attempt INTEGER,
    body TEXT NOT NULL
) STRICT;
CREATE INDEX events_by_run ON events (run, number);
CREATE INDEX events_by_kind ON events (kind, number);
CREATE INDEX events_by_attempt ON events (run, step, attempt) WHERE attempt IS NOT NULL;
"""

_KEYS = """
CREATE UNIQUE INDEX events_by_key ON events (body ->> '$.key') WHERE kind = 'run_accepted';
"""

MIGRATIONS: tuple[str, ...] = (_FIRST, _KEYS)
"""SQL that leads from version n to version n + 1, at index n."""

VERSION = len(MIGRATIONS)
