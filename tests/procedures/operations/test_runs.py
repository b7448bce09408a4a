"""What is left of the runs of a step when the step is undone."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.procedures.forms import TaskForm
from orchestrator.procedures.operations.runs import RunOperations
from orchestrator.procedures.ports import planning_work
from orchestrator.procedures.upkeep import Installation
from orchestrator.run.journal.journal import Journal
from orchestrator.run.journal.reader import JournalReader
from orchestrator.service.configuration import Configuration
from orchestrator.task.events import PlanFinished, RunAccepted, StepsPlanned
from orchestrator.task.taskir.parse import task_from
from tests.procedures.alone import upkeep_alone

TINY = Path(__file__).parents[3] / "registry" / "tiny"
STEP = {"id": "S1", "actor": "worker", "action": "a", "outputs": ["o"]}


@pytest.fixture
def installation(tmp_path: Path) -> Installation:
    registry = tmp_path / "registry.yaml"
    model = {"file": str(TINY / "small.gguf"), "threads": 1, "context": 512}
    registry.write_text(json.dumps({"models": {"small": model}, "roles": {"worker": {"model": "small", "tier": "C"}}}))
    home, settings = tmp_path / "home", Configuration()
    return Installation.of(home, registry, settings, upkeep_alone(home, registry))


async def accept(journal: Journal, run: str, key: str) -> None:
    """Journal a run that was accepted with a key, and has not begun."""
    task = task_from({"objective": "x", "plan": {"steps": [STEP]}})
    accepted = RunAccepted(at=1.0, run=run, mode="as-planned", task=task, key=key)
    planned = StepsPlanned(at=1.0, steps=task.plan.steps)
    await journal.append(run, [accepted, planned, PlanFinished(at=1.0, origin="taskir")])


def test_the_run_of_a_later_attempt_is_cancelled_although_earlier_ones_got_none(installation: Installation) -> None:
    with Journal.open(installation.home) as journal:
        asyncio.run(accept(journal, "R3", "procedure/E/run/3"))
        asyncio.run(accept(journal, "R9", "procedure/other/run"))
    operation = RunOperations(installation).by_name()["taskir"]
    assert operation.undone is not None
    operation.undone(TaskForm(request="x"), replace(planning_work(), key="E/run", attempt=1))
    with JournalReader.open_to_read(installation.home) as journal:
        assert (journal.run("R3").status, journal.run("R9").finished) == ("cancelled", None)


def test_a_step_without_any_run_leaves_nothing_to_cancel(installation: Installation) -> None:
    operation = RunOperations(installation).by_name()["taskir"]
    assert operation.undone is not None
    operation.undone(TaskForm(request="x"), replace(planning_work(), key="E/run"))
    assert not installation.home.exists()
