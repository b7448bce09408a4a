"""`orchestrator rate` without a daemon."""

import asyncio
from pathlib import Path

import pytest

from orchestrator.run.journal.journal import Journal
from orchestrator.run.journal.reader import JournalReader
from orchestrator.service.callers import user_key
from orchestrator.task.events import (
    AttemptStarted,
    AttemptSucceeded,
    PlanFinished,
    RatingGiven,
    RunAccepted,
    RunFinished,
    StepsPlanned,
)
from orchestrator.task.taskir.models import Step
from tests.orchestrator.chat_events import ANSWERED, ROUTED
from tests.orchestrator.cli.cli_command import Cli


@pytest.fixture
def ended(home: Path) -> Path:
    """A state folder with a run that has ended, and one that has not."""

    async def write() -> None:
        with Journal.open(home) as journal:
            await journal.append("Q", [RunAccepted(at=1.0, run="Q", mode="serial", request="x")])
            planned = StepsPlanned(at=1.0, steps=(Step(id="S1", actor="worker", action="go", outputs=("a",)),))
            begun = AttemptStarted(at=1.0, step="S1", number=1, role="worker", persona=None, model="m", reason="r")
            done = AttemptSucceeded(at=2.0, step="S1", number=1, outputs={"a": journal.put(b"text")})
            accepted = RunAccepted(at=1.0, run="R", mode="serial", request="x")
            finished = RunFinished(at=3.0, status="done")
            plan = PlanFinished(at=1.0, origin="planned")
            await journal.append("R", [accepted, planned, plan, begun, done, finished])

    asyncio.run(write())
    return home


def test_ratings_are_kept_and_shown(command: Cli, ended: Path) -> None:
    told = command("rate", "R", "good", "--note", "just\x1b right", "--json").json
    assert (told["run_id"], told["step"], told["score"], told["by"]) == ("R", None, 1.0, user_key())
    assert command("rate", "R", "S1", "0.25").out == f"S1 rated 0.25 by {user_key()}\n"
    assert command("rate", "last", "bad").code == 0
    shown = command("show", "R").out
    assert f"R  1 by {user_key()}: just\\x1b right" in shown
    assert f"S1  0.25 by {user_key()}" in shown
    assert f"R  0 by {user_key()}" in shown
    explained = command("explain", "R", "S1")
    assert f"0.25 by {user_key()}" in explained.out
    assert command("explain", "R", "S1", "--json").json["step"]["ratings"][0]["score"] == 0.25
    with JournalReader.open_to_read(ended) as journal:
        given = [event for _, event in journal.events("R") if isinstance(event, RatingGiven)]
    assert [(event.step, event.score) for event in given] == [(None, 1.0), ("S1", 0.25), (None, 0.0)]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["R", "1.5"], "SCORE: '1.5' is no score; accepted: good, bad, or a number from 0 (bad) to 1 (good)"),
        (["R", "nan"], "SCORE: 'nan' is no score"),
        (["R", "fine"], "SCORE: 'fine' is no score"),
        (["R", "S1", "S2", "good"], "SCORE: 'S1 S2 good' is more than a step and a score; accepted: [STEP] SCORE"),
        (["R", "S7", "good"], "step: run R has no step 'S7'; accepted: S1"),
        (["nobody", "good"], "RUN: there is no run 'nobody'"),
    ],
)
def test_what_is_no_rating_is_refused(command: Cli, ended: Path, words: list[str], told: str) -> None:
    refused = command("rate", *words)
    assert refused.code == 2
    assert told in refused.err


def test_a_run_that_has_not_ended_cannot_be_rated(command: Cli, ended: Path) -> None:
    refused = command("rate", "Q", "good")
    assert refused.code == 1
    assert "run Q has not ended: queued; accepted: a run that has ended" in refused.err


def test_a_chat_is_rated_and_explained(command: Cli, home: Path) -> None:
    with Journal.open(home) as journal:
        journal.note_chat_event(ROUTED)
        journal.note_chat_event(ANSWERED)
    assert command("rate", ROUTED.chat, "0.25").out == f"{ROUTED.chat} rated 0.25 by {user_key()}\n"
    assert command("rate", ROUTED.chat, "good", "--json").json["score"] == 1.0
    explained = command("explain", ROUTED.chat).out
    for part in ("coder on m, persona terse: it did so before", "hybrid-1, with a probability of 0.75", "no object"):
        assert part in explained
    told = command("explain", ROUTED.chat, "--json").json
    assert told["answers"][0]["failure"] == "schema"
    assert [rating["score"] for rating in told["ratings"]] == [0.25, 1.0]
    assert "a chat has no steps" in command("rate", ROUTED.chat, "S1", "good").err
    assert "a chat has no steps" in command("explain", ROUTED.chat, "S1").err
    assert "holds no chat 'resp_9'" in command("explain", "resp_9").err
