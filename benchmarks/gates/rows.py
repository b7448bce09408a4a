"""Keep what became of each task, row by row as it comes, so that a run that was killed or out of time goes on."""

import hashlib
import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from orchestrator.history.view import AttemptRow

Stamp = dict[str, Any]
"""What results depend on besides the task and the world; rows with another stamp do not count."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a task: right, wrong (it was delivered), or refused (its step has failed).

    `document` is the hash of the task as it was given, `seconds` the time from its acceptance to its end.
    """

    task: str
    family: str
    document: str
    run: str
    outcome: str
    seconds: float
    attempts: tuple[AttemptRow, ...]


_ADAPTER = TypeAdapter(Result)


def digest(data: bytes) -> str:
    """Return a short hash."""
    return hashlib.sha256(data).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Rows:
    """The file of the rows that this stamp counts."""

    file: Path
    stamp: Stamp

    def read(self, world: str, documents: Collection[str]) -> dict[str, Result]:
        """Return by document what became of these in a world."""
        found: dict[str, Result] = {}
        for entry in self._entries():
            if entry["stamp"] == self.stamp and entry["world"] == world and entry["result"]["document"] in documents:
                result = _ADAPTER.validate_python(entry["result"])
                found[result.document] = result
        return found

    def append(self, world: str, result: Result) -> None:
        """Add a row. Raises OSError."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        entry = {"stamp": self.stamp, "world": world, "result": _ADAPTER.dump_python(result, mode="json")}
        with self.file.open("a", encoding="utf-8") as file:
            file.write(f"\n{json.dumps(entry)}")

    def _entries(self) -> Iterator[dict[str, Any]]:
        """Yield what the file holds, but a line that was cut off when its writer was killed."""
        if not self.file.exists():
            return
        for line in filter(None, self.file.read_text(encoding="utf-8").split("\n")):
            try:
                yield json.loads(line)
            except json.JSONDecodeError:
                continue
