"""`orchestrator bench critical-path`, `compare` and `history`: how long tasks take, and where their time goes."""

import asyncio
import hashlib
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any, Final, Self

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from orchestrator.bench.critical_path.compare import changes
from orchestrator.bench.critical_path.measure import TaskMeasurement, WorkloadSummary, summaries
from orchestrator.bench.critical_path.page import PARTS, history_page, interval, page
from orchestrator.bench.critical_path.run import CriticalPathPlan, Round, measure, rounds_of
from orchestrator.bench.critical_path.sessions import MeasuringSession, Sessions
from orchestrator.bench.critical_path.workloads import Roles, Workload, choose, sample_text, workloads
from orchestrator.bench.real.measure import registry_for
from orchestrator.cli.complete import complete_model, complete_run
from orchestrator.cli.documents import read_task
from orchestrator.cli.logs import log_to
from orchestrator.cli.registry import registry_of
from orchestrator.cli.run_names import find_run
from orchestrator.cli.settings import DirOption, JsonFlag, ModeOption, Settings, settings
from orchestrator.cli.source import check_folder
from orchestrator.cli.terminal import make_console, one_line, print_result, printable, seconds, write
from orchestrator.engine.contract import Message
from orchestrator.errors import InputError, Problem
from orchestrator.files import replace_file
from orchestrator.pool.pool import Pool
from orchestrator.registry.models import Registry
from orchestrator.run.journal.home import Home
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.planning import planned_task
from orchestrator.run.record.view import RunView
from orchestrator.task.taskir.models import TaskIR

# Without --model, the first usable model whose name starts with this is measured, if there is one.
PREFERRED: Final = "smollm2"
SAMPLE_WORDS: Final = 200

SessionArgument = Annotated[
    str, typer.Argument(metavar="SESSION", help="A session: its id, the beginning of it, `last`, or a file.")
]


def critical_path(
    context: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[WORKLOAD|TASK.json]...",
            help="Workloads, such as wide, wide-16, deep or shared, or TaskIR files; all workloads without.",
        ),
    ] = None,
    replay: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Measure the plan of a run of the journal.", autocompletion=complete_run),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The model of all roles; without it SmolLM2 if it is there, else each role's.",
            autocompletion=complete_model,
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, max=100, help="How many warm rounds of each workload.")] = 5,
    serial: Annotated[
        bool, typer.Option("--serial/--no-serial", help="Run each round serially too, for the speedup.")
    ] = True,
    folder: DirOption = None,
    mode: ModeOption = "as-planned",
    new: Annotated[
        bool, typer.Option("--new", help="Begin again instead of continuing an interrupted session.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write the page here too, over a file of that name.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Measure the critical path of workloads: predicted, measured, and where its time went.

    The product's own orchestrator runs them, in a state folder of its own below yours, so no daemon is asked. A daemon
    or other programs that compute meanwhile change the figures. Results are kept as JSON and as a page, and an
    interrupted session continues when the command is given again. A replay reads the run's own folder if there is no
    --dir.
    """
    options = settings(context)
    check_folder(folder)
    registry = _registry_of(registry_of(options), model)
    Home(options.home).create()
    sessions = sessions_of(options)
    state = sessions.folder.parent / "state"
    log_to(sessions.folder.parent / "bench.log")
    suite = asyncio.run(_workloads(options, registry, names or (), replay, folder, state))
    models = _models_of(suite, registry)
    how = mode or "as-planned"
    stamp = _stamp(suite, registry, models, rounds, serial=serial, mode=how)
    interrupted = None if new else sessions.unfinished(stamp)
    session = interrupted or sessions.begin("orchestrator bench critical-path", stamp)
    all_rounds = [bench_round for workload in suite for bench_round in rounds_of(workload, rounds, serial=serial)]
    remaining = [bench_round for bench_round in all_rounds if not _is_measured(session, bench_round)]
    with _Display(len(all_rounds), len(all_rounds) - len(remaining), quiet=as_json) as display:
        recorder = _Recorder(session, sessions, display)
        bench = CriticalPathPlan(
            home=state, registry=registry, models=models, folder=folder, mode=how, measured=recorder.measured
        )
        asyncio.run(measure(bench, remaining))
        recorder.complete()
    text = page(recorder.session)
    files = [sessions.folder / f"{session.id}.html", *([html] if html else [])]
    for file in files:
        _write_page(file, text)
    print_result(recorder.session.to_json(), lambda console: _print(console, recorder.session, files), as_json=as_json)


def compare(context: typer.Context, before: SessionArgument, after: SessionArgument, as_json: JsonFlag = False) -> None:
    """Compare two sessions: by how much each workload became faster or slower, with 95 % intervals."""
    sessions = sessions_of(settings(context))
    first, second = sessions.find(before), sessions.find(after)
    task_changes = changes(first, second)
    table = _table("workload", "before", "after", "before / after", "95 % interval", "")
    for change in task_changes:
        reach = "-" if change.low is None or change.high is None else f"{change.low:.2f} to {change.high:.2f}"
        ratio = "-" if change.ratio is None else f"{change.ratio:.2f}"
        _add_row(table, change.task, seconds(change.before), seconds(change.after), ratio, reach, change.verdict)
    body = {"before": first.id, "after": second.id, "changes": [change.to_json() for change in task_changes]}
    print_result(body, lambda console: console.print(table), as_json=as_json)


def history(
    context: typer.Context,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write a page with plots, over a file of that name.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """List the sessions of the past, and plot how the wall times changed."""
    past_sessions = sessions_of(settings(context)).all()
    if html is not None:
        _write_page(html, history_page(past_sessions))
    table = _table("session", "models", "workload", "rounds", "wall", "efficiency")
    for session in past_sessions:
        for summary in summaries(session.rows):
            models = ", ".join(session.stamp.get("models", ()))
            figures = (str(summary.rounds), seconds(summary.wall), f"{summary.efficiency:.2f}")
            _add_row(table, session.id, models, summary.task, *figures)
    body = {"sessions": [_past(session) for session in past_sessions]}
    print_result(body, lambda console: console.print(table), as_json=as_json)


def sessions_of(options: Settings) -> Sessions:
    return Sessions(options.home / "bench" / "critical-path")


def _past(session: MeasuringSession) -> dict[str, Any]:
    fields = ("id", "began", "complete", "machine", "versions", "stamp", "summaries")
    return {name: value for name, value in session.to_json().items() if name in fields}


def _write_page(file: Path, text: str) -> None:
    try:
        replace_file(file, text)
    except OSError as error:
        raise InputError(Problem(str(file), f"cannot be written: {error.strerror}", "a file in a folder")) from error


def _registry_of(registry: Registry, model: str | None) -> Registry:
    usable = [name for name, entry in registry.models.items() if entry.unavailable is None and not entry.embeds]
    if model is None:
        model = next((name for name in usable if name.startswith(PREFERRED)), None)
        return registry if model is None else registry_for(registry, model)
    named = registry.model_named(model)
    if named not in usable:
        raise InputError(Problem(model, f"{registry.path} has no such model that can write", ", ".join(usable)))
    return registry_for(registry, named)


async def _workloads(
    options: Settings, registry: Registry, names: Sequence[str], replay: str | None, folder: Path | None, state: Path
) -> list[Workload]:
    own = [] if replay is None else [replayed(options, replay, folder)]
    files = [name for name in names if name.endswith(".json")]
    own += [Workload(name, f"the document {name}", {Path(name).stem: read_task(name)}) for name in files]
    shapes = [name for name in names if name not in files]
    if own and not shapes:
        return own
    available = workloads(await _roles(registry, state))
    try:
        selected = choose(shapes, available) if shapes else list(available)
    except KeyError as error:
        accepted = f"{', '.join(available)}, or the name of a TaskIR file that ends in .json"
        raise InputError(Problem(str(error.args[0]), "is no workload", accepted)) from error
    return [available[name] for name in selected] + own


async def _roles(registry: Registry, state: Path) -> Roles:
    able = [name for name in registry.step_roles if registry.why_not(name) is None]
    if not able:
        raise InputError(Problem(str(registry.path), "has no role that can do steps", "a role with a model"))
    worker = "worker" if "worker" in able else able[0]
    coder = "coder" if "coder" in able else worker
    model = registry.roles[worker].model
    if registry.models[model].is_remote:
        return Roles(worker, coder)
    async with Pool(registry, state / "logs", step_costs=Home(state).step_costs) as pool:
        count = await pool.count(model, (Message("user", sample_text(SAMPLE_WORDS)),))
    return Roles(worker, coder, count / SAMPLE_WORDS)  # tokens per word


def replayed(options: Settings, text: str, folder: Path | None) -> Workload:
    """Return the plan of a run as a workload. Without `folder` it reads that of the run.

    Raises InputError, also for a folder that is no longer there, and JournalError.
    """
    with JournalReader.open_to_read(options.home) as journal:
        run = find_run(journal, text)
        view = RunView.of(event for _, event in journal.events(run))
    task = view.accepted.task
    if task is None:
        steps = tuple(view.state.graph.steps.values())
        if not steps:
            raise InputError(Problem(f"run {run}", "has no plan", "a run whose plan was made"))
        task = planned_task(view.title, steps, None).task
    if folder is None and view.accepted.directory is not None:
        folder = check_folder(Path(view.accepted.directory))
    return Workload(run, f"the plan of run {run}", {run: task}, folder)


def _models_of(suite: Sequence[Workload], registry: Registry) -> tuple[str, ...]:
    tasks: list[TaskIR] = [task for workload in suite for task in workload.tasks.values()]
    # Unknown roles are left out: the check of a task names them.
    roles = dict.fromkeys(step.actor for task in tasks for step in task.plan.steps if step.actor in registry.roles)
    names = dict.fromkeys(registry.roles[role].model for role in roles if registry.why_not(role) is None)
    return tuple(name for name in names if not registry.models[name].is_remote)


def _stamp(
    suite: Sequence[Workload], registry: Registry, models: Sequence[str], rounds: int, *, serial: bool, mode: str
) -> Mapping[str, Any]:
    return {
        "workloads": {workload.name: _digest(workload) for workload in suite},
        "models": {name: _size(registry, name) for name in models},
        "rounds": rounds,
        "serial": serial,
        "mode": mode,
    }


def _digest(workload: Workload) -> str:
    texts = [name + task.model_dump_json() for name, task in workload.tasks.items()]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def _size(registry: Registry, model: str) -> int:
    file = registry.models[model].file
    return 0 if file is None else file.stat().st_size


def _is_measured(session: MeasuringSession, bench_round: Round) -> bool:
    return all(
        session.find(bench_round.workload.name, task, bench_round.way, bench_round.number)
        for task in bench_round.workload.tasks
    )


class _Display(AbstractContextManager["_Display"]):
    """Progress on stderr: a bar in a terminal, else a line for each round."""

    def __init__(self, rounds: int, measured: int, *, quiet: bool) -> None:
        self._console = make_console(sys.stderr)
        self._quiet = quiet
        self._done, self._rounds = measured, rounds
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        lively = self._console.is_terminal and not quiet
        self._progress = Progress(*columns, console=self._console) if lively else None
        self._task = TaskID(0)

    def __enter__(self) -> Self:
        if self._progress is not None:
            self._progress.start()
            self._task = self._progress.add_task("loading models", total=self._rounds, completed=self._done)
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def advance(self, bench_round: Round, rows: Sequence[TaskMeasurement]) -> None:
        self._done += 1
        summary = ", ".join(f"{row.task} {row.way} {row.status} in {seconds(row.wall)}" for row in rows)
        if self._progress is not None:
            self._progress.update(self._task, description=one_line(summary), advance=1)
        elif not self._quiet:
            line = f"{self._done} of {self._rounds}: {one_line(summary)}"
            write(lambda: print(printable(line), file=sys.stderr, flush=True))


class _Recorder:
    """Writes each round at once, so that an interrupted session can continue."""

    def __init__(self, session: MeasuringSession, sessions: Sessions, display: _Display) -> None:
        self.session = session
        self._sessions = sessions
        self._display = display

    def measured(self, bench_round: Round, rows: Sequence[TaskMeasurement]) -> None:
        self.session = self.session.add(rows)
        self._sessions.write(self.session)
        self._display.advance(bench_round, rows)

    def complete(self) -> None:
        self.session = self.session.completed()
        self._sessions.write(self.session)


def _print(console: Console, session: MeasuringSession, files: Sequence[Path]) -> None:
    task_summaries = summaries(session.rows)
    table = _table("workload", "wall", "path", "serial", "bound", "efficiency", "speedup")
    table.columns[-1].no_wrap = False
    for summary in task_summaries:
        serial = "-" if summary.serial is None else seconds(summary.serial)
        figures = (f"{summary.bound:.2f}", f"{summary.efficiency:.2f}", interval(summary.speedup))
        _add_row(table, summary.task, seconds(summary.wall), seconds(summary.path), serial, *figures)
    console.print(table)
    console.print()
    for summary in task_summaries:
        console.print(Text(f"{summary.task}: {_went(summary)}"), soft_wrap=True)
    console.print(Text(f"pages: {', '.join(map(str, files))}", style="dim"), soft_wrap=True)


def _table(*heads: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for head in heads:
        table.add_column(head, no_wrap=True)
    return table


def _add_row(table: Table, *cells: str) -> None:
    table.add_row(*(Text(one_line(cell)) for cell in cells))


def _went(summary: WorkloadSummary) -> str:
    parts = {name: getattr(summary.where, name) for name in PARTS}
    total = sum(parts.values()) or 1.0
    # Parts that would be printed as 0 % are left out.
    spent = ", ".join(
        f"{PARTS[name]} {100 * value / total:.0f} %" for name, value in parts.items() if value / total > 0.005
    )
    undone = "" if summary.done == summary.steps else f"; only {summary.done} of {summary.steps} steps done"
    path = f"path predicted as {seconds(summary.predicted)}; width {summary.width}"
    return f"{path}; {spent}; {summary.tokens_on_path} tokens on the path, {summary.tokens_off_path} off it{undone}"
