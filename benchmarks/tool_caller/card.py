"""Publish what was measured: the results as JSON, and the card from them."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from benchmarks import results
from benchmarks.tiny.card import SPLIT_NAMES, percent, table
from benchmarks.tool_caller.evaluate import CallAccuracyRow
from benchmarks.tool_caller.recipe import FOLDER, SHIPPED, SIZE
from orchestrator.bench import environment
from orchestrator.bench.goals import Goal, at_least

RESULTS_FILE: Final = results.FOLDER / "tool-caller.json"
CARD: Final = FOLDER / "README.md"
TEXT: Final = Path(__file__).with_name("card.md")
GOAL: Final = 0.9


def publish(rows: list[CallAccuracyRow]) -> None:
    """Write the results of the shipped model."""
    document = {
        "machine": environment.machine(),
        "versions": environment.versions("llama-cpp-python"),
        "command": "python -m benchmarks.tool_caller evaluate",
        "training": json.loads(SIZE.cost.read_text(encoding="utf-8")),
        "bytes": SHIPPED.stat().st_size,
        "rows": [row.shown for row in rows],
        "goals": [asdict(_goal(row)) for row in rows],
    }
    results.write(RESULTS_FILE, document)


def _goal(row: CallAccuracyRow) -> Goal:
    thought = "with" if row.thinks else "without"
    return at_least(f"{row.syntax}, {SPLIT_NAMES[row.split]}, {thought} a thought", row.right / row.answers, GOAL)


def write() -> None:
    """Write the card from the results."""
    CARD.write_text(render(json.loads(RESULTS_FILE.read_text(encoding="utf-8"))), encoding="utf-8")


def render(document: dict[str, Any]) -> str:
    """Return the card."""
    lines = [
        [row["syntax"], SPLIT_NAMES[row["split"]], "with" if row["thinks"] else "without", percent(row)]
        for row in document["rows"]
    ]
    cost = document["training"]
    return TEXT.read_text(encoding="utf-8").format(
        parameters=cost["parameters"] / 1e6,
        megabytes=document["bytes"] / 1e6,
        answers=document["rows"][0]["answers"],
        rows=table(["syntax", "held out", "a thought", "exact"], lines),
        goal=round(100 * GOAL),
        met=sum(goal["state"] == "met" for goal in document["goals"]),
        count=len(document["goals"]),
        steps=cost["steps"],
        tokens=cost["tokens"] / 1e6,
        minutes=cost["seconds"] / 60,
        device=cost.get("device", f"{document['machine']['cores']} cores of {document['machine']['processor']}"),
    )
