"""What several machines cost and bring: `python -m benchmarks.cluster [--rounds N]`, with the extra `ray`.

It measures three nodes of a Ray cluster on this machine, and simulates 1, 3, 10 and 100 machines of 96 cores with what
the orchestrator and a step on a node took here. The results go to benchmarks/results/cluster.json.
"""

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any, Final

import msgspec
import structlog

from benchmarks import results
from benchmarks.cluster.measured import CHAIN, WIDTH, Measured, measure
from benchmarks.cluster.ray_nodes import TOKEN
from benchmarks.cluster.scaling import LINEAR, LOADS, SIZES, ScalingRow, scaling
from benchmarks.options import positive
from orchestrator.bench import environment
from orchestrator.bench.paired import Ratio, mean_interval, ratio
from orchestrator.bench.simulate.machine import Overheads
from orchestrator.registry.load import PACKAGED, load_registry

RESULTS: Final = results.FOLDER / "cluster.json"
SIMULATOR: Final = results.FOLDER / "simulate.json"  # has what the orchestrator itself takes
MOST_OVERHEAD: Final = 0.005  # seconds of a step
LEAST_LINEAR: Final = 0.8
MOST_ERROR: Final = 0.15  # of the simulator, as a share of the measured time


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, simulate, and write the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster", description=__doc__)
    parser.add_argument("--rounds", type=positive, default=7, help="how many rounds are measured (7)")
    parser.add_argument("--keep-simulated", action="store_true", help="keep the simulated rows of the last results")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the file of the results")
    options = parser.parse_args(arguments)
    os.environ.update(TOKEN)
    measured = asyncio.run(measure(options.rounds, say))
    overheads = Overheads.model_validate(results.read(SIMULATOR)["described"]["overheads"])
    overheads = overheads.model_copy(update={"away_seconds": max(0.0, median(measured.overheads))})
    if options.keep_simulated:
        rows = msgspec.convert(results.read(options.out)["rows"], list[ScalingRow])
    else:
        rows = scaling(load_registry(PACKAGED), overheads, LOADS, SIZES, say)
    written = document(measured, rows, overheads)
    results.write(options.out, written)
    for goal in written["goals"]:
        say(f"{'met ' if goal['met'] else 'MISSED'} {goal['name']}: {goal['value']} ({goal['goal']})")


def document(measured: Measured, rows: Sequence[ScalingRow], overheads: Overheads) -> dict[str, Any]:
    """Return the results as they are written."""
    return {
        "command": "python -m benchmarks.cluster",
        "machine": environment.machine(),
        "versions": environment.versions("llama-cpp-python", "ray"),
        "goals": goals_of(measured, rows),
        "measured": asdict(measured),
        "three_nodes": _json(ratio(measured.wide_nodes, measured.wide_node)),
        "simulated_overheads": overheads.model_dump(),
        "rows": [asdict(row) for row in rows],
    }


def goals_of(measured: Measured, rows: Sequence[ScalingRow]) -> list[dict[str, Any]]:
    """Return what was wanted and reached: the overhead of a step, the simulator's errors, and how throughput grows."""
    low, high = mean_interval(measured.overheads)
    goals = [
        _at_most(
            f"seconds that each of {CHAIN} steps takes longer on a node",
            median(measured.overheads),
            (low, high),
            MOST_OVERHEAD,
        )
    ]
    for name, simulated, times in (
        (f"a chain of {CHAIN} steps on a node", measured.simulated_chain, measured.chain_node),
        (f"{WIDTH} steps at once on three nodes", measured.simulated_wide, measured.wide_nodes),
    ):
        compared = ratio([simulated] * len(times), times)
        ends = sorted((abs(compared.low - 1), abs(compared.high - 1)))
        interval = (0.0 if compared.low <= 1 <= compared.high else ends[0], ends[1])
        goals.append(_at_most(f"{name}: simulated off measured, share", abs(compared.median - 1), interval, MOST_ERROR))
    for row in rows:
        if 1 < row.machines <= LINEAR:
            name = f"{row.load} on {row.machines} machines: throughput, of linear (simulated)"
            met = row.linear >= LEAST_LINEAR
            goal = {"name": name, "value": round(row.linear, 3), "interval": None, "goal": f">= {LEAST_LINEAR}"}
            goals.append({**goal, "met": met})
    return goals


def _at_most(name: str, value: float, interval: tuple[float, float], most: float) -> dict[str, Any]:
    reach = [round(end, 4) for end in interval]
    return {"name": name, "value": round(value, 4), "interval": reach, "goal": f"<= {most:g}", "met": reach[0] <= most}


def _json(ratio: Ratio) -> dict[str, Any]:
    return {"median": round(ratio.median, 3), "interval": [round(ratio.low, 3), round(ratio.high, 3)]}


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    main()
