"""What must hold after everything: of the journal, and of the machine."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.record.report import load_report
from orchestrator.run.sandbox.control_group import find_control_groups
from orchestrator.task.events import AnswerChecked, AttemptStarted, AttemptSucceeded, Event, RunFinished, StepGathered

ENDED = ("done", "failed", "cancelled")


@dataclass(slots=True)
class RunAudit:
    """What has become of the accepted runs."""

    statuses: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)  # runs that were accepted, and of which the journal knows nothing
    unexplained: list[str] = field(default_factory=list)  # runs that have not ended, or failed without a reason
    repeated: list[str] = field(default_factory=list)  # what was done and began again
    # Why steps of failed runs failed, without numbers of processes.
    reasons: Counter[str] = field(default_factory=Counter)
    reruns: int = 0  # Attempts that began again since they were interrupted
    damage: list[str] = field(default_factory=list)  # what is wrong with the database


def audit(home: Path, accepted: Sequence[str]) -> RunAudit:
    """Read what the journal has of the accepted runs."""
    result = RunAudit()
    with JournalReader.open_to_read(home) as journal:
        result.damage = journal.damage()
        journaled = {row.run for row in journal.runs()}
        result.lost = [run for run in accepted if run not in journaled]
        for run in journaled:
            _audit_run(result, journal, run)
    return result


def _audit_run(result: RunAudit, journal: JournalReader, run: str) -> None:
    events, report = [event for _, event in journal.events(run)], load_report(journal, run)
    result.statuses[report.status] += 1
    causes = [str(step.cause) for step in report.steps if step.state == "failed" and step.cause]
    ends = sum(isinstance(event, RunFinished) for event in events)
    if report.status not in ENDED or ends != 1 or (report.status == "failed" and not (report.error and causes)):
        result.unexplained.append(f"{run}: {report.status}, {report.error}")
    result.reasons.update(causes)
    result.repeated += [f"{run}: {problem}" for problem in done_again(events)]
    result.reruns += sum(attempt.outcome == "interrupted" for step in report.steps for attempt in step.attempts)


def done_again(events: Sequence[Event]) -> Iterator[str]:
    """Yield the steps that were done, and began or were done again after that."""
    done: set[str] = set()
    for event in events:
        if isinstance(event, AttemptStarted | AttemptSucceeded | StepGathered) and event.step in done:
            yield f"{event.step} was done, and then: {event.kind}"
        if isinstance(event, AttemptSucceeded | StepGathered):
            done.add(event.step)
        if isinstance(event, AnswerChecked):
            done -= {doubt.step for doubt in event.doubts}  # they may be repaired


def left_groups(pids: Sequence[int]) -> list[str]:
    """Return the control groups that daemons with these process ids have left."""
    groups = find_control_groups()
    if groups is None:
        return []
    parents = {folder for folder in (groups.memory, groups.pids, groups.cpu) if folder is not None}
    return [str(folder) for parent in parents for pid in pids for folder in parent.glob(f"orchestrator-{pid}-*")]


def left_files(folder: Path) -> list[str]:
    """Return what lies in a folder for temporary files."""
    return sorted(path.name for path in folder.iterdir())
