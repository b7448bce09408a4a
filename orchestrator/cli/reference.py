"""Print the help of every command as one Markdown page: `python -m orchestrator.cli.reference > docs/cli.md`."""

import typer.main

from orchestrator.cli.main import app

COLUMNS = 100
HEAD = """# The command line

Made from the help of the commands by `python -m orchestrator.cli.reference > docs/cli.md`; a test says when it is old.
"""


def reference() -> str:
    """Return the page."""
    group = typer.main.get_group(app)
    root = group.make_context("orchestrator", [], resilient_parsing=True, terminal_width=COLUMNS)
    parts = [HEAD, _block(root.get_help())]
    for name in group.list_commands(root):
        command = group.get_command(root, name)
        assert command is not None, "it was listed"
        context = command.make_context(name, [], parent=root, resilient_parsing=True, terminal_width=COLUMNS)
        parts += [f"\n## {name}\n\n", _block(context.get_help())]
    return "".join(parts)


def _block(text: str) -> str:
    lines = "\n".join(line.rstrip() for line in text.strip().splitlines())
    return f"```\n{lines}\n```\n"


if __name__ == "__main__":
    print(reference(), end="")
