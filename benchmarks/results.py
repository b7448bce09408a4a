"""Write the results of benchmarks as JSON, and what the documentation tells of them.

`python -m benchmarks.results` writes docs/benchmarks.md again from all results.
"""

import json
from pathlib import Path
from typing import Any

from benchmarks import page

FOLDER = Path(__file__).with_name("results")
ROOT = FOLDER.parents[1]


def write(file: Path, results: dict[str, Any]) -> None:
    """Write results as JSON. If they are those of this checkout, the documentation is written again with them.

    Raises OSError.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if file.parent == FOLDER:
        publish()


def published() -> dict[str, dict[str, Any]]:
    """Return all results that are kept in this checkout, by the names of their files. Raises OSError, ValueError."""
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted(FOLDER.glob("*.json"))}


def publish() -> None:
    """Write docs/benchmarks.md from all results. An installation without a folder for it is left alone.

    Raises OSError, and KeyError for unknown results.
    """
    target = ROOT / page.PAGE
    if target.parent.exists():
        target.write_text(page.page(published()), encoding="utf-8")


if __name__ == "__main__":
    publish()
