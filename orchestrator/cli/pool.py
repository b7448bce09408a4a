"""The commands about the models that the daemon has loaded: pool; models load, unload, pin."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from orchestrator.cli.complete import complete_model
from orchestrator.cli.daemon import DaemonClient, path_part
from orchestrator.cli.settings import JsonFlag, settings
from orchestrator.cli.terminal import counted, one_line, plain_table, print_result, size

ModelArgument = Annotated[
    str,
    typer.Argument(metavar="MODEL", help="The model, by its id in the registry.", autocompletion=complete_model),
]


def pool(context: typer.Context, as_json: JsonFlag = False) -> None:
    """Show which models the daemon has loaded, and what uses them."""
    with DaemonClient(settings(context).home) as daemon:
        state = daemon.ask("GET", "/v1/pool")
    print_result(state, lambda console: _print_pool(console, state), as_json=as_json)


def load(context: typer.Context, model: ModelArgument, as_json: JsonFlag = False) -> None:
    """Have the daemon load a model, and wait until it is loaded."""
    _change(context, model, "load", as_json)


def unload(context: typer.Context, model: ModelArgument, as_json: JsonFlag = False) -> None:
    """Have the daemon unload a model when its current requests are done."""
    _change(context, model, "unload", as_json)


def pin(
    context: typer.Context,
    model: ModelArgument,
    off: Annotated[bool, typer.Option("--off", help="Allow the daemon to evict it again.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Have the daemon keep a model in memory once it is loaded."""
    _change(context, model, "unpin" if off else "pin", as_json)


def _change(context: typer.Context, model: str, verb: str, as_json: bool) -> None:
    path = f"/v1/pool/{path_part('MODEL', model)}/{verb}"
    with DaemonClient(settings(context).home) as daemon:
        line = daemon.ask("POST", path)
    print_result(line, lambda console: console.print(_table([line])), as_json=as_json)


def _print_pool(console: Console, state: Mapping[str, Any]) -> None:
    for machine, status in (state.get("machines") or {"": state}).items():
        name = f"{one_line(machine)}: " if machine else ""
        usage = f"{size(status['used'])} of {size(status['budget'])} taken, {status['cores']} cores"
        console.print(Text(f"{name}{usage}", style="bold"))
    console.print()
    console.print(_table(state["models"]))
    for line in _counter_lines(state["models"]):
        console.print(Text(line, style="dim"))


def _table(models: Sequence[Mapping[str, Any]]) -> Table:
    table = plain_table("Model", "State", "Residency", "Memory", "Requests", "Threads", "Note")
    for model in models:
        table.add_row(
            model["model"],
            model["state"],
            f"{model['residency']}, pinned" if model["pinned"] else model["residency"],
            size(model["bytes"]),
            f"{model['active']} of {model['requests']}{_roles(model.get('roles', {}))}",
            "-" if model["threads"] is None else str(model["threads"]),
            one_line(model["reason"] or ""),
        )
        for server in model.get("servers", ()):
            table.add_row(
                f"  at {one_line(server['name'])}",
                server["state"],
                "server",
                "-",
                f"{server['active']} of {server['requests']}",
                "-",
                "" if server["state"] == "ready" else one_line(server["reason"] or ""),
            )
    return table


def _roles(roles: Mapping[str, Mapping[str, int]]) -> str:
    # In the order of their first requests
    asking = [f"{name or 'no role'} {use['requests']}" for name, use in roles.items() if use["requests"]]
    return f": {one_line(', '.join(asking))}" if asking else ""


def _counter_lines(models: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = []
    for model in models:
        for role, use in model.get("roles", {}).items():
            if use["answers"]:
                tokens = f"{use['prompt_tokens']} prompt and {use['output_tokens']} output tokens"
                lines.append(f"{model['model']}: {role or 'no role'}: {counted(use['answers'], 'answer')}, {tokens}")
        for server in model.get("servers", ()):
            if server["first_seconds"] is not None:
                lines.append(f"{model['model']} at {one_line(server['name'])}: {_pace(server)}")
        counters = model["counters"]
        if counters and counters["prompt_tokens"]:
            reused = f"{counters['reused_tokens']} of {counters['prompt_tokens']} prompt tokens reused"
            lines.append(f"{model['model']}: {reused}{_drafts(counters)}")
    return lines


def _pace(server: Mapping[str, Any]) -> str:
    first, token, at_once = server["first_seconds"], server["token_seconds"], server["at_once"]
    measured = [
        f"{first:.2g} s to the first token",
        "" if token is None else f"{token:.2g} s a token",
        "" if at_once is None else f"{counted(at_once, 'answer')} at once",
    ]
    return ", ".join(filter(None, measured))


def _drafts(counters: Mapping[str, Any]) -> str:
    if counters["speculation"] is None:
        return ""
    summary = f"{counters['accepted']} of {counters['drafted']} kept, {counters['saved_seconds']:.2g} s saved; "
    return f"; drafts: {summary if counters['drafted'] else ''}{one_line(counters['speculation'])}"
