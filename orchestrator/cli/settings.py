"""The values of the global options, and the options that several commands share."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.root import Root
from orchestrator.errors import InputError, Problem
from orchestrator.run.journal.home import home_path
from orchestrator.task.modes import Mode

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")]
AllFlag = Annotated[bool, typer.Option("--all", help="Show every step, however many there are.")]
DirOption = Annotated[
    Path | None, typer.Option("--dir", metavar="DIR", help="Folder whose files the task may read; never written to.")
]


@dataclass(frozen=True, slots=True)
class Settings:
    """The global options of the command line, and what the composition root gives it."""

    registry_flag: Path | None  # --registry; None: look in the environment and the configuration
    home_flag: Path | None  # --home; None: look in the environment
    root: Root

    @property
    def home(self) -> Path:
        """The state folder to use, which may not exist. Raises `InputError` for `~name` of an unknown user."""
        try:
            return self.home_flag.expanduser().absolute() if self.home_flag else home_path(os.environ)
        except RuntimeError as error:
            named = f"--home {self.home_flag}" if self.home_flag else "ORCHESTRATOR_HOME"
            raise InputError(Problem(named, "there is no such user with a home", "the path of a folder")) from error


def settings(context: typer.Context) -> Settings:
    current = context.find_object(Settings)
    assert current is not None, "the callback of the command line makes the settings"
    return current


def settings_so_far(context: typer.Context) -> Settings:
    """Return the settings while a word is completed, when no callback has run."""
    outermost = context.find_root()
    return Settings(outermost.params.get("registry"), outermost.params.get("home"), outermost.obj)


ModeOption = Annotated[
    Mode | None,
    typer.Option(
        help="as-planned: by the edges of the plan; discover: without edges that carry no data; serial: one by one; "
        "direct: one step answers the whole request. Without it: directly if no plan can be expected to be better, "
        "else as planned; or as the router has learned."
    ),
]
DirectFlag = Annotated[
    bool, typer.Option("--direct", help="Answer the request by one step, without a plan: --mode direct.")
]
