"""The `orchestrator` command: its global options, and where the commands of the core are."""

from collections.abc import Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated, ClassVar, Final

import typer

from orchestrator.cli.errors import Boundary
from orchestrator.cli.on_demand import GroupOnDemand
from orchestrator.cli.root import CommandPlace, Root
from orchestrator.cli.settings import Settings

# Where each command is, in the order of the help
COMMANDS: Final = {
    "run": CommandPlace("orchestrator.cli.run:run", "Run a request or a TaskIR document."),
    "init": CommandPlace("orchestrator.cli.init:init", "Write a registry that works."),
    "submit": CommandPlace("orchestrator.cli.submit:submit", "Submit a request or a TaskIR document to the daemon."),
    "watch": CommandPlace(
        "orchestrator.cli.submitted:watch", "Show a run of the daemon until it has ended, and print its report."
    ),
    "result": CommandPlace("orchestrator.cli.submitted:result", "Print the answer of a run."),
    "cancel": CommandPlace(
        "orchestrator.cli.submitted:cancel", "Have the daemon cancel a run, or one step of it, and print what that did."
    ),
    "retry": CommandPlace(
        "orchestrator.cli.submitted:retry", "Submit the job of a run that has ended again, as a new run."
    ),
    "prioritise": CommandPlace(
        "orchestrator.cli.submitted:prioritise",
        "Have the daemon do a step of a run, and what that step waits for, before the run's other steps.",
    ),
    "delete": CommandPlace(
        "orchestrator.cli.submitted:delete", "Have the daemon delete a run that has ended, and all that is kept of it."
    ),
    "plan": CommandPlace("orchestrator.cli.task:plan", "Print the plan of a request."),
    "validate": CommandPlace("orchestrator.cli.task:validate", "Check a TaskIR document."),
    "schema": CommandPlace("orchestrator.cli.task:schema", "Print the JSON Schema of TaskIR."),
    "models": CommandPlace("orchestrator.cli.models:app", "List models, roles and personas."),
    "personas": CommandPlace(
        "orchestrator.cli.personas:app",
        "List, show, add and retire personas, each of which says how a role does its work.",
    ),
    "bench": CommandPlace("orchestrator.cli.bench:app", "Measure what a model can do, and how long tasks take."),
    "runs": CommandPlace("orchestrator.cli.runs:runs", "List past runs, newest first."),
    "show": CommandPlace(
        "orchestrator.cli.history:show",
        "Show the report of a run, or the answer of a failed attempt at one of its steps.",
    ),
    "diff": CommandPlace(
        "orchestrator.cli.export:diff",
        "Show how the results of a run differ from the files that it read, as a unified diff.",
    ),
    "apply": CommandPlace(
        "orchestrator.cli.export:apply",
        "Write the results of a run into the folder whose files it read: all of them or none.",
    ),
    "export": CommandPlace(
        "orchestrator.cli.export:export",
        "Write the results of a run into a folder, over files of the same names: all of them or none.",
    ),
    "explain": CommandPlace(
        "orchestrator.cli.history:explain", "Explain one step of a run, or a chat whose model the router chose."
    ),
    "rate": CommandPlace(
        "orchestrator.cli.rate:rate",
        "Rate a run that has ended, one step of it, or a chat whose model the router chose.",
    ),
    "resume": CommandPlace("orchestrator.cli.run:resume", "Resume an interrupted run."),
    "serve": CommandPlace(
        "orchestrator.cli.serve:serve", "Own the state folder and serve its socket until SIGTERM or ctrl-C."
    ),
    "mcp": CommandPlace("orchestrator.cli.serve:mcp", "Serve the daemon's MCP tools on stdin and stdout."),
    "ui": CommandPlace("orchestrator.cli.ui:ui", "Open the web page of the daemon, logged in as this user."),
    "pool": CommandPlace("orchestrator.cli.pool:pool", "Show which models the daemon has loaded, and what uses them."),
    "logs": CommandPlace(
        "orchestrator.cli.serve:logs", "Print the last lines of the daemon's log, each a JSON object."
    ),
    "backup": CommandPlace(
        "orchestrator.cli.state_folder:backup", "Have the daemon back up the state folder while it runs."
    ),
    "restore": CommandPlace(
        "orchestrator.cli.state_folder:restore", "Replace all runs by those of a backup, with or without a daemon."
    ),
    "vacuum": CommandPlace(
        "orchestrator.cli.state_folder:vacuum",
        "Remove runs and chats that exceed the limits, and data that no run uses.",
    ),
    "service": CommandPlace("orchestrator.cli.serve:service_app", "Have systemd run the daemon."),
    "config": CommandPlace("orchestrator.cli.serve:config_app", "The configuration file."),
    "doctor": CommandPlace("orchestrator.cli.system:doctor", "Check this installation."),
    "version": CommandPlace("orchestrator.cli.version:show_version", "Print version numbers."),
}


def command_line(root: Root) -> typer.Typer:
    """Return the command line, with the commands of what the root attaches."""

    class Commands(Boundary, GroupOnDemand):
        places: ClassVar[Mapping[str, CommandPlace]] = _with_attached(root.commands)

    app = typer.Typer(
        cls=Commands,
        name="orchestrator",
        help="Turn a request or a TaskIR document into a DAG of steps and run it on local llama.cpp models.",
        add_completion=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"obj": root},  # for words that are completed, when `options` has not run
    )

    @app.callback(invoke_without_command=True)
    def options(
        context: typer.Context,
        registry: Annotated[
            Path | None, typer.Option(metavar="FILE", help="The registry of models [env: ORCHESTRATOR_REGISTRY].")
        ] = None,
        home: Annotated[
            Path | None, typer.Option(metavar="DIR", help="The state folder [env: ORCHESTRATOR_HOME].")
        ] = None,
        version: Annotated[bool, typer.Option("--version", help="Print versions and exit.")] = False,
    ) -> None:
        """Keep the global options for the command; without a command, print the help."""
        context.obj = Settings(registry, home, root)
        if version:
            resolve_name(COMMANDS["version"].target)()
            raise typer.Exit
        if context.invoked_subcommand is None:
            typer.echo(context.get_help())

    return app


def _with_attached(attached: Mapping[str, CommandPlace]) -> dict[str, CommandPlace]:
    places: dict[str, CommandPlace] = {}
    for name, place in COMMANDS.items():
        places[name] = place
        places |= {other: command_place for other, command_place in attached.items() if command_place.after == name}
    return places
