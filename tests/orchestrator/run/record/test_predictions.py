"""Predictions are journaled when a plan is made, and a report reads them; older journals hold what they follow from."""

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.engine.client.engine import OnText
from orchestrator.memrl.lessons import lessons_of
from orchestrator.run.job import Job
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.orchestrator import Orchestrator, Ports
from orchestrator.run.planning import Accept, Extended, PlanContext, Planned, PlannedPart
from orchestrator.run.record import report
from orchestrator.run.record.report import build_report
from orchestrator.run.record.view import RunView
from orchestrator.run.scheduler.run import fresh_state
from orchestrator.task.analysis import StepGraph, analyze
from orchestrator.task.events import (
    Event,
    PlanFinished,
    PlanReplaced,
    RoleRates,
    RunAccepted,
    StepsPlanned,
    Usage,
    decode_event,
    encode_event,
)
from orchestrator.task.prediction import predict_run
from orchestrator.task.taskir.models import Step
from tests.orchestrator.run.test_planners import Stored
from tests.orchestrator.run_jobs import RECORDS, REGISTRY, execute, job, step


def planned(number: int, *after: int) -> Step:
    depends = tuple(f"S{earlier}" for earlier in after)
    return Step(id=f"S{number}", actor="worker", action="go", outputs=(f"a{number}",), depends_on=depends)


class InParts(Stored):
    """Plans two steps in parts and a third one after them; the first one is checked before it is accepted."""

    async def plan(self, context: PlanContext, accept: Accept, on_text: OnText) -> Planned:
        first, second = planned(1), planned(2)
        assert context.check is not None
        context.check((first,))
        accept(PlannedPart((first,)))
        accept(PlannedPart((second,)))
        return Planned("planned", "from store", Usage(), goes_on_after="S2")

    async def extend(self, context: PlanContext, after: str, output: str, accept: Accept, on_text: OnText) -> Extended:
        accept(PlannedPart((planned(3),)))
        return Extended("planned", "")


def without_predictions(events: list[Event]) -> list[Event]:
    """Return the events as an earlier version journaled them."""
    return [
        replace(event, predicted={}, slowed={})
        if isinstance(event, StepsPlanned)
        else replace(event, predicted={})
        if isinstance(event, PlanReplaced)
        else event
        for event in events
    ]


def no_prediction(graph: StepGraph, accepted: RunAccepted) -> object:
    raise AssertionError("a report predicts nothing")


async def test_a_report_reads_the_predictions_of_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [
        step("S1", "Summarize a.txt.", ["a.txt"], ["one.txt"]),
        step("S2", "Summarize b.txt.", ["b.txt"], ["two.txt"]),
        step("S3", "Compare the summaries.", ["one.txt", "two.txt"], ["both.txt"]),
    ]
    request = Job("whatever", None, RECORDS, "as-planned")
    async with Orchestrator.open(tmp_path, REGISTRY, Ports(planner=InParts())) as orchestrator:
        # The second time, there are measured rates.
        runs = [await execute(orchestrator, one) for one in (job(steps), request, job(steps), request)]
    with JournalReader.open_to_read(tmp_path) as journal:
        for run in runs:
            events = [event for _, event in journal.events(run)]
            view = RunView.of(events)
            assert len(view.graph.steps) == 3
            for count in range(1, len(events) + 1):
                part = RunView.of(events[:count])
                assert part.state.predicted == predict_run(part.graph, part.accepted)
            older = RunView.of(without_predictions(events))
            assert older.state.predicted == {}
            predicted, lessons = build_report(older, journal.get), lessons_of(without_predictions(events), 0.2)
            with monkeypatch.context() as patch:
                patch.setattr(report, "predict_run", no_prediction)
                assert build_report(view, journal.get) == predicted
                assert lessons_of(events, 0.2) == lessons


ACCEPTED = RunAccepted(
    at=0.0, run="R", mode="as-planned", request="x", rates={"worker": RoleRates(packing=0.5, generations=9)}
)


def grown() -> list[Event]:
    """Return the events of a plan whose second step runs next to the first one and slows it down."""
    alone, both = (predict_run(analyze(steps), ACCEPTED) for steps in ([planned(1)], [planned(1), planned(2)]))
    return [
        ACCEPTED,
        StepsPlanned(at=1.0, steps=(planned(1),), predicted=alone),
        StepsPlanned(at=2.0, steps=(planned(2),), predicted={"S2": both["S2"]}, slowed={"S1": both["S1"].seconds}),
        PlanFinished(at=3.0, origin="planned"),
    ]


def test_a_later_step_slows_an_earlier_one() -> None:
    events = [decode_event(encode_event(event)) for event in grown()]
    first, view = RunView.of(events[:2]), RunView.of(events)
    assert view.state.predicted["S1"].seconds > first.state.predicted["S1"].seconds
    assert view.state.predicted == predict_run(view.graph, ACCEPTED)


def test_the_scheduler_ranks_by_the_predictions_of_the_journal() -> None:
    ranked, estimated = fresh_state(ACCEPTED), fresh_state(ACCEPTED)
    ranked.handle(*grown())
    estimated.handle(*without_predictions(grown()))
    assert dict(ranked.steps) == dict(estimated.steps)
