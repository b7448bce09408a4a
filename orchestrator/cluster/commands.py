"""The command about the machines of the daemon's cluster: nodes."""

from collections.abc import Mapping
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from orchestrator.cli.daemon import DaemonClient
from orchestrator.cli.settings import JsonFlag, settings
from orchestrator.cli.terminal import one_line, plain_table, print_result, size


def nodes(context: typer.Context, as_json: JsonFlag = False) -> None:
    """Show the machines of the daemon's cluster and the servers of its models, and what runs on them."""
    with DaemonClient(settings(context).home) as daemon:
        state = daemon.ask("GET", "/v1/nodes")
    print_result(state, lambda console: _print(console, state), as_json=as_json)


def _print(console: Console, state: Mapping[str, Any]) -> None:
    table = plain_table("Node", "Address", "State", "Cores", "Memory", "Models", "llama.cpp", "Note")
    table.columns[0].no_wrap = True
    for node in state["nodes"]:
        machine = node["machine"]
        table.add_row(
            one_line(node["name"]),
            "-" if "models" in node else node["address"] or "-",  # a server's name has its address
            node["state"],
            "-" if machine is None else str(machine["cores"]),
            "-" if machine is None else f"{size(machine['used'])} of {size(machine['budget'])}",
            one_line(", ".join((machine or node).get("models", ()))) or "-",
            one_line(node["library"]) or "-",
            one_line(node["reason"] or ""),
        )
    console.print(table)
    if not state["ray"]:
        console.print(Text("no cluster is configured: see [cluster] in `orchestrator config show`", style="dim"))
    elif state["problem"]:
        console.print(Text(f"the cluster {state['ray']}: {one_line(state['problem'])}", style="bold"))
