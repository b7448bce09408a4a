"""Validate the simulator on this machine: `python -m benchmarks.simulate [--model NAME] [--budget MINUTES]`.

It measures the machine, runs the workloads whose answers have a prescribed length, simulates them, and writes both
times to benchmarks/results/simulate.json, with what bounds two wide tasks here and on the machines of the examples.
"""

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

import structlog

from benchmarks import results
from benchmarks.critical_path.workloads import Roles
from benchmarks.options import positive
from benchmarks.real.measure import registry_for
from benchmarks.simulate.machine import read_machine, to_text
from benchmarks.simulate.measure import describe
from benchmarks.simulate.validate import (
    SEEDS,
    SERVER_SEEDS,
    advice_for,
    advised,
    document,
    fixed_length,
    servers,
    time_many_steps,
    validate,
)
from registry.load import PACKAGED, load_registry

RESULTS = results.FOLDER / "simulate.json"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, simulate, and write the results."""
    options = _parser().parse_args(arguments)
    known = fixed_length(Roles())
    if unknown := sorted(set(options.only) - {one.name for one in known}):
        accepted = ", ".join(one.name for one in known)
        raise SystemExit(f"there is no workload {', '.join(unknown)}; accepted: {accepted}")
    registry = load_registry(options.registry)
    name = options.model or registry.roles["worker"].model
    alone = registry_for(registry, name)
    machine = describe(registry, [name], _say) if options.machine is None else read_machine(options.machine)
    _say(to_text(machine))
    suite = [one for one in known if not options.only or one.name in options.only]
    rows, left = validate(machine, alone, suite, options.rounds, 60 * options.budget, _say)
    many = time_many_steps(machine, alone)
    _say(f"1,000 steps were simulated in {many:.1f} s")
    advice = advice_for(machine, alone, advised(), SEEDS)
    advice += [row for one in servers() for row in advice_for(one, registry, advised(), SERVER_SEEDS)]
    told = document(machine, rows, left, many, advice, " ".join(["python -m benchmarks.simulate", *sys.argv[1:]]))
    results.write(options.out, told)
    for goal in told["goals"]:
        _say(f"{'met ' if goal['met'] else 'MISSED'} {goal['name']}: {goal['value']} ({goal['goal']})")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulate", description=__doc__)
    parser.add_argument("--registry", type=Path, default=PACKAGED, help="the registry; by default the one that ships")
    parser.add_argument("--model", help="the model of all roles; by default the worker's")
    parser.add_argument("--machine", type=Path, help="a machine file; without it the machine is measured now")
    parser.add_argument("--rounds", type=positive, default=5, help="how many warm rounds of each workload (5)")
    parser.add_argument("--budget", type=float, default=5.0, help="minutes after which no workload begins (5)")
    parser.add_argument("--only", nargs="*", default=(), metavar="WORKLOAD", help="only these workloads")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the results are written")
    return parser


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    main()
