"""Compare whole tasks with peers: `python -m benchmarks.peers {list,build,run,growth,report,all}`.

`build` gets what the others need: llama-server, the models, and a virtual environment with LangGraph. `run` measures,
and continues where it stopped; `growth` measures what our own part costs by the number of steps; `report` writes the
results and the picture; `all` does all of it. `list` names the tasks, also those that only
`orchestrator bench critical-path` measures: code with gates, calls of tools, an interactive task next to a batch.
Generated models do only some of the tasks, unless --workloads names others, so that all of it takes three hours.
"""

import argparse
import asyncio
import hashlib
import logging
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import structlog

from benchmarks import results
from benchmarks.engine.models import LARGE, SMALL, SMOLLM2, Generated
from benchmarks.engine.names import SERVER
from benchmarks.engine.peers import ModelMissing, PeerMissing, Peers, build, fetch_model
from benchmarks.engine.report import ABOVE_RUNS, PRODUCT, source_hash
from benchmarks.options import positive
from benchmarks.peers import growth, report
from benchmarks.peers.rows import GrowthRow, PeerRow, Stamp, append, read, read_published
from benchmarks.peers.run import PeerPlan, measure
from benchmarks.peers.suite import NOT_COMPARED, PeerWorkload, find, trial
from benchmarks.peers.systems import AGENT, DISCOVER, GREEDY, LANGGRAPH, OURS, WAVES, default_python
from orchestrator.engine.processor import usable_cores
from orchestrator.files import replace_file

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "build" / "bench"
LOCK: Final = ROOT / "benchmarks" / "requirements.lock"
SYSTEMS: Final = (OURS, AGENT, LANGGRAPH, GREEDY, WAVES, DISCOVER)
# The models that are generated: only their speed is real.
GENERATED: Final[Mapping[str, Generated]] = {"150m": SMALL, "500m": LARGE}
REAL: Final = "smollm2"
EMBEDDED: Final = "embedded"  # the largest of the models that ship, for trying the benchmark out
MODELS: Final = (REAL, *GENERATED)
_say = partial(print, flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that the command line names."""
    options = _parser().parse_args(arguments)
    try:
        workloads = find(options.workloads)
    except KeyError as error:
        accepted = ", ".join(workload.name for workload in find(()))
        raise SystemExit(f"there is no workload {error.args[0]!r}; accepted: {accepted}") from error
    if options.trial:
        workloads = tuple(trial(workload) for workload in workloads)
    if options.command == "list":
        for workload in workloads:
            _say(f"{workload.name:12} {workload.about}{'; generated models too' if workload.generated else ''}")
        _say("Measured by `orchestrator bench critical-path` alone:")
        for name, why in NOT_COMPARED.items():
            _say(f"{name:12} {why}")
        return
    if options.command in ("build", "all"):
        _build(options)
    if options.command in ("run", "all"):
        _run(options, workloads)
    if options.command in ("growth", "all"):
        _grow(options)
    if options.command != "build":
        _report(options, workloads)


def _build(options: argparse.Namespace) -> None:
    """Get what is missing of llama-server, the virtual environment with LangGraph, and the models."""
    python = default_python(options.folder)
    try:
        if not options.trial or {LANGGRAPH, GREEDY} & set(options.systems):
            build(options.folder, (SERVER,))
        if LANGGRAPH in options.systems and not _is_ready(python):
            _say(f"installing {LOCK.name} into {python.parents[1]}")
            subprocess.run([sys.executable, "-m", "venv", str(python.parents[1])], check=True)  # noqa: S603 (our own)
            pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "-q", "-r", str(LOCK)]
            subprocess.run(pip, check=True)  # noqa: S603 (our own command)
    except (PeerMissing, OSError, subprocess.CalledProcessError) as error:
        raise SystemExit(str(error)) from error
    for name in options.models:
        _say(f"{name}: {_file(options, name)}")


def _is_ready(python: Path) -> bool:
    """Return whether an interpreter has the packages that LangGraph's program imports."""
    command = [str(python), "-c", "import langgraph.graph, langchain_openai"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0  # noqa: S603 (our own command)
    except OSError:
        return False


def _file(options: argparse.Namespace, name: str) -> Path:
    """Return the file of a model. A generated one is written first, and SmolLM2 is downloaded if set-up did not."""
    models: Path = options.folder / "models"
    if name in GENERATED:
        return GENERATED[name].write(models)
    if name == EMBEDDED:
        return ROOT / "registry" / "tiny" / "large.gguf"
    try:
        return SMOLLM2.installed() or fetch_model(SMOLLM2, models)
    except ModelMissing as error:
        raise SystemExit(f"{error}; --models 150m measures a generated model instead") from error


def _plan(options: argparse.Namespace, workloads: Sequence[PeerWorkload], rows: Sequence[PeerRow]) -> PeerPlan:
    seconds = math.inf if options.budget is None else 60 * options.budget
    return PeerPlan(
        folder=options.folder / "peers",
        server=Peers.under(options.folder).server,
        python=default_python(options.folder),
        systems=tuple(options.systems),
        workloads=tuple(workloads),
        rounds=options.rounds,
        threads=_threads(options),
        file=_rows_file(options),
        stamp=_stamp(options),
        product=_code(),
        deadline=time.monotonic() + seconds,
        tell=_say,
        known=rows,
    )


def _run(options: argparse.Namespace, workloads: Sequence[PeerWorkload]) -> None:
    rows, _ = _known(options)
    plan = _plan(options, workloads, rows)
    needs = {LANGGRAPH: (plan.server, plan.python), GREEDY: (plan.server,)}
    if missing := [str(path) for name in plan.systems for path in needs.get(name, ()) if not path.exists()]:
        problem = f"{', '.join(dict.fromkeys(missing))} is missing; `python -m benchmarks.peers build` makes it"
        raise SystemExit(f"{problem}, and --systems measures fewer systems")
    for model in options.models:
        model_plan = replace(plan, workloads=_done_by(model, options, workloads))
        if left := asyncio.run(measure(model_plan, model, _file(options, model))):
            _say(f"{model}: not complete: {', '.join(left)}; the same command goes on")


def _done_by(model: str, options: argparse.Namespace, workloads: Sequence[PeerWorkload]) -> tuple[PeerWorkload, ...]:
    """Return the workloads that are measured with a model: those that were named, or by default what it tells of."""
    return tuple(
        workload for workload in workloads if options.workloads or model not in GENERATED or workload.generated
    )


def _known(options: argparse.Namespace) -> tuple[list[PeerRow], list[GrowthRow]]:
    """Return what was measured before, the newest last: published rows if they are wanted, and those of the folder."""
    rows, grown = read(_rows_file(options), _stamp(options))
    if not options.published:
        return rows, grown
    try:
        earlier_rows, earlier_grown = read_published(options.results, _stamp(options))
    except (OSError, ValueError) as error:
        raise SystemExit(f"{error}; without --published it is not read") from error
    return [*earlier_rows, *rows], [*earlier_grown, *grown]


def _grow(options: argparse.Namespace) -> None:
    _, rows = _known(options)
    product = _code()
    for steps in options.sizes:
        if steps not in {row.steps for row in rows if row.product == product}:
            row = replace(growth.measure(steps), product=product)
            append(_rows_file(options), _stamp(options), row)
            _say(f"{steps} steps: {row.seconds:.2f} s, {row.per_step:.2f} ms each")


def _report(options: argparse.Namespace, workloads: Sequence[PeerWorkload]) -> None:
    """Print the ratios and goals; unless this is a trial, write the results and the picture."""
    rows, grown = _known(options)
    rows, grown = _newest(rows), _newest_growth(grown)
    _say(report.printed(rows, grown))
    if options.trial or not rows:
        return
    plan = _plan(options, workloads, rows)
    left = {
        name: [
            workload.name
            for workload in find(())
            if (workload.generated or name not in GENERATED) and plan.left(name, workload)
        ]
        for name in MODELS
    }
    document = report.document(rows, grown, plan.stamp, _about_models(), left)
    results.write(options.results, document)
    picture = report.picture(rows)
    files = [options.results]
    if options.results == results.FOLDER / "critical_path.json" and picture is not None:
        drawn = ROOT / "docs" / "timeline.svg"
        replace_file(drawn, picture)
        files.append(drawn)
    _say(f"written: {', '.join(map(str, files))}")


@cache
def _code() -> str:
    """Return a hash of the tasks and of our code that a run needs: where it changed, everything is measured again."""
    tasks = "".join(workload.task(0, 1.0).model_dump_json() for workload in find(()))
    return f"{source_hash(PRODUCT, ABOVE_RUNS)}-{hashlib.sha256(tasks.encode()).hexdigest()[:8]}"


def _newest(rows: Sequence[PeerRow]) -> list[PeerRow]:
    """Return for each workload the rows with the code, and of the machine, that it was measured with last."""
    newest = {(row.model, row.workload): (row.product, row.machine) for row in rows}
    newest_rows = [row for row in rows if newest[row.model, row.workload] == (row.product, row.machine)]
    return list({(row.model, row.workload, row.number, row.system, row.state): row for row in newest_rows}.values())


def _newest_growth(grown: Sequence[GrowthRow]) -> list[GrowthRow]:
    """Return a row for each number of steps, by that number, of the machine that has measured last."""
    newest = {row.steps: row for row in grown if row.machine == grown[-1].machine}
    return [newest[steps] for steps in sorted(newest)]


def _about_models() -> dict[str, dict[str, Any]]:
    descriptions = {name: {"generated": True, "shape": asdict(model.shape)} for name, model in GENERATED.items()}
    return {REAL: {"generated": False, "file": Path(SMOLLM2.member).name}, **descriptions}


def _stamp(options: argparse.Namespace) -> Stamp:
    return report.stamp(_threads(options), options.systems)


def _threads(options: argparse.Namespace) -> int:
    """Return the threads of each system: one for the embedded model, which is too small for more."""
    return 1 if options.models == [EMBEDDED] else usable_cores()


def _rows_file(options: argparse.Namespace) -> Path:
    folder: Path = options.folder
    return folder / "peers" / ("trial.jsonl" if options.trial else "rows.jsonl")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("command", choices=["list", "build", "run", "growth", "report", "all"])
    models = [*MODELS, EMBEDDED]
    parser.add_argument("--models", nargs="+", choices=models, default=[*MODELS], help="default: all but embedded")
    parser.add_argument("--workloads", nargs="+", default=[], metavar="NAME", help="as `list` shows; default: all")
    parser.add_argument(
        "--systems", nargs="+", choices=SYSTEMS, default=[*SYSTEMS], metavar="NAME", help="default: all"
    )
    parser.add_argument("--rounds", type=positive, default=5, help="of each workload; default: 5")
    parser.add_argument("--budget", type=float, metavar="MINUTES", help="begin no further round after so long")
    parser.add_argument("--sizes", type=positive, nargs="+", default=[*growth.SIZES], help="of `growth`, in steps")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="keeps models, peers and what was measured")
    parser.add_argument("--results", type=Path, default=results.FOLDER / "critical_path.json", metavar="FILE")
    parser.add_argument(
        "--published",
        action="store_true",
        help="count what the results hold as measured, also where another machine has measured all rounds of a task",
    )
    parser.add_argument("--trial", action="store_true", help="a shorter document, and nothing is written")
    return parser


if __name__ == "__main__":
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # otherwise the servers that it started would outlive it
    main()
