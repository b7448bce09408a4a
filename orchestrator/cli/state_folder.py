"""The commands that look after the state folder: backup, restore, vacuum."""

import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated

import typer

from orchestrator.cli.client import ask
from orchestrator.cli.daemon import DaemonClient, answers, path_part
from orchestrator.cli.settings import JsonFlag, Settings, settings
from orchestrator.cli.terminal import print_lines, size
from orchestrator.errors import InputError, Problem
from orchestrator.run.journal.home import Home
from orchestrator.run.journal.reader import JournalReader
from orchestrator.service.extent import Extent
from orchestrator.service.retention import VacuumRequest, VacuumResult


def backup(
    context: typer.Context,
    listed: Annotated[bool, typer.Option("--list", help="List the backups, without making one.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Have the daemon back up the state folder while it runs."""
    options = settings(context)
    if listed:
        answer = ask(options, "GET", "/v1/backups", extent=Extent.NOTHING)
        lines = [f"{entry['name']}  {size(entry['bytes'])}" for entry in answer["backups"]]
        print_lines(answer, lines, as_json=as_json)
        return
    with DaemonClient(options.home) as daemon:
        answer = daemon.ask("POST", "/v1/backups")
    print_lines(answer, [answer["name"]], as_json=as_json)


def restore(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The backup, as `backup --list` names it.")],
    as_json: JsonFlag = False,
) -> None:
    """Replace all runs by those of a backup, with or without a daemon.

    The current journal is kept next to the backups.
    """
    path = f"/v1/backups/{path_part('NAME', name)}/restore"
    ask(settings(context), "POST", path, extent=Extent.NOTHING)  # the journal may be damaged
    backups = settings(context).home / "backups"
    lines = [f"all runs are those of backup {name}; the journal before is kept in {backups}"]
    print_lines({"restored": name}, lines, as_json=as_json)


def vacuum(
    context: typer.Context,
    days: Annotated[
        float | None, typer.Option(min=0, help="Days that runs are kept after their end; 0: no limit.")
    ] = None,
    runs: Annotated[int | None, typer.Option(min=0, help="How many runs are kept, the newest; 0: no limit.")] = None,
    most: Annotated[
        int | None,
        typer.Option("--bytes", min=0, help="Bytes of artifacts that are kept, of the newest runs; 0: no limit."),
    ] = None,
    chats: Annotated[
        int | None,
        typer.Option(min=0, help="How many chats whose model the router chose are kept, the newest; 0: up to 100,000."),
    ] = None,
    outcomes: Annotated[
        bool, typer.Option("--outcomes", help="Also purge what is kept for learning: outcomes of removed runs, chats.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before outcomes are purged.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be removed.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Remove runs and chats that exceed the limits, and data that no run uses.

    Limits that are not given are those of [retention] in the configuration. Runs that have not ended stay, and so do
    the artifacts of earlier runs that later ones read. With a daemon, runs continue meanwhile; without one, the
    database is also rewritten without gaps. Backups are not changed.

    Of a run that is removed, the outcomes of its attempts are kept for learning: the text of each step, the role and
    the model that did it, how it ended, its prompts and its ratings. Of a chat whose model the router chose, what the
    user said last is kept, who answered, how that ended and the ratings. --outcomes purges all of that.
    """
    options = settings(context)
    if outcomes and not dry_run and not yes:
        _confirm_purge(options)
    request = VacuumRequest(days=days, runs=runs, bytes=most, chats=chats, outcomes=outcomes, dry_run=dry_run)
    result = vacuumed(options, request)
    print_lines(asdict(result), _lines(result), as_json=as_json)


def vacuumed(options: Settings, request: VacuumRequest) -> VacuumResult:
    """Vacuum the state folder, and return what was removed. Raises InputError if there is nothing in it yet."""
    if not answers(options.home) and not Home(options.home).database.exists():
        accepted = "the state folder of a daemon, or of earlier runs"
        raise InputError(Problem(f"--home {options.home}", "holds no runs", accepted))
    answer = ask(options, "POST", "/v1/vacuum", json=asdict(request))
    return VacuumResult(**{**answer, "runs": tuple(answer["runs"])})


def _confirm_purge(options: Settings) -> None:
    if not sys.stdin.isatty():
        accepted = "--yes with it, or --dry-run to see how many there are"
        raise InputError(Problem("--outcomes", "asks before it purges, and stdin is not a terminal", accepted))
    with JournalReader.open_to_read(options.home) as journal:
        outcomes, chats = journal.count_outcomes(), journal.count_chats(beyond=0)
    amount = f"the outcomes of {outcomes} attempts of removed runs" + (f" and {chats} chats" if chats else "")
    question = f"Purge {amount}? The router can then no longer learn from them."
    typer.confirm(question, abort=True, err=True)  # raises Abort if the answer is no


def _lines(stats: VacuumResult) -> Iterator[str]:
    removed = "would be removed" if stats.dry_run else "removed"
    freed = max(0, stats.database_bytes_before - stats.database_bytes)
    yield f"{len(stats.runs)} runs {removed}, {stats.runs_left} are left"
    yield f"{stats.objects} objects of {size(stats.object_bytes)} {removed}, {size(stats.object_bytes_left)} are left"
    if stats.folders:
        yield f"{stats.folders} folders of unknown runs {removed}"
    if stats.outcomes:
        yield f"{stats.outcomes} outcomes of attempts {removed}"
    if stats.chats:
        yield f"{stats.chats} chats {removed}"
    if not stats.dry_run:
        yield f"the database takes {size(stats.database_bytes)}, {size(freed)} less"
