"""Import the module of a command only when the command is used, since importing all of them takes a second or more."""

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any, ClassVar, Final

import typer
import typer.main
from typer.core import TyperGroup

Command = Any
"""A command as typer makes it. The class is in a private module of typer."""


class CommandsOnDemand(MutableMapping[str, Command]):
    """The commands of a group by their names, each of which is made when it is asked for.

    `places` says where the function or the `typer.Typer` of each is: "MODULE:ATTRIBUTE". `ready` are commands that
    there are already. Their names are listed first.
    """

    def __init__(self, places: Mapping[str, str], ready: Mapping[str, Command] | None = None) -> None:
        self._places = dict(places)
        self._made: dict[str, Command] = dict(ready or {})
        self._names: Final = dict.fromkeys([*self._made, *self._places])

    def __getitem__(self, name: str) -> Command:
        if name not in self._made:
            self._made[name] = _made(name, load(self._places[name]))
        return self._made[name]

    def __setitem__(self, name: str, command: Command) -> None:
        self._names[name] = None
        self._made[name] = command

    def __delitem__(self, name: str) -> None:
        del self._names[name]
        self._made.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class GroupOnDemand(TyperGroup):
    """A group whose commands are those that it was made with and those of `places`, made when they are asked for."""

    places: ClassVar[Mapping[str, str]] = {}
    """Where further commands are: "MODULE:ATTRIBUTE" by the name of the command."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = CommandsOnDemand(self.places, self.commands)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands, in the order of the table."""
        return list(self.commands)


def load(place: str) -> Any:
    """Return what a module has under a name, for "MODULE:ATTRIBUTE"."""
    module, attribute = place.split(":")
    return getattr(import_module(module), attribute)


def _made(name: str, found: Any) -> Command:
    """Return the command that a function or a `typer.Typer` stands for."""
    alone = typer.Typer(rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False)
    alone.callback()(_nothing)  # without it, typer would make the only command the outermost one
    if isinstance(found, typer.Typer):
        alone.add_typer(found, name=name)
    else:
        alone.command(name)(found)
    return typer.main.get_group(alone).commands[name]


def _nothing() -> None:
    """Stand for the options of a group that has none."""
