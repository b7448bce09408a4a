"""Endpoints about one run share its view: events that were read once are not read again."""

from pathlib import Path
from typing import Any

import pytest

from orchestrator.api import runs
from orchestrator.app import attached
from orchestrator.memrl.learning import learning_of
from orchestrator.registry.load import find_registry, load_registry
from orchestrator.run.journal.journal import Journal
from orchestrator.service.configuration import Configuration
from orchestrator.task.events import (
    AttemptStarted,
    AttemptSucceeded,
    Event,
    PlanFinished,
    RunAccepted,
    RunFinished,
    StepsPlanned,
)
from orchestrator.task.taskir.models import Step


async def ended_run(home: Path) -> list[Event]:
    """Write a run that has ended into the journal of a state folder, and return its events."""
    with Journal.open(home) as journal:
        digest = journal.put(b"the answer")
        events: list[Event] = [
            RunAccepted(at=1.0, run="R", mode="as-planned", request="x"),
            StepsPlanned(at=1.0, steps=(Step(id="S1", actor="worker", action="go", outputs=("a",)),)),
            PlanFinished(at=1.0, origin="planned"),
            AttemptStarted(at=1.0, step="S1", number=1, role="worker", persona=None, model="m", reason=""),
            AttemptSucceeded(at=2.0, step="S1", number=1, outputs={"a": digest}),
            RunFinished(at=2.0, status="done"),
        ]
        await journal.append("R", events)
    return events


async def test_a_run_that_was_shown_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = await ended_run(tmp_path)
    registry = load_registry(find_registry(environment={}))
    async with attached().service(tmp_path, registry, Configuration()) as service:
        await learning_of(service).caught_up()  # which reads it too
        journal, read = service.orchestrator.journal, []
        original = journal.events

        def counted(run: str, after: int = 0) -> list[tuple[int, Event]]:
            found = original(run, after)
            read.extend(found)
            return found

        monkeypatch.setattr(journal, "events", counted)
        shown: dict[str, Any] = await runs.show("R", service)
        assert (shown["status"], shown["answer"]) == ("done", "the answer")
        for _ in range(3):
            assert await runs.show("R", service) == shown
        assert (await runs.result("R", service)).answer == "the answer"
        assert [line.bytes for line in (await runs.artifacts("R", service)).artifacts] == [10]
        assert len(read) == len(events)
