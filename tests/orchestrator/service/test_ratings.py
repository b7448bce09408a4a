"""A run's events go on after its end: what is said of it later is kept and shown, and changes nothing else."""

import time
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from orchestrator.app import attached
from orchestrator.errors import InputError
from orchestrator.registry.load import find_registry, load_registry
from orchestrator.run.journal.errors import HomeLocked, UnknownRun
from orchestrator.run.journal.journal import Journal
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.orchestrator import Orchestrator
from orchestrator.run.record.cache import ViewCache
from orchestrator.run.record.report import load_report
from orchestrator.run.record.view import RatingRow
from orchestrator.service.configuration import Configuration
from orchestrator.service.errors import Conflict
from orchestrator.service.ratings import MAX_AUTHOR_LENGTH, MAX_NOTE_LENGTH, rate
from orchestrator.task.events import (
    AttemptStarted,
    AttemptSucceeded,
    Event,
    PlanFinished,
    RatingGiven,
    RunAccepted,
    RunFinished,
    StepsPlanned,
)
from orchestrator.task.taskir.models import Step
from tests.orchestrator.service.alone import service_alone

GOOD = RatingGiven(at=100.0, score=1.0, by="ann", note="just right")
BAD = RatingGiven(at=200.0, score=0.25, by="bob", step="S1")


def ended(run: str = "R") -> list[Event]:
    return [
        RunAccepted(at=1.0, run=run, mode="as-planned", request="x"),
        StepsPlanned(at=1.0, steps=(Step(id="S1", actor="worker", action="go", outputs=("a",)),)),
        PlanFinished(at=1.0, origin="planned"),
        AttemptStarted(at=1.0, step="S1", number=1, role="worker", persona=None, model="m", reason=""),
        AttemptSucceeded(at=2.0, step="S1", number=1, outputs={}),
        RunFinished(at=3.0, status="done"),
    ]


async def test_ratings_are_shown_and_change_nothing_else(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal:
        await journal.append("R", ended())
        before, row = load_report(journal, "R"), journal.run("R")
        views = ViewCache(journal)
        views.report("R")
        await rate(journal, views, "R", GOOD)
        await rate(journal, views, "R", BAD)
        await rate(journal, views, "R", replace(GOOD, at=300.0, score=0.5, note=""))
        after = views.report("R")
        assert after == load_report(journal, "R")
        assert after.ratings == (RatingRow(99.0, 1.0, "ann", "just right"), RatingRow(299.0, 0.5, "ann", ""))
        assert after.steps[0].ratings == (RatingRow(199.0, 0.25, "bob", ""),)
        plain = replace(after, ratings=(), steps=tuple(structs.replace(step, ratings=()) for step in after.steps))
        assert plain == before
        assert journal.run("R") == row
        assert after.to_json()["ratings"][0] == {"at": 99.0, "score": 1.0, "by": "ann", "note": "just right"}
        assert [event for _, event in journal.events("R")][-3:-1] == [GOOD, BAD]


async def rate_alone(home: Path, rating: RatingGiven) -> RatingGiven:
    """Rate the run R as a command without a daemon does."""
    async with service_alone(home) as service:
        return await service.rate("R", rating.score, rating.by, rating.step, rating.note)


async def test_what_cannot_be_rated_is_refused(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal:
        await journal.append("R", ended())
        await journal.append("Q", ended("Q")[:-1])
        views = ViewCache(journal)
        with pytest.raises(UnknownRun):
            await rate(journal, views, "nobody", GOOD)
        with pytest.raises(Conflict, match="run Q has not ended: running; accepted: a run that has ended"):
            await rate(journal, views, "Q", GOOD)
        with pytest.raises(InputError, match="run R has no step 'S9'"):
            await rate(journal, views, "R", replace(BAD, step="S9"))
        assert len(journal.events("R")) == len(ended())
        with pytest.RaisesGroup(HomeLocked):
            await rate_alone(tmp_path, GOOD)


async def test_the_limits_hold_with_and_without_a_daemon(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal:
        await journal.append("R", ended())
    longest = replace(GOOD, by="a" * MAX_AUTHOR_LENGTH, note="n" * MAX_NOTE_LENGTH)
    beyond = RatingGiven(at=1.0, score=1.5, by=longest.by + "a", note=longest.note + "n")
    async with service_alone(tmp_path) as service:
        with pytest.raises(InputError) as refused:
            await service.rate("R", beyond.score, beyond.by, note=beyond.note)
        assert [problem.where for problem in refused.value.problems] == ["score", "by", "note"]
        with pytest.raises(InputError, match="by: has 0 characters"):
            await service.rate("R", GOOD.score, "")
        await service.rate("R", longest.score, longest.by, note=longest.note)
    with Journal.open(tmp_path) as journal:
        with pytest.raises(InputError, match="note: has 10001 characters"):
            await rate(journal, ViewCache(journal), "R", replace(beyond, score=1.0, by="ann"))
        assert len(journal.events("R")) == len(ended()) + 1


async def test_without_a_daemon_the_time_is_now(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal:
        await journal.append("R", ended())
    began = time.time()
    made = await rate_alone(tmp_path, GOOD)
    assert began <= made.at <= time.time()
    with JournalReader.open_to_read(tmp_path) as journal:
        assert journal.events("R")[-1][1] == made


async def test_a_rated_run_is_over_for_everyone(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal:
        await journal.append("R", [*ended(), GOOD])
    registry = load_registry(find_registry(environment={}))
    async with attached().service(tmp_path, registry, Configuration()) as service:
        made = await service.rate("R", 0.75, "carl", "S1", "better than I thought")
        assert made.at >= GOOD.at
        told = [update async for update in service.watch("R")]
        assert len(told) == len(ended()) + 2
        orchestrator: Orchestrator = service.orchestrator
        with pytest.raises(InputError, match="has ended: done"):
            await orchestrator.resume("R")
        assert service.running == frozenset()
        await service.delete("R")
