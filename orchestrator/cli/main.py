"""The `orchestrator` command: its global options, and where its commands are."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Final

import typer

from orchestrator.cli.errors import Boundary
from orchestrator.cli.on_demand import GroupOnDemand, load
from orchestrator.cli.settings import Settings

# Where each command is, in the order of the help
PLACES: Final = {
    "run": "orchestrator.cli.run:run",
    "init": "orchestrator.cli.init:init",
    "submit": "orchestrator.cli.submit:submit",
    "watch": "orchestrator.cli.submit:watch",
    "result": "orchestrator.cli.submit:result",
    "cancel": "orchestrator.cli.submit:cancel",
    "retry": "orchestrator.cli.submit:retry",
    "delete": "orchestrator.cli.submit:delete",
    "plan": "orchestrator.cli.task:plan",
    "validate": "orchestrator.cli.task:validate",
    "schema": "orchestrator.cli.task:schema",
    "models": "orchestrator.cli.models:app",
    "personas": "orchestrator.cli.personas:app",
    "memory": "orchestrator.cli.memory:app",
    "bench": "orchestrator.cli.bench:app",
    "runs": "orchestrator.cli.history:runs",
    "show": "orchestrator.cli.history:show",
    "diff": "orchestrator.cli.apply:diff",
    "apply": "orchestrator.cli.apply:apply",
    "export": "orchestrator.cli.export:export",
    "explain": "orchestrator.cli.history:explain",
    "rate": "orchestrator.cli.rate:rate",
    "resume": "orchestrator.cli.run:resume",
    "serve": "orchestrator.cli.serve:serve",
    "mcp": "orchestrator.cli.serve:mcp",
    "pool": "orchestrator.cli.pool:pool",
    "logs": "orchestrator.cli.serve:logs",
    "backup": "orchestrator.cli.state_folder:backup",
    "restore": "orchestrator.cli.state_folder:restore",
    "vacuum": "orchestrator.cli.state_folder:vacuum",
    "procedures": "orchestrator.cli.procedures:app",
    "service": "orchestrator.cli.serve:service_app",
    "config": "orchestrator.cli.serve:config_app",
    "doctor": "orchestrator.cli.system:doctor",
    "version": "orchestrator.cli.system:show_version",
}


class _Commands(Boundary, GroupOnDemand):
    places: ClassVar[Mapping[str, str]] = PLACES


app = typer.Typer(
    cls=_Commands,
    name="orchestrator",
    help="Turn a request or a TaskIR document into a DAG of steps and run it on local llama.cpp models.",
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def options(
    context: typer.Context,
    registry: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The registry of models [env: ORCHESTRATOR_REGISTRY].")
    ] = None,
    home: Annotated[Path | None, typer.Option(metavar="DIR", help="The state folder [env: ORCHESTRATOR_HOME].")] = None,
    version: Annotated[bool, typer.Option("--version", help="Print versions and exit.")] = False,
) -> None:
    """Keep the global options for the command; without a command, print the help."""
    context.obj = Settings(registry, home)
    if version:
        load(PLACES["version"])()
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


if __name__ == "__main__":
    app()
