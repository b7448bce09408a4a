"""Keep the append-only log of everything that procedures do, each entry chained to the one before it by a hash.

An entry is durable when `append` returns, and it is appended before the action that it describes, so killed executions
are recovered from the log. Processes that append take turns by a lock on the head file. `verify` detects entries that
were edited, removed, added or moved. The head file has number and hash of the last entry, which shows a cut-off end;
the head can also be kept elsewhere and given to `verify`. Of the package only `rows` uses SQLite too.

A full part of the log is sealed: a database that takes no more entries. The next part starts with number and hash of
its last entry, so the chain continues. When old parts are removed, an entry records their last number and hash, and the
chain is checked from there.
"""

import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any, Final, Self

from orchestrator.files import sync_folder
from orchestrator.procedures.durable import (
    BeforeWrite,
    file_digest,
    make_private_folder,
    no_fault,
    share_file,
)
from orchestrator.procedures.errors import AuditDamaged, ProcedureError, ProcedureRefused

FILE: Final = "audit.db"
HEAD_FILE: Final = "audit.head"
START: Final = "0" * 64  # the hash before the first entry
PART_BYTES: Final = 64 << 20  # a part with more is sealed, unless the configuration says otherwise
LITTLE_ROOM: Final = 1 << 20  # with less free space, errors of SQLite are attributed to that
_HEAD_LENGTH: Final = 86
_SEALED_NAME: Final = re.compile(r"audit-(\d{12})-(\d{12})\.db")
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
CREATE TABLE IF NOT EXISTS beginning (number INTEGER NOT NULL, hash TEXT NOT NULL) STRICT;
"""


@dataclass(frozen=True, slots=True)
class Entry:
    number: int  # from 1
    at: float  # seconds since the epoch
    kind: str
    execution: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AuditHead:
    """The last entry: its number, 0 for an empty log, and its hash."""

    number: int
    hash: str

    def __str__(self) -> str:
        return f"{self.number}:{self.hash}"


@dataclass(frozen=True, slots=True)
class SealedPart:
    path: Path
    first: int  # number of the first entry
    last: int


def head_from(text: str) -> AuditHead:
    """Parse what `str` of a head returns. Raises ValueError."""
    number, _, digest = text.strip().partition(":")
    if not number.isdecimal() or len(digest) != len(START) or not set(digest) <= set("0123456789abcdef"):
        raise ValueError(f"{text!r} is no head; accepted: NUMBER:HASH, as `orchestrator procedures audit` prints it")
    return AuditHead(int(number), digest)


class Audit:
    """The log of a folder, for any number of threads and processes."""

    def __init__(self, folder: Path, before_write: BeforeWrite = no_fault) -> None:
        self.path = folder / FILE
        self._head_path = folder / HEAD_FILE
        self._before_write = before_write
        self._lock = Lock()
        self._connection: sqlite3.Connection | None = None
        self._head: AuditHead | None = None
        self._head_file: int | None = None
        self._inode = 0  # of the database when it was opened for writing

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        if self._head_file is not None:
            os.close(self._head_file)
        self._connection = self._head = self._head_file = None

    def append(self, kind: str, execution: str, data: Mapping[str, Any]) -> Entry:
        """Append an entry durably. Raises AuditDamaged if the end of the log is not what was written."""
        with self._lock, self._errors(), self._turn() as connection:
            return self._append(connection, kind, execution, data)

    def entries(self, execution: str | None = None, after: int = 0) -> list[Entry]:
        """Return the entries after number `after`, of one execution or of all, in order."""
        query = "SELECT number, body FROM entries WHERE (?1 IS NULL OR execution = ?1) AND number > ?2 ORDER BY number"
        with self._errors(), self._parts() as parts:
            newer = [part for part in parts if part.last is None or part.last > after]
            return [_entry(*row) for part in newer for row in part.connection.execute(query, (execution, after))]

    def last(self, limit: int) -> list[Entry]:
        """Return the last entries, in order."""
        rows = self._newest("SELECT number, body FROM entries ORDER BY number DESC LIMIT ?1", limit)
        return [_entry(number, body) for number, body in reversed(rows)]

    def executions(
        self, limit: int | None = None, *, caller: str | None = None, kinds: Sequence[str] = ("planned", "missed")
    ) -> list[str]:
        """Return the ids of executions with an entry of one of these kinds, newest first.

        `caller` selects entries by their caller, or for `missed` by their schedule.
        """
        query = """
            SELECT execution FROM entries WHERE kind IN (SELECT value FROM json_each(?2))
                AND (?3 IS NULL OR coalesce(body ->> '$.data.caller', body ->> '$.data.schedule') = ?3)
            ORDER BY number DESC LIMIT ?1
        """
        return [execution for (execution,) in self._newest(query, limit, json.dumps(kinds), caller)]

    def not_ended(self) -> list[str]:
        """Return the ids of executions that were started and have not ended, oldest first."""
        query = """
            SELECT execution, max(number) FILTER (WHERE kind IN ('begun', 'rolling_back')) AS begun,
                max(number) FILTER (WHERE kind = 'ended') AS ended
            FROM entries WHERE kind IN ('begun', 'rolling_back', 'ended')
            GROUP BY execution HAVING begun IS NOT NULL AND (ended IS NULL OR ended < begun) ORDER BY begun
        """
        # no execution is under way when a part is sealed, so the newest part is enough
        with self._errors(), self._parts() as parts:
            return [execution for execution, _, _ in parts[-1].connection.execute(query)] if parts else []

    def queued(self) -> list[str]:
        """Return the ids of executions that wait in the queue, in order."""
        query = "SELECT execution, kind FROM entries WHERE kind IN ('queued', 'begun', 'withdrawn') ORDER BY number"
        waiting: dict[str, None] = {}
        with self._errors(), self._parts() as parts:
            for part in parts:
                for execution, kind in part.connection.execute(query):
                    if kind == "queued":
                        waiting.setdefault(execution)
                    else:
                        waiting.pop(execution, None)
        return list(waiting)

    def head(self) -> AuditHead:
        """Return the head of the log as the database has it."""
        with self._errors(), self._parts() as parts:
            return _last_of(parts[-1].connection) if parts else AuditHead(0, START)

    def beginning(self) -> AuditHead:
        """Return the last entry before those that are kept: number 0, unless sealed parts were removed."""
        with self._errors(), self._parts() as parts:
            return _beginning_of(parts[0].connection) if parts else AuditHead(0, START)

    def verify(self, reference: AuditHead | None = None) -> int:
        """Check all parts of the log, and against the head `reference`; return the number of entries.

        Raises AuditDamaged with the first wrong entry, and ProcedureRefused for a head of a removed part.
        """
        stored = self._kept_head()
        awaited = {head.number: head.hash for head in (stored, reference) if head is not None}
        if (
            stored is not None
            and reference is not None
            and stored.number == reference.number
            and stored.hash != reference.hash
        ):
            raise AuditDamaged(self.path, f"entry {reference.number} is another one than the head that was kept")
        with self._errors(), self._parts() as parts:
            beginning = _beginning_of(parts[0].connection) if parts else AuditHead(0, START)
            _check_beginning(parts, beginning, reference)
            head = beginning
            for part in parts:
                head = _checked_part(part, head, awaited)
        if (most := max(awaited, default=0)) > head.number:
            problem = f"it ends with entry {head.number}, and entry {most} was written: the end is cut off"
            raise AuditDamaged(self.path, problem)
        if stored is None and head.number:
            raise AuditDamaged(self._head_path, "the file with the number and the hash of the last entry is gone")
        return head.number - beginning.number

    def seal(self, most_bytes: int) -> SealedPart | None:
        """Seal the current part if it has more than `most_bytes`, start the next one, and return the sealed one.

        Does nothing while another connection uses the log. No execution may be under way. Raises AuditDamaged.
        """
        with self._lock, self._errors(), self._turn() as connection:
            head, beginning = self._current_head(connection), _beginning_of(connection)
            if head == beginning or _size_of(connection) <= most_bytes:
                return None
            self._write_head(head)
            if not _in_one_file(connection):
                return None
            connection.close()
            self._connection = None
            sealed = SealedPart(self._sealed_path(beginning.number + 1, head.number), beginning.number + 1, head.number)
            for leftover in self._sealed():  # by a process that was killed here
                if leftover.last > beginning.number:
                    leftover.path.unlink()
            for unnamed in self.path.parent.glob(f".{FILE}-*"):
                unnamed.unlink()
            fresh = self._fresh(head)
            self._before_write("seal the audit log")
            os.link(self.path, sealed.path)
            self._before_write("name the next part of the log")
            fresh.replace(self.path)
            sync_folder(self.path.parent)
            sealed.path.chmod(0o400)
            data = {"file": sealed.path.name, "first": sealed.first, "last": sealed.last, "hash": head.hash}
            self._append(self._opened_to_write(), "sealed", "", {**data, "sha256": file_digest(sealed.path)})
        return sealed

    def sealed(self) -> list[SealedPart]:
        """Return the sealed parts, oldest first."""
        with self._errors(), self._parts() as parts:
            return [SealedPart(part.path, part.first, part.last) for part in parts if part.last is not None]

    def executions_in(self, part: SealedPart) -> tuple[list[str], float]:
        """Return the executions with entries in a sealed part, and the time of its last entry."""
        with self._errors(), closing(_opened(part.path)) as connection:
            rows = connection.execute("SELECT DISTINCT execution FROM entries WHERE execution != ''").fetchall()
            (at,) = connection.execute("SELECT body ->> '$.at' FROM entries ORDER BY number DESC LIMIT 1").fetchone()
        return [execution for (execution,) in rows], float(at)

    def remove_sealed(self, parts: Sequence[SealedPart], caller: str) -> None:
        """Remove the oldest sealed parts, after an entry from which the rest is checked from then on.

        Raises ProcedureRefused for parts that are not the oldest.
        """
        if not parts:
            return
        if list(parts) != self.sealed()[: len(parts)]:
            raise ProcedureRefused("only the oldest parts of the audit log can be removed")
        with self._errors(), closing(_opened(parts[-1].path)) as connection:
            through = _last_of(connection)
        names = [part.path.name for part in parts]
        self.append("removed", "", {"through": through.number, "hash": through.hash, "files": names, "caller": caller})
        with self._errors():
            for part in parts:
                self._before_write(f"remove {part.path.name}")
                part.path.unlink(missing_ok=True)
            sync_folder(self.path.parent)

    def begin_anew(self, caller: str) -> Entry:
        """Set a damaged log aside, start a new one, and return its first entry.

        Its data: `kept`, the folder with the old log; `damage`; `sha256` of the old database; `executions`, the ids of
        those that had not ended; `caller`. The checkpoints stay with the old log: the new one cannot undo interrupted
        executions. If a process is killed here, the log is still damaged and the call can be repeated. Raises
        ProcedureRefused for an intact log.
        """
        with self._lock, self._errors(), self._alone():
            damage = self._damage()
            if not damage:
                raise ProcedureRefused("the audit log is whole; accepted: a damaged one, as `audit --verify` finds it")
            if self._connection is not None:
                self._connection.close()
            self._connection = self._head = None
            folder = self.path.parent
            archive = folder / f"audit-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"
            archive.mkdir(mode=0o700)
            data = {
                "kept": archive.name,
                "damage": damage,
                "sha256": file_digest(self.path),
                "executions": self._not_ended_as_far_as_known(),
                "caller": caller,
            }
            fresh = archive / "new"
            with Audit(fresh, self._before_write) as new:
                entry = new.append("begun_anew", "", data)
            parts = [part.path.name for part in self._sealed()]
            names = [*(f"{FILE}{suffix}" for suffix in ("", "-wal", "-shm", "-journal")), *parts, "checkpoints"]
            for name in names:
                if os.path.lexists(folder / name):
                    self._before_write(f"keep {name}")
                    (folder / name).rename(archive / name)
            self._before_write("name the new log")
            (fresh / FILE).rename(self.path)
            if self._head_path.exists():
                self._before_write("keep the head")
                share_file(self._head_path, archive / HEAD_FILE, link=False)
            self._before_write("name the new head")
            (fresh / HEAD_FILE).replace(self._head_path)
            shutil.rmtree(fresh)
            sync_folder(archive)
            sync_folder(folder)
        return entry

    def _damage(self) -> str:
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

    def _append(self, connection: sqlite3.Connection, kind: str, execution: str, data: Mapping[str, Any]) -> Entry:
        head = self._current_head(connection)
        at = time.time()
        body = body_of(head.number + 1, at, kind, execution, data)
        new = AuditHead(head.number + 1, hash_of(head.hash, body))
        self._before_write(f"append {kind}")
        connection.execute("INSERT INTO entries (number, body, hash) VALUES (?, ?, ?)", (new.number, body, new.hash))
        self._before_write(f"head of {kind}")
        self._write_head(new)
        self._head = new
        return Entry(new.number, at, kind, execution, dict(data))

    @contextmanager
    def _turn(self) -> Iterator[sqlite3.Connection]:
        # no other process may append
        with self._alone():
            yield self._opened_to_write() if self._connection is None else self._connection

    @contextmanager
    def _alone(self) -> Iterator[None]:
        # The lock is on the head file. What another process has replaced meanwhile is opened again.
        while True:
            if self._head_file is None:
                self._before_write("open the audit log")
                make_private_folder(self.path.parent)
                self._head_file = os.open(self._head_path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._head_file, fcntl.LOCK_EX)
            if os.fstat(self._head_file).st_nlink:
                break
            self.close()  # the file was removed, or another process has begun a new log
        held = self._head_file
        if self._connection is not None and _inode(self.path) != self._inode:
            self._connection.close()
            self._connection = None
        try:
            yield
        finally:
            if self._head_file == held:
                fcntl.flock(held, fcntl.LOCK_UN)

    def _opened_to_write(self) -> sqlite3.Connection:
        # the lock on the head must be held
        if not self.path.exists():
            sealed = self._sealed()
            self._create(_last_entry(sealed[-1].path) if sealed else AuditHead(0, START))
        self._inode = _inode(self.path)
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=30)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
        except sqlite3.Error:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _create(self, beginning: AuditHead) -> None:
        # named only when it is complete, since others may read it at once
        fresh = self._fresh(beginning)
        try:
            with suppress(FileExistsError):  # another process has made one meanwhile
                os.link(fresh, self.path)
        finally:
            fresh.unlink(missing_ok=True)

    def _fresh(self, beginning: AuditHead) -> Path:
        # continues after the entry `beginning`; the file has no name yet
        fresh = self.path.with_name(f".{FILE}-{secrets.token_hex(4)}")
        with closing(sqlite3.connect(fresh, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(_SCHEMA)
            connection.execute("INSERT INTO beginning VALUES (?, ?)", (beginning.number, beginning.hash))
        fresh.chmod(0o600)
        return fresh

    def _sealed_path(self, first: int, last: int) -> Path:
        return self.path.with_name(f"audit-{first:012}-{last:012}.db")

    def _sealed(self) -> list[SealedPart]:
        matches = ((path, _SEALED_NAME.fullmatch(path.name)) for path in self.path.parent.glob("audit-*.db"))
        return sorted(
            (SealedPart(path, int(name[1]), int(name[2])) for path, name in matches if name is not None),
            key=lambda part: part.first,
        )

    @contextmanager
    def _parts(self) -> Iterator[list["_OpenPart"]]:
        # The current part is last but opened first: if it is sealed meanwhile, its connection still shows it, and its
        # entries come once.
        with ExitStack() as stack:
            newest: list[_OpenPart] = []
            most: int | None = None
            if self.path.exists():
                current = _OpenPart(self.path, 0, None, stack)
                most = _beginning_of(current.connection).number
                newest = [current]
            sealed = [part for part in self._sealed() if most is None or part.last <= most]
            yield [*(_OpenPart(part.path, part.first, part.last, stack) for part in sealed), *newest]

    def _newest(self, sql: str, limit: int | None, *parameters: object) -> list[Any]:
        # the first parameter of the query is its limit
        rows: list[Any] = []
        with self._errors(), self._parts() as parts:
            for part in reversed(parts):
                remaining = -1 if limit is None else limit - len(rows)
                if remaining:
                    rows += part.connection.execute(sql, (remaining, *parameters))
        return rows

    def _current_head(self, connection: sqlite3.Connection) -> AuditHead:
        # checked unless this process wrote it
        last = _last_of(connection)
        return last if last == self._head else self._checked_head(connection, last)

    def _checked_head(self, connection: sqlite3.Connection, last: AuditHead) -> AuditHead:
        # a process that was killed between database and head file leaves the file one entry behind
        stored = self._kept_head()
        if stored is None:
            if last.number:
                raise AuditDamaged(self._head_path, "the file with the number and the hash of the last entry is gone")
            self._write_head(last)
            return last
        if stored.number > last.number:
            problem = f"it ends with entry {last.number}, and entry {stored.number} was written: the end is cut off"
            raise AuditDamaged(self.path, problem)
        beginning = _beginning_of(connection)  # whose entry is in the sealed part before this one
        row = connection.execute("SELECT hash FROM entries WHERE number = ?", (stored.number,)).fetchone()
        written = beginning.hash if stored.number == beginning.number else row and row[0]
        if stored.number and written != stored.hash:
            raise AuditDamaged(self.path, f"entry {stored.number} is not what was written")
        return last

    def _kept_head(self) -> AuditHead | None:
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

    def _write_head(self, head: AuditHead) -> None:
        # one write of constant length, which a killed process does completely or not at all
        text = f"{head.number:020}:{head.hash}\n".encode()
        assert len(text) == _HEAD_LENGTH, "each head replaces the one before it"
        assert self._head_file is not None, "it is opened with the connection"
        os.pwrite(self._head_file, text, 0)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise ProcedureError(f"{self.path}: the audit log cannot be used: {error}{self._space_left()}") from error
        except OSError as error:
            raise ProcedureError(f"{self.path}: the audit log cannot be used: {error.strerror}") from error

    def _space_left(self) -> str:
        # SQLite may call a full disk an I/O error
        folder = next(parent for parent in self.path.parents if parent.is_dir())
        free = shutil.disk_usage(folder).free
        return f"; its file system has only {free:,} bytes free" if free < LITTLE_ROOM else ""


@dataclass(eq=False)
class _OpenPart:
    """A part that is opened for reading when it is needed; `stack` closes it."""

    path: Path
    first: int
    last: int | None  # None for the current part
    stack: ExitStack

    @cached_property
    def connection(self) -> sqlite3.Connection:
        return self.stack.enter_context(closing(_opened(self.path)))


def _check_beginning(parts: Sequence[_OpenPart], beginning: AuditHead, reference: AuditHead | None) -> None:
    # Missing entries must have been removed by an entry that says so. Raises AuditDamaged, and ProcedureRefused for a
    # `reference` before the beginning.
    if not beginning.number:
        return
    removals = [
        _entry(number, body).data
        for part in parts
        for number, body in part.connection.execute("SELECT number, body FROM entries WHERE kind = 'removed'")
    ]
    if not any(removal["through"] == beginning.number and removal["hash"] == beginning.hash for removal in removals):
        problem = f"the entries up to {beginning.number} are missing, and no entry tells that they were removed"
        raise AuditDamaged(parts[0].path, problem)
    if reference is not None and reference.number < beginning.number:
        problem = f"entry {reference.number} is in a part of the log that was removed"
        raise ProcedureRefused(f"{problem}; accepted: a head from entry {beginning.number} on")
    if reference is not None and reference.number == beginning.number and reference.hash != beginning.hash:
        raise AuditDamaged(parts[0].path, f"entry {reference.number} is another one than the head that was kept")


def _checked_part(part: _OpenPart, before: AuditHead, awaited: Mapping[int, str]) -> AuditHead:
    # `before` is the last entry of the part before it
    if _beginning_of(part.connection) != before:
        raise AuditDamaged(
            part.path, f"it does not continue after entry {before.number}, so entries are missing before it"
        )
    number, last = before.number, before.hash
    for actual, body, digest in part.connection.execute("SELECT number, body, hash FROM entries ORDER BY number"):
        number += 1
        if actual != number:
            raise AuditDamaged(part.path, f"entry {number} is missing")
        last = hash_of(last, body)
        if digest != last or awaited.get(number, last) != last:
            raise AuditDamaged(part.path, f"entry {number} is not what was written, or not where it was")
    return AuditHead(number, last)


def _opened(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=30)


def _beginning_of(connection: sqlite3.Connection) -> AuditHead:
    # number 0 for the first part, and for parts of an early version
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'beginning'").fetchone():
        return AuditHead(0, START)
    row = connection.execute("SELECT number, hash FROM beginning").fetchone()
    return AuditHead(*row) if row is not None else AuditHead(0, START)


def _last_of(connection: sqlite3.Connection) -> AuditHead:
    # of an empty part, the one that it continues after
    row = connection.execute("SELECT number, hash FROM entries ORDER BY number DESC LIMIT 1").fetchone()
    return AuditHead(*row) if row is not None else _beginning_of(connection)


def _last_entry(path: Path) -> AuditHead:
    with closing(_opened(path)) as connection:
        return _last_of(connection)


def _size_of(connection: sqlite3.Connection) -> int:
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
    return int(pages * page_bytes)


def _in_one_file(connection: sqlite3.Connection) -> bool:
    # False if another connection uses it, so that the write-ahead log stays
    try:
        connection.execute("PRAGMA busy_timeout = 0")
        return bool(connection.execute("PRAGMA journal_mode = DELETE").fetchone()[0] == "delete")
    except sqlite3.OperationalError:  # another connection uses it
        return False
    finally:
        connection.execute("PRAGMA busy_timeout = 30000")


def _inode(path: Path) -> int:
    # 0 if there is no file
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return 0


def body_of(number: int, at: float, kind: str, execution: str, data: Mapping[str, Any]) -> str:
    """Return the text that the hash of an entry is computed from."""
    fields = {"number": number, "at": at, "kind": kind, "execution": execution, "data": data}
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def hash_of(before: str, body: str) -> str:
    """Return SHA-256 of the hash of the entry before, a line end, and the entry's text."""
    return hashlib.sha256(f"{before}\n{body}".encode("utf-8", "surrogatepass")).hexdigest()


def _entry(number: int, body: str) -> Entry:
    fields = json.loads(body)
    return Entry(number, fields["at"], fields["kind"], fields["execution"], fields["data"])
