"""Write the results as JSON, and the model card from them, so that every figure in the card is in the results."""

import json
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import results
from benchmarks.tiny import corpus
from benchmarks.tiny.evaluate import HELD_OUT, LONG_FAMILIES, STRUCTURED
from benchmarks.tiny.families import FAMILIES
from benchmarks.tiny.sizes import CONTEXT, REGISTRY, RESULTS_FILE, SEEDS_FILE, SIZES, Size
from orchestrator.bench import environment

CARD = REGISTRY / "README.md"
TEXT = Path(__file__).with_name("card.md")
MAX_BYTES = 30_000_000
LARGE_GOALS = {"plan": 0.95, "extract": 0.95, "summarize": 0.95, "code": 0.90}
SPLIT_NAMES = {"entity": "held-out names", "wording": "held-out wordings"}
Row = dict[str, Any]


def share_of(rows: Iterable[Row], **wanted: object) -> Row:
    """Return the only row with these values of its fields."""
    (row,) = [row for row in rows if all(row[key] == value for key, value in wanted.items())]
    return row


def size_rows(rows: Iterable[Row], size: str) -> list[Row]:
    """Return the rows of `size`."""
    return [row for row in rows if row["size"] == size]


def family_mean(rows: Sequence[Row], size: str, split: str) -> float:
    """Return the share of exact answers of `size` without grammar, averaged over families."""
    shares = [share_of(rows, size=size, family=f, split=split, grammar=False)["share"] for f in FAMILIES]
    return float(sum(shares) / len(shares))


def goals(rows: Sequence[Row], sizes_in_bytes: int) -> list[dict[str, Any]]:
    """Return the goals of the models, with what was measured for them."""
    reached = []
    for family, goal in LARGE_GOALS.items():
        for split in HELD_OUT:
            value = share_of(rows, size="large", family=family, split=split, grammar=False)["share"]
            name = f"large, {family}, {SPLIT_NAMES[split]}"
            reached.append({"name": name, "value": value, "goal": f">= {goal}", "met": value >= goal})
    for split in HELD_OUT:
        value = round(family_mean(rows, "small", split), 4)
        name = f"small, mean over families, {SPLIT_NAMES[split]}"
        reached.append({"name": name, "value": value, "goal": "0.4 to 0.8", "met": 0.4 <= value <= 0.8})
    reached.append(
        {"name": "bytes of all models", "value": sizes_in_bytes, "goal": "<= 30 MB", "met": sizes_in_bytes <= MAX_BYTES}
    )
    return reached


def training(size: Size) -> dict[str, Any]:
    """Return the cost of training `size`, as recorded at its end."""
    return read(size.cost)


def measured(size: Size) -> list[Row]:
    """Return the measured rows of the trained model of `size`."""
    if not size.measured.exists():
        raise SystemExit(f"{size.name} is not measured: python -m benchmarks.tiny evaluate {size.name}")
    rows: list[Row] = json.loads(size.measured.read_text(encoding="utf-8"))
    return rows


def shipping(published: dict[str, Any], sizes: Sequence[Size]) -> dict[str, Any]:
    """Return the results, with the trained models of `sizes`: machine, versions, training cost, rows, goals."""
    rows_of = {size.name: size_rows(published["rows"], size.name) for size in SIZES.values()}
    rows_of |= {size.name: measured(size) for size in sizes}
    bytes_of = published["bytes"] | {size.name: size.trained.stat().st_size for size in sizes}
    rows = [row for rows in rows_of.values() for row in rows]
    return {
        "machine": environment.machine(),
        "versions": environment.versions("llama-cpp-python"),
        "command": "python -m benchmarks.tiny ship",
        "data_hash": corpus.data_hash(),
        "context": CONTEXT,
        "bytes": bytes_of,
        "training": published["training"] | {size.name: training(size) for size in sizes},
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
    """Return a table of the accuracy of each size on `families`."""
    lines = [
        [family, *(percent(share_of(rows, size=s, family=family, split=split, grammar=grammar)) for s in SIZES)]
        for family in families
    ]
    if not grammar and set(FAMILIES) <= {line[0] for line in lines}:
        lines.append(["mean", *(f"{100 * family_mean(rows, size, split):.1f}" for size in SIZES)])
    return table(["family", *SIZES], lines)


def size_table(document: dict[str, Any]) -> str:
    """Return a table of shape, bytes and training cost of each size."""
    lines = []
    for size in SIZES.values():
        cost = document["training"][size.name]
        lines.append(
            [
                f"{size.name}.gguf",
                f"{cost['parameters'] / 1e6:.2f} M",
                f"{size.width} x {size.layers} layers, {size.heads} heads",
                f"{document['bytes'][size.name] / 1e6:.1f} MB",
                f"{cost['tokens'] / 1e6:.0f} M",
                f"{cost['seconds'] / 60:.0f} min",
            ]
        )
    return table(["file", "parameters", "shape", "Q8_0", "training tokens", "training time"], lines)


def long_table(rows: Sequence[Row]) -> str:
    """Return a table of the accuracy on long prompts and joins, for held-out names and wordings together."""
    lines = []
    for family in LONG_FAMILIES:
        longest = max(row["longest_prompt"] for row in rows if row["family"] == family)
        shares = []
        for size in SIZES:
            own_rows = [row for row in rows if row["family"] == family and row["size"] == size]
            right, count = sum(row["right"] for row in own_rows), sum(row["prompts"] for row in own_rows)
            shares.append(f"{100 * right / count:.1f}")
        lines.append([family, str(longest), *shares])
    return table(["kind", "longest prompt (tokens)", *SIZES], lines)


def seeds_table(published: Sequence[Row], seeds: dict[str, Any]) -> str:
    """Return a table that compares each size as shipped with the same size trained again from its seed."""
    lines = []
    for size, cost in seeds["training"].items():
        for split in HELD_OUT:
            shipped, again = (100 * family_mean(rows, size, split) for rows in (published, seeds["rows"]))
            figures = f"{shipped:.1f}", f"{again:.1f}", f"{again - shipped:+.1f}"
            lines.append([size, SPLIT_NAMES[split], *figures, f"{cost['seconds'] / 60:.0f} min"])
    return table(["size", "split", "shipped", "from seeds", "apart", "training time"], lines)


def render(document: dict[str, Any], seeds: dict[str, Any]) -> str:
    """Return the model card from the results of the shipped models and those of models trained again."""
    rows = document["rows"]
    goal_lines = [
        [g["name"], str(g["value"]), g["goal"], "yes" if g["state"] == "met" else "**no**"] for g in document["goals"]
    ]
    return TEXT.read_text(encoding="utf-8").format(
        sizes=size_table(document),
        processor=f"{document['machine']['cores']} cores of {document['machine']['processor']}",
        context=document["context"],
        prompts=share_of(rows, size="large", family="plan", split="entity", grammar=False)["prompts"],
        entity=accuracy_table(rows, "entity", FAMILIES, False),
        wording=accuracy_table(rows, "wording", FAMILIES, False),
        entity_grammar=accuracy_table(rows, "entity", STRUCTURED, True),
        wording_grammar=accuracy_table(rows, "wording", STRUCTURED, True),
        long=long_table(rows),
        goals=table(["goal", "value", "wanted", "met"], goal_lines),
        data_hash=document["data_hash"],
        seeds=seeds_table(rows, seeds),
    )


def read(file: Path) -> dict[str, Any]:
    """Return the contents of a file of results. Raises OSError."""
    document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return document


def write() -> None:
    """Write the model card from the results."""
    CARD.write_text(render(read(RESULTS_FILE), read(SEEDS_FILE)), encoding="utf-8")


def ship(sizes: Sequence[Size]) -> None:
    """Copy the trained models of `sizes` into the registry, and update results and model card."""
    document = shipping(read(RESULTS_FILE), sizes)
    for size in sizes:
        shutil.copyfile(size.trained, size.shipped)
    results.write(RESULTS_FILE, document)
    write()
