"""The events of a run that has ended are read from the journal page by page."""

from pathlib import Path

import pytest

from orchestrator.api.events import PAGE_EVENTS, journaled_events
from orchestrator.run.journal.journal import Journal
from orchestrator.task.events import RunAccepted, StepExpanded, encode_event

COUNT = 2 * PAGE_EVENTS


@pytest.mark.parametrize("after", [0, 1, PAGE_EVENTS - 1, PAGE_EVENTS, COUNT - 1, COUNT, COUNT + 1])
async def test_all_events_after_a_number_come_with_their_numbers_in_the_run(tmp_path: Path, after: int) -> None:
    with Journal.open(tmp_path) as journal:
        for run in ("other", "run"):
            accepted = RunAccepted(at=0.0, run=run, mode="serial", request=run)
            await journal.append(run, [accepted, *(StepExpanded(at=1.0, step="S1", count=n) for n in range(1, COUNT))])
        events = [encode_event(event) for _, event in journal.events("run")]
        got = [event.decode() async for event in journaled_events(journal, "run", after)]
    expected = list(enumerate(events, start=1))[after:]
    assert got == [f"event: event\ndata: {body}\nid: {number}\n\n" for number, body in expected]


async def test_a_run_that_is_deleted_meanwhile_ends_the_stream(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal:
        accepted = RunAccepted(at=0.0, run="run", mode="serial", request="run")
        await journal.append("run", [accepted, *(StepExpanded(at=1.0, step="S1", count=n) for n in range(1, COUNT))])
        stream = journaled_events(journal, "run", 0)
        await anext(stream)
        journal.delete("run")
        assert len([event async for event in stream]) == PAGE_EVENTS - 1
