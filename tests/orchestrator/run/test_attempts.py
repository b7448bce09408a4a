"""What is kept of attempts: answers that failed, and answers whose gates a kill has interrupted."""

import shutil
from pathlib import Path

import pytest

from orchestrator.errors import InputError
from orchestrator.run.journal.journal import Journal
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.orchestrator import Orchestrator
from orchestrator.run.record.attempt_answers import attempt_answer
from orchestrator.task.events import AttemptFailed, AttemptGenerated, AttemptStarted, AttemptSucceeded, Event
from tests.orchestrator.cli.cli_command import make_command
from tests.orchestrator.run_jobs import REGISTRY, execute, job, report_of, step

FACTS = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
EXTRACT = step("S1", "Extract the name from a.txt.", ["a.txt"], ["facts.json"], output_schema=FACTS, gates=["schema"])
CUT_OFF = step("S1", "Summarize a.txt.", ["a.txt"], ["s1"], max_tokens=2)


def events_of(home: Path, run: str) -> list[Event]:
    with JournalReader.open_to_read(home) as journal:
        return [event for _, event in journal.events(run)]


async def test_an_answer_that_waits_for_its_gates_survives_a_kill(tmp_path: Path) -> None:
    """A state folder that ends where the gates begin is what a kill at that moment leaves."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    async with Orchestrator.open(whole, REGISTRY) as orchestrator:
        run = await execute(orchestrator, job([EXTRACT]))
    events = events_of(whole, run)
    end = next(
        number for number, event in enumerate(events, 1) if isinstance(event, AttemptGenerated) and event.outputs
    )
    with Journal.open(killed) as journal:
        await journal.append(run, events[:end])
    shutil.copytree(whole / "objects", killed / "objects", dirs_exist_ok=True)
    async with Orchestrator.open(killed, REGISTRY) as orchestrator:
        await orchestrator.resume(run)
        async for _ in orchestrator.watch(run):
            pass
    again = events_of(killed, run)
    assert sum(isinstance(event, AttemptStarted | AttemptGenerated) for event in again) == 2, "no model was asked again"
    (made,) = [event for event in again if isinstance(event, AttemptSucceeded)]
    (before,) = [event for event in events if isinstance(event, AttemptSucceeded)]
    assert (made.number, made.outputs) == (1, before.outputs)
    assert [(gate.gate, gate.status) for gate in made.gates] == [("schema", "passed")]
    assert report_of(killed, run).status == "done"


async def test_the_answer_of_a_failed_attempt_is_kept_with_its_run(tmp_path: Path) -> None:
    async with Orchestrator.open(tmp_path, REGISTRY) as orchestrator:
        run = await execute(orchestrator, job([CUT_OFF]))
    failed = [event for event in events_of(tmp_path, run) if isinstance(event, AttemptFailed)]
    digests = {event.answer for event in failed}
    assert all(digests)
    shown = make_command(tmp_path)("show", run, "S1", "--attempt", "1")
    assert shown.code == 0, shown
    assert "S1, attempt 1 by worker on" in shown.err
    assert "format: the answer was cut off after 2 tokens" in shown.err.replace("\n", " ")
    (row,) = report_of(tmp_path, run).steps
    with Journal.open(tmp_path) as journal:
        journal.sweep()
        assert shown.out == f"{attempt_answer(journal, row, 1).answer}\n"
        assert shown.out.strip()
        with pytest.raises(InputError, match="S1 has no attempt 99"):
            attempt_answer(journal, row, 99)
        journal.delete(run)
        assert digests <= set(journal.sweep()), "it is removed with its run"
