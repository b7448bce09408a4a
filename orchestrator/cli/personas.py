"""The commands about personas: personas list, show, add, retire, stats."""

from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.text import Text

from orchestrator.cli.client import ask
from orchestrator.cli.complete import complete_persona
from orchestrator.cli.daemon import path_part
from orchestrator.cli.registry import registry_of_jobs
from orchestrator.cli.settings import JsonFlag, Settings, settings
from orchestrator.cli.terminal import one_line, plain_table, print_lines, print_result
from orchestrator.errors import InputError, Problem
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.journal.store import PersonaUse
from orchestrator.run.personas import PersonaRow, persona_rows, with_uses
from orchestrator.task.personas import MAX_TEXT, Placed, unknown_persona

LARGEST_FILE: Final = 64 * 1024  # bytes; a larger file is refused before all of it is read

app = typer.Typer(
    name="personas",
    help="List, show, add and retire personas, each of which says how a role does its work.",
    no_args_is_help=True,
)

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="The persona, by its name.", autocompletion=complete_persona)
]


@app.command("list")
def list_personas(
    context: typer.Context,
    retired: Annotated[bool, typer.Option("--retired", help="List the retired ones too.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """List the personas that can be used."""
    rows, _ = _personas(settings(context), retired=retired)
    table = plain_table("Persona", "Made by", "Text")
    for row in rows:
        maker = f"{_maker(row)}, retired" if row.retired is not None else _maker(row)
        table.add_row(row.name, maker, Text(one_line(row.text)))
    body = {"personas": [asdict(row) for row in rows]}
    print_result(body, lambda console: console.print(table), as_json=as_json)


@app.command()
def show(context: typer.Context, name: NameArgument, as_json: JsonFlag = False) -> None:
    """Show a persona: its text, who made it and when."""
    rows, uses = _personas(settings(context))
    row = next((row for row in rows if row.name == name), None)
    if row is None:
        raise InputError(unknown_persona(name, [row.name for row in rows], "NAME"))
    lines = [f"{row.name}: made by {_maker(row)}"]
    if row.made is not None:
        lines[0] += f", {_when(row.made)}"
    if row.retired is not None:
        lines.append(f"retired {_when(row.retired)}: {one_line(row.why_retired)}")
    lines += [one_line(row.description)] if row.description else []
    print_lines(asdict(with_uses(row, uses)), [*lines, "", row.text], as_json=as_json)


@app.command()
def add(
    context: typer.Context,
    name: NameArgument,
    text: Annotated[
        str, typer.Option(metavar="TEXT", help="What it adds to a role's system prompt; @FILE reads it from a file.")
    ],
    description: Annotated[str, typer.Option(metavar="TEXT", help="What it is for, in a few words.")] = "",
    distinct: Annotated[
        bool, typer.Option("--distinct", help="Add it even if it says nearly the same as another one.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Add a persona, with or without a daemon. It takes effect at once, and no model is loaded for it.

    If another persona says nearly the same, nothing is added, and the name of that one is printed.
    """
    placed = add_persona(settings(context), name, _text(text), description, distinct=distinct)
    message = f"{placed.name} added" if placed.new else f"{placed.name} says the same already; nothing was added"
    if not placed.new and placed.name != name:
        message = (
            f"{placed.name} says nearly the same ({placed.similarity:.2f} alike): use it, or add yours with --distinct"
        )
    print_lines(asdict(placed), [message], as_json=as_json)


@app.command()
def retire(context: typer.Context, name: NameArgument, as_json: JsonFlag = False) -> None:
    """Retire a persona that was made at run time. Runs that name it continue with it."""
    retire_persona(settings(context), name)
    print_lines({"retired": name}, [f"{name} retired"], as_json=as_json)


@app.command()
def stats(context: typer.Context, as_json: JsonFlag = False) -> None:
    """Show how attempts with each persona ended, of the runs that are kept."""
    rows, uses = _personas(settings(context))
    used = [with_uses(row, uses) for row in rows]
    table = plain_table("Persona", "Role", "Attempts", "Succeeded", "Last")
    for row in used:
        for use in row.uses:
            ended = use.succeeded + use.failed
            share = f"{use.succeeded / ended:.0%}" if ended else "-"
            table.add_row(row.name, use.role, str(use.attempts), share, _when(use.last))
        if not row.uses:
            table.add_row(row.name, "-", "0", "-", "-")
    body = {"personas": [asdict(row) for row in used]}
    print_result(body, lambda console: console.print(table), as_json=as_json)


def add_persona(options: Settings, name: str, text: str, description: str, *, distinct: bool) -> Placed:
    """Add a persona, unless one says nearly the same, and return which one to use."""
    body = {"name": name, "text": text, "description": description, "distinct": distinct}
    placed = ask(options, "POST", "/v1/personas", with_registry=True, json=body)
    return Placed(placed["name"], placed["new"], placed["similarity"])


def retire_persona(options: Settings, name: str) -> None:
    ask(options, "DELETE", f"/v1/personas/{path_part('NAME', name)}", with_registry=True)


def _personas(options: Settings, *, retired: bool = True) -> tuple[list[PersonaRow], list[PersonaUse]]:
    registry = registry_of_jobs(options)
    with JournalReader.open_to_read(options.home) as journal:
        return persona_rows(registry, journal.personas(), with_retired=retired), journal.persona_uses()


def _text(argument: str) -> str:
    # @FILE names a file that holds the text.
    if not argument.startswith("@"):
        return argument
    path, accepted = Path(argument[1:]), f"a text of 1 to {MAX_TEXT['user']:,} characters"
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
        if len(data) > LARGEST_FILE:
            raise InputError(Problem(f"--text {argument}", f"has more than {LARGEST_FILE:,} bytes", accepted))
        return data.decode()
    except OSError as error:
        raise InputError(Problem(f"--text {argument}", f"cannot be read: {error.strerror}", "a text file")) from error
    except UnicodeDecodeError as error:
        raise InputError(Problem(f"--text {argument}", "is no text in UTF-8", "a text file")) from error


def _maker(row: PersonaRow) -> str:
    if row.maker == "file":
        return "the registry's file"
    if row.maker == "memory":
        return "the memory"
    by = one_line(row.by)
    return f"the plan of {by or 'a request'}" if row.maker == "plan" else by or "a user"


def _when(at: float) -> str:
    return datetime.fromtimestamp(at).strftime("%Y-%m-%d %H:%M")
