"""Keep what was measured, a file for each session, so that an interrupted one continues and later ones are compared."""

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from orchestrator.bench import environment
from orchestrator.bench.critical_path.measure import TaskMeasurement, summaries
from orchestrator.errors import InputError, Problem
from orchestrator.files import replace_file


@dataclass(frozen=True, slots=True)
class MeasuringSession:
    """What one call of the benchmark measured, or is measuring."""

    id: str  # the local time of its start
    began: float  # in seconds since the epoch
    complete: bool
    command: str
    machine: Mapping[str, Any]
    versions: Mapping[str, str]
    # What the figures depend on: the workloads, the models and the rounds. A session continues only with the same.
    stamp: Mapping[str, Any]
    rows: tuple[TaskMeasurement, ...] = ()

    def find(self, workload: str, task: str, way: str, number: int) -> TaskMeasurement | None:
        """Return the measurement of a run, if there is one."""
        key = (workload, task, way, number)
        return next((row for row in self.rows if (row.workload, row.task, row.way, row.number) == key), None)

    def add(self, rows: Iterable[TaskMeasurement]) -> "MeasuringSession":
        """Return the session with further measurements."""
        return replace(self, rows=(*self.rows, *rows))

    def completed(self) -> "MeasuringSession":
        """Return the session as one of which nothing is left to be measured."""
        return replace(self, complete=True)

    def to_json(self) -> dict[str, Any]:
        """Return the session as JSON, with the summaries of its workloads."""
        return asdict(self) | {"summaries": [summary.to_json() for summary in summaries(self.rows)]}


class Sessions:
    """The sessions in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def begin(self, command: str, stamp: Mapping[str, Any]) -> MeasuringSession:
        """Return a new session."""
        now = time.time()
        used_ids = {file.stem for file in self._files()}
        name = time.strftime("%Y%m%d-%H%M%S", time.localtime(now))
        number = next(at for at in range(len(used_ids) + 1) if _numbered(name, at) not in used_ids)
        versions = environment.versions("llama-cpp-python")
        return MeasuringSession(_numbered(name, number), now, False, command, environment.machine(), versions, stamp)

    def unfinished(self, stamp: Mapping[str, Any]) -> MeasuringSession | None:
        """Return the newest session that was interrupted and has the same stamp."""
        plain = json.loads(json.dumps(stamp))
        return next(
            (session for session in reversed(self.all()) if not session.complete and session.stamp == plain), None
        )

    def all(self) -> list[MeasuringSession]:
        """Return all sessions, the oldest first. Files that are no sessions are left out."""
        sessions = []
        for file in self._files():
            try:
                sessions.append(read_session(file))
            except InputError:
                continue
        return sorted(sessions, key=lambda session: session.began)

    def find(self, name: str) -> MeasuringSession:
        """Return the session for its id, the beginning of it, `last`, or the name of a file. Raises InputError."""
        if name.endswith(".json") and Path(name).is_file():
            return read_session(Path(name))
        sessions = self.all()
        matches = (
            sessions[-1:]
            if name == "last"
            else [session for session in sessions if name and session.id.startswith(name)]
        )
        if len(matches) != 1:
            problem = f"is the beginning of {len(matches)} sessions" if matches else "is no session and no file"
            accepted = (
                ", ".join(session.id for session in sessions[-5:])
                or "none yet: `orchestrator bench critical-path` makes one"
            )
            raise InputError(Problem(name, problem, accepted))
        return matches[0]

    def write(self, session: MeasuringSession) -> Path:
        """Write a session, over an earlier state of it, and return its file. Raises OSError; then the old one stays."""
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / f"{session.id}.json"
        replace_file(file, json.dumps(session.to_json(), indent=1) + "\n")
        return file

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("*.json"))


def read_session(file: Path) -> MeasuringSession:
    """Return the session in a file. Raises InputError for a file that cannot be read or holds none."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=MeasuringSession)
    except OSError as error:
        raise InputError(Problem(str(file), f"cannot be read: {error.strerror}", "a file of the benchmark")) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(Problem(str(file), f"is no session of the benchmark: {error}", "one that it wrote")) from error


def _numbered(name: str, number: int) -> str:
    return f"{name}-{number}" if number else name
