"""`python -m benchmarks.context`: measure, write benchmarks/results/context.json, and fail if a goal is missed."""

import asyncio
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.context.measure import CONTEXTS, WHOLE, compare
from benchmarks.context.task import DOCUMENTS, RELEVANT
from benchmarks.models import SPECIAL, ModelShape, byte_letters, write_llama
from benchmarks.results import FOLDER, write
from benchmarks.tiny.sizes import CONTEXT
from benchmarks.tiny.tokenizer import Tokenizer
from orchestrator.bench.environment import machine, versions
from orchestrator.bench.goals import Goal, at_most, holds

SEED = 7
TOKENIZER = Path(__file__).parents[2] / "registry" / "tiny" / "tokenizer.json"
RECOMPUTED = 1.3  # the goal for the tokens computed with editing, as a share of those without it


def main() -> int:
    """Measure and write the results. Returns 1 if a goal is missed, else 0."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "documents"
        folder.mkdir()
        merges = Tokenizer.load(TOKENIZER).merges
        shape = ModelShape(context=WHOLE, vocabulary=len(byte_letters()) + len(merges) + len(SPECIAL))
        model = write_llama(Path(place) / "random.gguf", shape, SEED, merges=merges)
        measured = asyncio.run(compare(model, folder, SEED))
    goals = goals_of(measured)
    results = {
        "machine": machine(),
        "versions": versions("llama-cpp-python"),
        "command": "python -m benchmarks.context",
        "task": {"documents": DOCUMENTS, "relevant": RELEVANT, "contexts": CONTEXTS, "seed": SEED},
        "decided_by": "a rule that sees what the model would see; a real engine with random weights reads every prompt",
        "tokenizer": "that of the embedded models",
        "measured": measured,
        "goals": [asdict(goal) for goal in goals],
    }
    write(FOLDER / "context.json", results)
    for goal in goals:
        print(f"{'met   ' if goal.met else 'MISSED'} {goal.name}: {goal.value} (goal: {goal.goal})")
    return 0 if all(goal.met for goal in goals) else 1


def goals_of(measured: dict[str, Any]) -> list[Goal]:
    """Return the goals with what was measured for them, for the context size of the embedded models."""
    plain, edited = measured["without"], measured["with"][str(CONTEXT)]
    right = plain["right"] and all(cost["right"] for cost in measured["with"].values())
    return [
        holds("all find everything", right),
        _share("prompt tokens, with as a share of without", edited["prompt_tokens"], plain["prompt_tokens"], 0.5),
        _share("computed tokens, with as a share of without", edited["computed"], plain["computed"], RECOMPUTED),
        at_most("longest prompt, with, in tokens", edited["peak"], CONTEXT),
        _share("handed on, as a share of everything", edited["handed_on"], measured["everything"], 0.5),
    ]


def _share(name: str, value: int, whole: int, most: float) -> Goal:
    return at_most(name, value / whole, most)


if __name__ == "__main__":
    sys.exit(main())
