"""`python -m benchmarks.context`: measure, write benchmarks/results/context.json, and fail if a goal is missed."""

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.context.measure import CONTEXT, WHOLE, compare
from benchmarks.context.task import DOCUMENTS, RELEVANT
from benchmarks.models import Shape, write_llama
from benchmarks.results import FOLDER, machine, versions, write

SEED = 7
SHAPE = Shape(context=WHOLE)


def main() -> int:
    """Measure; 1 if a goal is missed."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "documents"
        folder.mkdir()
        model = write_llama(Path(place) / "random.gguf", SHAPE, SEED)
        measured = asyncio.run(compare(model, folder, SEED))
    goals = judged(measured)
    results = {
        "machine": machine(),
        "versions": versions("llama-cpp-python"),
        "command": "python -m benchmarks.context",
        "task": {"documents": DOCUMENTS, "relevant": RELEVANT, "context": CONTEXT, "seed": SEED},
        "decided_by": "a rule that sees what the model would see; a real engine with random weights reads every prompt",
        "measured": measured,
        "goals": goals,
    }
    write(FOLDER / "context.json", results)
    for name, goal in goals.items():
        print(f"{'met   ' if goal['met'] else 'MISSED'} {name}: {goal['value']} (goal: {goal['goal']})")
    return 0 if all(goal["met"] for goal in goals.values()) else 1


def judged(measured: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return each goal, what was measured for it, and whether it is met."""
    plain, edited = measured["without"], measured["with"]
    right = plain["right"] and edited["right"]
    return {
        "both find everything": _goal(right, True, right),
        "prompt tokens, with as a share of without": _less(edited["prompt_tokens"], plain["prompt_tokens"]),
        "longest prompt, with, in tokens": _goal(edited["peak"], f"<= {CONTEXT}", edited["peak"] <= CONTEXT),
        "handed on, as a share of everything": _less(edited["handed_on"], measured["everything"]),
    }


def _less(value: int, whole: int) -> dict[str, Any]:
    share = round(value / whole, 3)
    return _goal(share, "< 1", share < 1)


def _goal(value: object, goal: object, met: bool) -> dict[str, Any]:
    return {"value": value, "goal": goal, "met": met}


if __name__ == "__main__":
    sys.exit(main())
