"""The commands about the machines of a cluster: cluster start, nodes, standby."""

import os
import sys
from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from orchestrator.cli.daemon import DaemonClient
from orchestrator.cli.serve import daemon_environment
from orchestrator.cli.settings import JsonFlag, settings
from orchestrator.cli.terminal import one_line, plain_table, print_lines, print_result, size
from orchestrator.cluster.ray_start import USUAL_PORT, checked_start
from orchestrator.service.doctor import exposure

STANDBY_PROGRAM: Final = (sys.executable, "-m", "orchestrator.cluster.standby")

cluster_app = typer.Typer(
    help="Make this machine a part of a Ray cluster.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)


@cluster_app.command("start")
def start(
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="The one address of this machine for Ray's ports.")],
    join: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS:PORT", help="The cluster's control plane; without it, this machine runs one."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help=f"The control plane's port, without --join; else {USUAL_PORT}."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="What the node is called; without it, as the host.")
    ] = None,
    block: Annotated[bool, typer.Option("--block", help="Stay until SIGTERM or ctrl-C, which ends Ray here.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Start Ray on this machine, listening at one address only.

    Each machine of a cluster needs it, the daemon's too. `ray stop` ends it. Needs the extra `ray` and a C compiler.
    """
    ray = checked_start(address, join, port, name)
    if block:
        sys.stdout.flush()
        ray.become()
    ray.execute()
    lines = [f"Ray listens at {ray.address}, and its control plane is {ray.control_plane}"]
    if not ray.joins:
        lines.append(f"on another machine: orchestrator cluster start ADDRESS --join {ray.control_plane}")
    body = {"address": ray.address, "control_plane": ray.control_plane}
    print_lines(body, [*lines, "end it: ray stop"], as_json=as_json)


def standby(context: typer.Context) -> None:
    """Get a copy of the head's journal, and take over as the daemon when the head is gone.

    It runs until SIGTERM or ctrl-C, and prints its state. [cluster] has to name the same Ray cluster as the head's, and
    an address of this machine as `standby`. A journal that is here already is moved into backups/.
    """
    sys.stdout.flush()
    environ = daemon_environment(settings(context))
    os.execve(STANDBY_PROGRAM[0], STANDBY_PROGRAM, environ)  # noqa: S606 - our own program


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
            one_line(node["reason"] or exposure(node.get("exposed"))),
        )
    console.print(table)
    if not state["ray"]:
        console.print(Text("no cluster is configured: see [cluster] in `orchestrator config show`", style="dim"))
    if (standby := state["standby"]) is not None:
        problem = f"; the arbiter: {one_line(standby['problem'])}" if standby["problem"] else ""
        where = f" at {standby['address']}" if standby["address"] else ""
        console.print(Text(f"standby{where}: {standby['state']}; epoch {standby['epoch']}{problem}"))
    if state["problem"]:
        console.print(Text(f"the cluster {state['ray']}: {one_line(state['problem'])}", style="bold"))
