"""`python -m benchmarks.daemon`: measure the daemon, write benchmarks/results/daemon.json, fail if a goal is missed."""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

from benchmarks import results
from benchmarks.daemon import chain, clients, control, dag, fairness, hostile, memory, pressure, queued, swap, view
from benchmarks.daemon.figures import PartResult
from benchmarks.daemon.report import merged, read

RESULTS = results.FOLDER / "daemon.json"
PARTS: dict[str, tuple[Callable[[Path, int], Awaitable[PartResult]], int, str]] = {
    "chain": (chain.measure, 300, "steps of a chain"),
    "control": (control.measure, 1000, "rounds of requests"),
    "queued": (queued.measure, 10_000, "runs that wait"),
    "clients": (clients.measure, 200, "clients"),
    "dag": (dag.measure, 10_000, "steps of a run"),
    "memory": (memory.measure, 50_000, "short runs, as many as stand for a day"),
    "pressure": (pressure.measure, 1000, "runs"),
    "fairness": (fairness.measure, 400, "batch runs"),
    "hostile": (hostile.measure, 5, "times that each hostile thing is done"),
    "swap": (swap.measure, 5, "rounds of conversations with two models that take turns in memory"),
    "view": (view.measure, 10_000, "steps of a run that the web page shows"),
}  # the parts of the benchmark by name: the function that measures one, its default size, and what the size counts

say = partial(print, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the chosen parts one after the other. Returns 1 if a goal is missed, else 0."""
    options = _parser().parse_args(arguments)
    sizes = {name: size for name, (_, size, _) in PARTS.items()} | dict(options.size)
    missed = 0
    for name in options.only or PARTS:
        say(f"{name}: {sizes[name]} {PARTS[name][2]}")
        load, begun = os.getloadavg()[0], time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="bench-daemon-") as folder:
            part = asyncio.run(_measured(name, Path(folder), sizes[name]))
        document = merged(read(options.out), name, part, load, time.perf_counter() - begun)
        results.write(options.out, document)
        _print(part)
        missed += sum(not goal.met for goal in part.goals)
    say(f"written to {options.out}")
    return 1 if missed else 0


async def _measured(name: str, folder: Path, size: int) -> PartResult:
    return await PARTS[name][0](folder, size)


def _print(part: PartResult) -> None:
    for name, value in part.figures.items():
        say(f"       {name}: {value}")
    for goal in part.goals:
        say(f"{'met   ' if goal.met else 'MISSED'} {goal.name}: {goal.value} (goal: {goal.goal})")


def _size(text: str) -> tuple[str, int]:
    name, _, number = text.partition("=")
    if name not in PARTS or not number.isdigit() or int(number) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not PART=NUMBER with a part of {', '.join(PARTS)}")
    return name, int(number)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.daemon", description=__doc__)
    parser.add_argument("--only", action="append", choices=PARTS, help="only this part; may be given several times")
    sizes = ", ".join(f"{name}={size} ({what})" for name, (_, size, what) in PARTS.items())
    parser.add_argument(
        "--size", action="append", type=_size, default=[], metavar="PART=N", help=f"how much of it: {sizes}"
    )
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the results go (default: %(default)s)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
