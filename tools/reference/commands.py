"""Make docs/cli.md from the help of every command."""

from collections.abc import Iterator
from typing import Any

import typer.main
from typer.core import TyperGroup

from orchestrator.app import command_line

COLUMNS = 100  # the width of the help texts
HEAD = """# The command line

Made from the help of the commands by `python -m tools.reference cli > docs/cli.md`; a test compares the two.
"""


def page() -> str:
    """Return the Markdown page."""
    group = typer.main.get_group(command_line())
    root = group.make_context("orchestrator", [], resilient_parsing=True, terminal_width=COLUMNS)
    return "".join([HEAD, _block(root.get_help()), *_commands(group, root, "")])


def _commands(group: TyperGroup, parent: Any, path: str) -> Iterator[str]:
    for name in group.list_commands(parent):
        command = group.get_command(parent, name)
        assert command is not None, "it was listed"
        context = command.make_context(name, [], parent=parent, resilient_parsing=True, terminal_width=COLUMNS)
        yield f"\n## {path}{name}\n\n{_block(context.get_help())}"
        if isinstance(command, TyperGroup):
            yield from _commands(command, context, f"{path}{name} ")


def _block(text: str) -> str:
    lines = "\n".join(line.rstrip() for line in text.strip().splitlines())
    return f"```\n{lines}\n```\n"
