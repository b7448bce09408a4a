"""A folder that procedures change in every way there is, and the engine for it."""

import hashlib
import os
import sqlite3
import stat
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from orchestrator.procedures.durable import no_fault
from orchestrator.procedures.engine import ProcedureEngine
from orchestrator.procedures.errors import StepFailed
from orchestrator.procedures.execution import Execution
from orchestrator.procedures.library import Library
from orchestrator.procedures.ports import Operation, ProcedurePorts, Work
from orchestrator.procedures.resources import DatabaseResource, PathResource, RowsResource
from orchestrator.registry.forms import Form
from orchestrator.service.callers import Caller

OWNER = Caller("user 1000", frozenset({"owner", "operator"}), person=True)
HEAD = "version: 1.0.0\ncategory: test\ndescription: A test.\n"
"""What a procedure says of itself, after its id."""
REGISTRY = """\
# Whose models these are.
models:
  # The large one.
  large:
    backend: openai
    base_url: http://127.0.0.1:9/v1
    model: large
    context: 4096   # as its server says
  # The small one.
  small: {backend: openai, base_url: "http://127.0.0.1:9/v1", model: small}
roles:
  worker: {model: large, tier: C}
"""
EVERYTHING = """\
id: everything
version: 1.0.0
category: test
description: Changes files, the registry, a folder in place and rows, and then fails if it is told to.
permissions: {roles: [owner], requires_approval: true}
inputs:
  fail: {type: boolean, description: Whether it fails at the end., default: false}
  folder: {type: path, description: The folder.}
on_interruption: ON_INTERRUPTION
steps:
  - id: entry
    registry_update: {set_model: {id: small, values: {description: changed}}}
  - id: create
    depends_on: [entry]
    file_write: {path: "{{ inputs.folder }}/new/note.txt", content: "a note\\n"}
  - id: change
    depends_on: [create]
    file_write: {path: "{{ inputs.folder }}/notes.txt", content: "{{ steps.create.digest }}\\n", mode: "600"}
  - id: copied
    depends_on: [change]
    file_write: {path: "{{ inputs.folder }}/copy.bin", copy_of: "{{ inputs.folder }}/big.bin"}
  - id: removed
    depends_on: [copied]
    file_write: {path: "{{ inputs.folder }}/big.bin", remove: true}
  - id: scribble
    depends_on: [removed]
    call: {operation: scribble, arguments: {folder: "{{ inputs.folder }}/tree"}}
  - id: rows
    depends_on: [scribble]
    call: {operation: rows, arguments: {database: "{{ inputs.folder }}/data.db"}}
  - id: schema
    depends_on: [rows]
    call: {operation: schema, arguments: {database: "{{ inputs.folder }}/other.db"}}
  - id: last
    depends_on: [schema]
    call: {operation: end, arguments: {fail: "{{ inputs.fail }}"}}
outputs:
  digest: {value: "{{ steps.create.digest }}", description: What the note is.}
verification:
  - {that: "steps.scribble.files == 3", otherwise: not all files were changed}
"""


class NoArguments(Form):
    """The arguments of an operation that has none."""


class FolderArguments(Form):
    folder: str


class DatabaseArguments(Form):
    database: str


class EndArguments(Form):
    fail: bool


def make_world(folder: Path) -> Path:
    """Fill the new folder `folder` with what procedures are to change, and return it."""
    (folder / "tree" / "inner").mkdir(parents=True)
    (folder / "registry.yaml").write_text(REGISTRY)
    (folder / "notes.txt").write_text("first line\nsecond line\n")
    (folder / "big.bin").write_bytes(bytes(range(256)) * 8192)
    for name in ("one.txt", "two.txt", "inner/three.txt"):
        (folder / "tree" / name).write_text(f"this is {name}\n")
    (folder / "tree" / "link").symlink_to("one.txt")
    (folder / "tree" / "two.txt").chmod(0o640)
    for name in ("data.db", "other.db"):
        with closing(sqlite3.connect(folder / name)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("CREATE TABLE things (name TEXT PRIMARY KEY, value BLOB, size REAL) STRICT")
            rows = [(f"thing {number}", bytes([number]), number / 7) for number in range(20)]
            connection.executemany("INSERT INTO things VALUES (?, ?, ?)", rows)
            connection.commit()
    return folder


def contents(folder: Path, *, times: bool = True) -> dict[str, Any]:
    """Return everything that a rollback has to restore: kinds, rights, times, bytes, links, and what databases hold."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".db-wal", ".db-shm"):  # what they hold is in the database for whoever opens it
            continue
        name, status = str(path.relative_to(folder)), path.lstat()
        at = status.st_mtime_ns if times else 0
        if path.suffix == ".db":
            with closing(sqlite3.connect(path)) as connection:
                found[name] = list(connection.iterdump())
        elif stat.S_ISLNK(status.st_mode):
            found[name] = os.readlink(path)
        elif stat.S_ISDIR(status.st_mode):
            found[name] = (stat.S_IMODE(status.st_mode), at)
        else:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            found[name] = (stat.S_IMODE(status.st_mode), digest, at)
    return found


def operations(before_write: Callable[[str], None] = no_fault) -> dict[str, Operation[Any]]:
    """Return operations that change files and rows in place, with half of it done at many moments."""

    def scribble(arguments: FolderArguments, work: Work) -> Mapping[str, Any]:
        folder = Path(arguments.folder)
        for name in ("one.txt", "two.txt", "inner/three.txt"):
            with (folder / name).open("r+") as file:
                before_write(f"scribble {name}")
                file.write("scribbled")
                file.flush()
                before_write(f"scribbled {name}")
            work.say(name)
        (folder / "link").unlink()
        before_write("between")
        (folder / "more").mkdir(exist_ok=True)
        (folder / "more" / "file").write_text("more")
        return {"files": 3}

    def rows(arguments: DatabaseArguments, _work: Work) -> Mapping[str, Any]:
        with closing(sqlite3.connect(arguments.database, isolation_level=None)) as connection:
            connection.execute("DELETE FROM things WHERE size > 1")
            before_write("rows deleted")
            connection.execute("UPDATE things SET value = x'00ff'")
            before_write("rows changed")
            connection.execute("INSERT OR REPLACE INTO things VALUES ('new', NULL, 0.5)")
        return {}

    def schema(arguments: DatabaseArguments, _work: Work) -> Mapping[str, Any]:
        with closing(sqlite3.connect(arguments.database, isolation_level=None)) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS more (a INTEGER) STRICT")
            before_write("table made")
            connection.execute("DROP TABLE IF EXISTS things")
        return {}

    def end(arguments: EndArguments, _work: Work) -> Mapping[str, Any]:
        if arguments.fail:
            raise StepFailed("it was told to fail")
        return {}

    def changed_rows(arguments: DatabaseArguments) -> list[RowsResource]:
        return [RowsResource(Path(arguments.database), "things")]

    def changed_database(arguments: DatabaseArguments) -> list[DatabaseResource]:
        return [DatabaseResource(Path(arguments.database))]

    return {
        "scribble": Operation(
            name="scribble",
            description="Write into files where they are.",
            form=FolderArguments,
            run=scribble,
            changes=lambda arguments: [PathResource(Path(arguments.folder))],
        ),
        "rows": Operation(
            name="rows", description="Change rows.", form=DatabaseArguments, run=rows, changes=changed_rows
        ),
        "schema": Operation(
            name="schema", description="Change a schema.", form=DatabaseArguments, run=schema, changes=changed_database
        ),
        "end": Operation(name="end", description="Fail if told to.", form=EndArguments, run=end),
    }


def make_engine(
    home: Path,
    world: Path,
    *texts: str,
    before_write: Callable[[str], None] = no_fault,
    more: Mapping[str, Operation[Any]] | None = None,
) -> ProcedureEngine:
    """Return an engine on `home` whose library has these procedures."""
    library = home / "library"
    library.mkdir(parents=True, exist_ok=True)
    for text in texts:
        name = next(line.removeprefix("id: ") for line in text.splitlines() if line.startswith("id: "))
        (library / f"{name}.yaml").write_text(text)
    ports = ProcedurePorts(
        registry=world / "registry.yaml",
        places={"home": str(home), "registry": str(world / "registry.yaml")},
        operations={**operations(before_write), **(more or {})},
    )
    return ProcedureEngine(home, ports, Library([library]), before_write)


def everything(*, resume: bool = False) -> str:
    """Return the procedure that changes everything."""
    return EVERYTHING.replace("ON_INTERRUPTION", "resume" if resume else "rollback")


def execute(engine: ProcedureEngine, name: str, **inputs: Any) -> Execution:
    """Plan, submit, approve and execute a procedure."""
    identity = engine.submit(engine.plan(name, inputs, OWNER), OWNER)
    engine.approve(identity, engine.execution(identity).plan, OWNER)
    return engine.execute(identity, OWNER)
