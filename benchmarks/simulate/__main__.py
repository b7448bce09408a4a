"""Validate the simulator on this machine: `python -m benchmarks.simulate [--model NAME] [--budget MINUTES]`.

It measures the machine with SmolLM2 if set-up has installed it, and else with an embedded model. It runs the workloads
whose answers have a prescribed length, simulates them, and writes both times to benchmarks/results/simulate.json, with
what bounds wide tasks here and on the machines of the examples. It continues where it stopped if the code, the
model and the machine are the same; --again measures all of it again.
"""

import argparse
import json
import logging
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from benchmarks import results
from benchmarks.engine.models import SMOLLM2
from benchmarks.engine.report import ABOVE_RUNS, PRODUCT, source_hash
from benchmarks.options import positive
from benchmarks.peers.suite import ROLE
from benchmarks.routing.rows import RowLog
from benchmarks.simulate.validate import (
    SEEDS,
    Keep,
    advice_for,
    advised,
    document,
    fixed_length,
    servers,
    time_many_steps,
    validate,
)
from orchestrator.bench import environment
from orchestrator.bench.critical_path.workloads import Roles, tokens_per_word
from orchestrator.bench.real.measure import registry_for
from orchestrator.bench.simulate.machine import Machine, read_machine, to_text
from orchestrator.bench.simulate.measure import describe
from orchestrator.registry.load import PACKAGED, load_registry
from orchestrator.registry.models import Registry

RESULTS: Final = results.FOLDER / "simulate.json"
FOLDER: Final = Path(__file__).parents[2] / "build" / "bench"
CONTEXT: Final = 4096
"""Tokens of each slot of SmolLM2; the widest of the workloads needs about 3,000."""
SLOTS: Final = 16


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, simulate, and write the results."""
    options = _parser().parse_args(arguments)
    registry = _registry(options)
    name = options.model or registry.roles[ROLE].model
    alone = registry_for(registry, name)
    file = alone.models[name].file
    if file is None:
        raise SystemExit(f"{name} runs on another server; accepted: a model that is run here")
    workloads = fixed_length(Roles(tokens_per_word=tokens_per_word(file)))
    if unknown := sorted(set(options.only) - {workload.name for workload in workloads}):
        accepted = ", ".join(workload.name for workload in workloads)
        raise SystemExit(f"there is no workload {', '.join(unknown)}; accepted: {accepted}")
    keep = _keeping(options, name)
    state = _state(options)
    machine = _machine(options.machine, registry, name, keep, state)
    suite = [workload for workload in workloads if not options.only or workload.name in options.only]
    rows, left = validate(machine, alone, suite, options.rounds, 60 * options.budget, _say, state, keep)
    many = keep("many steps", lambda: {"seconds": time_many_steps(machine, alone)})["seconds"]
    _say(f"1,000 steps were simulated in {many:.1f} s")
    advice = []
    for described, base in ((machine, alone), *((server, registry) for server in servers())):
        for asked in advised(options.seeds):
            predicted = keep(f"advice {described.name}, {asked.name}", partial(advice_for, described, base, asked))
            advice.append(predicted)
            _say(f"{described.name}: {asked.name}: {predicted['seconds']:.1f} s, {predicted['in_words']}")
    written_results = document(
        machine, rows, left, many, advice, " ".join(["python -m benchmarks.simulate", *sys.argv[1:]])
    )
    results.write(options.out, written_results)
    for goal in written_results["goals"]:
        _say(f"{'met ' if goal['met'] else 'MISSED'} {goal['name']}: {goal['value']} ({goal['goal']})")


def _registry(options: argparse.Namespace) -> Registry:
    """Return the registry that was chosen, else one of SmolLM2 if that is installed, else the one that ships."""
    file = SMOLLM2.installed()
    if options.registry is not None or options.model is not None or file is None:
        return load_registry(options.registry or PACKAGED)
    model = {"file": str(file), "residency": "hot", "context": CONTEXT, "slots": SLOTS}
    roles = {"frontdoor": {"model": SMOLLM2.name, "tier": "A"}, ROLE: {"model": SMOLLM2.name, "tier": "C"}}
    path: Path = options.folder / "simulate" / "registry.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"models": {SMOLLM2.name: model}, "roles": roles}), encoding="utf-8")  # JSON is YAML
    return load_registry(path)


def _keeping(options: argparse.Namespace, model: str) -> Keep:
    """Return what keeps results of the same code, model, machine and options."""
    code = f"{source_hash(PRODUCT, ABOVE_RUNS)}-{source_hash(Path(__file__).parent)}"
    machine = environment.machine()
    stamp = (
        code,
        model,
        str(options.machine or machine["processor"]),
        str(machine["cores"]),
        str(options.rounds),
        str(options.seeds),
    )
    file: Path = options.folder / "simulate" / "results.jsonl"
    if options.again:
        file.unlink(missing_ok=True)
        shutil.rmtree(_state(options), ignore_errors=True)
    log = RowLog(file, lambda line: None)
    return lambda name, make: log.get((*stamp, name), make)


def _state(options: argparse.Namespace) -> Path:
    """Return the folder that keeps how the engines compute best, which all of the measured tasks share."""
    folder: Path = options.folder
    return folder / "simulate" / "state"


def _machine(file: Path | None, registry: Registry, model: str, keep: Keep, state: Path) -> Machine:
    """Return the machine of a file, or this one: all workloads are compared with the same description of it."""
    if file is not None:
        return read_machine(file)
    described = keep("machine", lambda: describe(registry, [model], _say, state).model_dump(mode="json"))
    machine = Machine.model_validate(described)
    _say(to_text(machine))
    return machine


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulate", description=__doc__)
    parser.add_argument("--registry", type=Path, help="the registry; by default one of SmolLM2, or the one that ships")
    parser.add_argument(
        "--model", help="the model of all roles; by default SmolLM2 if it is installed, or the worker's"
    )
    parser.add_argument("--machine", type=Path, help="a machine file; without it the machine is measured now")
    parser.add_argument("--rounds", type=positive, default=5, help="how many warm rounds of each workload (5)")
    parser.add_argument("--seeds", type=positive, default=SEEDS, help="how many runs an interval is from (100)")
    parser.add_argument("--budget", type=float, default=12.0, help="minutes after which no workload begins (12)")
    parser.add_argument("--only", nargs="*", default=(), metavar="WORKLOAD", help="only these workloads")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="keeps what was measured")
    parser.add_argument("--again", action="store_true", help="measure again what was measured before")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the results are written")
    return parser


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    main()
