"""Show what led to what as a graph that answers Cypher.

The graph is a projection of the database. A process writes it to a new file, and a small file names it once it is
whole, so the process may be killed at any time. Another process answers each question (`graph_reader`), in a sandbox
where it sees only the graph's file.

    (:Run)-[:OF_TYPE]->(:TaskType)           (:Attempt)-[:IN_ROLE]->(:Role)
    (:Run)-[:HAS]->(:Step)                   (:Attempt)-[:AS_PERSONA]->(:Persona)
    (:Step)-[:TRIED]->(:Attempt)             (:Attempt)-[:WITH_MODEL]->(:Model)
    (:Step)-[:LED_TO]->(:Step)               (:Attempt)-[:FAILED_WITH]->(:FailureKind)
    (:Attempt)-[:FOLLOWED_BY]->(:Attempt)    (:FailureKind)-[:ANSWERED_BY {times, successes}]->(:Mitigation)
    (:Role)-[:WORTH {persona, q, count}]->(:TaskType)

Run, Step and Attempt have an `id` (RUN, RUN/STEP, RUN/STEP/NUMBER), the others a `name`. A step has `step`; an attempt
has `number`, `success`, `reward`, `at`, `thinking` and `mode`. `FOLLOWED_BY` has the `mitigation`: what the next
attempt at the step did differently.
"""

import contextlib
import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Literal

from orchestrator.files import replace_file
from orchestrator.memrl import graph_reader
from orchestrator.memrl.errors import CypherFailed, CypherRefused, CypherTimeout, GraphError, StoreError
from orchestrator.memrl.files import checksum, importing_environment, unused_name
from orchestrator.memrl.graph_reader import (
    ANSWER_BYTES,
    OUTPUT_BYTES,
    POOL_BYTES,
    PROGRAM_BYTES,
    addresses_of,
    opened_graph,
)
from orchestrator.memrl.store import EpisodeStore, LearnedAttempt

Library = Literal["kuzu", "ladybug"]

POINTER: Final = "graph.json"
FRESH_UP_TO: Final = 50_000  # outcomes up to which a stale graph is rewritten before it answers: a few seconds
WRITING_SECONDS: Final = 1800.0
START_SECONDS: Final = 20.0  # added to the question's time limit, for a process to start on a busy machine
NO_TYPE: Final = "(request)"  # the task type of requests in words and of chats

_READING: Final = frozenset({"MATCH", "OPTIONAL", "WITH", "UNWIND", "RETURN", "CALL"})
_WRITING: Final = frozenset(
    "ALTER ATTACH BEGIN CHECKPOINT COMMENT COMMIT COPY CREATE DELETE DETACH DROP EXPORT IMPORT INSERT INSTALL LOAD "
    "MACRO MERGE REMOVE ROLLBACK SET UNINSTALL UPDATE USE".split()
)
_TABLE_FUNCTIONS: Final = frozenset({"SHOW_TABLES", "TABLE_INFO", "SHOW_CONNECTION", "DB_VERSION"})
_TOKEN: Final = re.compile(
    r"""
    (?P<string> '(?:[^'\\]|\\[\\'"bfnrtBFNRTxuU])*' | "(?:[^"\\]|\\[\\'"bfnrtBFNRTxuU])*")
    | (?P<name> `[^`]*`)
    | (?P<space> \s+ | //[^\n]* | /\*.*?\*/)
    | (?P<number> \d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
    | (?P<word> [^\W\d]\w*)
    | (?P<sign> /\* | .)
    """,
    re.DOTALL | re.VERBOSE,
)
# halves of surrogate pairs, and control characters but tab and line feed; a lone carriage return might end a line
_UNREADABLE: Final = re.compile("[\0-\x08\x0b-\x1f\ud800-\udfff]")
# signs that remain if a string, name or comment does not end, or an escape is unknown
_UNCLOSED: Final = frozenset("""'"`\\""") | {"/*"}
_ACCEPTED: Final = "one question that begins with MATCH, OPTIONAL MATCH, WITH, UNWIND, RETURN or CALL, and only reads"

_NODES: Final = {
    "TaskType": "name STRING",
    "Role": "name STRING",
    "Persona": "name STRING",
    "Model": "name STRING",
    "FailureKind": "name STRING",
    "Mitigation": "name STRING",
    "Run": "id STRING",
    "Step": "id STRING, step STRING",
    "Attempt": "id STRING, number INT64, success DOUBLE, reward DOUBLE, at DOUBLE, thinking STRING, mode STRING",
}
_RELATIONS: Final = {
    "OF_TYPE": ("Run", "TaskType", ""),
    "HAS": ("Run", "Step", ""),
    "TRIED": ("Step", "Attempt", ""),
    "LED_TO": ("Step", "Step", ""),
    "FOLLOWED_BY": ("Attempt", "Attempt", ", mitigation STRING"),
    "IN_ROLE": ("Attempt", "Role", ""),
    "AS_PERSONA": ("Attempt", "Persona", ""),
    "WITH_MODEL": ("Attempt", "Model", ""),
    "FAILED_WITH": ("Attempt", "FailureKind", ""),
    "ANSWERED_BY": ("FailureKind", "Mitigation", ", times INT64, successes INT64"),
    "WORTH": ("Role", "TaskType", ", persona STRING, q DOUBLE, count INT64"),
}


@dataclass(frozen=True, slots=True)
class GraphAnswer:
    columns: tuple[str, ...]
    rows: list[list[Any]]  # JSON; nodes and relations are objects with their properties
    more: bool  # there are further rows
    behind: int  # outcomes since the graph was written


@dataclass(frozen=True, slots=True)
class _Written:
    """What the pointer file says about a whole graph."""

    file: str
    bytes: int
    checksum: int
    library: str
    version: str  # of the library: a graph of another version is rewritten
    outcomes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderJob:
    """A Python program that answers one question, and all that it needs."""

    source: bytes  # imports only the standard library and the graph's library
    arguments: tuple[str, ...]
    question: bytes  # for stdin
    graph: Path  # the only file of the state folder that it sees, read-only, at this path
    seconds: float  # wall-clock time, and CPU time
    memory: int  # bytes of address space
    output: int  # bytes of stdout that are kept


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessEnd:
    exit_code: int | None  # None if a signal or a limit ended it
    signal: int | None = None
    limit: str | None = None  # wall, cpu, memory or another resource
    stdout: bytes
    stderr: bytes


# Runs a job where it cannot read other files, write files, start programs or use the network. Blocks. Raises
# `GraphError` with the reason if there is no such place.
RunConfined = Callable[[ReaderJob], ProcessEnd]


class Graph:
    """The graph of a memory. Thread-safe; answers one question at a time."""

    def __init__(self, folder: Path, library: Library, database: Path, outcomes: Callable[[], int]) -> None:
        """`outcomes` returns how many outcomes the database has by now."""
        self._folder = folder
        self._library = library
        self._database = database
        self._outcomes = outcomes
        self._lock = threading.Lock()

    def write(self) -> None:
        """Rewrite the graph from the database. Raises `GraphError`, and then leaves the earlier graph."""
        with self._lock:
            self._write()

    def ask(self, cypher: str, confined: RunConfined, seconds: float, rows: int) -> GraphAnswer:
        """Ask a question with a limit of `seconds` and `rows`. `confined` runs the process that answers.

        The graph is rewritten first if it is missing, damaged or of another library, or stale with at most FRESH_UP_TO
        outcomes. Raises `CypherRefused`, `CypherFailed`, `CypherTimeout` and `GraphError`.
        """
        check_reads_only(cypher)
        with self._lock:
            written = self._whole()
            outcomes = self._outcomes()
            if written is None or (written.outcomes != outcomes and outcomes <= FRESH_UP_TO):
                written = self._write()
            end = confined(self._reader_job(self._folder / written.file, cypher, seconds, rows))
        if end.limit in ("wall", "cpu") or end.signal == signal.SIGALRM:
            raise CypherTimeout(seconds)
        if end.limit is not None:
            raise CypherFailed(f"the question needs more {end.limit} than it may have")
        answer = _answer_of(end)
        match answer.get("error"):
            case None:
                behind = max(0, outcomes - written.outcomes)
                return GraphAnswer(tuple(answer["columns"]), answer["rows"], answer["more"], behind)
            case "timeout":
                raise CypherTimeout(seconds)
            case error:
                raise CypherFailed(f"{self._library} does not answer this question: {error}")

    def _reader_job(self, graph: Path, cypher: str, seconds: float, rows: int) -> ReaderJob:
        graph.chmod(0o644)  # the sandbox has another user; the state folder keeps everyone else away from it
        return ReaderJob(
            source=Path(graph_reader.__file__).read_bytes(),
            arguments=(self._library, str(graph), str(seconds), str(rows)),
            question=cypher.encode(),
            graph=graph,
            seconds=seconds + START_SECONDS,
            memory=PROGRAM_BYTES + POOL_BYTES + ANSWER_BYTES + addresses_of(graph.stat().st_size),
            output=OUTPUT_BYTES,
        )

    def _write(self) -> _Written:
        self._remove_unnamed()
        outcomes = self._outcomes()
        path = self._folder / f"{unused_name(self._folder, 'graph')}.{self._library}"
        if error := _answer_of(self._run_writer(path)).get("error"):
            raise GraphError(f"the graph cannot be written: {error}")
        written = _Written(
            path.name, path.stat().st_size, checksum(path), self._library, _version(self._library), outcomes
        )
        replace_file(self._folder / POINTER, json.dumps(asdict(written), indent=1) + "\n", durable=True)
        self._remove_unnamed()
        return written

    def _run_writer(self, path: Path) -> ProcessEnd:
        try:
            process = subprocess.run(  # noqa: S603 -- this interpreter, a module of ours
                [sys.executable, "-m", "orchestrator.memrl.graph", self._library, str(self._database), str(path)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=WRITING_SECONDS,
                env=importing_environment(),
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise GraphError(f"the graph was not written within {WRITING_SECONDS:g} s") from None
        except OSError as error:
            raise GraphError(f"the process of the graph cannot be started: {error}") from error
        code = process.returncode
        return ProcessEnd(
            exit_code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            stdout=process.stdout,
            stderr=process.stderr,
        )

    def _whole(self) -> _Written | None:
        # None: it has to be rewritten
        written = self._named()
        if written is None or (written.library, written.version) != (self._library, _version(self._library)):
            return None
        path = self._folder / written.file
        try:
            whole = path.stat().st_size == written.bytes and checksum(path) == written.checksum
        except OSError:
            return None
        return written if whole else None

    def _named(self) -> _Written | None:
        try:
            return _Written(**json.loads((self._folder / POINTER).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def _remove_unnamed(self) -> None:
        # left by killed writers, or replaced
        written = self._named()
        for path in self._folder.glob("graph-*.*"):
            if written is None or not path.name.startswith(written.file):
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)


def _answer_of(end: ProcessEnd) -> dict[str, Any]:
    # raises `GraphError` if the process failed or printed no JSON
    with contextlib.suppress(ValueError):
        if end.exit_code == 0:
            answer: dict[str, Any] = json.loads(end.stdout)
            return answer
    last = end.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
    how = f"with exit code {end.exit_code}" if end.signal is None else f"by signal {end.signal}"
    raise GraphError(f"the process of the graph ended {how}: {last[0]}")


def check_reads_only(cypher: str) -> None:
    """Raise `CypherRefused` unless a question only reads the graph.

    A second line of defence: the process that evaluates it could not change anything.
    """
    cypher = cypher.replace("\r\n", "\n")
    if _UNREADABLE.search(cypher):
        raise CypherRefused(f"the question has control characters or half surrogates; accepted: {_ACCEPTED}")
    tokens = [(str(token.lastgroup), token[0]) for token in _TOKEN.finditer(cypher)]
    _check_written_plainly(tokens)
    words = [(kind, text.upper()) for kind, text in tokens if kind != "space"]
    if words[-1:] == [("sign", ";")]:
        words.pop()
    if not words or words[0][0] != "word" or words[0][1] not in _READING:
        begins = f"begins with {words[0][1]}" if words else "is empty"
        raise CypherRefused(f"the question {begins}; accepted: {_ACCEPTED}")
    if ("sign", ";") in words:
        raise CypherRefused(f"there is more than one question; accepted: {_ACCEPTED}")
    clauses = [place for place, (kind, _) in enumerate(words) if kind == "word" and not _is_name(words, place)]
    if changing := sorted(_WRITING.intersection(words[place][1] for place in clauses)):
        raise CypherRefused(f"{', '.join(changing)} does more than read the graph; accepted: {_ACCEPTED}")
    for place in clauses:
        if words[place][1] == "CALL":
            _check_call([text for _, text in words[place + 1 : place + 3]])


def _check_written_plainly(tokens: Sequence[tuple[str, str]]) -> None:
    # refuses what the graph's library might split into words differently
    for (before, number), (kind, text) in pairwise([("space", ""), *tokens]):
        if before == "number" and kind == "word":
            raise CypherRefused(f"{number + text} is a number and a word; accepted: a space between them")
        if kind == "word" and not text.isidentifier():
            raise CypherRefused(f"{text} is no name; accepted: letters, digits and _, or a name in backquotes")
        if kind == "sign" and text in _UNCLOSED:
            problem = f"{text} begins a string, a name or a comment that does not end, or has an unknown escape"
            raise CypherRefused(f"{problem}; accepted: {_ACCEPTED}")


def _is_name(words: Sequence[tuple[str, str]], place: int) -> bool:
    # a property (`a.set`) or a label (`:Set`)
    if place < 2:
        return False
    (kind, text), last = words[place - 2 : place]
    if last == ("sign", "."):
        return kind in ("word", "name") or text in (")", "]")
    return last == ("sign", ":") and kind != "number"


def _check_call(following: Sequence[str]) -> None:
    called, bracket = [*following, "", ""][:2]
    if called not in _TABLE_FUNCTIONS or bracket != "(":
        names = ", ".join(sorted(_TABLE_FUNCTIONS))
        raise CypherRefused(f"CALL {called} is not accepted; accepted after CALL: {names}")


def mitigation(earlier: LearnedAttempt, later: LearnedAttempt) -> str:
    names = ("role", "persona", "model", "thinking", "mode")
    changed = [f"other {name}" for name in names if getattr(earlier.action, name) != getattr(later.action, name)]
    return " and ".join(changed) or "again"


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError as error:
        extra = "kuzu" if library == "kuzu" else "learning"
        raise GraphError(
            f"the graph needs the package {library}; accepted: pip install 'orchestrator[{extra}]'"
        ) from error


# What follows runs in a process of its own.


class _Tables:
    """Collects the graph's tables as CSV files. Nodes are written once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = contextlib.ExitStack()
        self._writers: dict[str, Any] = {}
        self._seen: dict[str, set[str]] = {name: set() for name in _NODES}

    def __enter__(self) -> "_Tables":
        for table in (*_NODES, *_RELATIONS):
            file = self._stack.enter_context((self._folder / f"{table}.csv").open("w", encoding="utf-8", newline=""))
            self._writers[table] = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n")
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def node(self, table: str, name: str, *properties: object) -> str:
        if name not in self._seen[table]:
            self._seen[table].add(name)
            self._writers[table].writerow([name, *properties])
        return name

    def relation(self, table: str, source: str, target: str, *properties: object) -> None:
        self._writers[table].writerow([source, target, *properties])


def _project(store: EpisodeStore, folder: Path) -> None:
    answered: Counter[tuple[str, str]] = Counter()
    succeeded: Counter[tuple[str, str]] = Counter()
    with _Tables(folder) as tables:
        for notes in _by_step(store.notes()):
            _project_step(tables, notes)
            for earlier, later in pairwise(notes):
                if earlier.failure:
                    way = (earlier.failure, mitigation(earlier, later))
                    answered[way] += 1
                    succeeded[way] += bool(later.success and later.success > 0.5)
        for (failure, how), times in answered.items():
            tables.node("FailureKind", failure)
            tables.node("Mitigation", how)
            tables.relation("ANSWERED_BY", failure, how, times, succeeded[failure, how])
        for value in store.values():
            kind = tables.node("TaskType", NO_TYPE if value.task_type is None else value.task_type)
            role = tables.node("Role", value.role)
            tables.relation("WORTH", role, kind, *_or_none(value.persona), value.q, value.count)


def _by_step(notes: Iterable[LearnedAttempt]) -> Iterator[list[LearnedAttempt]]:
    group: list[LearnedAttempt] = []
    for note in notes:
        if group and group[0].key[:2] != note.key[:2]:
            yield group
            group = []
        group.append(note)
    if group:
        yield group


def _project_step(tables: _Tables, notes: list[LearnedAttempt]) -> None:
    run, step, _ = notes[0].key
    kind = NO_TYPE if notes[0].task_type is None else notes[0].task_type
    if run not in tables._seen["Run"]:
        tables.relation("OF_TYPE", tables.node("Run", run), tables.node("TaskType", kind))
    whole = f"{run}/{step}"
    if whole not in tables._seen["Step"]:
        tables.node("Step", whole, step)
    tables.relation("HAS", run, whole)
    for earlier_step in dict.fromkeys(before for note in notes for before in note.after):
        tables.relation("LED_TO", tables.node("Step", f"{run}/{earlier_step}", earlier_step), whole)
    ids = []
    for note in notes:
        action = note.action
        success = "" if note.success is None else note.success
        attempt = f"{whole}/{note.key[2]}"
        ids.append(attempt)
        tables.node(
            "Attempt", attempt, note.key[2], success, note.reward, note.at, *_or_none(action.thinking, action.mode)
        )
        tables.relation("TRIED", whole, attempt)
        tables.relation("IN_ROLE", attempt, tables.node("Role", action.role))
        if action.persona:
            tables.relation("AS_PERSONA", attempt, tables.node("Persona", action.persona))
        if action.model:
            tables.relation("WITH_MODEL", attempt, tables.node("Model", action.model))
        if note.failure:
            tables.relation("FAILED_WITH", attempt, tables.node("FailureKind", note.failure))
    for (first, second), (earlier, later) in zip(pairwise(ids), pairwise(notes), strict=True):
        tables.relation("FOLLOWED_BY", first, second, mitigation(earlier, later))


def _or_none(*texts: str) -> tuple[str, ...]:
    # one of the libraries reads an empty text as no value
    return tuple(text or "none" for text in texts)


def _write_graph(library: str, database: Path, target: Path) -> dict[str, Any]:
    folder = target.with_name(target.name + ".tables")
    folder.mkdir()
    try:
        store = EpisodeStore.open_to_read(database)
        try:
            _project(store, folder)
        finally:
            store.close()
        with opened_graph(library, target, read_only=False) as connection:
            for table, columns in _NODES.items():
                connection.execute(f"CREATE NODE TABLE {table} ({columns}, PRIMARY KEY ({columns.split()[0]}))")
            for table, (source, sink, columns) in _RELATIONS.items():
                connection.execute(f"CREATE REL TABLE {table} (FROM {source} TO {sink}{columns})")
            for table in (*_NODES, *_RELATIONS):
                file = folder / f"{table}.csv"
                if file.stat().st_size:
                    connection.execute(f"COPY {table} FROM {_literal(str(file))} (ESCAPE='\"', PARALLEL=FALSE)")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {}


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def main(arguments: list[str]) -> None:
    library, database, target = arguments
    os.nice(5)
    try:
        answer = _write_graph(library, Path(database), Path(target))
    except (RuntimeError, OSError, ImportError, StoreError) as error:
        answer = {"error": str(error)}
    print(json.dumps(answer, default=str))


if __name__ == "__main__":
    main(sys.argv[1:])
