"""The commands about what the router has learned: memory stats, explain, evaluate, ask, rebuild, train."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from orchestrator.cli import client
from orchestrator.cli.on_demand import GroupOnDemand
from orchestrator.cli.root import CommandPlace
from orchestrator.cli.run_names import RunArgument, find_run
from orchestrator.cli.settings import JsonFlag, settings
from orchestrator.cli.terminal import one_line, plain_table, print_lines, print_result, size
from orchestrator.memrl.episodes import MODES, Action
from orchestrator.memrl.learning import evaluate_router, explained_choices
from orchestrator.memrl.router import CONFIDENT, named
from orchestrator.run.journal.reader import JournalReader
from orchestrator.service.extent import Extent

# Explains the columns of `memory explain`
LEGEND: Final = """\
Value: the expected reward less the price of time, tokens and loading; the highest is best. Expected: the reward that
the head, by its part, and similar episodes, by the rest, come to when calibrated, with its standard error. Probability:
how likely the candidate was to be taken. Similar: up to three episodes that spoke of the candidate, each with its Q."""
_MODE_OF: Final = {name: mode for mode, name in MODES.items()}


class _Memory(GroupOnDemand):
    places: ClassVar[Mapping[str, CommandPlace]] = {
        "train": CommandPlace(
            "orchestrator.memrl.train:train_router",
            "Have tasks done whose answers can be checked, and learn from them which choices are best.",
        )
    }


app = typer.Typer(
    cls=_Memory,
    name="memory",
    help="Show, ask and train what the router has learned from the outcomes of runs.",
    no_args_is_help=True,
)


@app.command()
def stats(context: typer.Context, as_json: JsonFlag = False) -> None:
    """Show what the memory holds, how it has learned, and what its advice is used for."""
    report = client.ask(settings(context), "GET", "/v1/memory", extent=Extent.NOTHING)
    print_lines(report, _stats_lines(report), as_json=as_json)


@app.command()
def explain(context: typer.Context, run: RunArgument = "last", as_json: JsonFlag = False) -> None:
    """Explain each choice of a run: which episodes spoke, their Q, the head's part, the confidence, and the rules."""
    with JournalReader.open_to_read(settings(context).home) as journal:
        explained = explained_choices(journal, find_run(journal, run))
    print_result(explained, lambda console: _print_choices(console, explained["choices"]), as_json=as_json)


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
    table = plain_table("Estimate", "Reward", "95 %", "Effective")
    rows = [*evaluation["estimates"].items(), ("over the rules", evaluation["over_rules"])]
    for name, estimate in rows:
        table.add_row(
            name,
            f"{estimate['value']:.3f}",
            f"{estimate['low']:.3f} to {estimate['high']:.3f}",
            f"{estimate['effective']:.0f}",
        )
    head = f"{router}: {evaluation['choices']} choices, which have really earned {evaluation['logged']:.3f}"
    print_result(evaluation, lambda console: _print_all(console, Text(head), table), as_json=as_json)


@app.command()
def ask(
    context: typer.Context,
    cypher: Annotated[str, typer.Argument(metavar="CYPHER", help="A question that only reads the graph.")],
    as_json: JsonFlag = False,
) -> None:
    """Query the graph of causes: runs, steps, attempts, roles, personas, failures and their remedies.

    For example: MATCH (a:Attempt)-[:FAILED_WITH]->(f:FailureKind) RETURN f.name, count(*).
    """
    answer = client.ask(settings(context), "POST", "/v1/memory/ask", extent=Extent.NOTHING, json={"cypher": cypher})
    table = plain_table(*answer["columns"])
    for row in answer["rows"]:
        table.add_row(*(Text(one_line(str(value))) for value in row))
    print_result(answer, lambda console: _print_all(console, table, *_notes(answer)), as_json=as_json)


@app.command()
def rebuild(context: typer.Context, as_json: JsonFlag = False) -> None:
    """Rebuild the index and the graph from the memory's database."""
    client.ask(settings(context), "POST", "/v1/memory/rebuild", extent=Extent.NOTHING)
    print_lines({"rebuilt": ["index", "graph"]}, ["index and graph were rebuilt"], as_json=as_json)


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
    stats = report["stats"]
    if stats is not None:
        yield f"Episodes     {stats['episodes']}, {stats['share_seen_again']:.1%} of them seen again"
        updated = f"{stats['share_updated']:.1%} updated an episode, {stats['revised']} revised"
        yield f"Updates      {stats['outcomes']} outcomes: {updated}, {stats['unused']} unused"
        spread = ", ".join(f"{float(key):.0%} {value:.2f}" for key, value in stats["q_quantiles"].items())
        deviation = f"deviation {stats['q_deviation']:.3f}"
        yield f"Q            mean {stats['q_mean']:.3f}, {deviation}; {spread or 'no quantiles'}"
        yield f"Ceiling      {stats['share_at_ceiling']:.1%} of the episodes have a Q of at least 0.99"
        index = stats["index"]
        yield f"Index        {index['kind']}, {index['vectors']} vectors by {stats['embedder']}, {size(index['bytes'])}"
        yield f"Database     {size(stats['database_bytes'])}"
        for problem in stats["problems"]:
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
        for line in filter(None, map(_similar_episodes, advice["estimates"])):
            console.print(Text(line))
    if any(choice["advice"] is not None for choice in choices):
        console.print(Text(LEGEND, style="dim"))


def _estimates(estimates: Sequence[Mapping[str, Any]], taken_action: str) -> Table:
    table = plain_table(" ", "Value", "Expected", "Price", "Head", "Its part", "Probability", "Candidate")
    for column in table.columns[:-1]:
        column.no_wrap = True
    for estimate in estimates:
        action = Action(
            estimate["role"], estimate["persona"], estimate["model"], estimate["thinking"], estimate["mode"]
        )
        # `>` marks the candidate that was taken.
        mark = ">" if taken_action in (named(action), f"mode {_MODE_OF.get(action.mode)}") else " "
        table.add_row(
            mark,
            f"{estimate['value']:.3f}",
            f"{estimate['worth']:.3f} ± {estimate['error']:.3f}",
            f"{estimate['price']:.3f}",
            f"{estimate['head']:.3f}",
            f"{estimate['head_part']:.0%}",
            f"{estimate['probability']:.3g}",
            Text(_candidate(estimate)),
        )
    return table


def _candidate(estimate: Mapping[str, Any]) -> str:
    thinking = estimate["thinking"] and f"thinking {estimate['thinking']}"
    parts = (estimate["role"], estimate["model"], estimate["persona"], thinking, estimate["mode"])
    return " ".join(filter(None, parts))


def _similar_episodes(estimate: Mapping[str, Any]) -> str:
    voices = [
        f"{voice['episode']} (Q {voice['q']:.2f}, alike {voice['similarity']:.2f})" for voice in estimate["voices"]
    ]
    return f"  similar to {_candidate(estimate)}: {', '.join(voices[:3])}" if voices else ""


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
