"""Measure the engine against its peers: `python -m benchmarks.engine {list,models,build,run,further,report,all}`.

`run --cells NAME` measures one cell and publishes it next to the others. `further` does more rounds of the cells that
do not show yet whether a goal is met, and measures those again whose rounds are of another engine or machine.
`python -m benchmarks.engine run --library A --library B` compares builds of llama.cpp instead: our engine with each.
"""

import argparse
import asyncio
import itertools
import os
import signal
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from benchmarks import results
from benchmarks.engine import report, rows
from benchmarks.engine.cells import Cell, chosen
from benchmarks.engine.goals import goals, undecided
from benchmarks.engine.models import DRAFTS, HYBRID, LARGE, SMALL, SMOLLM2, WINDOWED
from benchmarks.engine.names import SPINNING, SYSTEMS, of_library
from benchmarks.engine.paired import Rounds
from benchmarks.engine.peers import ModelMissing, PeerMissing, Peers, build, fetch_model
from benchmarks.engine.run import FURTHER, BenchmarkPlan, run
from benchmarks.engine.start import Place, takes_part
from benchmarks.engine.suites import SUITES, Suite
from benchmarks.engine.systems.daemon import DaemonFailed
from benchmarks.options import positive
from orchestrator.bench import environment
from orchestrator.engine.processor import usable_cores
from orchestrator.registry.llama_library import library_file, why_no_library

FOLDER = Path(__file__).parents[2] / "build" / "bench"
_say = partial(print, flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that the command line names."""
    options = _parser().parse_args(arguments)
    suite = SUITES[options.suite]
    if options.library:
        _check_libraries(options)
        options.systems = [of_library(number) for number in range(len(options.library))]
    options.systems = options.systems or list(suite.systems)
    if not options.library and (others := [name for name in options.systems if name not in suite.systems]):
        accepted = ", ".join(suite.systems)
        raise SystemExit(f"not in the suite {options.suite}: {', '.join(others)}; accepted: {accepted}")
    if not chosen(_cells(suite, options), options.cells):
        accepted = f"names and patterns of `list`, such as {_cells(suite, options)[0].name}"
        raise SystemExit(f"--cells {' '.join(options.cells)}: there is no such cell; accepted: {accepted}")
    if options.command == "list":
        for cell in chosen(_cells(suite, options), options.cells):
            _say(f"{cell.name:24} {cell.own} own tokens, {cell.answer} to generate")
        return
    try:
        _prepare(options)
        if options.command in ("run", "all"):
            _run(suite, options, further=False)
        if options.command == "further":
            _run(suite, options, further=True)
    except (PeerMissing, DaemonFailed) as error:
        raise SystemExit(str(error)) from error
    if options.command in ("run", "further", "report", "all"):
        _report(suite, options)


def _check_libraries(options: argparse.Namespace) -> None:
    if options.suite != "engine" or options.systems or options.command not in ("list", "run", "report"):
        accepted = "the commands list, run and report of the suite engine, without --systems"
        raise SystemExit(f"--library compares builds of llama.cpp; accepted: {accepted}")
    options.library = [library_file(file).absolute() for file in options.library]
    if len({*options.library}) < max(2, len(options.library)):
        raise SystemExit("--library compares builds of llama.cpp; accepted: at least two, each one once")
    for file in options.library:
        if why := why_no_library(file):
            raise SystemExit(f"--library {file}: {why}; accepted: a build of llama.cpp, libllama.so or its folder")


def _prepare(options: argparse.Namespace) -> None:
    """Write models, and fetch and build peers, if the command is for that or runs a whole suite that needs them."""
    whole = options.command == "all"
    users = options.suite == "user-path"
    if options.command == "models" or (whole and not users and not options.trial):
        for model in (SMALL, LARGE, HYBRID, WINDOWED, *DRAFTS.values()):
            _say(f"{model.write(_models(options))}")
    if options.command == "build" or (whole and users and not options.trial):
        try:
            _say(f"{fetch_model(SMOLLM2, _models(options))}")
        except ModelMissing as error:
            _say(f"{error}; the user's path is measured with a generated model instead")
    if options.command == "build":
        build(options.folder)
    if whole:
        build(options.folder, options.systems)


def _run(suite: Suite, options: argparse.Namespace, *, further: bool) -> None:
    """Measure the cells that are not finished, or do further rounds of finished ones, and print which are left."""
    peers = Peers.under(options.folder)
    cells, engine = chosen(_cells(suite, options), options.cells), report.source_hash(suite.source)
    finished = _finished(suite, options)
    measured_here = {name: each for name, each in finished.items() if each.machine == environment.machine()}
    current = {name: each.rows for name, each in measured_here.items() if each.engine == engine}
    before: dict[str, list[rows.EngineRow]] = {}
    if further:
        open_still = undecided(itertools.chain.from_iterable(each.rows for each in finished.values()), suite.goals)
        left = tuple(cell for cell in cells if cell.name in open_still)
        before = {cell.name: current[cell.name] for cell in left if cell.name in current and open_still[cell.name]}
        _say(f"{len(left)} of {len(cells)} cells do not show yet whether a goal is met")
        if again := [cell.name for cell in left if cell.name not in before]:
            _say(f"measured again, since they have no pairs of rounds of this engine and machine: {', '.join(again)}")
    else:
        left = tuple(cell for cell in cells if cell.name not in current)
        _say(f"{len(cells) - len(left)} of {len(cells)} cells are finished already")
    needed = [name for name in options.systems if options.library or any(takes_part(name, cell) for cell in left)]
    if missing := peers.missing(needed):
        raise PeerMissing(f"missing: {', '.join(missing)}; `python -m benchmarks.engine build` builds them")
    plan = BenchmarkPlan(
        place=Place(options.folder, peers, tuple(options.systems), tuple(options.library)),
        cells=left,
        before=before,
        file=_rows_file(suite, options),
        stamp=_stamp(options),
        engine=engine,
        goals=suite.goals,
        rounds=FURTHER if further else _rounds(suite, options),
        seconds=None if options.budget is None else 60 * options.budget,
        tell=_say,
    )
    if late := asyncio.run(run(plan)):
        _say(f"the time was up before {', '.join(cell.name for cell in late)}; run again to go on")


def _report(suite: Suite, options: argparse.Namespace) -> None:
    """Print the tables of the finished cells, and write the results unless this is a trial."""
    finished, engine = _finished(suite, options), report.source_hash(suite.source)
    measured_rows = [row for each in finished.values() for row in each.rows]
    reached = [] if options.library else goals(measured_rows, suite.goals)
    for name, file in zip(options.systems, options.library, strict=False):
        _say(f"{name}: {file}")
    _say(report.printed(measured_rows, reached))
    if earlier := [name for name, each in finished.items() if each.engine != engine]:
        _say(f"measured with an earlier engine: {', '.join(earlier)}")
    if not (options.trial or options.library):
        _publish(suite, options, finished)


def _publish(suite: Suite, options: argparse.Namespace, finished: Mapping[str, rows.MeasuredCell]) -> None:
    """Write the results of the finished cells, with the published ones whose models are not in the folder.

    Nothing is written if a published cell would be lost.
    """
    stamp, engine = _stamp(options), report.source_hash(suite.source)
    together = {**rows.published(suite.published, stamp, suite.known), **finished}
    measured = {cell.name: cell for cell in suite.cells(_models(options)) if cell.name in finished}
    cells = [measured.get(cell.name, cell) for cell in suite.known]
    selected = {cell.name: together[cell.name] for cell in cells if cell.name in together}
    reached = goals((row for each in selected.values() for row in each.rows), suite.goals)
    document = report.document(selected, reached, stamp, engine, cells, suite.about)
    if lost := rows.lost(suite.published, document, suite.known):
        problem = "has cells of other versions, systems or models, which would be lost"
        _say(f"not written: {suite.published} {problem}: {', '.join(lost)}")
        return
    results.write(suite.published, document)
    _say(f"written to {suite.published}")


def _finished(suite: Suite, options: argparse.Namespace) -> dict[str, rows.MeasuredCell]:
    """Return all finished cells, in the order of the suite; some may have been measured with an earlier engine."""
    cells, stamp, engine = _cells(suite, options), _stamp(options), report.source_hash(suite.source)
    before = {} if options.trial or options.library else rows.published(suite.published, stamp, cells)
    own_rows = rows.read(_rows_file(suite, options), stamp, cells)
    items = [*before.items(), *own_rows.items()]
    finished = dict(sorted(items, key=lambda item: item[1].engine == engine))  # of equal names, the last one counts
    return {cell.name: finished[cell.name] for cell in cells if cell.name in finished}


def _cells(suite: Suite, options: argparse.Namespace) -> tuple[Cell, ...]:
    cells = suite.trial if options.trial else suite.cells(_models(options))
    return tuple(cell for cell in cells if cell.task is None) if options.library else cells


def _models(options: argparse.Namespace) -> Path:
    folder: Path = options.folder
    return folder / "models"


def _stamp(options: argparse.Namespace) -> rows.Stamp:
    # The kernels are in ggml's libraries, which lie next to libllama.so.
    builds = [[str(file), max(part.stat().st_mtime_ns for part in file.parent.iterdir())] for file in options.library]
    compared = {"libraries": builds} if builds else {}
    return {**report.stamp(usable_cores()), "systems": list(options.systems), "rounds": options.rounds, **compared}


def _rounds(suite: Suite, options: argparse.Namespace) -> Rounds:
    fixed = options.rounds or (1 if options.trial else None)
    return Rounds(fixed, fixed) if fixed else suite.rounds


def _rows_file(suite: Suite, options: argparse.Namespace) -> Path:
    folder: Path = options.folder
    compared = "libraries-" if options.library else ""
    return folder / f"{suite.rows}{compared}{'trial' if options.trial else 'rows'}.jsonl"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engine", description=__doc__)
    parser.add_argument("command", choices=["list", "models", "build", "run", "further", "report", "all"])
    parser.add_argument(
        "--suite", choices=SUITES, default="engine", help="the engine by itself, or over HTTP as users ask it"
    )
    parser.add_argument("--cells", nargs="+", default=[], metavar="PATTERN", help="such as '150m/*x1024'; default: all")
    systems = (*SYSTEMS, SPINNING)
    parser.add_argument("--systems", nargs="+", choices=systems, help="default: all of the suite")
    parser.add_argument(
        "--library", action="append", default=[], type=Path, metavar="PATH", help="compare builds of llama.cpp in pairs"
    )
    rounds = "; ".join(f"{name}: {suite.rounds.least} to {suite.rounds.most}" for name, suite in SUITES.items())
    parser.add_argument("--rounds", type=positive, help=f"default: as noise needs ({rounds})")
    parser.add_argument("--budget", type=float, metavar="MINUTES", help="begin no further cell after so long")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="keeps models, peers and finished cells")
    parser.add_argument("--trial", action="store_true", help="small cells on a model of no size; nothing is written")
    return parser


if __name__ == "__main__":
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # otherwise the servers that it started would outlive it
    main()
