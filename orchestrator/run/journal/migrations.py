"""The migrations of the journal's database. Entries are never edited, only added."""

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

# Earlier, each event about planned steps had a list with one text; now it has the text itself.
_PARTS = """
UPDATE events SET body = json_replace(body, '$.written', body ->> '$.written[0]')
WHERE kind = 'steps_planned' AND json_array_length(body, '$.written') = 1;
"""

# Earlier events have no checksum. Later migrations that change a body have to write its `checksum_of` too.
_CHECKSUMS = """
ALTER TABLE events ADD COLUMN checksum INTEGER;
"""

_TASKS = """
CREATE INDEX events_by_task ON events (body ->> '$.task.task_id', number) WHERE kind = 'run_accepted';
"""

# What learning needs of removed runs. It does not reference the table of runs, which they are not in any more.
_OUTCOMES = """
CREATE TABLE outcomes (
    run TEXT NOT NULL,
    step TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (run, step, attempt)
) STRICT;
"""

# Personas that were made at run time, the retired ones included.
_PERSONAS = """
CREATE TABLE personas (name TEXT PRIMARY KEY, body TEXT NOT NULL) STRICT;
"""

# Chats belong to no run. Numbers are never used twice, so that whoever reads on from one misses nothing.
_CHATS = """
CREATE TABLE chat_events (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    chat TEXT NOT NULL,
    at REAL NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    checksum INTEGER NOT NULL
) STRICT;
CREATE INDEX chat_events_by_chat ON chat_events (chat, number);
CREATE INDEX chat_events_by_kind ON chat_events (kind, number);
"""

# Runs of plans of one shape are compared when another one is accepted.
_SHAPES = """
CREATE INDEX events_by_shape ON events (body ->> '$.plan_key.shape', number) WHERE kind = 'run_accepted';
"""

# Each caller lists its own runs and chats, and has idempotency keys of its own.
_OWNERS = """
ALTER TABLE runs ADD COLUMN owner TEXT NOT NULL DEFAULT '';
DROP INDEX events_by_key;
CREATE UNIQUE INDEX events_by_key ON events (body ->> '$.key', coalesce(body ->> '$.owner', ''))
    WHERE kind = 'run_accepted';
CREATE INDEX chat_events_by_owner ON chat_events (body ->> '$.owner', number) WHERE kind = 'chat_routed';
"""

# Lists of runs mark those whose answers are doubtful.
_DOUBTS = """
ALTER TABLE runs ADD COLUMN doubt TEXT NOT NULL DEFAULT '';
"""

# At index n: SQL from version n to n + 1.
MIGRATIONS: tuple[str, ...] = (
    *(_FIRST, _KEYS, _PARTS, _CHECKSUMS, _TASKS, _OUTCOMES, _PERSONAS, _CHATS, _SHAPES),
    *(_OWNERS, _DOUBTS),
)

VERSION = len(MIGRATIONS)
