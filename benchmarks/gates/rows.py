"""Log the result of each task as soon as it ends, so that a run that was killed or out of time can continue."""

import hashlib
import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from orchestrator.run.record.view import AttemptRow

Stamp = dict[str, Any]  # what results depend on next to task and setup; results with another stamp are ignored


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The result of a task."""

    task: str
    family: str
    document: str  # the hash of the TaskIR document
    run: str
    outcome: str  # "right"; "wrong", if the run is done but the answer is not right; "refused", if its step has failed
    seconds: float  # from the acceptance of the task to its end
    attempts: tuple[AttemptRow, ...]


def digest(data: bytes) -> str:
    """Return a short hash."""
    return hashlib.sha256(data).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class ResultLog:
    """The log of results in a file, of which only those with this stamp are read."""

    file: Path
    stamp: Stamp

    def read(self, setup: str, documents: Collection[str]) -> dict[str, TaskResult]:
        """Return the results of these documents in a setup, by document."""
        results: dict[str, TaskResult] = {}
        for entry in self._entries():
            if (
                entry["stamp"] == self.stamp
                and entry.get("setup") == setup
                and entry["result"]["document"] in documents
            ):
                result = msgspec.convert(entry["result"], TaskResult)
                results[result.document] = result
        return results

    def append(self, setup: str, result: TaskResult) -> None:
        """Append a result. Raises OSError."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        entry = {"stamp": self.stamp, "setup": setup, "result": msgspec.to_builtins(result)}
        with self.file.open("a", encoding="utf-8") as file:
            file.write(f"\n{json.dumps(entry)}")

    def _entries(self) -> Iterator[dict[str, Any]]:
        """Yield the entries of the file, without a line that was cut off when its writer was killed."""
        if not self.file.exists():
            return
        for line in filter(None, self.file.read_text(encoding="utf-8").split("\n")):
            try:
                yield json.loads(line)
            except json.JSONDecodeError:
                continue
