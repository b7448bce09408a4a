"""`last` is the last run of the user who asks, and not of other callers of the same daemon."""

import asyncio
import os
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


def test_a_run_that_no_process_carries_out_is_shown_as_interrupted(command: Cli, home: Path) -> None:
    journaled(home, OWN=user_key())
    lock = home / "lock"
    for holder, is_interrupted in ((str(2**22 + 1), True), ("", True), (str(os.getpid()), False)):
        lock.write_text(holder)
        assert ("`orchestrator resume OWN` continues it" in command("show").out) == is_interrupted
        assert ("1 interrupted, since no process owns" in command("runs").out) == is_interrupted
        expected = "has not ended: interrupted; accepted: a run that has; `orchestrator resume OWN`"
        refused = command("result")
        assert (refused.code, expected in refused.err) == (2, is_interrupted)


def test_a_number_of_runs_that_no_journal_holds_is_refused(command: Cli, home: Path) -> None:
    journaled(home, OWN=user_key())
    refused = command("runs", "--limit", str(2**64))
    assert (refused.code, refused.err.startswith("error: Invalid value for '--limit'")) == (2, True)
