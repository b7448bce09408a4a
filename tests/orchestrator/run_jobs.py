"""Make jobs for tests, and run them."""

from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.registry.load import find_registry, load_registry
from orchestrator.run.job import Job
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.orchestrator import Orchestrator
from orchestrator.run.record.report import Report, load_report
from orchestrator.task.events import AttemptStarted, AttemptSucceeded, Event
from orchestrator.task.modes import Mode
from orchestrator.task.taskir.parse import task_from

REGISTRY = load_registry(find_registry(environment={}))
"""The registry that ships, with the embedded models."""
ON_DEMAND = replace(REGISTRY, models={name: replace(one, residency="warm") for name, one in REGISTRY.models.items()})
"""The same, but that no model is loaded before it is needed."""
RECORDS = Path(__file__).parents[2] / "examples" / "records"


def step(name: str, action: str, inputs: list[str], outputs: list[str], **more: Any) -> dict[str, Any]:
    """Return a step of a TaskIR document, with at most 96 tokens of output."""
    return {
        "id": name,
        "actor": "worker",
        "action": action,
        "inputs": inputs,
        "outputs": outputs,
        "max_tokens": 96,
        **more,
    }


def job(
    steps: list[dict[str, Any]],
    *,
    mode: Mode = "as-planned",
    folder: Path = RECORDS,
    inputs: list[dict[str, Any]] | None = None,
) -> Job:
    """Return a job of these steps."""
    task = task_from({"objective": "a test", "inputs": inputs or [], "plan": {"steps": steps}})
    return Job(None, task, folder, mode)


async def execute(orchestrator: Orchestrator, asked: Job) -> str:
    """Run a job to its end and return the id of its run."""
    run = await orchestrator.submit(asked)
    async for _ in orchestrator.watch(run):
        pass
    return run


def report_of(home: Path, run: str) -> Report:
    """Return the report of a run from its journal, after checking that the times of its events never decrease."""
    with JournalReader.open_to_read(home) as journal:
        times = [event.at for _, event in journal.events(run)]
        assert times == sorted(times)
        return load_report(journal, run)


def check_completed_once(events: Collection[Event]) -> None:
    """Check that each step of a run succeeded once, and that none ran again after that."""
    succeeded = Counter(event.step for event in events if isinstance(event, AttemptSucceeded))
    assert set(succeeded.values()) == {1}
    done: set[str] = set()
    for event in events:
        if isinstance(event, AttemptStarted):
            assert event.step not in done
        elif isinstance(event, AttemptSucceeded):
            done.add(event.step)
