"""The commands about what the router has learned: memory stats, explain, evaluate, ask, rebuild, train."""

import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from orchestrator.bench.families import STEP_FAMILIES
from orchestrator.bench.rollouts import Point, RolloutTask, family_tasks, folder_tasks, train, write_page
from orchestrator.cli import client
from orchestrator.cli.daemon import answers
from orchestrator.cli.logs import log_to
from orchestrator.cli.registry import registry_of
from orchestrator.cli.run_names import RunArgument, find_run
from orchestrator.cli.settings import JsonFlag, Settings, settings
from orchestrator.cli.terminal import make_console, one_line, print_json, size, write
from orchestrator.errors import InputError, Problem
from orchestrator.memrl.episodes import Action
from orchestrator.run.journal.home import Home
from orchestrator.run.journal.journal import JournalReader
from orchestrator.run.routing.hybrid import CONFIDENT, MODES, named
from orchestrator.service.configuration import EVERY_TYPE, load_configuration
from orchestrator.service.extent import Extent
from orchestrator.service.learning import evaluate_router, explained_choices
from orchestrator.service.service import Service

# Explains the columns of `memory explain`
LEGEND: Final = """\
Value: the expected reward less the price of time, tokens and loading; the highest is best. Expected: the reward that
the head, by its part, and similar episodes, by the rest, come to when calibrated, with its standard error. Probability:
how likely the candidate was to be taken. Similar episodes: up to three that spoke of the candidate, each with its Q."""
_MODE_OF: Final = {name: mode for mode, name in MODES.items()}

app = typer.Typer(
    name="memory",
    help="Show, ask and train what the router has learned from the outcomes of runs.",
    no_args_is_help=True,
)


@app.command()
def stats(context: typer.Context, as_json: JsonFlag = False) -> None:
    """Show what the memory holds, how it has learned, and what its advice is used for."""
    report = client.ask(settings(context), "GET", "/v1/memory", extent=Extent.NOTHING)
    if as_json:
        print_json(report)
        return
    write(lambda: print("\n".join(_stats_lines(report))))


@app.command()
def explain(context: typer.Context, run: RunArgument = "last", as_json: JsonFlag = False) -> None:
    """Explain each choice of a run: which episodes spoke, their Q, the head's part, the confidence, and the rules."""
    with JournalReader.open_to_read(settings(context).home) as journal:
        explained = explained_choices(journal, find_run(journal, run))
    if as_json:
        print_json(explained)
        return
    console = make_console(sys.stdout)
    write(lambda: _print_choices(console, explained["choices"]))


@app.command()
def evaluate(
    context: typer.Context,
    router: Annotated[
        str,
        typer.Argument(
            metavar="ROUTER",
            help="rules; memory: what it advised, where sure; best: what it held to be best, sure or not; random.",
        ),
    ],
    as_json: JsonFlag = False,
) -> None:
    """Estimate what a router would have earned on past choices, and by how much that is more than by the rules.

    The reward is the success times the quality of the result, from 0 to 1, less what the choice cost. Intervals are of
    95 %. An estimate by fewer than about 30 effective choices says little: the router's actions were hardly tried.
    """
    with JournalReader.open_to_read(settings(context).home) as journal:
        evaluation = evaluate_router(journal, router)
    if as_json:
        print_json(evaluation)
        return
    table = _table("Estimate", "Reward", "95 %", "Effective")
    rows = [*evaluation["estimates"].items(), ("over the rules", evaluation["over_rules"])]
    for name, estimate in rows:
        table.add_row(
            name,
            f"{estimate['value']:.3f}",
            f"{estimate['low']:.3f} to {estimate['high']:.3f}",
            f"{estimate['effective']:.0f}",
        )
    console = make_console(sys.stdout)
    head = f"{router}: {evaluation['choices']} choices, which have really earned {evaluation['logged']:.3f}"
    write(lambda: _print_all(console, Text(head), table))


@app.command()
def ask(
    context: typer.Context,
    cypher: Annotated[str, typer.Argument(metavar="CYPHER", help="A question that only reads the graph.")],
    as_json: JsonFlag = False,
) -> None:
    """Ask the graph of what led to what: runs, steps, attempts, roles, personas, failures and what helped.

    For example: MATCH (a:Attempt)-[:FAILED_WITH]->(f:FailureKind) RETURN f.name, count(*).
    """
    answer = client.ask(settings(context), "POST", "/v1/memory/ask", extent=Extent.NOTHING, json={"cypher": cypher})
    if as_json:
        print_json(answer)
        return
    table = _table(*answer["columns"])
    for row in answer["rows"]:
        table.add_row(*(Text(one_line(str(value))) for value in row))
    console = make_console(sys.stdout)
    write(lambda: _print_all(console, table, *_notes(answer)))


@app.command()
def rebuild(context: typer.Context, as_json: JsonFlag = False) -> None:
    """Make the index and the graph anew from the memory's database."""
    client.ask(settings(context), "POST", "/v1/memory/rebuild", extent=Extent.NOTHING)
    if as_json:
        print_json({"rebuilt": ["index", "graph"]})
    else:
        write(lambda: print("index and graph were made anew"))


@app.command("train")
def train_router(
    context: typer.Context,
    tasks: Annotated[int, typer.Option("--tasks", min=1, max=1_000_000, help="How many tasks to have done.")] = 100,
    family: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help=f"A task family; repeatable: {', '.join(STEP_FAMILIES)}. Default: all."),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Tasks of one's own instead: NAME.json beside NAME.checks.json, repeated."),
    ] = None,
    explore: Annotated[
        float, typer.Option(min=0, max=1, help="The share of choices in which something else is tried at first.")
    ] = 0.3,
    width: Annotated[int, typer.Option(min=1, max=256, help="How many tasks run at a time.")] = 8,
    seed: Annotated[int, typer.Option(help="Other tasks of the same families.")] = 0,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page of charts, which works offline.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Have tasks done whose answers can be checked, and learn from them which choices are best.

    The models stay as they are. Tasks run as batch runs in the state folder, which no daemon may own meanwhile.
    Training that was interrupted goes on where it was when it is started with the same options.
    """
    options = settings(context)
    if answers(options.home):
        conflict = f"a daemon owns {options.home}"
        raise InputError(Problem("memory train", conflict, "another --home, or no daemon while training goes on"))
    rollout_tasks = _tasks(tasks, seed, family, folder)
    if out is not None and (out.is_dir() or not out.absolute().parent.is_dir()):
        raise InputError(Problem(f"--out {out}", "cannot be written there", "a file in a folder that exists"))
    log_to(Home(options.home).logs / "orchestrator.log")
    try:
        points = asyncio.run(_train(options, rollout_tasks, width, explore))
    except KeyboardInterrupt:
        print("interrupted; the same command goes on where this training was", file=sys.stderr)
        raise
    if out is not None:
        try:
            write_page(out, points)
        except OSError as error:
            print(f"the page {out} cannot be written: {error.strerror}", file=sys.stderr)
    if as_json:
        print_json({"tasks": len(rollout_tasks), "points": [asdict(point) for point in points]})
        return
    write(lambda: make_console(sys.stdout).print(_points_table(points)))


def _tasks(count: int, seed: int, families: Sequence[str] | None, folder: Path | None) -> list[RolloutTask]:
    if folder is None:
        return list(family_tasks(count, seed, tuple(families or STEP_FAMILIES)))
    if families:
        raise InputError(Problem("--family", "is given beside --folder", "one of them"))
    templates = folder_tasks(folder)
    # The folder's tasks repeat, with new numbers, until there are enough.
    return [templates[number % len(templates)].numbered(number // len(templates), seed) for number in range(count)]


async def _train(options: Settings, tasks: Sequence[RolloutTask], width: int, explore: float) -> list[Point]:
    configuration = load_configuration()
    memory = configuration.memory.model_copy(update={"use": "on", "explore": {EVERY_TYPE: explore}})
    runs = configuration.runs.model_copy(update={"max_running": width, "reserved": 0})
    changed = configuration.model_copy(update={"memory": memory, "runs": runs})
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=make_console(sys.stderr), disable=not sys.stderr.isatty()) as progress:
        bar = progress.add_task("tasks", total=len(tasks))
        async with Service(options.home, registry_of(options), changed) as service:
            return await train(service, tasks, width, lambda finished, total: progress.update(bar, completed=finished))


def _stats_lines(report: Mapping[str, Any]) -> Iterator[str]:
    yield f"Use          {report['use']} (configured: {report['configured']})"
    limit = f"at most {report['ready_by_caller']} of one caller who is no owner"
    yield f"Outcomes     {report['outcomes']} learned from"
    yield f"Ready        {report['ready']} of the {report['ready_outcomes']} outcomes that advice needs; {limit}"
    for caller in report["callers"]:
        counts = f"{caller['drawn']} not forced, counted as {caller['counted']:.1f} of {caller['told']:.1f}"
        yield f"Caller       {caller['caller'] or '(not recorded)'}: {caller['outcomes']} outcomes, {counts}"
    weight = f"its verdict counts {report['judge_weight']:.2f}"
    yield f"Judge        agreed with a checker {report['judge_agreed']} of {report['judge_compared']} times; {weight}"
    held = report["stats"]
    if held is not None:
        yield f"Episodes     {held['episodes']}, {held['share_seen_again']:.1%} of them seen again"
        updated = f"{held['share_updated']:.1%} updated an episode"
        yield f"Updates      {held['outcomes']} outcomes: {updated}, {held['revised']} revised, {held['unused']} unused"
        spread = ", ".join(f"{float(key):.0%} {value:.2f}" for key, value in held["q_quantiles"].items())
        yield f"Q            mean {held['q_mean']:.3f}, deviation {held['q_deviation']:.3f}; {spread or 'no quantiles'}"
        yield f"Ceiling      {held['share_at_ceiling']:.1%} of the episodes have a Q of at least 0.99"
        index = held["index"]
        yield f"Index        {index['kind']}, {index['vectors']} vectors by {held['embedder']}, {size(index['bytes'])}"
        yield f"Database     {size(held['database_bytes'])}"
        for problem in held["problems"]:
            yield f"Problem      {one_line(problem)}"
    if report["problem"]:
        yield f"Problem      {one_line(report['problem'])}"


def _print_choices(console: Console, choices: Sequence[Mapping[str, Any]]) -> None:
    for choice in choices:
        where = "plan" if choice["step"] is None else f"{choice['step']}, attempt {choice['attempt']}"
        console.print(Text(f"{where}: {choice['taken']}", style="bold"))
        console.print(Text(f"  why: {one_line(choice['reason'])}"))
        if choice["outcome"] is not None:
            console.print(Text(f"  outcome: {choice['outcome']}"))
        if (advice := choice["advice"]) is None:
            console.print(Text("  the memory was not asked", style="dim"))
            continue
        sure = f"advice is followed from {CONFIDENT:.2f} on"
        console.print(Text(f"  the rules: {advice['rules']}"))
        console.print(Text(f"  confidence {advice['confidence']:.2f}; {sure}; probability {choice['propensity']:.3g}"))
        console.print(_estimates(advice["estimates"], choice["taken"]))
    if any(choice["advice"] is not None for choice in choices):
        console.print(Text(LEGEND, style="dim"))


def _estimates(estimates: Sequence[Mapping[str, Any]], taken_action: str) -> Table:
    table = _table("  Candidate", "Value", "Expected", "Price", "Head", "Its part", "Probability", "Similar episodes")
    for column in table.columns[1:-1]:
        column.no_wrap = True
    for estimate in estimates:
        action = Action(
            estimate["role"], estimate["persona"], estimate["model"], estimate["thinking"], estimate["mode"]
        )
        # `>` marks the candidate that was taken.
        mark = ">" if taken_action in (named(action), f"mode {_MODE_OF.get(action.mode)}") else " "
        parts = (
            estimate["role"],
            estimate["model"],
            estimate["persona"],
            estimate["thinking"] and f"thinking {estimate['thinking']}",
            estimate["mode"],
        )
        voices = [
            f"{voice['episode']} (Q {voice['q']:.2f}, alike {voice['similarity']:.2f})" for voice in estimate["voices"]
        ]
        table.add_row(
            Text(f"{mark} " + " ".join(filter(None, parts))),
            f"{estimate['value']:.3f}",
            f"{estimate['worth']:.3f} ± {estimate['error']:.3f}",
            f"{estimate['price']:.3f}",
            f"{estimate['head']:.3f}",
            f"{estimate['head_part']:.0%}",
            f"{estimate['probability']:.3g}",
            ", ".join(voices[:3]) or "-",
        )
    return table


def _points_table(points: Sequence[Point]) -> Table:
    table = _table("Tasks", "Success", "Q", "Regret", "λ", "Width", "Followed")
    for point in points:
        table.add_row(
            str(point.tasks),
            f"{point.success:.2f}",
            f"{point.q:.3f}",
            f"{point.regret:.3f}",
            f"{point.stage:.3f}",
            f"{point.width:.1f}",
            f"{point.followed:.0%}",
        )
    return table


def _print_all(console: Console, *parts: Text | Table) -> None:
    for part in parts:
        console.print(part)


def _notes(answer: Mapping[str, Any]) -> Iterator[Text]:
    if answer["more"]:
        yield Text("There are more rows.", style="dim")
    if answer["behind"]:
        note = (
            f"{answer['behind']} outcomes came since the graph was written; `orchestrator memory rebuild` brings them"
        )
        yield Text(note, style="dim")


def _table(*titles: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for title in titles:
        table.add_column(title, overflow="fold")
    return table
