"""The command that removes what is kept no longer: vacuum."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from orchestrator.cli.client import Daemon, answers
from orchestrator.cli.settings import JsonFlag, settings
from orchestrator.cli.terminal import print_json, size, write
from orchestrator.errors import InputError, Problem
from orchestrator.journal import Home
from orchestrator.service.configuration import load_configuration
from orchestrator.service.retention import Retention, vacuum_alone


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
    told = _vacuumed(settings(context).home, {"days": days, "runs": runs, "bytes": most}, dry_run)
    if as_json:
        print_json(told)
    else:
        write(lambda: print(_lines(told)))


def _vacuumed(home: Path, limits: Mapping[str, Any], dry_run: bool) -> Mapping[str, Any]:
    if answers(home):
        with Daemon(home) as daemon:
            return daemon.ask("POST", "/v1/vacuum", json={**limits, "dry_run": dry_run})
    if not Home(home).database.exists():
        raise InputError(Problem(f"--home {home}", "holds no runs", "the state folder of a daemon, or of earlier runs"))
    retention = Retention.of(load_configuration().retention, **limits)
    return asdict(vacuum_alone(home, retention, dry_run=dry_run))


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
