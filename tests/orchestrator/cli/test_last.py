"""`last` is the last run of the user who asks, and not of other callers of the same daemon."""

import asyncio
from pathlib import Path

from orchestrator.run.journal.journal import Journal
from orchestrator.service.callers import user_key
from orchestrator.task.events import RunAccepted
from tests.orchestrator.cli.cli_command import Cli


def journaled(home: Path, **owners: str) -> None:
    """Journal runs of these owners, oldest first."""

    async def write() -> None:
        with Journal.open(home) as journal:
            for at, (run, owner) in enumerate(owners.items()):
                accepted = RunAccepted(at=float(at), run=run, mode="serial", request="x", owner=owner)
                await journal.append(run, [accepted])

    asyncio.run(write())


def test_runs_of_others_are_not_the_last_one(command: Cli, home: Path) -> None:
    journaled(home, OLDER=user_key(), OWN=user_key(), OTHER="token:ann")
    assert command("show", "last", "--json").json["run_id"] == "OWN"
    assert command("show", "OTHER", "--json").json["run_id"] == "OTHER"
    assert {one["run_id"]: one["owner"] for one in command("runs", "--json").json["runs"]} == {
        "OTHER": "token:ann",
        "OWN": user_key(),
        "OLDER": user_key(),
    }


def test_a_user_without_runs_is_told_whose_they_are(command: Cli, home: Path) -> None:
    journaled(home, OTHER="token:ann")
    refused = command("cancel", "last")
    assert refused.code == 2
    assert f"RUN: {user_key()} has submitted none of the 1 runs; accepted: OTHER" in refused.err


def test_runs_of_early_versions_count_as_those_of_the_user(command: Cli, home: Path) -> None:
    journaled(home, EARLY="", OTHER="token:ann")
    assert command("show", "last", "--json").json["run_id"] == "EARLY"
