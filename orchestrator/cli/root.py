"""The parts of the command line, as the composition root names them. They are imported when needed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from orchestrator.api.app import Attached
    from orchestrator.cli.settings import Settings


class CommandPlace(NamedTuple):
    """Where a command is, and what the list of commands says of it."""

    target: str  # "MODULE:ATTRIBUTE", a function or a `typer.Typer`
    help: str  # the first sentence of its docstring; the list of commands then needs no module of a command
    after: str = ""  # of an attachment's: the command that it follows in the list


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    commands: Mapping[str, CommandPlace]  # of what is attached, by name
    # What is attached to a service that this process opens without a daemon, and to its API
    attached: "Callable[[], Attached]"
    # Called with a run that is done and has steps that propose procedures
    ask_about_proposals: "Callable[[Settings, str], None]"
    daemon: tuple[str, ...]  # the program
