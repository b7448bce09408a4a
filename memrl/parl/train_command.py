"""The command `frontdoor train`. It imports PyTorch only when it has checked that it is there."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated, Any, Final

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from orchestrator.bench.real.requests import real_requests
from orchestrator.bench.simulate.machine import Machine
from orchestrator.cli.logs import log_to
from orchestrator.cli.registry import registry_of
from orchestrator.cli.settings import JsonFlag, settings
from orchestrator.cli.terminal import make_console, print_json, write
from orchestrator.errors import InputError, Problem
from orchestrator.files import FolderLocked, lock_folder
from orchestrator.memrl.parl.compare import Comparison, Planned, PolicyFigures, compare, measure
from orchestrator.memrl.parl.curves import CURVES
from orchestrator.memrl.parl.engines import ANSWERS, RealEngines
from orchestrator.memrl.parl.harness import GreedyPolicy, Harness, scratch_of
from orchestrator.memrl.parl.history import rated_requests
from orchestrator.memrl.parl.machines import machines_for, other_worker
from orchestrator.memrl.parl.natural import NaturalPlans, planned_correctly
from orchestrator.memrl.parl.promote import keep_adapter, promote, values_with
from orchestrator.memrl.parl.requests import PlannedRequest, held_out_requests
from orchestrator.memrl.parl.reward import RewardSettings, stage_over
from orchestrator.memrl.parl.trainings import FOLDER, TrainingResult, write_result
from orchestrator.registry.models import Registry
from orchestrator.registry.options import Lora
from orchestrator.run.frontdoor.planner import FRONTDOOR
from orchestrator.run.journal.home import Home
from orchestrator.run.journal.reader import JournalReader

NEEDED: Final = ("torch", "gguf")
_MISSING: Final = "needs the extra `train`"
_INSTALL: Final = "pip install 'orchestrator[train]'"

ProgressOf = Callable[[int, int], None]


def train_frontdoor(
    context: typer.Context,
    updates: Annotated[int, typer.Option(min=1, max=100_000, help="How often the weights are updated.")] = 200,
    examples: Annotated[
        int, typer.Option(min=0, max=100_000, help="Right plans that are imitated before the first update.")
    ] = 240,
    requests: Annotated[
        int, typer.Option(min=1, max=1000, help="Requests of an update, each planned for two machines.")
    ] = 8,
    group: Annotated[int, typer.Option(min=2, max=64, help="Plans that are sampled for each request.")] = 8,
    temperature: Annotated[float, typer.Option(min=0.1, max=10, help="At which plans are sampled.")] = 1.0,
    pairs: Annotated[
        int, typer.Option(min=6, max=10_000, help="Held-out requests on which the adapter is compared.")
    ] = 60,
    machine: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="A machine file of `bench simulate`; repeatable. Default: 2, 16, 96 cores."),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Of this training. Default: in the state folder, by the seed.")
    ] = None,
    history: Annotated[
        float, typer.Option(min=0, max=1, help="The share of requests that are runs of this state folder, rated good.")
    ] = 0.0,
    seconds: Annotated[
        float | None,
        typer.Option(min=1, help="Stop before an update after this time; the same command continues."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of requests, samples and first weights.")] = 0,
    threads: Annotated[int, typer.Option(min=1, max=1024, help="Of PyTorch.")] = 1,
    promotes: Annotated[
        bool, typer.Option("--promote/--no-promote", help="Whether a better adapter is written to the registry.")
    ] = True,
    as_json: JsonFlag = False,
) -> None:
    """Train the frontdoor to split requests, and promote the adapter if it is better with certainty.

    It is not promoted if the frontdoor has unlearned other requests. Plans are sampled from the model and carried out
    in the production harness, with frozen workers, on simulated machines. The same command continues a training that
    was interrupted. `orchestrator frontdoor undo` takes the adapter back.
    """
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise InputError(Problem("frontdoor train", f"{_MISSING} ({', '.join(missing)} is missing)", _INSTALL))
    options = settings(context)
    base = registry_of(options)
    _check(base, promotes=promotes)
    machines = machines_for(base, machine or ())
    place = (folder or options.home / FOLDER / f"training-{seed}").absolute()
    place.mkdir(parents=True, exist_ok=True)
    settings_of = {
        "updates": updates,
        "requests": requests,
        "group": group,
        "seed": seed,
        "temperature": temperature,
        "history": history,
    }
    own = _own_requests(options.home) if history else []
    log_to(Home(options.home).logs / "orchestrator.log")
    try:
        with lock_folder(place):
            with _bar("updates") as progress:
                adapter = _train(place, base, machines, settings_of, examples, own, threads, seconds, progress)
            if adapter is None:
                _print_incomplete(place, as_json=as_json)
                return
            with _bar("comparison") as progress:
                comparison = _compare(place, base, machines, adapter, pairs, seed, progress)
            with _bar("natural requests") as progress:
                natural = _natural(base, adapter, pairs, place, progress)
    except FolderLocked as error:
        raise InputError(Problem(str(place), "is used by another training", "another --folder or --seed")) from error
    except KeyboardInterrupt:
        print("interrupted; the same command continues this training", file=sys.stderr)
        raise
    adapter = keep_adapter(options.home / FOLDER, adapter)
    better = comparison.better and not natural.spoiled
    promoted = promotes and better
    values = values_with(base.roles[FRONTDOOR].lora, adapter)
    if promoted:
        promote(base.path, options.home / FOLDER, values)
    result = TrainingResult(
        updates=updates,
        requests=comparison.requests,
        gain=comparison.gain,
        low=comparison.low,
        high=comparison.high,
        better=better,
        promoted=promoted,
        spoiled=natural.spoiled,
    )
    write_result(place, result)
    report = {
        "adapter": str(adapter),
        "curves": str(place / CURVES),
        "complete": True,
        "better": better,
        "promoted": promoted,
        "natural": asdict(natural),
        "values": values,
        **asdict(comparison),
    }
    if as_json:
        print_json(report)
        return
    write(lambda: print("\n".join(_lines(report, comparison, natural))))


def _check(base: Registry, *, promotes: bool) -> None:
    if FRONTDOOR not in base.roles or "worker" not in base.roles:
        problem = "has no frontdoor or no worker"
        raise InputError(Problem(f"{base.path}: roles", problem, "a model that plans, and one that does the steps"))
    model = base.models[base.roles[FRONTDOOR].model]
    if model.file is None:
        raise InputError(Problem(f"{base.path}: roles.{FRONTDOOR}", "is a remote model", "a model that is loaded here"))
    if promotes and not os.access(base.path, os.W_OK):
        raise InputError(Problem(str(base.path), "cannot be written to", "a registry of your own, or --no-promote"))


def _own_requests(home: Path) -> list[PlannedRequest]:
    with JournalReader.open_to_read(home) as journal:
        own = rated_requests(journal)
    if not own:
        problem = "no run of a request that the frontdoor has planned is rated good, with its files as they were"
        raise InputError(Problem("--history", problem, "ratings: `orchestrator rate last good`"))
    return own


def _train(
    place: Path,
    base: Registry,
    machines: list[Machine],
    options_given: dict[str, Any],
    examples: int,
    own: list[PlannedRequest],
    threads: int,
    seconds: float | None,
    progress: ProgressOf,
) -> Path | None:
    # imported here, since the command's module has to load without PyTorch
    module = "orchestrator.memrl.parl.train"
    resolve_name("torch:set_num_threads")(threads)
    imitation = resolve_name(f"{module}:Imitation")(examples=examples)
    rewards = RewardSettings(stage=stage_over(options_given["updates"]))
    made = resolve_name(f"{module}:TrainSettings")(**options_given, imitation=imitation, reward=rewards)
    end = None if seconds is None else time.monotonic() + seconds
    adapter: Path | None = resolve_name(f"{module}:train")(
        place, base, machines, made, progress, own, lambda: end is not None and time.monotonic() >= end
    )
    return adapter


def _print_incomplete(place: Path, *, as_json: bool) -> None:
    curves = str(place / CURVES)
    if as_json:
        print_json({"complete": False, "better": False, "promoted": False, "curves": curves})
    else:
        write(lambda: print(f"Stopped after its time; the same command continues it\nCurves       {curves}"))


def _compare(
    place: Path, base: Registry, machines: list[Machine], adapter: Path, pairs: int, seed: int, progress: ProgressOf
) -> Comparison:
    role = base.roles[FRONTDOOR]
    with RealEngines(base, place / ANSWERS) as engines, scratch_of(place) as runs:
        engines.set_adapters(role.model, [*(each.file for each in role.lora), str(adapter)])
        harnesses = [Harness(base, engines, runs, worker) for worker in dict.fromkeys([None, other_worker(base)])]
        present, trained = (
            GreedyPolicy(engines, role.model, lora) for lora in (role.lora, (*role.lora, Lora(file=str(adapter))))
        )
        requests = held_out_requests(pairs, str(seed))
        before = measure(
            harnesses,
            machines,
            requests,
            Planned(lambda _: present, role.plans_by_cores),
            lambda done, total: progress(done, 2 * total),
        )
        after = measure(
            harnesses,
            machines,
            requests,
            Planned(lambda _: trained, by_cores=True),
            lambda done, total: progress(total + done, 2 * total),
        )
        return compare(before, after, RewardSettings())


def _natural(base: Registry, adapter: Path, most: int, place: Path, progress: ProgressOf) -> NaturalPlans:
    role, requests = base.roles[FRONTDOOR], real_requests("tuning")[:most]
    count = len(requests)
    with scratch_of(place) as logs:
        planned = partial(planned_correctly, base, requests=requests, folder=logs)
        current = planned(role.lora, progress=lambda done: progress(done, 2 * count), by_cores=role.plans_by_cores)
        adapters = (*role.lora, Lora(file=str(adapter)))
        candidate = planned(adapters, progress=lambda done: progress(count + done, 2 * count), by_cores=True)
    return NaturalPlans(count=count, current=current, candidate=candidate)


@contextmanager
def _bar(label: str) -> Iterator[ProgressOf]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=make_console(sys.stderr), disable=not sys.stderr.isatty()) as progress:
        bar = progress.add_task(label, total=None)
        yield lambda done, total: progress.update(bar, completed=done, total=total)


def _lines(report: dict[str, Any], comparison: Comparison, natural: NaturalPlans) -> Iterator[str]:
    yield f"Adapter      {report['adapter']}"
    yield f"Curves       {report['curves']}"
    interval = f"{comparison.low:+.3f} to {comparison.high:+.3f}"
    yield f"Gain         {comparison.gain:+.3f} ({interval}) on {comparison.requests} held-out requests"
    for name, figures in (("Before", comparison.current), ("After", comparison.candidate)):
        yield f"{name:<12} {_figures(figures)}"
    counts = f"{natural.candidate} instead of {natural.current} of {natural.count}"
    yield f"Unlike these {counts} natural requests are planned correctly"
    if report["promoted"]:
        yield "Promoted; `orchestrator frontdoor undo` takes it back"
    elif report["better"]:
        yield "Not promoted: --no-promote"
    elif comparison.better:
        yield "Not promoted: it has unlearned natural requests; the registry may name it with a smaller scale"
    else:
        yield "Not promoted: it is not better with certainty"


def _figures(figures: PolicyFigures) -> str:
    return (
        f"success {figures.success:.0%}, collapsed {figures.collapse:.0%}, spurious steps {figures.spurious:.0%},"
        f" critical path {figures.longer:+.0%} of the best plan's, width {figures.width:.1f}"
    )
