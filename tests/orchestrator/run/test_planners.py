"""A planner that is not the frontdoor: its plan is run, and goes on, as one that a model wrote."""

from pathlib import Path

import pytest

from orchestrator.engine.client.engine import OnText
from orchestrator.errors import InputError, Problem
from orchestrator.registry.models import Registry
from orchestrator.run.job import Job
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.orchestrator import Orchestrator, Ports
from orchestrator.run.planning import Accept, Extended, PlanContext, Planned, PlannedBy, PlannedPart
from orchestrator.task.events import PlanFinished, PlanningStarted, Usage
from orchestrator.task.taskir.models import Plan, Step, TaskIR
from tests.orchestrator.run_jobs import RECORDS, REGISTRY, execute, report_of


def summary(number: int, file: str) -> Step:
    fields = {"actor": "worker", "action": f"Summarize {file}.", "inputs": (file,), "max_tokens": 48}
    return Step.model_validate({"id": f"S{number}", "outputs": (f"s{number}",), **fields})


class Stored:
    """Has one plan for every request: summarize a.txt, and then b.txt. It says `no` where a test wants that."""

    def __init__(self, no: Problem | None = None) -> None:
        self._no = no
        self.told: list[str] = []

    def why_not(self, registry: Registry) -> Problem | None:
        return self._no

    def planned_by(self, registry: Registry) -> PlannedBy:
        return PlannedBy("procedure", "none")

    async def plan(self, context: PlanContext, accept: Accept, on_text: OnText) -> Planned:
        accept(PlannedPart((summary(1, "a.txt"),)))
        return Planned("planned", "from store", Usage(), goes_on_after="S1")

    async def extend(self, context: PlanContext, after: str, output: str, accept: Accept, on_text: OnText) -> Extended:
        assert [step.id for part in context.known for step in part.steps] == [after] == ["S1"]
        self.told.append(output)
        accept(PlannedPart((summary(2, "b.txt"),)))
        return Extended("planned", "")


async def test_a_stored_plan_is_run_and_goes_on(tmp_path: Path) -> None:
    planner = Stored()
    async with Orchestrator.open(tmp_path / "home", REGISTRY, Ports(planner=planner)) as orchestrator:
        run = await execute(orchestrator, Job("whatever", None, RECORDS, "as-planned"))
    report = report_of(tmp_path / "home", run)
    assert report.status == "done"
    assert [row.id for row in report.steps] == ["S1", "S2"]
    assert planner.told == [(tmp_path / "home" / "runs" / run / "artifacts" / "s1").read_text()]
    with JournalReader.open_to_read(tmp_path / "home") as journal:
        (began,) = [event for _, event in journal.events(run) if isinstance(event, PlanningStarted)]
    assert (began.role, began.model) == ("procedure", "none")


async def test_wanted_outputs_of_a_task_are_those_of_its_plan(tmp_path: Path) -> None:
    task = TaskIR(objective="x", plan=Plan(steps=(summary(1, "a.txt"), summary(2, "b.txt")), wanted=("s2",)))
    async with Orchestrator.open(tmp_path, REGISTRY) as orchestrator:
        run = await execute(orchestrator, Job(None, task, RECORDS, "as-planned"))
    with JournalReader.open_to_read(tmp_path) as journal:
        (finished,) = [event for _, event in journal.events(run) if isinstance(event, PlanFinished)]
    assert finished.wanted == ("s2",)


async def test_a_plan_from_store_can_be_had_without_running_it(tmp_path: Path) -> None:
    async with Orchestrator.open(tmp_path / "home", REGISTRY, Ports(planner=Stored())) as orchestrator:
        planned = await orchestrator.plan(Job("whatever", None, RECORDS, "as-planned"))
    assert [step.id for step in planned.task.plan.steps] == ["S1"]
    assert planned.goes_on_after == "S1"


async def test_a_request_that_the_planner_cannot_plan_is_refused(tmp_path: Path) -> None:
    planner = Stored(Problem("store", "is empty", "a procedure"))
    async with Orchestrator.open(tmp_path / "home", REGISTRY, Ports(planner=planner)) as orchestrator:
        with pytest.raises(InputError, match="store: is empty; accepted: a procedure"):
            await orchestrator.submit(Job("whatever", None, RECORDS, "as-planned"))
