"""Keep episodes, their vectors and what attempts taught in SQLite. Only this file of the package uses SQLite.

This database is the truth; index and graph are made from it. With write-ahead logging and `synchronous=NORMAL` a power
failure can undo the last commits whole. Nothing is lost: the note that an attempt was learned from is undone together
with what it taught, so it can be learned from again.
"""

import json
import sqlite3
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from orchestrator.memrl.episodes import Action, Episode, Outcome, Reward, Situation, Value
from orchestrator.memrl.errors import StoreCorrupt, StoreError, StoreTooNew
from orchestrator.memrl.reward import Contribution

VERSION: Final = 2
BUSY_SECONDS: Final = 60.0
CACHE_BYTES: Final = 64 << 20  # of the writer, above all for the index of digests, which is accessed at random
LOG_BYTES: Final = 16 << 20  # the write-ahead log is moved into the database from here on, in a thread
CHUNK: Final = 1024  # rows read at a time; limits how long others wait for the interpreter and the connection

Key = tuple[str, str, int]  # run, step, number of the attempt

_SCHEMA: Final = """
CREATE TABLE schema_version (version INTEGER NOT NULL) STRICT;
CREATE TABLE actions (
    id INTEGER PRIMARY KEY, role TEXT NOT NULL, persona TEXT NOT NULL, model TEXT NOT NULL, thinking TEXT NOT NULL,
    mode TEXT NOT NULL, UNIQUE (role, persona, model, thinking, mode)
) STRICT;
CREATE TABLE embedders (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, dimensions INTEGER NOT NULL) STRICT;
CREATE TABLE episodes (
    id INTEGER PRIMARY KEY AUTOINCREMENT, action INTEGER NOT NULL REFERENCES actions, context INTEGER NOT NULL,
    q REAL NOT NULL, count INTEGER NOT NULL, last_seen REAL NOT NULL, decay REAL NOT NULL, digest INTEGER NOT NULL,
    created REAL NOT NULL, propensity REAL NOT NULL, task_type TEXT, kind TEXT NOT NULL, role TEXT NOT NULL,
    input_bytes INTEGER NOT NULL, interactive INTEGER NOT NULL, failures TEXT NOT NULL, outcome TEXT NOT NULL,
    reward TEXT NOT NULL, state_checksum INTEGER NOT NULL, checksum INTEGER NOT NULL, text TEXT NOT NULL,
    weight REAL NOT NULL DEFAULT 0
) STRICT;
CREATE UNIQUE INDEX episodes_by_digest ON episodes (digest, action);
CREATE TABLE vectors (
    episode INTEGER PRIMARY KEY REFERENCES episodes ON DELETE CASCADE, embedder INTEGER NOT NULL REFERENCES embedders,
    vector BLOB NOT NULL
) STRICT;
CREATE TABLE observed (
    run TEXT NOT NULL, step TEXT NOT NULL, attempt INTEGER NOT NULL, episode INTEGER, action INTEGER NOT NULL,
    task_type TEXT, failure TEXT NOT NULL, success REAL, reward REAL NOT NULL, before REAL NOT NULL,
    size REAL NOT NULL, decay REAL NOT NULL,
    at REAL NOT NULL, after TEXT NOT NULL, caller TEXT NOT NULL DEFAULT '', drawn INTEGER NOT NULL DEFAULT 1,
    share REAL NOT NULL DEFAULT 1, weight REAL NOT NULL DEFAULT 0, PRIMARY KEY (run, step, attempt)
) STRICT, WITHOUT ROWID;
CREATE INDEX observed_by_episode ON observed (episode);
CREATE TABLE totals (
    task_type TEXT NOT NULL, role TEXT NOT NULL, persona TEXT NOT NULL, weighted REAL NOT NULL, count INTEGER NOT NULL,
    episodes INTEGER NOT NULL, last_seen REAL NOT NULL, PRIMARY KEY (task_type, role, persona)
) STRICT, WITHOUT ROWID;
CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE blobs (name TEXT PRIMARY KEY, checksum INTEGER NOT NULL, body BLOB NOT NULL) STRICT;
CREATE TABLE contributions (
    caller TEXT NOT NULL, action INTEGER NOT NULL, context INTEGER NOT NULL, outcomes INTEGER NOT NULL,
    drawn INTEGER NOT NULL, told REAL NOT NULL, counted REAL NOT NULL, PRIMARY KEY (caller, action, context)
) STRICT, WITHOUT ROWID;
INSERT INTO schema_version VALUES (2);
"""

# Outcomes recorded before callers were are those of the machine's only user. Their step size was 0.3.
_FROM_VERSION_1: Final = """
ALTER TABLE episodes ADD COLUMN weight REAL NOT NULL DEFAULT 0;
UPDATE episodes SET weight = count;
ALTER TABLE observed ADD COLUMN caller TEXT NOT NULL DEFAULT '';
ALTER TABLE observed ADD COLUMN drawn INTEGER NOT NULL DEFAULT 1;
ALTER TABLE observed ADD COLUMN share REAL NOT NULL DEFAULT 1;
ALTER TABLE observed ADD COLUMN weight REAL NOT NULL DEFAULT 0;
UPDATE observed SET weight = min(1, size / 0.3);
CREATE TABLE contributions (
    caller TEXT NOT NULL, action INTEGER NOT NULL, context INTEGER NOT NULL, outcomes INTEGER NOT NULL,
    drawn INTEGER NOT NULL, told REAL NOT NULL, counted REAL NOT NULL, PRIMARY KEY (caller, action, context)
) STRICT, WITHOUT ROWID;
INSERT INTO contributions SELECT '', action, 0, count(*), count(*), sum(weight), sum(weight) FROM observed
    WHERE weight > 0 GROUP BY action;
UPDATE schema_version SET version = 2;
"""

_STATE: Final = "q, count, last_seen, decay, weight, propensity, outcome, reward, state_checksum"  # of an episode
_EPISODES: Final = """
    SELECT e.id, e.q, e.count, e.last_seen, e.decay, e.created, e.propensity, e.task_type, e.kind, e.role,
        e.input_bytes, e.interactive, e.failures, e.outcome, e.reward, e.state_checksum, e.checksum, e.text,
        e.weight, a.role, a.persona, a.model, a.thinking, a.mode
    FROM episodes AS e JOIN actions AS a ON a.id = e.action WHERE e.id IN (SELECT value FROM json_each(?))
"""
_NO_TYPE: Final = "\0none"  # task type None in the table of totals, whose key cannot hold NULL


@dataclass(frozen=True, slots=True)
class EpisodeState:
    """What changes when an episode is seen again."""

    q: float
    count: int
    last_seen: float
    decay: float  # sum of ln(1 - step size) over all updates: how far the first one has faded
    weight: float  # sum of the weights of its outcomes
    propensity: float
    outcome: Outcome
    reward: Reward


@dataclass(frozen=True, slots=True)
class LearnedAttempt:
    """What an attempt taught. The fields are the columns of `observed`, in their order."""

    key: Key
    episode: int | None  # None if it taught nothing, or its episode was dropped
    action: Action
    task_type: str | None
    failure: str
    success: float | None
    reward: float
    before: float  # the episode's Q before the update
    size: float  # step size with which the reward went into Q
    decay: float  # the episode's decay after the update
    at: float
    after: tuple[str, ...] = ()  # steps of the run whose output it read
    caller: str = ""  # who submitted the run or rated it
    drawn: bool = True  # the router or the rules chose the action
    share: float = 1.0  # of its evidence, by its caller: 0 to 1
    weight: float = 0.0  # evidence times share, 0 to 1


Row = tuple[Any, ...]
Vectors = NDArray[np.float32]


class EpisodeStore:
    """The database of a memory. One thread at a time writes; readers take turns.

    Every method raises `StoreError` if the database cannot be used, and `StoreCorrupt` if it is damaged.
    """

    def __init__(self, path: Path, writing: sqlite3.Connection, reading: sqlite3.Connection) -> None:
        self.path = path
        self._writing = writing
        self._reading = reading
        self._turn = Lock()
        self._action_ids: dict[Action, int] = {}
        self.actions: dict[int, Action] = {}  # by the numbers of `action_id`

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open or create the database. Also raises `StoreTooNew`."""
        with sqlite_errors(path):
            writing = _connect(path)
            try:
                writing.execute("PRAGMA journal_mode = WAL")
                writing.execute("PRAGMA synchronous = NORMAL")
                writing.execute("PRAGMA foreign_keys = ON")
                writing.execute(f"PRAGMA cache_size = -{CACHE_BYTES >> 10}")
                writing.execute("PRAGMA wal_autocheckpoint = 0")  # `checkpoint` does it, where nobody waits for it
                writing.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")  # what it needs no more is cut off
                _create(writing, path)
                reading = _connect(path)
                reading.execute("PRAGMA query_only = ON")
                store = cls(path, writing, reading)
                store._load_actions()
            except BaseException:
                writing.close()
                raise
        return store

    @classmethod
    def open_to_read(cls, path: Path) -> Self:
        """Open the database read-only, next to the process that writes it. Also raises `StoreTooNew`."""
        with sqlite_errors(path):
            connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
            try:
                _check_version(connection, path)
                store = cls(path, connection, connection)
                store._load_actions()
            except BaseException:
                connection.close()
                raise
        return store

    def close(self) -> None:
        with self._turn, sqlite_errors(self.path):
            self._reading.close()
            if self._writing is self._reading:
                return
            with suppress(sqlite3.OperationalError):  # another process reads it: the log stays next to the file
                self._writing.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._writing.close()

    def check(self) -> None:
        """Raise `StoreCorrupt` if the file's structure is damaged. Takes about a second per gigabyte."""
        with sqlite_errors(self.path), closing(_connect(self.path)) as connection:
            problems = [str(row[0]) for row in connection.execute("PRAGMA quick_check(3)")]
        if problems != ["ok"]:
            raise StoreCorrupt(self.path, "; ".join(problems))

    def checkpoint(self) -> None:
        # on a connection of its own, so that nobody waits
        with sqlite_errors(self.path), closing(_connect(self.path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    @property
    def log_bytes(self) -> int:
        return _size(self.path.with_name(self.path.name + "-wal"))

    @property
    def disk_bytes(self) -> int:
        """Including the write-ahead log."""
        return _size(self.path) + self.log_bytes

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all writes within the block, or none. A nested transaction belongs to the outer one."""
        if self._writing.in_transaction:
            yield
            return
        with sqlite_errors(self.path):
            self._writing.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._writing.execute("COMMIT")
            except BaseException:
                if self._writing.in_transaction:
                    self._writing.execute("ROLLBACK")
                self._load_actions()
                raise

    # What is written, each within a transaction.

    def action_id(self, action: Action) -> int:
        if (number := self._action_ids.get(action)) is not None:
            return number
        fields = (action.role, action.persona, action.model, action.thinking, action.mode)
        added = self._write(
            "INSERT INTO actions (role, persona, model, thinking, mode) VALUES (?, ?, ?, ?, ?)", *fields
        )
        self._action_ids[action] = added
        self.actions[added] = action
        return added

    def find(self, situation: Situation, action: int) -> int | None:
        """Return the episode of exactly this situation and action, even if it is not committed yet."""
        query = "SELECT id FROM episodes WHERE digest = ? AND action = ?"
        row = self._row(query, digest_of(situation), action)
        return None if row is None else int(row[0])

    def add(self, situation: Situation, action: int, state: EpisodeState) -> int:
        failures = json.dumps(situation.failures)
        described = (situation.task_type, situation.kind, situation.role)
        return self._write(
            f"""
            INSERT INTO episodes ({_STATE}, action, context, digest, created, task_type, kind, role, input_bytes,
                interactive, failures, checksum, text) VALUES ({_marks(21)})
            """,  # noqa: S608 - names of ours
            *_state_row(state),
            action,
            context_of(situation),
            digest_of(situation),
            state.last_seen,
            *described,
            situation.input_bytes,
            int(situation.interactive),
            failures,
            _checksum(*described, failures, situation.text),
            situation.text,
        )

    def change(self, episode: int, state: EpisodeState) -> None:
        statement = f"UPDATE episodes SET ({_STATE}) = ({_marks(9)}) WHERE id = ?"  # noqa: S608 - names of ours
        self._write(statement, *_state_row(state), episode)

    def drop(self, episodes: Iterable[int]) -> None:
        """Delete episodes with their vectors. Their attempts stay noted, without an episode."""
        named = [(episode,) for episode in episodes]
        self._writing.executemany("UPDATE observed SET episode = NULL WHERE episode = ?", named)
        self._writing.executemany("DELETE FROM episodes WHERE id = ?", named)

    def note(self, note: LearnedAttempt) -> None:
        """Store what an attempt taught, in place of what was stored for it before."""
        fields = {name: getattr(note, name) for name in LearnedAttempt.__slots__[1:]}
        fields |= {"action": self.action_id(note.action), "after": json.dumps(note.after), "drawn": int(note.drawn)}
        row = (*note.key, *fields.values())
        self._write(f"INSERT OR REPLACE INTO observed VALUES ({_marks(len(row))})", *row)  # noqa: S608 - only marks

    def move_notes(self, episode: int, into: int, decay: float) -> None:
        """Move the attempts of an episode to another one, and add `decay` to theirs."""
        self._write("UPDATE observed SET episode = ?, decay = decay + ? WHERE episode = ?", into, decay, episode)

    def add_to_total(
        self, task_type: str | None, action: Action, weighted: float, count: int, episodes: int, at: float
    ) -> None:
        """Add to the sum of Q * count, the count and the number of episodes of a task type, role and persona."""
        self._write(
            """
            INSERT INTO totals VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO UPDATE SET weighted = weighted + ?4,
                count = count + ?5, episodes = episodes + ?6, last_seen = max(last_seen, ?7)
            """,
            _NO_TYPE if task_type is None else task_type,
            action.role,
            action.persona,
            weighted,
            count,
            episodes,
            at,
        )

    def contribute(self, more: Contribution, action: int, context: int) -> None:
        """Add to what a caller has taught about an action in one context; negative numbers take back."""
        self._write(
            """
            INSERT INTO contributions VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO UPDATE SET
                outcomes = outcomes + ?4, drawn = drawn + ?5, told = told + ?6, counted = counted + ?7
            """,
            more.caller,
            action,
            context,
            more.outcomes,
            more.drawn,
            more.told,
            more.counted,
        )

    def count_up(self, name: str, by: int = 1) -> None:
        self._write("INSERT INTO counters VALUES (?1, ?2) ON CONFLICT DO UPDATE SET value = value + ?2", name, by)

    def keep_vectors(self, embedder: int, ids: Sequence[int], vectors: Vectors) -> None:
        """Keep vectors of shape (episodes, dimensions) in half precision, in place of earlier ones.

        A cosine is then accurate to about 0.0005.
        """
        rows = [(episode, embedder, row.tobytes()) for episode, row in zip(ids, vectors.astype("<f2"), strict=True)]
        self._writing.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", rows)

    def drop_vectors(self, ids: Iterable[int]) -> None:
        self._writing.executemany("DELETE FROM vectors WHERE episode = ?", [(episode,) for episode in ids])

    def embedder_id(self, name: str, dimensions: int) -> int:
        """Return the number of an embedder, adding it if it is new. Other dimensions make another embedder."""
        full = f"{name}/{dimensions}"
        if row := self._row("SELECT id FROM embedders WHERE name = ?", full):
            return int(row[0])
        return self._write("INSERT INTO embedders (name, dimensions) VALUES (?, ?)", full, dimensions)

    def keep_blob(self, name: str, body: bytes) -> None:
        self._write("INSERT OR REPLACE INTO blobs VALUES (?, ?, ?)", name, zlib.crc32(body), body)

    # What is read by the writer, also what is not committed yet.

    def noted(self, key: Key) -> LearnedAttempt | None:
        row = self._row("SELECT * FROM observed WHERE run = ? AND step = ? AND attempt = ?", *key)
        return None if row is None else self._note(row)

    def numbers(self, episode: int) -> tuple[float, int, float, float, float] | None:
        """Return Q, count, last seen, decay and weight of an episode, or None."""
        row = self._row("SELECT q, count, last_seen, decay, weight FROM episodes WHERE id = ?", episode)
        return None if row is None else (row[0], row[1], row[2], row[3], row[4])

    def evidence_of(self, caller: str, action: int, context: int) -> tuple[float, float]:
        """Return the summed evidence weight of a caller's outcomes: for this action in this context, and in all."""
        query = """
            SELECT coalesce(sum(told) FILTER (WHERE action = ? AND context = ?), 0), coalesce(sum(told), 0)
            FROM contributions WHERE caller = ?
        """
        by_action, by_caller = self._row(query, action, context, caller)
        return by_action, by_caller

    def state(self, episode: int) -> EpisodeState | None:
        query = "SELECT q, count, last_seen, decay, weight, propensity, outcome, reward FROM episodes WHERE id = ?"
        row = self._row(query, episode)
        if row is None:
            return None
        q, count, last_seen, decay, weight, propensity, outcome, reward = row
        return EpisodeState(q, count, last_seen, decay, weight, propensity, *self._decoded(episode, outcome, reward))

    # What is read by anyone.

    def episodes(self, ids: Iterable[int]) -> list[Episode]:
        """Return episodes in the order of `ids`, without those that do not exist."""
        numbers = list(ids)
        rows = self._rows(_EPISODES, json.dumps(numbers))
        episodes = {row[0]: self._episode(row) for row in rows}
        return [episodes[number] for number in numbers if number in episodes]

    def numbers_after(self, after: int, limit: int) -> list[int]:
        query = "SELECT id FROM episodes WHERE id > ? ORDER BY id LIMIT ?"
        return [int(row[0]) for row in self._rows(query, after, limit)]

    def columns(self) -> Iterator[list[Row]]:
        """Yield id, action, context, q, count, weight and last seen of all episodes, in chunks, by id."""
        query = "SELECT id, action, context, q, count, weight, last_seen FROM episodes WHERE id > ? ORDER BY id LIMIT ?"
        yield from self._chunks(query)

    def vectors(
        self, embedder: int, dimensions: int, after: int = 0
    ) -> Iterator[tuple[list[int], NDArray[np.float32]]]:
        """Yield ids and vectors of one embedder in chunks, by id; shape (ids, dimensions).

        Skips vectors of a wrong width or with values that are not finite. Has a connection of its own.
        """
        query = "SELECT episode, vector FROM vectors WHERE episode > ? AND embedder = ? ORDER BY episode LIMIT ?"
        with sqlite_errors(self.path), closing(_connect(self.path)) as connection:
            while rows := connection.execute(query, (after, embedder, CHUNK)).fetchall():
                after = rows[-1][0]
                whole = [row for row in rows if len(row[1]) == 2 * dimensions]
                data = np.frombuffer(b"".join(row[1] for row in whole), dtype="<f2").reshape(-1, dimensions)
                finite = np.isfinite(data).all(axis=1)
                yield [row[0] for row, good in zip(whole, finite, strict=True) if good], data[finite].astype(np.float32)

    def broken_vectors(self, embedder: int, dimensions: int) -> list[int]:
        """Return the episodes whose vector does not have the width of its embedder."""
        query = "SELECT episode FROM vectors WHERE embedder = ? AND length(vector) != ?"
        return [row[0] for row in self._rows(query, embedder, 2 * dimensions)]

    def lacking(self, embedder: int, after: int, limit: int) -> list[tuple[int, str]]:
        """Return number and text of the first episodes above `after` without a vector of this embedder."""
        query = """
            SELECT e.id, e.text FROM episodes AS e LEFT JOIN vectors AS v ON v.episode = e.id
            WHERE e.id > ? AND v.embedder IS NOT ? ORDER BY e.id LIMIT ?
        """
        return [(int(row[0]), str(row[1])) for row in self._rows(query, after, embedder, limit)]

    def count_lacking(self, embedder: int) -> int:
        query = """
            SELECT count(*) FROM episodes AS e LEFT JOIN vectors AS v ON v.episode = e.id WHERE v.embedder IS NOT ?
        """
        return int(self._rows(query, embedder)[0][0])

    def useless(self, count: int) -> list[int]:
        """Return the first `count` episodes to drop: those seen once, then the others, oldest first."""
        return [row[0] for row in self._rows("SELECT id FROM episodes ORDER BY count > 1, last_seen LIMIT ?", count)]

    def values(self) -> list[Value]:
        rows = self._rows("SELECT * FROM totals WHERE count > 0")
        return [
            Value(None if kind == _NO_TYPE else kind, role, persona, weighted / count, count, episodes, last_seen)
            for kind, role, persona, weighted, count, episodes, last_seen in rows
        ]

    def counters(self) -> dict[str, int]:
        return dict(self._rows("SELECT name, value FROM counters"))

    def contributions(self) -> list[Contribution]:
        """Return what each caller has taught, largest first."""
        query = """
            SELECT caller, sum(outcomes), sum(drawn), sum(told), sum(counted) FROM contributions
            GROUP BY caller HAVING sum(told) > 0 ORDER BY 5 DESC, 1
        """
        names = ("caller", "outcomes", "drawn", "told", "counted")
        return [Contribution(**dict(zip(names, row, strict=True))) for row in self._rows(query)]

    def notes(self) -> Iterator[LearnedAttempt]:
        """Yield what every attempt taught, by run, step and number. Nothing else may read meanwhile."""
        with sqlite_errors(self.path):
            for row in self._reading.execute("SELECT * FROM observed ORDER BY run, step, attempt"):
                yield self._note(row)

    def notes_of(self, keys: Iterable[Key]) -> dict[Key, LearnedAttempt]:
        """Return what these attempts taught, without those that nothing was learned from yet."""
        query = """
            SELECT observed.* FROM json_each(?) AS wanted JOIN observed ON observed.run = wanted.value ->> 0
                AND observed.step = wanted.value ->> 1 AND observed.attempt = wanted.value ->> 2
        """
        notes = [self._note(row) for row in self._rows(query, json.dumps(list(keys)))]
        return {note.key: note for note in notes}

    def fingerprint(self, episode: int) -> int | None:
        """Return a number that distinguishes episodes which had the same number at different times."""
        rows = self._rows("SELECT digest FROM episodes WHERE id = ?", episode)
        return int(rows[0][0]) if rows else None

    def last_id(self) -> int:
        """Return the highest number of an episode; 0 if there is none."""
        return int(self._rows("SELECT max(id) FROM episodes")[0][0] or 0)

    def blob(self, name: str) -> bytes | None:
        """Return the bytes under a name, or None. Raises `StoreCorrupt` if they are damaged."""
        rows = self._rows("SELECT checksum, body FROM blobs WHERE name = ?", name)
        if not rows:
            return None
        if zlib.crc32(rows[0][1]) != rows[0][0]:
            raise StoreCorrupt(self.path, f"what is kept as {name!r} is not what was written")
        return bytes(rows[0][1])

    def _chunks(self, query: str) -> Iterator[list[Row]]:
        after = 0
        while rows := self._rows(query, after, 16 * CHUNK):
            yield rows
            after = rows[-1][0]

    def _rows(self, query: str, *parameters: object) -> list[Any]:
        with sqlite_errors(self.path), self._turn:
            return self._reading.execute(query, parameters).fetchall()

    def _row(self, query: str, *parameters: object) -> Any:
        with sqlite_errors(self.path):
            return self._writing.execute(query, parameters).fetchone()

    def _write(self, statement: str, *parameters: object) -> int:
        with sqlite_errors(self.path):
            return self._writing.execute(statement, parameters).lastrowid or 0

    def _load_actions(self) -> None:
        rows = self._writing.execute("SELECT id, role, persona, model, thinking, mode FROM actions").fetchall()
        self.actions = {row[0]: Action(*row[1:]) for row in rows}
        self._action_ids = {action: number for number, action in self.actions.items()}

    def _note(self, row: Row) -> LearnedAttempt:
        run, step, attempt, *columns = row
        fields = dict(zip(LearnedAttempt.__slots__[1:], columns, strict=True))
        fields |= {"action": self.actions[fields["action"]], "after": tuple(json.loads(fields["after"]))}
        return LearnedAttempt(**{**fields, "key": (run, step, attempt), "drawn": bool(fields["drawn"])})

    def _episode(self, row: Row) -> Episode:
        number, q, count, last_seen, decay, created, propensity, task_type, kind, role = row[:10]
        input_bytes, interactive, failures, outcome, reward, state_checksum, checksum, text, weight = row[10:19]
        if (checksum, state_checksum) != (
            _checksum(task_type, kind, role, failures, text),
            _state_checksum(q, count, last_seen, decay, outcome, reward),
        ):
            raise StoreCorrupt(self.path, f"episode {number} is not what was written")
        result, earned = self._decoded(number, outcome, reward)
        return Episode(
            id=number,
            action=Action(*row[19:]),
            q=q,
            count=count,
            weight=weight,
            last_seen=last_seen,
            situation=Situation(
                task_type=task_type,
                kind=kind,
                role=role,
                text=text,
                input_bytes=input_bytes,
                failures=tuple(json.loads(failures)),
                interactive=bool(interactive),
            ),
            created=created,
            propensity=propensity,
            outcome=result,
            reward=earned,
        )

    def _decoded(self, episode: int, outcome: str, reward: str) -> tuple[Outcome, Reward]:
        try:
            return Outcome(**json.loads(outcome)), Reward(**json.loads(reward))
        except (ValueError, TypeError) as error:
            raise StoreCorrupt(self.path, f"the outcome of episode {episode} is not what was written") from error


def digest_of(situation: Situation) -> int:
    """Return 64 bits that identify a situation's text and context."""
    return _hashed(situation.task_type, situation.kind, situation.role, situation.failures, situation.text)


def context_of(situation: Situation) -> int:
    """Return 64 bits that are equal for situations which are the same if their texts are similar."""
    return _hashed(situation.task_type, situation.kind, situation.role, situation.failures)


def _marks(count: int) -> str:
    return ", ".join("?" * count)


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA mmap_size = 0")
    return connection


def _create(connection: sqlite3.Connection, path: Path) -> None:
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    if tables and _check_version(connection, path) == VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    for statement in (_FROM_VERSION_1 if tables else _SCHEMA).split(";\n"):
        connection.execute(statement)
    connection.execute("COMMIT")


def _check_version(connection: sqlite3.Connection, path: Path) -> int:
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if not {"schema_version", "episodes"} <= tables:
        raise StoreError(path, "is a database, but not a memory")
    version = int(connection.execute("SELECT max(version) FROM schema_version").fetchone()[0] or 0)
    if version > VERSION:
        raise StoreTooNew(path, version, VERSION)
    return version


def _state_row(state: EpisodeState) -> Row:
    # the columns of _STATE
    fields = {name: getattr(state.outcome, name) for name in Outcome.__slots__}  # `asdict` takes ten times as long
    outcome, reward = json.dumps(fields), json.dumps({"total": state.reward.total, "parts": state.reward.parts})
    numbers = (state.q, state.count, state.last_seen, state.decay)
    checksum = _state_checksum(*numbers, outcome, reward)
    return (*numbers, state.weight, state.propensity, outcome, reward, checksum)


def _hashed(*parts: object) -> int:
    return int.from_bytes(
        blake2b(repr(parts).encode(errors="surrogatepass"), digest_size=8).digest(), "big", signed=True
    )


def _checksum(*parts: str | None) -> int:
    return zlib.crc32("\0".join(part or "" for part in parts).encode(errors="surrogatepass"))


def _state_checksum(q: float, count: int, last_seen: float, decay: float, outcome: str, reward: str) -> int:
    return zlib.crc32((outcome + reward).encode(), zlib.crc32(struct.pack("<dqdd", q, count, last_seen, decay)))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


@contextmanager
def sqlite_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into those of the memory, about the file `path`."""
    try:
        yield
    except sqlite3.ProgrammingError as error:
        closed = "closed" in str(error)
        reason = "the memory is closed" if closed else f"the memory's database cannot be used so: {error}"
        raise StoreError(path, reason) from error
    except sqlite3.OperationalError as error:
        raise StoreError(path, f"the memory's database cannot be used: {error}") from error
    except sqlite3.DatabaseError as error:
        raise StoreCorrupt(path, str(error)) from error
