"""Write the results of benchmarks as JSON, and what the documentation tells of them.

`python -m benchmarks.results` writes docs/benchmarks.md again from all results.
"""

import json
from pathlib import Path
from typing import Any

from benchmarks import page
from orchestrator.bench.goals import state

FOLDER = Path(__file__).with_name("results")
ROOT = FOLDER.parents[1]


def write(file: Path, results: dict[str, Any]) -> None:
    """Write results as JSON, each goal with its state. Those of this checkout are written into the documentation, too.

    Raises OSError.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(with_states(results), indent=1) + "\n", encoding="utf-8")
    if file.resolve().parent == FOLDER.resolve():
        publish()


def with_states(document: Any) -> Any:
    """Return the document with `state` in place of `met` in its goals, which judges by an interval."""
    if isinstance(document, list):
        return [with_states(each) for each in document]
    if not isinstance(document, dict):
        return document
    if {"goal", "value", "met"} <= document.keys():
        reached = state(document["value"], document["goal"], met=bool(document["met"]))
        document = {key: value for key, value in document.items() if key != "met"} | {"state": reached}
    return {key: with_states(value) for key, value in document.items()}


def read(file: Path) -> dict[str, Any]:
    """Return the results in a file. Raises OSError, ValueError."""
    document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return document


def published() -> dict[str, dict[str, Any]]:
    """Return all results that are kept in this checkout, by the names of their files. Raises OSError, ValueError."""
    return {file.stem: read(file) for file in sorted(FOLDER.glob("*.json"))}


def publish() -> None:
    """Write docs/benchmarks.md from all results. An installation without a folder for it is left alone.

    Raises OSError, and KeyError for unknown results.
    """
    target = ROOT / page.PAGE
    if target.parent.exists():
        target.write_text(page.page(published()), encoding="utf-8")


if __name__ == "__main__":
    publish()
