"""The command that lists runs."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from orchestrator.cli.run_names import is_interrupted
from orchestrator.cli.settings import JsonFlag, settings
from orchestrator.cli.terminal import STATE_STYLES, one_line, print_result, seconds
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.journal.store import RunRow


def runs(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many runs to list, the newest first.")] = 20,
    as_json: JsonFlag = False,
) -> None:
    """List past runs, newest first."""
    with JournalReader.open_to_read(settings(context).home) as journal:
        rows = journal.runs(limit)
        interrupted = sum(is_interrupted(journal, row.status) for row in rows)
    print_result(
        {"runs": [row.to_json() for row in rows]},
        lambda console: _print_runs(console, rows, interrupted),
        as_json=as_json,
    )


def _print_runs(console: Console, rows: Sequence[RunRow], interrupted: int) -> None:
    if not rows:
        console.print(Text("There are no runs yet.", style="dim"))
        return
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold", expand=True)
    for title in ("Run", "Status", "Accepted"):
        table.add_column(title, no_wrap=True)
    table.add_column("Took", no_wrap=True, justify="right")
    table.add_column("Request", no_wrap=True, overflow="ellipsis", ratio=1)
    for row in rows:
        took = row.finished - row.accepted if row.finished is not None else None
        status = Text(row.status, style=STATE_STYLES.get(row.status, ""))
        status.append(" ?" if row.doubt else "", style="yellow")
        table.add_row(row.run, status, _when(row.accepted), seconds(took), Text(one_line(row.title)))
    console.print(table)
    if interrupted:
        problem = f"{interrupted} interrupted, since no process owns the state folder"
        console.print(Text(f"{problem}: `orchestrator resume RUN` continues one", style="yellow"))


def _when(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M")
