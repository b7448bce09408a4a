"""Copy, restore (in one transaction) and digest rows and databases of SQLite. Only `audit` uses SQLite too."""

import fcntl
import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from orchestrator.files import sync_folder
from orchestrator.procedures.durable import BeforeWrite
from orchestrator.procedures.errors import ChangedMeanwhile, StepFailed
from orchestrator.procedures.resources import DatabaseResource, RowsResource

BUSY_SECONDS: Final = 30.0


def copy_rows(resource: RowsResource, target: Path) -> bool:
    """Copy the rows into a new database `target`. Return whether the table exists. Raises StepFailed."""
    with _opened(resource.database) as source:
        if source is None or not (columns := _columns(source, resource.table)):
            return False
        named = ", ".join(map(_quoted, columns))
        untyped = ", ".join(f"c{index}" for index, _ in enumerate(columns))  # so that every value stays as it is
        with closing(sqlite3.connect(target)) as copy:
            copy.execute(f"CREATE TABLE kept (rowid_kept INTEGER PRIMARY KEY, {untyped})")
            query = f"SELECT rowid, {named} FROM {_quoted(resource.table)}{_where(resource)}"  # noqa: S608 - quoted
            marks = ", ".join("?" * (len(columns) + 1))
            copy.executemany(f"INSERT INTO kept VALUES ({marks})", source.execute(query))  # noqa: S608 - only marks
            copy.commit()
    sync_folder(target.parent)
    return True


def restore_rows(resource: RowsResource, copy_path: Path, before_write: BeforeWrite) -> None:
    """Put copied rows back, and remove those that came since. Raises StepFailed."""
    with _opened(resource.database) as database, closing(sqlite3.connect(copy_path)) as copy:
        if database is None:
            raise StepFailed(f"{resource.database} is gone, so its rows cannot be put back")
        columns = _columns(database, resource.table)
        rows = list(copy.execute("SELECT * FROM kept ORDER BY rowid_kept"))
        if rows and len(rows[0]) != len(columns) + 1:
            raise ChangedMeanwhile(f"{resource.database}: the table {resource.table} has other columns now")
        before_write(f"restore rows of {resource.table}")
        database.execute("BEGIN IMMEDIATE")
        database.execute("PRAGMA defer_foreign_keys = ON")
        if not resource.shared:
            database.execute(f"DELETE FROM {_quoted(resource.table)}{_where(resource)}")  # noqa: S608 - quoted
        named = ", ".join(map(_quoted, columns))
        marks = ", ".join("?" * (len(columns) + 1))
        verb, table = "INSERT OR IGNORE" if resource.shared else "INSERT", _quoted(resource.table)
        inserted = f"{verb} INTO {table} (rowid, {named}) VALUES ({marks})"
        occupied, is_alias = f"SELECT 1 FROM {table} WHERE rowid = ?", _has_row_id(database, resource.table)  # noqa: S608
        for rowid, *values in rows:  # a row that is not to be restored may have got the row id of one that is
            free = is_alias or database.execute(occupied, (rowid,)).fetchone() is None
            database.execute(inserted, (rowid if free else None, *values))
        before_write(f"commit rows of {resource.table}")
        database.execute("COMMIT")


def digest_rows(resource: RowsResource) -> str:
    """Return the SHA-256 of the rows in the order of their row ids. Raises StepFailed."""
    with _opened(resource.database) as database:
        if database is None or not (columns := _columns(database, resource.table)):
            return "absent"
        named = ", ".join(map(_quoted, columns))
        table = _quoted(resource.table)
        query = f"SELECT rowid, {named} FROM {table}{_where(resource)} ORDER BY rowid"  # noqa: S608 - quoted
        return _digest(repr(row) for row in database.execute(query))


def copy_database(resource: DatabaseResource, target: Path) -> bool:
    """Copy the committed state of a database. Return whether it exists. Raises StepFailed."""
    with _locked(resource), _opened(resource.database) as source:
        if source is None:
            return False
        with closing(sqlite3.connect(target)) as copy:
            source.backup(copy)
    sync_folder(target.parent)
    return True


def restore_database(resource: DatabaseResource, copy_path: Path, before_write: BeforeWrite) -> None:
    """Put a copied database back, in one transaction. Raises StepFailed."""
    with _locked(resource), _sqlite_errors(resource.database), closing(sqlite3.connect(copy_path)) as copy:
        with closing(sqlite3.connect(resource.database, timeout=BUSY_SECONDS)) as database:
            before_write(f"restore {resource.database.name}")
            copy.backup(database)
            before_write(f"check {resource.database.name}")
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def digest_database(resource: DatabaseResource) -> str:
    """Return the SHA-256 of a database's schema and rows. Raises StepFailed."""
    with _opened(resource.database) as database:
        return "absent" if database is None else _digest(database.iterdump())


@contextmanager
def _locked(resource: DatabaseResource) -> Iterator[None]:
    # `resource.lock` keeps users of the database from opening it
    if resource.lock is None or not resource.lock.parent.is_dir():
        yield
        return
    with resource.lock.open("a+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StepFailed(f"{resource.database} is in use by another process; stop it, and try again") from error
        yield


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection | None]:
    # `sqlite3.connect` would create a missing database
    if not path.exists():
        yield None
        return
    with (
        _sqlite_errors(path),
        closing(sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)) as connection,
    ):
        yield connection


@contextmanager
def _sqlite_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise StepFailed(f"{path}: {error}") from error


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [name for (name,) in connection.execute("SELECT name FROM pragma_table_info(?) ORDER BY cid", (table,))]


def _has_row_id(connection: sqlite3.Connection, table: str) -> bool:
    # the row id is a column, so other rows may refer to it
    query = "SELECT upper(type) FROM pragma_table_info(?) WHERE pk > 0"
    return [kind for (kind,) in connection.execute(query, (table,))] == ["INTEGER"]


def _where(resource: RowsResource) -> str:
    return f" WHERE {resource.where}" if resource.where else ""


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _digest(lines: Iterator[str]) -> str:
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line.encode("utf-8", "surrogatepass"))
        digest.update(b"\n")
    return digest.hexdigest()
