"""Keep the append-only log of everything that procedures do, each entry chained to the one before it by a hash.

An entry is durable when `append` returns, and it is appended before what it tells is done; so the log is also what a
killed execution is recovered from. Processes that append take turns by a lock on the file with the head. `verify` finds
an entry that was edited, removed, added or moved. The number and the hash of the last entry are kept in a file beside
the database, which tells when entries were cut off at the end. They can be kept elsewhere as well, and given to
`verify`. Only `rows` uses SQLite too.
"""

import fcntl
import hashlib
import json
import os
import secrets
import shutil
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Final, Self

from procedures.durable import BeforeWrite, no_fault, share_file, sync_folder
from procedures.errors import AuditDamaged, ProcedureError, ProcedureRefused

FILE: Final = "audit.db"
HEAD_FILE: Final = "audit.head"
START: Final = "0" * 64
"""The hash before the first entry."""
_HEAD_LENGTH: Final = 86
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS entries (
    number INTEGER PRIMARY KEY,
    body TEXT NOT NULL,
    hash TEXT NOT NULL,
    execution TEXT GENERATED ALWAYS AS (body ->> '$.execution') VIRTUAL,
    kind TEXT GENERATED ALWAYS AS (body ->> '$.kind') VIRTUAL
) STRICT;
CREATE INDEX IF NOT EXISTS entries_by_execution ON entries (execution, number);
CREATE INDEX IF NOT EXISTS entries_by_kind ON entries (kind, number);
CREATE TRIGGER IF NOT EXISTS no_update BEFORE UPDATE ON entries
    BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER IF NOT EXISTS no_delete BEFORE DELETE ON entries
    BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the log."""

    number: int
    """From 1."""
    at: float
    """When it was appended, in seconds since the epoch."""
    kind: str
    execution: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Head:
    """The last entry: its number, 0 for an empty log, and its hash."""

    number: int
    hash: str

    def __str__(self) -> str:
        return f"{self.number}:{self.hash}"


def head_from(text: str) -> Head:
    """Return the head that `str` has written. Raises ValueError."""
    number, _, digest = text.strip().partition(":")
    if not number.isdecimal() or len(digest) != len(START) or not set(digest) <= set("0123456789abcdef"):
        raise ValueError(f"{text!r} is no head; accepted: NUMBER:HASH, as `orchestrator procedures audit` prints it")
    return Head(int(number), digest)


class Audit:
    """The log of a folder, which any number of threads and processes may use."""

    def __init__(self, folder: Path, before_write: BeforeWrite = no_fault) -> None:
        self.path = folder / FILE
        self._head_path = folder / HEAD_FILE
        self._before_write = before_write
        self._lock = Lock()
        self._connection: sqlite3.Connection | None = None
        self._head: Head | None = None
        self._head_file: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database."""
        if self._connection is not None:
            self._connection.close()
        if self._head_file is not None:
            os.close(self._head_file)
        self._connection = self._head = self._head_file = None

    def append(self, kind: str, execution: str, data: Mapping[str, Any]) -> Entry:
        """Append an entry, durably. Raises AuditDamaged if the end of the log is not what was written."""
        with self._lock, self._errors(), self._turn() as connection:
            head = self._current_head(connection)
            at = time.time()
            body = body_of(head.number + 1, at, kind, execution, data)
            new = Head(head.number + 1, hash_of(head.hash, body))
            self._before_write(f"append {kind}")
            connection.execute(
                "INSERT INTO entries (number, body, hash) VALUES (?, ?, ?)", (new.number, body, new.hash)
            )
            self._before_write(f"head of {kind}")
            self._write_head(new)
            self._head = new
        return Entry(new.number, at, kind, execution, dict(data))

    def entries(self, execution: str | None = None, after: int = 0, limit: int | None = None) -> list[Entry]:
        """Return the entries after number `after`, of one execution or of all, in order."""
        asked = "SELECT number, body FROM entries WHERE (?1 IS NULL OR execution = ?1) AND number > ?2 ORDER BY number"
        rows = self._read(f"{asked} LIMIT ?3", execution, after, -1 if limit is None else limit)
        return [_entry(number, body) for number, body in rows]

    def last(self, limit: int) -> list[Entry]:
        """Return the last entries of the log, in order."""
        rows = self._read("SELECT number, body FROM entries ORDER BY number DESC LIMIT ?", limit)
        return [_entry(number, body) for number, body in reversed(rows)]

    def executions(
        self, limit: int | None = None, *, caller: str | None = None, kinds: Sequence[str] = ("planned", "missed")
    ) -> list[str]:
        """Return the ids of the executions that have an entry of one of these kinds, newest first.

        With `caller` only those whose entry has that caller, or for `missed` that schedule.
        """
        asked = """
            SELECT execution FROM entries WHERE kind IN (SELECT value FROM json_each(?1))
                AND (?2 IS NULL OR coalesce(body ->> '$.data.caller', body ->> '$.data.schedule') = ?2)
            ORDER BY number DESC LIMIT ?3
        """
        rows = self._read(asked, json.dumps(kinds), caller, -1 if limit is None else limit)
        return [execution for (execution,) in rows]

    def not_ended(self) -> list[str]:
        """Return the ids of the executions that have begun and not ended, oldest first."""
        asked = """
            SELECT execution, max(number) FILTER (WHERE kind IN ('begun', 'rolling_back')) AS begun,
                max(number) FILTER (WHERE kind = 'ended') AS ended
            FROM entries WHERE kind IN ('begun', 'rolling_back', 'ended')
            GROUP BY execution HAVING begun IS NOT NULL AND (ended IS NULL OR ended < begun) ORDER BY begun
        """
        return [execution for execution, _, _ in self._read(asked)]

    def queued(self) -> list[str]:
        """Return the ids of the executions that were queued, and have neither begun nor been withdrawn, in order."""
        asked = """
            SELECT execution FROM entries AS queued WHERE kind = 'queued' AND NOT EXISTS (
                SELECT 1 FROM entries WHERE execution = queued.execution AND kind IN ('begun', 'withdrawn')
            ) GROUP BY execution ORDER BY min(number)
        """
        return [execution for (execution,) in self._read(asked)]

    def head(self) -> Head:
        """Return the head of the log as the database has it."""
        rows = self._read("SELECT number, hash FROM entries ORDER BY number DESC LIMIT 1")
        return Head(*rows[0]) if rows else Head(0, START)

    def verify(self, known: Head | None = None) -> int:
        """Check the whole log, against a head that was kept elsewhere too, and return how many entries it has.

        Raises AuditDamaged with the first entry that is not what was written.
        """
        kept, number, last = self._kept_head(), 0, START
        awaited = {head.number: head.hash for head in (kept, known) if head is not None}
        if kept is not None and known is not None and kept.number == known.number and kept.hash != known.hash:
            raise AuditDamaged(self.path, f"entry {known.number} is another one than the head that was kept")
        if self.path.exists():
            with self._errors(), closing(self._opened()) as connection:
                for found, body, digest in connection.execute("SELECT number, body, hash FROM entries ORDER BY number"):
                    number += 1
                    if found != number:
                        raise AuditDamaged(self.path, f"entry {number} is missing")
                    last = hash_of(last, body)
                    if digest != last or awaited.get(number, last) != last:
                        raise AuditDamaged(self.path, f"entry {number} is not what was written, or not where it was")
        if (most := max(awaited, default=0)) > number:
            raise AuditDamaged(
                self.path, f"it ends with entry {number}, and entry {most} was written: the end is cut off"
            )
        if kept is None and number:
            raise AuditDamaged(self._head_path, "the file with the number and the hash of the last entry is gone")
        return number

    def begin_anew(self, caller: str) -> Entry:
        """Keep a damaged log under another name, begin a new one whose first entry tells of it, and return that entry.

        Its data are `kept`, the name of the folder beside the log that has the old one; `damage`; `sha256` of the old
        database; `executions`, the ids of those that had begun and not ended; and `caller`. What was interrupted can no
        longer be undone by the new log, so the old checkpoints are kept with the old log.

        A process that is killed here leaves a log that is still damaged, so the same call may be made again. Raises
        ProcedureRefused for a log that is whole.
        """
        damage = self._damage()
        if not damage:
            raise ProcedureRefused("the audit log is whole; accepted: a damaged one, as `audit --verify` finds it")
        with self._lock, self._errors():
            self.close()
            folder = self.path.parent
            kept = folder / f"audit-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"
            kept.mkdir(mode=0o700)
            data = {
                "kept": kept.name,
                "damage": damage,
                "sha256": _digest(self.path),
                "executions": self._not_ended_as_far_as_known(),
                "caller": caller,
            }
            fresh = kept / "new"
            with Audit(fresh, self._before_write) as new:
                entry = new.append("begun_anew", "", data)
            names = [*(f"{FILE}{suffix}" for suffix in ("", "-wal", "-shm", "-journal")), "checkpoints"]
            for name in names:
                if os.path.lexists(folder / name):
                    self._before_write(f"keep {name}")
                    (folder / name).rename(kept / name)
            self._before_write("name the new log")
            (fresh / FILE).rename(self.path)
            if self._head_path.exists():
                self._before_write("keep the head")
                share_file(self._head_path, kept / HEAD_FILE, link=False)
            self._before_write("name the new head")
            (fresh / HEAD_FILE).replace(self._head_path)
            shutil.rmtree(fresh)
            sync_folder(kept)
            sync_folder(folder)
        return entry

    def _damage(self) -> str:
        """Return what is wrong with the log, or an empty text."""
        try:
            self.verify()
        except ProcedureError as error:
            return str(error)
        return ""

    def _not_ended_as_far_as_known(self) -> list[str]:
        try:
            return self.not_ended()
        except (ProcedureError, ValueError, KeyError):  # the database itself is damaged
            return []

    def _to_write(self) -> sqlite3.Connection:
        if self._connection is None:
            self._before_write("open the audit log")
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not self.path.exists():
                self._create()
            connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=30)
            try:
                connection.execute("PRAGMA synchronous = FULL")
                head = os.open(self._head_path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except (sqlite3.Error, OSError):
                connection.close()
                raise
            self._connection, self._head_file = connection, head
        return self._connection

    def _create(self) -> None:
        """Make an empty database, which has its name only when it is complete, since others may read it already."""
        fresh = self.path.with_name(f".{FILE}-{secrets.token_hex(4)}")
        try:
            with closing(sqlite3.connect(fresh, isolation_level=None)) as connection:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.executescript(_SCHEMA)
            fresh.chmod(0o600)
            with suppress(FileExistsError):  # another process has made one meanwhile
                os.link(fresh, self.path)
        finally:
            fresh.unlink(missing_ok=True)

    @contextmanager
    def _turn(self) -> Iterator[sqlite3.Connection]:
        """Keep other processes from appending, and hand on the connection to write by."""
        if self._head_file is not None and not os.fstat(self._head_file).st_nlink:
            self.close()  # the file was removed, or another process has begun a new log
        connection = self._to_write()
        assert self._head_file is not None, "it is opened with the connection"
        fcntl.flock(self._head_file, fcntl.LOCK_EX)
        try:
            yield connection
        finally:
            fcntl.flock(self._head_file, fcntl.LOCK_UN)

    def _current_head(self, connection: sqlite3.Connection) -> Head:
        """Return the last entry, which is checked unless this process has written it."""
        rows = connection.execute("SELECT number, hash FROM entries ORDER BY number DESC LIMIT 1").fetchall()
        last = Head(*rows[0]) if rows else Head(0, START)
        return last if last == self._head else self._checked_head(connection, last)

    def _checked_head(self, connection: sqlite3.Connection, last: Head) -> Head:
        """Return the last entry, after it was compared with the file that keeps it.

        A process that was killed between the two leaves a file that is one entry behind.
        """
        kept = self._kept_head()
        if kept is None:
            if last.number:
                raise AuditDamaged(self._head_path, "the file with the number and the hash of the last entry is gone")
            self._write_head(last)
            return last
        if kept.number > last.number:
            what = f"it ends with entry {last.number}, and entry {kept.number} was written: the end is cut off"
            raise AuditDamaged(self.path, what)
        found = connection.execute("SELECT hash FROM entries WHERE number = ?", (kept.number,)).fetchone()
        if kept.number and (found is None or found[0] != kept.hash):
            raise AuditDamaged(self.path, f"entry {kept.number} is not what was written")
        return last

    def _kept_head(self) -> Head | None:
        try:
            text = self._head_path.read_text(encoding="ascii")
            if not text:  # it was opened, and the first entry was not appended
                return None
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ProcedureError(f"{self._head_path}: cannot be read: {error.strerror}") from error
        try:
            return head_from(text)
        except ValueError as error:
            raise AuditDamaged(self._head_path, str(error)) from error

    def _write_head(self, head: Head) -> None:
        """Write the head by one write of the same length, which a killed process does or does not do."""
        text = f"{head.number:020}:{head.hash}\n".encode()
        assert len(text) == _HEAD_LENGTH, "each head replaces the one before it"
        assert self._head_file is not None, "it is opened with the connection"
        os.pwrite(self._head_file, text, 0)

    def _read(self, sql: str, *parameters: object) -> list[Any]:
        if not self.path.exists():
            return []
        with self._errors(), closing(self._opened()) as connection:
            return connection.execute(sql, parameters).fetchall()

    def _opened(self) -> sqlite3.Connection:
        return sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", uri=True, timeout=30)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise ProcedureError(f"{self.path}: the audit log cannot be used: {error}") from error
        except OSError as error:
            raise ProcedureError(f"{self.path}: the audit log cannot be used: {error.strerror}") from error


def body_of(number: int, at: float, kind: str, execution: str, data: Mapping[str, Any]) -> str:
    """Return the text of an entry, which its hash is of."""
    fields = {"number": number, "at": at, "kind": kind, "execution": execution, "data": data}
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def hash_of(before: str, body: str) -> str:
    """Return the hash of an entry: SHA-256 of the hash of the entry before it, a line end, and its own text."""
    return hashlib.sha256(f"{before}\n{body}".encode("utf-8", "surrogatepass")).hexdigest()


def _digest(path: Path) -> str:
    """Return the SHA-256 of a file, or `absent`. Raises OSError."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return "absent"


def _entry(number: int, body: str) -> Entry:
    fields = json.loads(body)
    return Entry(number, fields["at"], fields["kind"], fields["execution"], fields["data"])
