"""What learning needs of a run is left when the run itself is removed because it is old."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.run.journal.errors import ObjectMissing
from orchestrator.run.journal.journal import Journal
from orchestrator.run.journal.migrations import MIGRATIONS
from orchestrator.run.journal.objects import ObjectStore
from orchestrator.run.journal.outcomes import AttemptOutcome, Rating
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.journal.store import checksum_of
from orchestrator.run.record.cache import ViewCache
from orchestrator.run.record.report import load_report
from orchestrator.service.ratings import rate
from orchestrator.service.retention import Retention, vacuum
from orchestrator.task.events import (
    AttemptFailed,
    AttemptGenerated,
    AttemptStarted,
    AttemptSucceeded,
    Event,
    Failure,
    FailureKind,
    PlanFinished,
    PromptDigests,
    RatingGiven,
    RunAccepted,
    RunFinished,
    StepsPlanned,
    Usage,
    encode_event,
)
from orchestrator.task.taskir.parse import task_from
from tests.orchestrator.service.alone import vacuum_alone

TASK = task_from(
    {
        "objective": "x",
        "task_type": "code",
        "plan": {"steps": [{"id": "S1", "actor": "worker", "action": "do it", "outputs": ["o"]}]},
    }
)


def course(run: str, system: str = "", output: str = "0" * 64) -> list[Event]:
    """Return the events of a run whose step fails once and then is done."""
    prompts = PromptDigests(system=system)
    return [
        RunAccepted(at=10.0, run=run, mode="as-planned", task=TASK),
        StepsPlanned(at=10.0, steps=TASK.plan.steps),
        PlanFinished(at=10.0, origin="taskir"),
        AttemptStarted(
            at=11.0, step="S1", number=1, role="worker", persona=None, model="m", reason="r", propensity=0.5
        ),
        AttemptFailed(at=12.0, step="S1", number=1, failure=Failure(FailureKind.CODE, "wrong")),
        AttemptStarted(
            at=12.0, step="S1", number=2, role="worker", persona="p", model="m", reason="again", prompts=prompts
        ),
        AttemptGenerated(at=13.0, step="S1", number=2, usage=Usage(prompt_tokens=7, output_tokens=3)),
        AttemptSucceeded(at=14.0, step="S1", number=2, outputs={"o": output}),
        RunFinished(at=14.0, status="done"),
    ]


async def test_outcomes_ratings_and_prompts_outlive_the_run(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal:
        system, output = journal.put(b"You are careful."), journal.put(b"text")
        await journal.append("R", course("R", system, output))
        journal.objects.release([system])
        views = ViewCache(journal)
        await rate(journal, views, "R", RatingGiven(at=20.0, score=0.5, by="ann", step="S1", note="so so"))
        await rate(journal, views, "R", RatingGiven(at=21.0, score=1.0, by="bob"))
        assert journal.outcomes() == []
        foreseen = vacuum(journal, Retention(days=1), 1e9, dry_run=True)
        done = vacuum(journal, Retention(days=1), 1e9)
        assert (done.runs, done.objects) == (foreseen.runs, foreseen.objects) == (("R",), 1)
        assert journal.runs() == []
        assert journal.get(system) == b"You are careful."
        with pytest.raises(ObjectMissing):
            journal.get(output)
        failed, succeeded = journal.outcomes()
        assert succeeded == AttemptOutcome(
            run="R",
            task_type="code",
            step="S1",
            action="do it",
            attempt=2,
            role="worker",
            persona="p",
            model="m",
            reason="again",
            propensity=1.0,
            prompts=PromptDigests(system=system),
            started=12.0,
            seconds=2.0,
            outcome="done",
            prompt_tokens=7,
            output_tokens=3,
            run_status="done",
            ratings=(Rating(20.0, 0.5, "ann", "so so"),),
            run_ratings=(Rating(21.0, 1.0, "bob", ""),),
        )
        assert (failed.attempt, failed.outcome, failed.propensity, failed.seconds) == (1, "code", 0.5, 1.0)
        assert vacuum(journal, Retention(days=1), 1e9).objects == 0
        assert journal.get(system)
    with JournalReader.open_to_read(tmp_path) as reader:
        assert len(reader.outcomes()) == 2
        assert reader.damage() == []


async def test_outcomes_and_their_prompts_are_purged_on_demand(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal:
        system = journal.put(b"You are careful.")
        await journal.append("Q", course("Q", system))
        journal.objects.release([system])
        vacuum(journal, Retention(days=1), 1e9)
        assert len(journal.outcomes()) == journal.count_outcomes() == 2
        await journal.append("R", course("R"))
        foreseen = vacuum(journal, Retention(days=1), 1e9, dry_run=True, purge_outcomes=True)
        assert (foreseen.outcomes, journal.count_outcomes()) == (2, 2)
        done = vacuum(journal, Retention(days=1), 1e9, purge_outcomes=True)
        assert (done.runs, done.outcomes, done.objects) == (("R",), 2, 1), "and none is kept of R, which goes now"
        assert journal.outcomes() == []
        with pytest.raises(ObjectMissing):
            journal.get(system)
        assert vacuum(journal, Retention(), 1e9, purge_outcomes=True).outcomes == 0


async def test_without_a_daemon_nothing_of_purged_outcomes_is_left_in_the_database(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal:
        await journal.append("R", course("R"))
    await vacuum_alone(tmp_path, Retention(days=1))
    assert b"do it" in read_database(tmp_path)
    assert (await vacuum_alone(tmp_path, Retention(), purge_outcomes=True)).outcomes == 2
    assert b"do it" not in read_database(tmp_path)


def read_database(home: Path) -> bytes:
    """Return the bytes of the database and of its log."""
    return b"".join(path.read_bytes() for path in home.glob("journal.db*"))


async def test_of_a_run_that_the_user_deletes_nothing_is_kept(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal:
        await journal.append("R", course("R"))
        journal.delete("R")
        vacuum(journal, Retention(days=1), 1e9)
        assert journal.outcomes() == []


async def test_a_run_that_cannot_be_read_goes_all_the_same(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal:
        await journal.append("Q", course("Q"))
        await journal.append("R", course("R"))
    with closing(sqlite3.connect(tmp_path / "journal.db", isolation_level=None)) as raw:
        raw.execute("UPDATE events SET checksum = NULL, body = '{}' WHERE run = 'R' AND kind = 'attempt_failed'")
    with Journal.open(tmp_path) as journal:
        assert set(vacuum(journal, Retention(days=1), 1e9).runs) == {"Q", "R"}
        assert {outcome.run for outcome in journal.outcomes()} == {"Q"}


async def test_a_journal_of_the_version_before_is_read_rated_and_emptied(tmp_path: Path) -> None:
    output = ObjectStore(tmp_path / "objects").put(b"text")
    with closing(sqlite3.connect(tmp_path / "journal.db", isolation_level=None)) as raw:
        raw.execute("CREATE TABLE schema_version (version INTEGER NOT NULL) STRICT")
        for number, script in enumerate(MIGRATIONS[:5], start=1):
            raw.executescript(script)
            raw.execute("INSERT INTO schema_version VALUES (?)", (number,))
        raw.execute("INSERT INTO runs VALUES ('R', 'as-planned', 'x', 'done', 10.0, 14.0, NULL)")
        for event in course("R", output=output):
            body = encode_event(event).replace(',"prompts":{"system":"","persona":"","shipped":""}', "")
            assert "prompts" not in body, "there were none then"
            raw.execute(
                "INSERT INTO events (run, at, kind, step, attempt, body, checksum) VALUES ('R', ?, ?, ?, ?, ?, ?)",
                (
                    event.at,
                    event.kind,
                    getattr(event, "step", None),
                    getattr(event, "number", None),
                    body,
                    checksum_of(b"R", body.encode()),
                ),
            )
    with JournalReader.open_to_read(tmp_path) as reader:
        before = load_report(reader, "R")
        assert before.status == "done"
        assert reader.outcomes() == []
    with Journal.open(tmp_path) as journal:
        assert load_report(journal, "R") == before
        await rate(journal, ViewCache(journal), "R", RatingGiven(at=20.0, score=0.0, by="ann"))
        assert vacuum(journal, Retention(days=1), 1e9).runs == ("R",)
        assert [outcome.run_ratings for outcome in journal.outcomes()] == [(Rating(20.0, 0.0, "ann", ""),)] * 2
