"""Merge the results of a part into the file of results: a part stays there until it is measured again."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.daemon.figures import PartResult
from orchestrator.bench import environment


def merged(before: dict[str, Any], name: str, part: PartResult, load: float, seconds: float) -> dict[str, Any]:
    """Return the results `before` with those of a part in place of its old ones.

    Each part names the machine and the versions that it was measured with, since a part may be measured again alone.
    `load` is the load average of the machine before the part began, and `seconds` how long the part took.
    """
    stamp = {
        "machine": environment.machine(),
        "versions": environment.versions("llama-cpp-python", "fastapi", "uvicorn"),
    }
    parts = dict(before.get("parts", {}))
    goals = [asdict(goal) for goal in part.goals]
    took = {"seconds": round(seconds, 1), "load_before": round(load, 2)}
    parts[name] = {**stamp, **took, **part.figures, "goals": goals}
    return {
        "command": "python -m benchmarks.daemon",
        "parts": parts,
        "goals": [goal for part in parts.values() for goal in part["goals"]],
    }


def read(file: Path) -> dict[str, Any]:
    """Return the results in a file; empty if there is no file. Raises OSError, ValueError."""
    if not file.exists():
        return {}
    document = json.loads(file.read_text(encoding="utf-8"))
    return document if isinstance(document, dict) else {}
