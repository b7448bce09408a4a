"""Write the results as JSON and the model card from them: every figure in the card comes from the results."""

import json
import os
import platform
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.tiny import corpus
from benchmarks.tiny.evaluate import HELD_OUT, LONG_FAMILIES, STRUCTURED, rows_file
from benchmarks.tiny.families import FAMILIES
from benchmarks.tiny.sizes import CONTEXT, REGISTRY, RESULTS_FILE, SIZES, Size

CARD = REGISTRY / "README.md"
TEXT = Path(__file__).with_name("card.md")
MAX_BYTES = 30_000_000
LARGE_GOALS = {"plan": 0.95, "extract": 0.95, "summarize": 0.95, "code": 0.90}
SPLIT_NAMES = {"entity": "held-out names", "wording": "held-out wordings"}
Row = dict[str, Any]


def machine() -> dict[str, Any]:
    """Return what the figures were measured on."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {"processor": names[0] if names else platform.processor(), "cores": os.cpu_count()}


def training(size: Size) -> dict[str, Any]:
    """Return what the training of `size` cost, as its last step noted it."""
    cost: dict[str, Any] = json.loads(size.cost.read_text(encoding="utf-8"))
    return cost


def share_of(rows: Iterable[Row], **wanted: object) -> Row:
    """Return the one row with the `wanted` fields."""
    (row,) = [row for row in rows if all(row[key] == value for key, value in wanted.items())]
    return row


def family_mean(rows: Sequence[Row], size: str, split: str) -> float:
    """Return the mean over families of the exact answers of `size`, without grammar."""
    shares = [share_of(rows, size=size, family=f, split=split, grammar=False)["share"] for f in FAMILIES]
    return float(sum(shares) / len(shares))


def goals(rows: Sequence[Row], sizes_in_bytes: int) -> list[dict[str, Any]]:
    """Return what the family has to reach and what it reached."""
    found = []
    for family, goal in LARGE_GOALS.items():
        for split in HELD_OUT:
            value = share_of(rows, size="large", family=family, split=split, grammar=False)["share"]
            name = f"large, {family}, {SPLIT_NAMES[split]}"
            found.append({"name": name, "value": value, "goal": f">= {goal}", "met": value >= goal})
    for split in HELD_OUT:
        value = round(family_mean(rows, "small", split), 4)
        name = f"small, mean over families, {SPLIT_NAMES[split]}"
        found.append({"name": name, "value": value, "goal": "0.4 to 0.8", "met": 0.4 <= value <= 0.8})
    found.append(
        {"name": "bytes of all models", "value": sizes_in_bytes, "goal": "<= 30 MB", "met": sizes_in_bytes <= MAX_BYTES}
    )
    return found


def collect() -> dict[str, Any]:
    """Return the results: machine, versions, training cost, rows and goals."""
    rows: list[Row] = []
    for size in SIZES.values():
        rows += json.loads(rows_file(size).read_text(encoding="utf-8"))
    bytes_of = {size.name: size.weights.stat().st_size for size in SIZES.values()}
    return {
        "machine": machine(),
        "versions": {"python": platform.python_version(), "llama-cpp-python": version("llama-cpp-python")},
        "command": "python -m benchmarks.tiny all",
        "data_hash": corpus.data_hash(),
        "context": CONTEXT,
        "bytes": bytes_of,
        "training": {size.name: training(size) for size in SIZES.values()},
        "rows": rows,
        "goals": goals(rows, sum(bytes_of.values())),
    }


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *lines))


def percent(row: Row) -> str:
    """Return the share of a row with its interval."""
    return f"{100 * row['share']:.1f} ({100 * row['low']:.0f}-{100 * row['high']:.0f})"


def accuracy_table(rows: Sequence[Row], split: str, families: Iterable[str], grammar: bool) -> str:
    """Return the accuracy of each size on `families`."""
    lines = [
        [family, *(percent(share_of(rows, size=s, family=family, split=split, grammar=grammar)) for s in SIZES)]
        for family in families
    ]
    if not grammar and set(FAMILIES) <= {line[0] for line in lines}:
        lines.append(["mean", *(f"{100 * family_mean(rows, size, split):.1f}" for size in SIZES)])
    return table(["family", *SIZES], lines)


def size_table(results: dict[str, Any]) -> str:
    """Return shape, bytes and training cost of each size."""
    lines = []
    for size in SIZES.values():
        cost = results["training"][size.name]
        lines.append(
            [
                f"{size.name}.gguf",
                f"{cost['parameters'] / 1e6:.2f} M",
                f"{size.width} x {size.layers} layers, {size.heads} heads",
                f"{results['bytes'][size.name] / 1e6:.1f} MB",
                f"{cost['tokens'] / 1e6:.0f} M",
                f"{cost['seconds'] / 60:.0f} min",
            ]
        )
    return table(["file", "parameters", "shape", "Q8_0", "training tokens", "training time"], lines)


def long_table(rows: Sequence[Row]) -> str:
    """Return the accuracy on long prompts and joins, held-out names and wordings together."""
    lines = []
    for family in LONG_FAMILIES:
        longest = max(row["longest_prompt"] for row in rows if row["family"] == family)
        shares = []
        for size in SIZES:
            found = [row for row in rows if row["family"] == family and row["size"] == size]
            right, count = sum(row["right"] for row in found), sum(row["prompts"] for row in found)
            shares.append(f"{100 * right / count:.1f}")
        lines.append([family, str(longest), *shares])
    return table(["kind", "longest prompt (tokens)", *SIZES], lines)


def render(results: dict[str, Any]) -> str:
    """Return the model card."""
    rows = results["rows"]
    goal_lines = [[g["name"], str(g["value"]), g["goal"], "yes" if g["met"] else "**no**"] for g in results["goals"]]
    return TEXT.read_text(encoding="utf-8").format(
        sizes=size_table(results),
        processor=f"{results['machine']['cores']} cores of {results['machine']['processor']}",
        context=results["context"],
        prompts=share_of(rows, size="large", family="plan", split="entity", grammar=False)["prompts"],
        entity=accuracy_table(rows, "entity", FAMILIES, False),
        wording=accuracy_table(rows, "wording", FAMILIES, False),
        entity_grammar=accuracy_table(rows, "entity", STRUCTURED, True),
        wording_grammar=accuracy_table(rows, "wording", STRUCTURED, True),
        long=long_table(rows),
        goals=table(["goal", "value", "wanted", "met"], goal_lines),
        data_hash=results["data_hash"],
    )


def write() -> None:
    """Write the results and the model card."""
    results = collect()
    RESULTS_FILE.parent.mkdir(parents=True, exist_ok=True)
    RESULTS_FILE.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    CARD.write_text(render(results), encoding="utf-8")
