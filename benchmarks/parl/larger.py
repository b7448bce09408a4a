"""Publish the training of a larger frontdoor: `python -m benchmarks.parl.larger REPORT`.

`orchestrator frontdoor train --json` writes the report: how the trained adapter, in addition to the shipped one,
compares with the shipped one alone on held-out requests of the families that it was trained on. Here both also plan the
natural requests that no training has seen.
"""

import argparse
import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch

from benchmarks import results
from benchmarks.adapter.base import MODEL, SHAPES, model_file
from benchmarks.adapter.evaluate import PlanningSetup, adapted, evaluate
from benchmarks.parl import RESULTS
from benchmarks.routing.rows import Row, goal_with_interval
from orchestrator.bench import environment
from orchestrator.bench.goals import at_least
from orchestrator.bench.paired import mean_interval
from orchestrator.bench.real.requests import real_requests
from orchestrator.memrl.parl.train import CHECKPOINT
from orchestrator.registry.sources.catalogue import read_catalogue

NATURAL: Final = ("unseen", "wide")
SYSTEMS: Final = ("supervised", "trained")


def main(arguments: Sequence[str] | None = None) -> int:
    """Plan the natural requests with both adapters, and complete the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.parl.larger", description=__doc__)
    parser.add_argument("report", type=Path, help="what `orchestrator frontdoor train --json` has printed")
    parser.add_argument("--model", choices=tuple(SHAPES), default=MODEL, help="(default: %(default)s)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the results to complete")
    options = parser.parse_args(arguments)
    report = json.loads(options.report.read_text(encoding="utf-8"))
    shipped = read_catalogue()[options.model].adapters["frontdoor"].path
    setups = (adapted(shipped), adapted(shipped, Path(report["adapter"]), by_cores=True))
    natural = dict(zip(SYSTEMS, (_planned_rightly(options.model, setup) for setup in setups), strict=True))
    checkpoint = torch.load(Path(report["curves"]).with_name(CHECKPOINT), weights_only=True)
    published = results.read(options.out)
    results.write(options.out, completed(published, options.model, report, natural, checkpoint))
    print(f"written to {options.out}")
    return 0


def _planned_rightly(model: str, setup: PlanningSetup) -> dict[str, list[bool]]:
    planned = {}
    for name in NATURAL:
        measured = asyncio.run(evaluate(model_file(model), setup, real_requests(name), lambda line: None, model))
        planned[name] = [result.right for result in measured.results]
        print(f"{name}, {setup.about}: {sum(planned[name])} of {len(planned[name])} right", flush=True)
    return planned


def completed(
    published: dict[str, Any],
    model: str,
    report: Mapping[str, Any],
    natural: Mapping[str, Mapping[str, Sequence[bool]]],
    checkpoint: Mapping[str, Any],
) -> dict[str, Any]:
    """Return published results with those of a model. `natural` says of which requests each system plans correctly."""
    supervised, trained = (_all(natural[system]) for system in SYSTEMS)
    gains = [float(after) - float(before) for before, after in zip(supervised, trained, strict=True)]
    goals = list(_goals(model, report, mean_interval(gains)))
    names = {goal["name"] for goal in goals}
    figures = {
        "machine": environment.machine(),
        "settings": {name: value for name, value in checkpoint["settings"].items() if name != "present"},  # its files
        "updates": checkpoint["done"],
        "hours": checkpoint["seconds"] / 3600,
        **{name: report[name] for name in ("requests", "gain", "low", "high", "current", "candidate")},
        "natural": {
            name: {
                "count": len(natural[SYSTEMS[0]][name]),
                **{system: sum(natural[system][name]) for system in SYSTEMS},
            }
            for name in NATURAL
        },
    }
    return {
        **published,
        "goals": [*(goal for goal in published["goals"] if goal["name"] not in names), *goals],
        "larger": {**published.get("larger", {}), model: figures},
    }


def _all(planned: Mapping[str, Sequence[bool]]) -> list[bool]:
    return [right for name in NATURAL for right in planned[name]]


def _goals(model: str, report: Mapping[str, Any], natural: tuple[float, float]) -> Iterator[Row]:
    about = f"{model} trained, less as it ships: lower end of the interval"
    for requests, (low, high) in (
        ("performance on held-out requests", (report["low"], report["high"])),
        ("right plans for natural requests", natural),
    ):
        yield goal_with_interval(at_least(f"{requests}, {about}", low, 0), low, high)


if __name__ == "__main__":
    raise SystemExit(main())
