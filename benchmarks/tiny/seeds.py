"""Compare models trained again from their seeds with the shipped ones, and publish the comparison."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks import results
from benchmarks.tiny import card, corpus
from benchmarks.tiny.evaluate import HELD_OUT
from benchmarks.tiny.families import FAMILIES
from benchmarks.tiny.sizes import RESULTS_FILE, SEEDS_FILE, SIZES, Size
from orchestrator.bench import environment
from orchestrator.bench.goals import Goal, at_least, at_most

APART = 0.02  # how much the mean over families may differ from the shipped one; 200 prompts a family measure it to 0.02


def goals(shipped: Sequence[card.Row], again: Sequence[card.Row], sizes: Sequence[str]) -> list[Goal]:
    """Return the goals for models that are trained again from their seeds, one for each of `sizes`."""
    reached = []
    for size in sizes:
        for split in HELD_OUT:
            apart = abs(card.family_mean(again, size, split) - card.family_mean(shipped, size, split))
            reached.append(at_most(f"{size}, {card.SPLIT_NAMES[split]}, apart from the shipped", apart, APART))
    if "large" in sizes:
        for family, goal in card.LARGE_GOALS.items():
            for split in HELD_OUT:
                value = card.share_of(again, size="large", family=family, split=split, grammar=False)["share"]
                reached.append(at_least(f"large, {family}, {card.SPLIT_NAMES[split]}", value, goal))
    return reached


def collect(shipped: dict[str, Any], before: dict[str, Any], sizes: Sequence[Size]) -> dict[str, Any]:
    """Return the results of models trained again: new ones for `sizes`, and those in `before` for other sizes."""
    before_rows = {name: card.size_rows(before["rows"], name) for name in before["training"]}
    rows_of = before_rows | {size.name: card.measured(size) for size in sizes}
    trained = before["training"] | {
        size.name: card.training(size) | {"machine": environment.machine()} for size in sizes
    }
    names = [name for name in SIZES if name in trained]
    rows = [row for name in names for row in rows_of[name]]
    return {
        "machine": environment.machine(),
        "versions": environment.versions("llama-cpp-python"),
        "command": "python -m benchmarks.tiny all",
        "data_hash": corpus.data_hash(),
        "training": {name: trained[name] for name in names},
        "rows": rows,
        "goals": [asdict(goal) for goal in goals(shipped["rows"], rows, names)],
    }


def compare(sizes: Sequence[Size], report: Callable[[str], None]) -> None:
    """Print how the trained models of `sizes` compare with the shipped ones, and write the results and the card."""
    shipped = card.read(RESULTS_FILE)
    before = card.read(SEEDS_FILE) if SEEDS_FILE.exists() else {"training": {}, "rows": []}
    document = collect(shipped, before, sizes)
    for size in sizes:
        lines = []
        for family in FAMILIES:
            pairs = [
                [card.share_of(rows, size=size.name, family=family, split=s, grammar=False)["share"] for s in HELD_OUT]
                for rows in (shipped["rows"], document["rows"])
            ]
            lines.append([family, *(f"{100 * share:.1f}" for pair in pairs for share in pair)])
        head = [
            size.name,
            *(f"{which}, {card.SPLIT_NAMES[s]}" for which in ("shipped", "from seeds") for s in HELD_OUT),
        ]
        report(card.table(head, lines))
    for goal in document["goals"]:
        report(f"{goal['name']}: {goal['value']} ({goal['goal']}){'' if goal['met'] else ', not met'}")
    results.write(SEEDS_FILE, document)
    card.write()
