"""The view of a run: however its events come, it is the same; and who asks again reads only what is new."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import InputError
from orchestrator.registry.load import find_registry, load_registry
from orchestrator.run.journal.errors import UnknownRun
from orchestrator.run.journal.journal import Journal
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.orchestrator import Orchestrator
from orchestrator.run.record.cache import ViewCache
from orchestrator.run.record.report import build_report, load_report
from orchestrator.run.record.view import RunView
from orchestrator.task.events import (
    AttemptStarted,
    AttemptSucceeded,
    Event,
    PlanFinished,
    RunAccepted,
    RunFinished,
    StepsPlanned,
    ToolCalled,
    Usage,
)
from orchestrator.task.states import State
from orchestrator.task.taskir.models import Step
from tests.orchestrator.run.record.run_courses import courses
from tests.orchestrator.run_jobs import RECORDS, execute, job, step
from tests.orchestrator.scheduler_driver import step as planned_step


def seen(view: RunView) -> tuple[object, ...]:
    """Return everything that a view says."""
    ended = replace(build_report(view, lambda digest: digest.encode()), graph=view.graph)
    return ended, dict(view.state.steps), view.status, view.state.growing, view.outputs, view.events


@given(courses(), st.data())
def test_however_its_events_come_a_view_is_the_same(events: list[Event], data: st.DataObject) -> None:
    view = RunView.of(events[:1])
    place = 1
    while place < len(events):
        count = data.draw(st.integers(1, len(events) - place))
        view.apply(*events[place : place + count])
        place += count
        assert seen(view) == seen(RunView.of(events[:place]))


@given(courses())
def test_what_a_report_said_stays_as_it_was_when_the_view_goes_on(events: list[Event]) -> None:
    half = len(events) // 2 or 1
    view = RunView.of(events[:half])
    report = build_report(view, lambda digest: b"")
    told = report.to_json()
    view.apply(*events[half:])
    assert report.to_json() == told


class Counting(JournalReader):
    """Counts the events that are read."""

    def __init__(self, home: Path) -> None:
        opened = JournalReader.open_to_read(home)
        super().__init__(opened.home, opened._store)
        self.read = 0

    def events(self, run: str, after: int = 0, *, skip: int = 0, limit: int | None = None) -> list[tuple[int, Event]]:
        found = super().events(run, after, skip=skip, limit=limit)
        self.read += len(found)
        return found


def long_run(run: str = "R", steps: int = 10) -> Iterator[Event]:
    """Yield the events of a run of so many independent steps that are all done, but not its end."""
    plan = tuple(planned_step(number) for number in range(1, steps + 1))
    yield RunAccepted(at=0.0, run=run, mode="as-planned", request="x")
    yield StepsPlanned(at=0.0, steps=plan)
    for one in plan:
        yield AttemptStarted(at=1.0, step=one.id, number=1, role="worker", persona=None, model="m", reason="")
        yield AttemptSucceeded(at=2.0, step=one.id, number=1, outputs={})


async def test_who_asks_again_reads_only_what_is_new(tmp_path: Path) -> None:
    events = list(long_run(steps=1000))
    with Journal.open(tmp_path) as journal:
        await journal.append("R", events)
        with Counting(tmp_path) as reader:
            views = ViewCache(reader)
            assert views.report("R").status == "running"
            assert reader.read == len(events) > 2_000
            views.report("R")
            with views.view("R") as view:
                assert view.state.steps.state_of("S1000") is State.DONE
            assert reader.read == len(events)
            await journal.append("R", [RunFinished(at=9.0, status="cancelled", error="enough")])
            assert views.report("R") == load_report(journal, "R")
            assert reader.read == len(events) + 1


async def test_views_that_do_not_fit_are_dropped_and_built_anew(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal, Counting(tmp_path) as reader:
        for name in "ABC":
            await journal.append(name, list(long_run(name, 10)))
        each = len(journal.events("A"))
        views = ViewCache(reader, capacity=2 * each)
        for name in "ABCC":
            views.report(name)
        assert reader.read == 3 * each
        views.report("B")
        assert reader.read == 3 * each, "it is kept: A was asked for before it"
        views.report("A")
        assert reader.read == 4 * each
        views.report("B")
        assert reader.read == 4 * each


async def test_a_view_that_is_too_long_for_the_cache_can_be_had(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal:
        await journal.append("R", list(long_run(steps=10)))
        assert ViewCache(journal, capacity=1).report("R") == load_report(journal, "R")


async def test_a_run_that_was_deleted_is_unknown(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal:
        await journal.append("R", [*long_run(steps=2), RunFinished(at=9.0, status="cancelled")])
        views = ViewCache(journal)
        views.report("R")
        journal.delete("R")
        with pytest.raises(UnknownRun):
            views.report("R")
        with pytest.raises(UnknownRun), views.view("R"):
            pass


async def test_threads_that_ask_at_once_get_the_same(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal, Counting(tmp_path) as reader:
        await journal.append("R", list(long_run(steps=200)))
        views, told = ViewCache(reader), []
        threads = [Thread(target=lambda: told.append(views.report("R"))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert told == [load_report(journal, "R")] * 8
        assert reader.read == len(journal.events("R"))


async def test_the_view_of_a_real_run_is_the_same_after_any_of_its_events(tmp_path: Path) -> None:
    steps = [
        step("S1", "Summarize a.txt.", ["a.txt"], ["first.txt"]),
        step("S2", "Summarize b.txt.", ["b.txt"], ["second.txt"]),
        step("S3", "Compare the summaries.", ["first.txt", "second.txt"], ["both.txt"]),
    ]
    async with Orchestrator.open(tmp_path, load_registry(find_registry())) as orchestrator:
        run = await execute(orchestrator, job(steps, folder=RECORDS))
        report = orchestrator.views.report(run)
    with JournalReader.open_to_read(tmp_path) as journal:
        events = [event for _, event in journal.events(run)]
        accepted = events[0]
        assert isinstance(accepted, RunAccepted)
        view = RunView(accepted)
        for count, event in enumerate(events[1:], start=2):
            view.apply(event)
            assert seen(view) == seen(RunView.of(events[:count]))
        assert build_report(view, journal.get) == load_report(journal, run) == report


def test_a_step_that_a_run_does_not_have_is_named(tmp_path: Path) -> None:
    view = RunView.of(long_run(steps=12))
    view.check_step("S12")
    with pytest.raises(InputError, match=r"run R has no step 'S13'.*S1, S2, .*S10, \.\.\."):
        view.check_step("S13")
    with pytest.raises(InputError, match="none is planned yet"):
        RunView.of([RunAccepted(at=0.0, run="R", mode="as-planned", request="x")]).check_step("S1")


def test_what_a_tool_waits_is_no_work_but_a_server_takes_as_long_alone() -> None:
    begun = AttemptStarted(at=1.0, step="S1", number=1, role="worker", persona=None, model="m", reason="")
    called: dict[str, Any] = {"step": "S1", "number": 1, "arguments": "{}", "outcome": "done"}
    view = RunView.of(
        [
            RunAccepted(at=0.0, run="r", mode="as-planned", request="x"),
            StepsPlanned(at=0.5, steps=(Step(id="S1", actor="worker", action="go", outputs=("o",)),)),
            PlanFinished(at=0.5, origin="planned", usage=Usage()),
            begun,
            ToolCalled(at=3.0, tool="shell", seconds=2.0, work_seconds=0.5, **called),
            ToolCalled(at=6.0, tool="mcp:s/t", seconds=3.0, work_seconds=0.25, awaited_seconds=2.75, **called),
            ToolCalled(at=7.0, tool="list_files", seconds=1.0, **called),
            AttemptSucceeded(at=7.0, step="S1", number=1, outputs={"o": "0"}),
            RunFinished(at=7.0, status="done"),
        ]
    )
    told = build_report(view, lambda digest: digest.encode())
    assert told.critical_path.work_seconds == pytest.approx(0.5 + 0.25 + 1.0)
    assert told.critical_path.serial_seconds == pytest.approx(0.5 + 3.0 + 1.0)
    (row,) = view.attempts["S1"]
    assert [call.awaited_seconds for call in row.calls] == [0.0, 2.75, 0.0]
