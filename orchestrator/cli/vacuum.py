"""The command that removes what is kept no longer: vacuum."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

import typer

from orchestrator.cli.backend import ask_backend
from orchestrator.cli.settings import JsonFlag, settings
from orchestrator.cli.terminal import print_json, size, write


def vacuum(
    context: typer.Context,
    days: Annotated[
        float | None, typer.Option(min=0, help="Leave runs that ended within so many days; 0: no limit.")
    ] = None,
    runs: Annotated[int | None, typer.Option(min=0, help="Leave so many runs, the newest; 0: no limit.")] = None,
    most: Annotated[
        int | None, typer.Option("--bytes", min=0, help="Leave so much of artifacts, the newest; 0: no limit.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would be removed.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Remove runs that are kept no longer, and give back what no run has a use for.

    Limits that are not given are those of [retention] in the configuration. Runs that have not ended stay, and so does
    what later runs read of earlier ones. With a daemon, runs go on meanwhile; without one, the database is written anew
    as well. Backups stay as they are.
    """
    done = ask_backend(settings(context), lambda backend: backend.vacuum(days, runs, most, dry_run=dry_run))
    told = asdict(done)
    if as_json:
        print_json(told)
    else:
        write(lambda: print(_lines(told)))


def _lines(told: Mapping[str, Any]) -> str:
    would = "would be " if told["dry_run"] else ""
    freed = told["database_bytes_before"] - told["database_bytes"]
    lines = [
        f"{len(told['runs'])} runs {would}removed, {told['runs_left']} are left",
        f"{told['objects']} objects of {size(told['object_bytes'])} {would}removed, "
        f"{size(told['object_bytes_left'])} are left",
    ]
    if told["folders"]:
        lines.append(f"{told['folders']} folders of runs that are not known {would}removed")
    if not told["dry_run"]:
        lines.append(f"the database takes {size(told['database_bytes'])}, {size(max(0, freed))} less")
    return "\n".join(lines)
