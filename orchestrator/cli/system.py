"""The command that checks the installation: doctor."""

from dataclasses import asdict

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from orchestrator.cli.daemon import DaemonClient, answers, why_not_ready
from orchestrator.cli.errors import ExitCode
from orchestrator.cli.settings import JsonFlag, settings
from orchestrator.cli.terminal import glyphs, one_line, print_result
from orchestrator.registry.load import find_registry
from orchestrator.service.attachments import StandbyStatus
from orchestrator.service.configuration import load_configuration
from orchestrator.service.doctor import Check, examine, examine_daemon

CHECK_STYLES = {"ok": "green", "note": "yellow", "broken": "bold red"}
CHECK_MARKS = {"ok": "done", "note": "waiting", "broken": "failed"}


def doctor(context: typer.Context, as_json: JsonFlag = False) -> None:
    """Check this installation.

    Exits with 1 if something that a run needs is missing or broken.
    """
    options = settings(context)
    checks, standby, exposed = examine(find_registry(options.registry_flag), options.home), None, None
    if load_configuration().cluster.ray and answers(options.home):
        with DaemonClient(options.home) as daemon:
            state = daemon.ask("GET", "/v1/nodes")
        standby = None if state["standby"] is None else StandbyStatus(**state["standby"])
        exposed = {node["name"]: node.get("exposed") for node in state["nodes"]}
    checks += examine_daemon(why_not_ready(options.home), standby, exposed)
    broken = [check for check in checks if check.state == "broken"]
    body = {"healthy": not broken, "checks": [asdict(check) for check in checks]}
    print_result(body, lambda console: _print_checks(console, checks), as_json=as_json)
    if broken:
        raise typer.Exit(ExitCode.FAILED)


def _print_checks(console: Console, checks: list[Check]) -> None:
    signs = glyphs(console)
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in checks:
        mark = Text(f"{signs.states[CHECK_MARKS[check.state]]} {check.state}", style=CHECK_STYLES[check.state])
        result = Text(one_line(check.found))
        if check.mend:
            result.append(f"\n{signs.arrow} {one_line(check.mend)}", style="dim")
        table.add_row(mark, Text(one_line(check.name)), result)
    console.print(table)
    broken = sum(check.state == "broken" for check in checks)
    console.print()
    console.print(Text(f"{broken} broken" if broken else "Everything that a run needs is there.", style="bold"))
