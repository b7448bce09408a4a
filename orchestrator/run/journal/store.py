"""Store encoded events in SQLite. Only this file and its subclasses of `Store` use SQLite.

Write-ahead logging lets others read while events are written; `synchronous=FULL` makes each commit wait for the disk.
"""

import json
import os
import sqlite3
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from threading import Lock
from typing import Any, Self

from orchestrator.run.journal.chats import MOST_CHATS, ChatEvent, encode_chat_event
from orchestrator.run.journal.errors import (
    DISK_FULL_ERRNOS,
    DiskFull,
    JournalClosed,
    JournalCorrupt,
    JournalError,
    JournalTooNew,
)
from orchestrator.run.journal.migrations import MIGRATIONS, VERSION
from orchestrator.run.journal.outcomes import AttemptOutcome, encode_outcome
from orchestrator.task.events import Event, RunAccepted, RunFinished, encode_event
from orchestrator.task.modes import Mode, RunStatus
from orchestrator.task.personas import MadePersona, encode_persona
from orchestrator.task.prediction import EarlierRun, MeasuredGeneration
from orchestrator.task.reuse import Reuse

TITLE_LENGTH = 200
# After this many events of chats, the chats beyond `MOST_CHATS` are removed.
CHATS_BETWEEN_PRUNINGS = 1000
# Another connection of the owner may be rewriting the whole database.
BUSY_SECONDS = 600.0
# More than a failed write of SQLite leaves of a quota.
PROBE_BYTES = 1 << 16

# Not after `steps_planned`: the steps of a task are known when it is accepted, and it may wait for long.
_STATUS_AFTER: dict[str, RunStatus] = {
    "run_begun": "running",
    "planning_started": "planning",
    "step_expanded": "running",
    "attempt_started": "running",
}


@dataclass(frozen=True, slots=True)
class GenerationRow:
    number: int
    is_final: bool  # its attempt has ended; until then, what it took in addition is unknown
    generation: MeasuredGeneration


@dataclass(frozen=True, slots=True)
class RunRow:
    """One row of the table of runs. Times are in seconds since the epoch; `title` is the request or the objective."""

    run: str
    mode: Mode
    title: str
    status: RunStatus
    accepted: float
    finished: float | None
    error: str | None
    owner: str  # who submitted it, see `RunAccepted.owner`
    doubt: str = ""  # why its answer is doubtful, see `RunFinished.doubt`

    def to_json(self) -> dict[str, Any]:
        """Return the run as commands and the API list it."""
        return {
            "run_id": self.run,
            "status": self.status,
            "mode": self.mode,
            "request": self.title,
            "accepted_at": self.accepted,
            "finished_at": self.finished,
            "error": self.error,
            "doubt": self.doubt,
            "owner": self.owner,
        }


@dataclass(frozen=True, slots=True)
class EventRow:
    """One encoded event, with the values of the database's columns."""

    run: str
    at: float
    kind: str
    step: str | None
    attempt: int | None
    body: str
    opens: RunRow | None
    closes: RunFinished | None

    @property
    def checksum(self) -> int:
        return checksum_of(self.run.encode(), self.body.encode())


@dataclass(frozen=True, slots=True)
class PersonaUse:
    """The outcomes of attempts by one role with one persona, of the runs that are kept."""

    persona: str
    role: str
    attempts: int
    succeeded: int
    failed: int
    last: float  # the start of the last one, in seconds since the epoch


@dataclass(frozen=True, slots=True)
class ChatRow:
    """One encoded event of a chat, with the values of the database's columns."""

    chat: str
    at: float
    kind: str
    body: str

    @property
    def checksum(self) -> int:
        return checksum_of(self.chat.encode(), self.body.encode())


JournalRow = EventRow | ChatRow


def event_row(run: str, event: Event) -> EventRow:
    return EventRow(
        run=run,
        at=event.at,
        kind=event.kind,
        step=getattr(event, "step", None),
        attempt=getattr(event, "number", None),
        body=encode_event(event),
        opens=_run_row(run, event) if isinstance(event, RunAccepted) else None,
        closes=event if isinstance(event, RunFinished) else None,
    )


def chat_row(event: ChatEvent) -> ChatRow:
    return ChatRow(event.chat, event.at, event.kind, encode_chat_event(event))


def _run_row(run: str, event: RunAccepted) -> RunRow:
    text = event.request or (event.task.objective if event.task else "")
    return RunRow(run, event.mode, " ".join(text.split())[:TITLE_LENGTH], "queued", event.at, None, None, event.owner)


class RefusedEvents(Exception):
    """A constraint of the database refuses these events: the run is unknown, or was accepted before."""


class Store:
    """One connection to the database. The owner of the state folder opens it to write, all others to read.

    Any number of threads may read.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        # Readers take turns: a statement that starts while another one runs on the same connection does not see what
        # was committed since.
        self._reading = Lock()
        self.path = path

    @classmethod
    def open_to_write(cls, path: Path, *, durable: bool = True) -> Self:
        """Open or create the database and migrate its schema. Raises `JournalError`.

        With `durable` false no commit waits for the disk.
        """
        with sqlite_errors(path):
            store = cls(_connect(path), path)
        try:
            with sqlite_errors(path):
                store._connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # has to come first, for a new database
                store._connection.execute("PRAGMA journal_mode = WAL")
                store._connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'OFF'}")
                store._connection.execute("PRAGMA foreign_keys = ON")
                store._migrate()
        except JournalError:
            store.close()
            raise
        return store

    @classmethod
    def open_to_read(cls, path: Path) -> Self:
        """Open the database to read what is committed; it is read as empty if there is none. Raises `JournalError`."""
        with sqlite_errors(path):
            store = cls(_connect(path if path.exists() else None), path)
        try:
            with sqlite_errors(path):
                if store._version() < VERSION:  # 0: not there, or its first owner is just creating it
                    # One of an earlier version, for example a backup, is migrated in memory.
                    store = store._brought_up_to_date()
                store._connection.execute("PRAGMA query_only = ON")
        except JournalError:
            store.close()
            raise
        return store

    def close(self) -> None:
        # Once nobody reads: SQLite would free what a running statement still uses.
        with self._reading:
            self._connection.close()

    def append(self, groups: Iterable[Sequence[JournalRow]]) -> list[RefusedEvents | None]:
        """Commit groups of rows in one transaction, and return for each group whether it was refused.

        A refused group leaves nothing behind, and the others are not affected. Raises `JournalError` if nothing at all
        could be committed.
        """
        with sqlite_errors(self.path), self._transaction():
            return [self._append_group(rows) for rows in groups]

    def events(self, run: str, after: int = 0, skip: int = 0, limit: int | None = None) -> list[tuple[int, str]]:
        """Return numbers and bodies in order. Raises `JournalCorrupt`."""
        rows = self._rows(
            """
            SELECT number, CAST(body AS BLOB), checksum FROM events WHERE run = ? AND number > ?
            ORDER BY number LIMIT ? OFFSET ?
            """,
            run,
            after,
            -1 if limit is None else limit,
            skip,
        )
        return [self._whole(run, *row) for row in rows]

    def first_event(self, run: str) -> tuple[int, str] | None:
        """Raises `JournalCorrupt`."""
        query = "SELECT number, CAST(body AS BLOB), checksum FROM events WHERE run = ? ORDER BY number LIMIT 1"
        return next((self._whole(run, *row) for row in self._rows(query, run)), None)

    def newest_choices(self, limit: int) -> list[tuple[str, int, str]]:
        """Return run, number and body of the latest events that are choices of a router, oldest first.

        Raises `JournalCorrupt`.
        """
        query = """
            SELECT run, number, CAST(body AS BLOB), checksum FROM (
                SELECT * FROM (SELECT * FROM events WHERE kind = 'attempt_started' ORDER BY number DESC LIMIT ?1)
                UNION ALL
                SELECT * FROM (SELECT * FROM events WHERE kind = 'run_accepted' ORDER BY number DESC LIMIT ?1)
                WHERE body ->> '$.mode_choice' IS NOT NULL
            ) ORDER BY number DESC LIMIT ?1
        """
        return [(run, *self._whole(run, *row)) for run, *row in reversed(self._rows(query, limit))]

    def runs(
        self,
        limit: int | None = None,
        status: RunStatus | None = None,
        before: str | None = None,
        owner: str | None = None,
        search: str | None = None,
    ) -> list[RunRow]:
        rows = self._rows(
            """
            SELECT * FROM runs WHERE (?1 IS NULL OR status = ?1) AND (?4 IS NULL OR owner = ?4) AND
                (?5 IS NULL OR instr(lower(title), lower(?5)) OR instr(lower(run), lower(?5))) AND
                (?2 IS NULL OR (accepted, rowid) < (SELECT accepted, rowid FROM runs WHERE run = ?2))
            ORDER BY accepted DESC, rowid DESC LIMIT ?3
            """,
            status,
            before,
            -1 if limit is None else limit,
            owner,
            search,
        )
        return [RunRow(*row) for row in rows]

    def run_with_key(self, key: str, owner: str) -> str | None:
        query = """
            SELECT run FROM events WHERE kind = 'run_accepted' AND body ->> '$.key' = ?
                AND coalesce(body ->> '$.owner', '') = ?
        """
        return next((run for (run,) in self._rows(query, key, owner)), None)

    def run_of_task(self, task: str, owner: str | None = None) -> str | None:
        query = """
            SELECT run FROM events WHERE kind = 'run_accepted' AND body ->> '$.task.task_id' = ?1
                AND (?2 IS NULL OR body ->> '$.owner' = ?2)
            ORDER BY number DESC LIMIT 1
        """
        return next((run for (run,) in self._rows(query, task, owner)), None)

    def delete(self, *runs: str, outcomes: Iterable[AttemptOutcome] = ()) -> None:
        """Delete runs and their events, and store `outcomes` of their attempts. Raises `JournalError`."""
        named = [(run,) for run in runs]
        rows = [(outcome.run, outcome.step, outcome.attempt, encode_outcome(outcome)) for outcome in outcomes]
        with sqlite_errors(self.path), self._transaction():
            self._connection.executemany("INSERT OR REPLACE INTO outcomes VALUES (?, ?, ?, ?)", rows)
            self._connection.executemany("DELETE FROM events WHERE run = ?", named)
            self._connection.executemany("DELETE FROM runs WHERE run = ?", named)

    def outcomes(self) -> list[tuple[str, str]]:
        """Return run and body of the outcomes of removed runs, sorted by run."""
        return self._rows("SELECT run, body FROM outcomes ORDER BY run, rowid")

    def count_outcomes(self) -> int:
        return int(self._rows("SELECT count(*) FROM outcomes")[0][0])

    def ended_after(self, number: int, limit: int) -> list[tuple[int, str, str]]:
        """Return number, run and kind of the first `limit` events after `number` that end a run or rate one."""
        query = """
            SELECT number, run, kind FROM (
                SELECT * FROM (
                    SELECT number, run, kind FROM events
                    WHERE kind = 'run_finished' AND number > ?1 ORDER BY number LIMIT ?2
                )
                UNION ALL SELECT * FROM (
                    SELECT number, run, kind FROM events
                    WHERE kind = 'rating_given' AND number > ?1 ORDER BY number LIMIT ?2
                )
            ) ORDER BY number LIMIT ?2
        """
        return self._rows(query, number, limit)

    def last_number(self) -> int:
        return int(self._rows("SELECT max(number) FROM events")[0][0] or 0)

    def position(self) -> tuple[int, int]:
        """Return the numbers of the latest events of a run and of a chat, also if these are gone. They only grow."""
        numbers = dict(self._rows("SELECT name, seq FROM sqlite_sequence"))
        return numbers.get("events", 0), numbers.get("chat_events", 0)

    def personas(self) -> list[tuple[str, str]]:
        return self._rows("SELECT name, body FROM personas ORDER BY rowid")

    def keep_personas(self, *personas: MadePersona) -> None:
        """Store personas, replacing those with the same names. Raises `JournalError`."""
        rows = [(persona.name, encode_persona(persona)) for persona in personas]
        with sqlite_errors(self.path), self._transaction():
            self._connection.executemany(
                "INSERT INTO personas VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET body = excluded.body", rows
            )

    def persona_uses(self) -> list[PersonaUse]:
        rows = self._rows(
            """
            SELECT started.body ->> '$.persona', started.body ->> '$.role', count(*),
                   count(*) FILTER (WHERE ended.kind = 'attempt_succeeded'),
                   count(*) FILTER (WHERE ended.kind = 'attempt_failed'),
                   max(started.at)
            FROM events AS started
            LEFT JOIN events AS ended ON ended.run = started.run AND ended.step = started.step
                AND ended.attempt = started.attempt AND ended.kind IN ('attempt_succeeded', 'attempt_failed')
            WHERE started.kind = 'attempt_started' AND started.body ->> '$.persona' IS NOT NULL
            GROUP BY 1, 2 ORDER BY 1, 2
            """
        )
        return [PersonaUse(*row) for row in rows]

    def chat_events(self, after: int, limit: int | None) -> list[tuple[int, str, str]]:
        """Return number, chat and body of events, in order. Raises `JournalCorrupt`."""
        query = """
            SELECT chat, number, CAST(body AS BLOB), checksum FROM chat_events WHERE number > ? ORDER BY number LIMIT ?
        """
        return self._whole_chat_events(query, after, -1 if limit is None else limit)

    def newest_chats(self, limit: int, owner: str | None = None) -> list[tuple[int, str, str]]:
        """Return number, chat and body of all events of the newest chats, in order. Raises `JournalCorrupt`."""
        if owner is None:
            query = """
                SELECT chat, number, CAST(body AS BLOB), checksum FROM chat_events
                WHERE chat IN (SELECT chat FROM chat_events WHERE kind = 'chat_routed' ORDER BY number DESC LIMIT ?)
                ORDER BY number
            """
            return self._whole_chat_events(query, limit)
        query = """
            SELECT chat, number, CAST(body AS BLOB), checksum FROM chat_events
            WHERE chat IN (
                SELECT chat FROM chat_events WHERE kind = 'chat_routed' AND body ->> '$.owner' = ?
                ORDER BY number DESC LIMIT ?
            )
            ORDER BY number
        """
        return self._whole_chat_events(query, owner, limit)

    def chat(self, chat: str) -> list[tuple[int, str, str]]:
        """Return number, chat and body of events, in order. Raises `JournalCorrupt`."""
        query = "SELECT chat, number, CAST(body AS BLOB), checksum FROM chat_events WHERE chat = ? ORDER BY number"
        return self._whole_chat_events(query, chat)

    def surplus_chats(self, before: float | None, beyond: int | None) -> list[str]:
        """Return the chats that started `before` a time or are not among the newest `beyond`; None: no limit."""
        query = """
            SELECT chat FROM chat_events WHERE kind = 'chat_routed' AND at < ?
            UNION
            SELECT chat FROM (
                SELECT chat FROM chat_events WHERE kind = 'chat_routed' ORDER BY number DESC LIMIT -1 OFFSET ?
            )
        """
        no_time, no_number = -1.0, 1 << 62
        rows = self._rows(query, no_time if before is None else before, no_number if beyond is None else beyond)
        return [chat for (chat,) in rows]

    def copy_to(self, path: Path) -> None:
        """Write what is committed now into a new database at `path`. Raises `JournalError`."""
        with sqlite_errors(path), closing(sqlite3.connect(path)) as target:
            self._connection.backup(target)

    def run(self, run: str) -> RunRow | None:
        return next((RunRow(*row) for row in self._rows("SELECT * FROM runs WHERE run = ?", run)), None)

    def queue_unfinished(self) -> None:
        """Set the status of all runs that have not ended to queued. Raises `JournalError`."""
        with sqlite_errors(self.path), self._transaction():
            self._connection.execute(
                "UPDATE runs SET status = 'queued' WHERE status NOT IN ('done', 'failed', 'cancelled', 'queued')"
            )

    def unfinished(self) -> list[RunRow]:
        ended = "SELECT * FROM runs WHERE status NOT IN ('done', 'failed', 'cancelled') ORDER BY accepted, rowid"
        return [RunRow(*row) for row in self._rows(ended)]

    def generations_after(self, number: int, also: Collection[int], limit: int) -> list[GenerationRow]:
        # Generations of removed runs are not among them, since their events are gone.
        rows = self._rows(
            """
            SELECT ended.number,
                   done.at IS NOT NULL OR runs.finished IS NOT NULL OR EXISTS (
                       SELECT 1 FROM events AS failed WHERE failed.run = ended.run AND failed.step = ended.step
                       AND failed.attempt = ended.attempt AND failed.kind IN ('attempt_failed', 'attempt_cancelled')
                   ),
                   started.body ->> '$.role', started.body ->> '$.model',
                   ended.body ->> '$.usage.prompt_tokens', ended.body ->> '$.usage.cached_tokens',
                   ended.body ->> '$.usage.output_tokens', ended.body ->> '$.usage.prefill_seconds',
                   ended.body ->> '$.usage.decode_seconds',
                   ifnull(ended.body ->> '$.usage.alone_seconds', 0.0),
                   ifnull(ended.body ->> '$.usage.packed_seconds', 0.0),
                   ended.run, ifnull(started.body ->> '$.step_kind', ''),
                   (SELECT CASE WHEN count(*) = count(value ->> '$.bytes') THEN ifnull(sum(value ->> '$.bytes'), 0) END
                    FROM json_each(started.body, '$.inputs')),
                   ifnull(max(0.0, ifnull(done.at, ended.at) - started.at
                       - ifnull(ended.body ->> '$.usage.queued_seconds', 0.0)
                       - (ended.body ->> '$.usage.prefill_seconds') - (ended.body ->> '$.usage.decode_seconds')), 0.0)
            FROM events AS ended
            JOIN runs ON runs.run = ended.run
            JOIN events AS started ON started.run = ended.run AND started.step = ended.step
                AND started.attempt = ended.attempt AND started.kind = 'attempt_started'
            LEFT JOIN events AS done ON done.run = ended.run AND done.step = ended.step
                AND done.attempt = ended.attempt AND done.kind = 'attempt_succeeded'
            WHERE ended.number IN (
                SELECT value FROM json_each(?)
                UNION
                SELECT number FROM (
                    SELECT number FROM events WHERE kind = 'attempt_generated' AND number > ?
                    ORDER BY number DESC LIMIT ?
                )
            )
            ORDER BY ended.number DESC
            """,
            json.dumps([*also]),
            number,
            limit,
        )
        return [GenerationRow(at, bool(settled), MeasuredGeneration(*row)) for at, settled, *row in rows]

    def reuse(self, limit: int) -> Reuse:
        rows = self._rows(
            """
            WITH latest AS (
                SELECT body -> '$.usage.reuse' AS reuse FROM events
                WHERE kind = 'attempt_generated' ORDER BY number DESC LIMIT ?
            )
            SELECT NULL, ifnull(sum(reuse ->> '$.expected_tokens'), 0) FROM latest
            UNION ALL
            SELECT key, sum(value) FROM latest, json_each(reuse, '$.lost_tokens') GROUP BY key
            """,
            limit,
        )
        (_, expected), *lost = rows
        return Reuse(expected, dict(lost))

    def earlier_runs(self, shape: str, limit: int) -> list[EarlierRun]:
        # The plus keeps SQLite from looking for the kind in the events of all runs.
        rows = self._rows(
            """
            SELECT accepted.body ->> '$.plan_key.content', accepted.body ->> '$.plan_key.predicted_seconds',
                   (SELECT max(at) FROM events WHERE run = accepted.run AND +kind = 'attempt_succeeded')
                   - (SELECT min(at) FROM events WHERE run = accepted.run AND +kind = 'attempt_started') AS seconds
            FROM events AS accepted JOIN runs USING (run)
            WHERE accepted.kind = 'run_accepted' AND accepted.body ->> '$.plan_key.shape' = ?
                AND runs.status = 'done' AND seconds IS NOT NULL
            ORDER BY accepted.number DESC LIMIT ?
            """,
            shape,
            limit,
        )
        return [EarlierRun(*row) for row in rows]

    def last_time(self) -> float:
        # Events are written roughly in the order of time, so the latest is among those written last.
        query = """
            SELECT max(at) FROM (
                SELECT * FROM (SELECT at FROM events ORDER BY number DESC LIMIT 10000)
                UNION ALL SELECT * FROM (SELECT at FROM chat_events ORDER BY number DESC LIMIT 10000)
            )
        """
        return float(self._rows(query)[0][0] or 0.0)

    def _whole(self, run: str, number: int, body: bytes, checksum: int | None) -> tuple[int, str]:
        # Early versions wrote no checksums.
        if (text := _checked(run, body, checksum)) is None:
            raise JournalCorrupt(self.path, f"event {number} of run {run} is not what was written")
        return number, text

    def _whole_chat_events(self, sql: str, *parameters: object) -> list[tuple[int, str, str]]:
        events = []
        for chat, number, body, checksum in self._rows(sql, *parameters):
            if (text := _checked(chat, body, checksum)) is None:
                raise JournalCorrupt(self.path, f"event {number} of chat {chat} is not what was written")
            events.append((number, chat, text))
        return events

    def _rows(self, sql: str, *parameters: object) -> list[Any]:
        with sqlite_errors(self.path), self._reading:
            return self._connection.execute(sql, parameters).fetchall()

    def _append_group(self, rows: Sequence[JournalRow]) -> RefusedEvents | None:
        self._connection.execute("SAVEPOINT one_group")
        try:
            for row in rows:
                if isinstance(row, ChatRow):
                    self._append_chat_row(row)
                else:
                    self._append_row(row)
        except sqlite3.IntegrityError as error:
            self._connection.execute("ROLLBACK TO one_group")
            return RefusedEvents(str(error))
        else:
            return None
        finally:
            if self._connection.in_transaction:  # a full disk ends the whole of it
                self._connection.execute("RELEASE one_group")

    def _append_row(self, row: EventRow) -> None:
        execute = self._connection.execute
        if opens := row.opens:
            execute(
                "INSERT INTO runs (run, mode, title, status, accepted, owner) VALUES (?, ?, ?, ?, ?, ?)",
                (opens.run, opens.mode, opens.title, opens.status, opens.accepted, opens.owner),
            )
        execute(
            "INSERT INTO events (run, at, kind, step, attempt, body, checksum) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (row.run, row.at, row.kind, row.step, row.attempt, row.body, row.checksum),
        )
        if closes := row.closes:
            execute(
                "UPDATE runs SET status = ?, finished = ?, error = ?, doubt = ? WHERE run = ?",
                (closes.status, closes.at, closes.error, closes.doubt, row.run),
            )
        elif status := _STATUS_AFTER.get(row.kind):
            execute("UPDATE runs SET status = ? WHERE run = ? AND status != ?", (status, row.run, status))

    def _append_chat_row(self, row: ChatRow) -> None:
        number = self._connection.execute(
            "INSERT INTO chat_events (chat, at, kind, body, checksum) VALUES (?, ?, ?, ?, ?)",
            (row.chat, row.at, row.kind, row.body, row.checksum),
        ).lastrowid
        if number is not None and number % CHATS_BETWEEN_PRUNINGS == 0:
            self._connection.execute(
                """
                DELETE FROM chat_events WHERE chat IN (
                    SELECT chat FROM chat_events WHERE kind = 'chat_routed' ORDER BY number DESC LIMIT -1 OFFSET ?
                )
                """,
                (MOST_CHATS,),
            )

    def _migrate(self) -> None:
        with self._transaction():
            version = self._version()
            self._connection.execute("CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL) STRICT")
            for number in range(version, VERSION):
                # Not executescript: it would commit the transaction that makes a migration happen whole or not at all.
                for statement in _statements(MIGRATIONS[number]):
                    self._connection.execute(statement)
                self._connection.execute("INSERT INTO schema_version VALUES (?)", (number + 1,))

    def _brought_up_to_date(self) -> Self:
        copy = type(self)(_connect(None), self.path)
        with closing(self._connection) as earlier:
            earlier.backup(copy._connection)
        copy._migrate()
        return copy

    def _version(self) -> int:
        """0 for an empty database. Raises `JournalTooNew`, `JournalError`."""
        tables = {name for (name,) in self._connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        if "schema_version" not in tables:
            if tables:
                raise JournalError(self.path, "is a database, but not a journal")
            return 0
        version = int(self._connection.execute("SELECT max(version) FROM schema_version").fetchone()[0] or 0)
        if version > VERSION:
            raise JournalTooNew(self.path, version, VERSION)
        return version

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")


def _connect(path: Path | None) -> sqlite3.Connection:
    # Only the writer thread uses the owner's connection, and one thread at a time that of a reader.
    name = path or ":memory:"
    connection = sqlite3.connect(name, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    connection.create_function("checksum_of", 2, checksum_of, deterministic=True)
    return connection


def checksum_of(run: bytes, body: bytes) -> int:
    """Return the CRC-32 of an event's run and body, in UTF-8."""
    return zlib.crc32(body, zlib.crc32(run))


def _checked(stream: str, body: bytes, checksum: int | None) -> str | None:
    # None if the checksum is wrong.
    try:
        return body.decode() if checksum is None or checksum == checksum_of(stream.encode(), body) else None
    except UnicodeDecodeError:
        return None


def _statements(script: str) -> Iterator[str]:
    return (statement for statement in script.split(";\n") if statement.strip())


@contextmanager
def sqlite_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into those of the journal, about the file `path`."""
    try:
        yield
    except sqlite3.ProgrammingError as error:
        raise JournalClosed(path) from error  # it is raised for a closed connection, and for defects of this program
    except sqlite3.OperationalError as error:
        if _says_full(error, path.parent):
            raise DiskFull(path) from error
        raise JournalError(path, f"the database cannot be used: {error}") from error
    except sqlite3.DatabaseError as error:
        raise JournalCorrupt(path, str(error)) from error


def _says_full(error: sqlite3.OperationalError, folder: Path) -> bool:
    # SQLite reports an exceeded quota like this.
    write_error = error.sqlite_errorcode in (sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE)
    return error.sqlite_errorcode == sqlite3.SQLITE_FULL or (write_error and _is_full(folder))


def _is_full(folder: Path) -> bool:
    # Not every error of SQLite says whether a full disk caused it, so 64 KiB are written there.
    try:
        with TemporaryFile(dir=folder) as file:
            file.write(bytes(PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())  # some file systems report a full disk only here
    except OSError as error:
        return error.errno in DISK_FULL_ERRNOS
    return False
