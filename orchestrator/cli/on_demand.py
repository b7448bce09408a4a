"""Import the module of a command only when the command is used, since importing all of them takes a second or more."""

from collections.abc import Iterator, Mapping, MutableMapping
from pkgutil import resolve_name
from typing import Any, ClassVar, Final

import typer
import typer.main
from typer.core import TyperGroup

from orchestrator.cli.root import CommandPlace

Command = Any  # a command as typer makes it; the class is in a private module of typer


class CommandsOnDemand(MutableMapping[str, Command]):
    """The commands of a group by name, each made when it is first used.

    `ready` are commands that exist already. They are listed first.
    """

    def __init__(self, places: Mapping[str, CommandPlace], ready: Mapping[str, Command] | None = None) -> None:
        self._places = dict(places)
        self._commands: dict[str, Command] = dict(ready or {})
        self._names: Final = dict.fromkeys([*self._commands, *self._places])

    def __getitem__(self, name: str) -> Command:
        if name not in self._commands:
            self._commands[name] = _new_command(name, resolve_name(self._places[name].target))
        return self._commands[name]

    def __setitem__(self, name: str, command: Command) -> None:
        self._names[name] = None
        self._commands[name] = command

    def __delitem__(self, name: str) -> None:
        del self._names[name]
        self._commands.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class GroupOnDemand(TyperGroup):
    """A group with the commands that it was made with, and those of `places`, made when they are first used."""

    places: ClassVar[Mapping[str, CommandPlace]] = {}

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = CommandsOnDemand(self.places, self.commands)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands without importing the modules of those in `places`."""
        listed = {name: self.commands[name] for name in self.commands if name not in self.places}
        listed |= {name: _new_command(name, _nothing, place.help) for name, place in self.places.items()}
        TyperGroup(name=self.name, commands={name: listed[name] for name in self.commands}).format_commands(
            ctx, formatter
        )


def _new_command(name: str, target: Any, help_text: str | None = None) -> Command:
    alone = typer.Typer(rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False)
    alone.callback()(_nothing)  # without it, typer would make the only command the outermost one
    if isinstance(target, typer.Typer):
        alone.add_typer(target, name=name)
    else:
        alone.command(name, help=help_text)(target)
    return typer.main.get_group(alone).commands[name]


def _nothing() -> None:
    """Stand for the options of a group that has none."""
