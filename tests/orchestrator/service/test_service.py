"""The service over one state folder: what waits, what is refused, and what goes on after a restart."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from orchestrator.app import attached
from orchestrator.cli.report_view import format_gates
from orchestrator.errors import InputError
from orchestrator.run.journal.errors import JournalError
from orchestrator.run.journal.journal import Journal
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.orchestrator import Orchestrator
from orchestrator.run.record.report import StepRow, load_report
from orchestrator.run.updates import EventUpdate
from orchestrator.service.cancelling import Cancellation
from orchestrator.service.configuration import Configuration, FolderSettings, RunSettings
from orchestrator.service.errors import Busy, FolderFull, NotReady
from orchestrator.service.extent import Extent
from orchestrator.service.retention import DAY_SECONDS, Retention
from orchestrator.service.service import Service
from orchestrator.task.events import (
    AttemptStarted,
    AttemptSucceeded,
    Event,
    PlanFinished,
    PlanningStarted,
    RunAccepted,
    RunBegun,
    RunFinished,
    RunLimits,
    StepsPlanned,
)
from orchestrator.task.taskir.models import Step
from tests.orchestrator.run_jobs import RECORDS, REGISTRY, job, step

SHORT = [step("S1", "Summarize a.txt.", ["a.txt"], ["s1"])]
CHAIN = [*SHORT, *(step(f"S{n}", f"Summarize s{n - 1}.", [f"s{n - 1}"], [f"s{n}"]) for n in range(2, 7))]
"""Steps one after the other, so that a test can act long before the run has ended, however busy the machine is."""
ONE_AT_A_TIME = Configuration(runs=RunSettings(max_running=1, max_queued=2))


async def events_of(service: Service, run: str) -> AsyncIterator[Event]:
    """Yield what has happened to a run that has ended."""
    async for update in service.watch(run):
        if isinstance(update, EventUpdate):
            yield update.event


async def ended(service: Service, run: str) -> str:
    """Return the status of a run once it has ended."""
    async for _ in service.watch(run):
        pass
    return (await service.row(run)).status


def outcomes(service: Service) -> Counter[str]:
    """Return how many attempts ended how, of all models."""
    found: Counter[str] = Counter()
    for (_, outcome), count in service.totals.attempts.items():
        found[outcome] += count
    return found


async def test_runs_that_wait_or_are_interrupted_go_on_after_a_restart(tmp_path: Path) -> None:
    async with attached().service(tmp_path / "home", REGISTRY, ONE_AT_A_TIME) as service:
        runs = [(await service.submit(job(steps))).run for steps in (CHAIN, SHORT, SHORT)]
        assert len(service.running) == 1
        assert [service.position(run) for run in runs] == [None, 0, 1]
    async with attached().service(tmp_path / "home", REGISTRY, ONE_AT_A_TIME) as service:
        assert [await ended(service, run) for run in runs] == ["done"] * 3


async def test_the_service_of_a_command_resumes_only_the_run_that_it_is_asked_for(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with attached().service(home, REGISTRY, ONE_AT_A_TIME) as service:
        first, second = [(await service.submit(job(steps))).run for steps in (CHAIN, SHORT)]
    async with attached().service(home, REGISTRY, Configuration(), Extent.RUNS) as service:
        new = (await service.submit(job(SHORT))).run
        assert await ended(service, new) == "done"
        assert service.running == frozenset()
        await service.resume(second)
        assert await ended(service, second) == "done"
        with pytest.raises(InputError, match="has ended: done; accepted: a run that was interrupted"):
            await service.resume(second)
    with JournalReader.open_to_read(home) as journal:
        assert journal.run(first).finished is None


async def test_the_service_of_a_command_opens_the_folder_only_for_a_job_that_can_run(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with attached().service(home, REGISTRY, Configuration(), Extent.RUNS) as service:
        with pytest.raises(InputError):
            await service.submit(job([step("S1", "Summarize it.", ["missing.txt"], ["s1"])]))
        assert not home.exists()
        await service.submit(job(SHORT))
        assert home.exists()


async def test_a_run_that_waits_is_queued_however_far_it_was_before_a_restart(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with attached().service(home, REGISTRY, ONE_AT_A_TIME) as service:
        first, second = [(await service.submit(job(steps))).run for steps in (CHAIN, SHORT)]
        async for update in service.watch(first):
            if isinstance(update, EventUpdate) and isinstance(update.event, AttemptStarted):
                break
        assert ((await service.row(first)).status, (await service.row(second)).status) == ("running", "queued")
    with JournalReader.open_to_read(home) as journal:
        assert load_report(journal, second).status == "queued"
    with Journal.open(home) as journal:
        assert [row.status for row in journal.unfinished()] == ["queued", "queued"]
        assert load_report(journal, first).status == "queued"
    async with attached().service(home, REGISTRY, ONE_AT_A_TIME) as service:
        assert [await ended(service, run) for run in (first, second)] == ["done", "done"]
        begun = [event async for event in events_of(service, first) if isinstance(event, RunBegun)]
        assert len(begun) == 2


async def test_the_seconds_that_a_run_may_take_are_not_given_anew_by_a_restart(tmp_path: Path) -> None:
    asked = job(SHORT).task
    assert asked is not None
    limits = RunLimits(seconds=1000.0)
    with Journal.open(tmp_path / "home") as journal:
        for run, used in (("spent", 1000.0), ("fresh", 10.0)):
            begun = AttemptStarted(
                at=100.0 + used, step="S1", number=1, role="worker", persona=None, model="tiny-large", reason="a test"
            )
            accepted = RunAccepted(
                at=1.0, run=run, mode="as-planned", task=asked, directory=str(RECORDS), files=("a.txt",), limits=limits
            )
            planned: list[Event] = [StepsPlanned(at=1.0, steps=asked.plan.steps), PlanFinished(at=1.0, origin="taskir")]
            await journal.append(run, [accepted, *planned, RunBegun(at=100.0), begun])
    async with attached().service(tmp_path / "home", REGISTRY, ONE_AT_A_TIME) as service:
        assert [await ended(service, run) for run in ("spent", "fresh")] == ["cancelled", "done"]
        assert (await service.row("spent")).error == "quota: not done within 1000 s"


async def test_a_vacuum_beside_runs_leaves_them_what_they_need(tmp_path: Path) -> None:
    async with attached().service(tmp_path / "home", REGISTRY, Configuration()) as service:
        first = (await service.submit(job(SHORT))).run
        assert await ended(service, first) == "done"
        await service.delete(first)
        runs = [(await service.submit(job(SHORT))).run for _ in range(3)]
        told = [await service.vacuum(Retention()) for _ in range(3)]
        assert [await ended(service, run) for run in runs] == ["done"] * 3
        for run in runs:
            report = load_report(service.orchestrator.journal, run)
            assert [service.orchestrator.journal.get(digest) for digest in report.artifacts.values()]
        assert sum(one.objects for one in told) <= 1
        assert len((await service.vacuum(Retention(runs=1))).runs) == 2


async def test_more_runs_than_may_wait_are_asked_to_come_back(tmp_path: Path) -> None:
    async with attached().service(tmp_path / "home", REGISTRY, ONE_AT_A_TIME) as service:
        runs = [(await service.submit(job(steps))).run for steps in (CHAIN, SHORT, SHORT)]
        with pytest.raises(Busy) as refused:
            await service.submit(job(SHORT))
        assert 1 <= refused.value.retry_seconds <= 60
        assert await service.cancel(runs[2]) == Cancellation(None, ("S1",))
        assert await ended(service, runs[2]) == "cancelled"
        assert await service.cancel(runs[2]) == Cancellation("cancelled")
        runs[2] = (await service.submit(job(SHORT))).run
        assert [await ended(service, run) for run in runs] == ["done"] * 3
        counted = service.totals.runs
        assert (service.totals.refused, counted["done"], counted["cancelled"]) == (1, 3, 1)


async def test_a_flood_of_batch_runs_keeps_no_interactive_run_out(tmp_path: Path) -> None:
    async with attached().service(tmp_path / "home", REGISTRY, ONE_AT_A_TIME) as service:
        flood = [(await service.submit(replace(job(steps), priority="batch"))).run for steps in (CHAIN, SHORT, SHORT)]
        with pytest.raises(Busy, match="2 batch runs wait already, 2 may"):
            await service.submit(replace(job(SHORT), priority="batch"))
        asked = (await service.submit(job(SHORT))).run
        assert [await ended(service, run) for run in (asked, *flood)] == ["done"] * 4


async def test_a_step_of_a_run_that_waits_can_be_cancelled(tmp_path: Path) -> None:
    two = [*SHORT, step("S2", "Summarize b.txt.", ["b.txt"], ["s2"])]
    home = tmp_path / "home"
    async with attached().service(home, REGISTRY, ONE_AT_A_TIME) as service:
        first, second = [(await service.submit(job(steps))).run for steps in (CHAIN, two)]
        with pytest.raises(InputError, match="has no step 'S3'; accepted: S1, S2"):
            await service.cancel(second, "S3")
        assert service.position(second) == 0, "it waits"
        assert await service.cancel(second, "S2") == Cancellation(None, ("S2",))
    async with attached().service(home, REGISTRY, ONE_AT_A_TIME) as service:
        assert await ended(service, first) == "done"
        await ended(service, second)
        states = {one.id: one.state for one in load_report(service.orchestrator.journal, second).steps}
        assert states == {"S1": "done", "S2": "cancelled"}


async def test_a_run_that_waits_and_begins_with_a_list_can_be_cancelled(tmp_path: Path) -> None:
    fan = [step("S1", "Summarize {item}.", ["names"], ["s1"], foreach="names")]
    asked = job(fan, inputs=[{"type": "text", "label": "names", "value": '["a.txt", "b.txt"]'}])
    home = tmp_path / "home"
    async with attached().service(home, REGISTRY, ONE_AT_A_TIME) as service:
        first = (await service.submit(job(CHAIN))).run
        run = (await service.submit(asked)).run
    async with attached().service(home, REGISTRY, ONE_AT_A_TIME) as service:
        await service.cancel(run)
        assert await ended(service, run) == "cancelled"
        assert await ended(service, first) == "done"


async def test_a_run_can_be_repeated_when_those_it_builds_on_are_gone(tmp_path: Path) -> None:
    async with attached().service(tmp_path / "home", REGISTRY, Configuration()) as service:
        first = (await service.submit(job(SHORT))).run
        assert await ended(service, first) == "done"
        after = [step("S1", "Summarize the text.", [f"{first}/s1"], ["again"])]
        follows = replace(job(after), follows=(first, first), key="once")
        second = (await service.submit(follows)).run
        assert (await service.submit(follows)).run == second, "the same key with the same job gives the same run"
        assert await ended(service, second) == "done"
        await service.delete(first)
        third = (await service.submit(await service.ended_job(second))).run
        assert await ended(service, third) == "done"
        assert third != second


async def test_what_happened_before_a_restart_is_not_counted_again(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with attached().service(home, REGISTRY, ONE_AT_A_TIME) as service:
        run = (await service.submit(job(CHAIN))).run
        async for update in service.watch(run):
            if isinstance(update, EventUpdate) and isinstance(update.event, AttemptSucceeded):
                break
    async with attached().service(home, REGISTRY, ONE_AT_A_TIME) as service:
        assert await ended(service, run) == "done"
        assert len(service.running) == 0, "so all has been counted"
        events = [event async for event in events_of(service, run)]
        begun = max(number for number, event in enumerate(events) if isinstance(event, RunBegun))
        since = sum(isinstance(event, AttemptSucceeded) for event in events[begun:])
        assert 0 < since < sum(isinstance(event, AttemptSucceeded) for event in events)
        assert outcomes(service)["done"] == since


@pytest.mark.parametrize(
    ("limit", "way_out"),
    [
        (FolderSettings(max_bytes=1), "raise [folder] max_bytes"),
        (FolderSettings(min_free_bytes=1 << 60), "lower [folder] min_free_bytes"),
    ],
)
async def test_no_run_is_accepted_where_there_is_no_room(tmp_path: Path, limit: FolderSettings, way_out: str) -> None:
    async with attached().service(tmp_path / "home", REGISTRY, Configuration(folder=limit)) as service:
        with pytest.raises(FolderFull) as refused:
            await service.submit(job(SHORT))
        for told in (str(tmp_path / "home"), "`orchestrator vacuum`", "`orchestrator delete RUN`", "backups", way_out):
            assert told in str(refused.value)
        service.adopt(Configuration())
        assert await ended(service, (await service.submit(job(SHORT))).run) == "done"


async def test_a_service_whose_journal_cannot_be_written_any_more_ends(tmp_path: Path) -> None:
    service = attached().service(tmp_path / "home", REGISTRY, Configuration())

    async def serve() -> None:
        async with service:
            service.orchestrator.journal._writer._store._connection.execute("PRAGMA query_only = ON")
            with pytest.raises(JournalError, match="readonly"):
                await service.submit(job(SHORT))
            async with asyncio.timeout(60):
                await asyncio.Event().wait()

    with pytest.raises(BaseExceptionGroup) as ended:
        await serve()
    assert ended.group_contains(JournalError, match="readonly")
    assert "readonly" in (service.why_not_ready or "")


async def test_what_breaks_down_beside_runs_or_in_one_ends_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a defect")

    async with attached().service(tmp_path / "home", REGISTRY, ONE_AT_A_TIME) as service:
        with monkeypatch.context() as patch:
            patch.setattr("orchestrator.service.service.make_backup", broken)
            patch.setattr("orchestrator.service.service.vacuum", broken)
            for work in (service.backup, partial(service.vacuum, Retention())):
                with pytest.raises(ZeroDivisionError):
                    await work()
            patch.setattr(Orchestrator, "resume", broken)
            left = (await service.submit(job(SHORT))).run
            while service.running:  # noqa: ASYNC110 - nobody is told, and nobody but a test waits
                await asyncio.sleep(0.01)
        assert (await service.row(left)).finished is None
        assert await ended(service, (await service.submit(job(SHORT))).run) == "done"


async def test_a_vacuum_goes_by_the_clock_of_events(tmp_path: Path) -> None:
    last = time.time() + 20 * DAY_SECONDS
    with Journal.open(tmp_path / "home") as journal:
        for run, at in (("old", last - 10 * DAY_SECONDS), ("new", last)):
            accepted = RunAccepted(at=at, run=run, mode="as-planned", request="x")
            await journal.append(run, [accepted, RunFinished(at=at, status="cancelled")])
    async with attached().service(tmp_path / "home", REGISTRY, Configuration()) as service:
        assert (await service.vacuum(Retention(days=5))).runs == ("old",)


async def test_a_service_that_is_to_stop_ends_what_runs_and_begins_nothing(tmp_path: Path) -> None:
    async with attached().service(tmp_path / "home", REGISTRY, ONE_AT_A_TIME) as service:
        first, second = [(await service.submit(job(steps))).run for steps in (CHAIN, SHORT)]
        await service.drain()
        with pytest.raises(NotReady):
            await service.submit(job(SHORT))
        assert (await service.row(first)).status == "done"
        assert service.position(second) == 0
        assert (await service.row(second)).finished is None


async def planned_code(folder: Path) -> StepRow:
    """Return what became of a step of a plan that was made from words, to which code has added gates."""
    fields = {"action": "Write a function that returns the sum of a and b.", "outputs": ("add.py",)}
    written = Step(id="S1", actor="coder", gates=("format", "lint", "build"), **fields)
    with Journal.open(folder / "home") as journal:
        accepted = RunAccepted(at=1.0, run="R", mode="as-planned", request="Write it.")
        begun = PlanningStarted(at=1.0, role="frontdoor", model="tiny-large")
        planned: list[Event] = [StepsPlanned(at=1.0, steps=(written,)), PlanFinished(at=1.0, origin="planned")]
        await journal.append("R", [accepted, begun, *planned])
    async with attached().service(folder / "home", REGISTRY, Configuration()) as service:
        assert await ended(service, "R") == "done"
        return load_report(service.orchestrator.journal, "R").steps[0]


@pytest.mark.slow
async def test_a_planned_step_goes_through_the_gates_of_what_it_writes(tmp_path: Path) -> None:
    made = await planned_code(tmp_path)
    looked = {result.gate: result.status for result in made.attempts[-1].gates}
    assert looked == dict.fromkeys(("format", "lint", "build"), "passed")
    assert format_gates(made.gates) == "format, lint, build"


async def test_a_planned_step_is_done_without_a_sandbox_and_says_that_its_gates_have_not_looked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no bubblewrap on it
    made = await planned_code(tmp_path)
    looked = {result.gate: (result.status, result.evidence) for result in made.attempts[-1].gates}
    assert looked.keys() == {"format", "lint", "build"}
    ((status, reason),) = set(looked.values())
    assert status == "not run"
    assert "bubblewrap is not installed" in reason
    assert format_gates(made.gates).startswith(f"none (not format: {reason}")
