"""Runs that a crash should make no difference to, and what to hold them to afterwards."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.chaos.audit import done_again
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.record.report import load_report
from orchestrator.run.record.view import accepted_in
from orchestrator.run.scheduler.run import fresh_state
from orchestrator.task.events import AttemptFailed, AttemptStarted, AttemptSucceeded, RunFinished

_TEXT = "The mill has 12 wheels and 3 doors. It was built in 1820 by Ann Bell, and it stands beside the river."
_NAMES = {"type": "array", "items": {"type": "string", "maxLength": 12}, "minItems": 2, "maxItems": 3}
_TOO_LONG = {"type": "array", "items": {"type": "integer"}, "minItems": 200}


def _step(number: int, action: str, inputs: Sequence[str], output: str, **more: Any) -> dict[str, Any]:
    step = {"id": f"S{number}", "actor": "worker", "action": action, "inputs": list(inputs), "outputs": [output]}
    return {**step, "max_tokens": 24, **more}


def _task(name: str, *steps: dict[str, Any]) -> dict[str, Any]:
    given = [{"type": "text", "label": "note.txt", "value": _TEXT}]
    return {"task": {"objective": name, "inputs": given, "plan": {"steps": list(steps)}}}


DIAMOND = _task(
    "a diamond",
    _step(1, "Summarize note.txt.", ["note.txt"], "short.txt"),
    _step(2, "List the names.", ["short.txt"], "names.txt"),
    _step(3, "List the numbers.", ["short.txt"], "numbers.txt"),
    _step(4, "Compare the lists.", ["names.txt", "numbers.txt"], "compared.txt"),
)
FAN = _task(
    "a fan",
    _step(1, "List each name in note.txt.", ["note.txt"], "names.json", output_schema=_NAMES, max_tokens=64),
    _step(2, "Summarize the item.", ["note.txt"], "summaries", foreach="names.json"),
    _step(3, "Compare the summaries.", ["summaries"], "compared.txt"),
)
FAILING = _task(
    "one branch fails",
    _step(1, "Summarize note.txt.", ["note.txt"], "short.txt"),
    _step(2, "List the numbers.", ["short.txt"], "long.json", output_schema=_TOO_LONG, max_tokens=16),
    _step(3, "Compare the list.", ["long.json"], "never.txt"),
    _step(4, "Summarize the summary.", ["short.txt"], "shorter.txt"),
)
WORDS = {"request": "Summarize the mill, then compare it with the river."}
KINDS: Mapping[str, dict[str, Any]] = {"diamond": DIAMOND, "fan": FAN, "failing": FAILING, "words": WORDS}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run comes to, however often it was interrupted: nothing that depends on time."""

    status: str
    error: str | None
    states: Mapping[str, str]
    failures: Mapping[str, Sequence[str]]
    artifacts: Mapping[str, str]


def outcome_of(journal: JournalReader, run: str) -> Outcome:
    """Return what has become of a run. Raises JournalError, also for an artifact that is damaged or not there."""
    report, failures = load_report(journal, run), defaultdict[str, list[str]](list)
    for _, event in journal.events(run):
        if isinstance(event, AttemptFailed):
            failures[event.step].append(f"{event.failure.kind}: {event.failure.message}")
    for name, digest in report.artifacts.items():
        published = journal.home.artifacts(run) / name
        assert published.read_bytes() == journal.get(digest), f"{published} is not the artifact"
    states = {step.id: step.state for step in report.steps}
    return Outcome(report.status, report.error, states, dict(failures), dict(report.artifacts))


def reruns_in(journal: JournalReader, run: str) -> int:
    """Return how many attempts a run began again because they had not ended, having held its events to the rules."""
    numbered = journal.events(run)
    events = [event for _, event in numbered]
    assert [number for number, _ in numbered] == sorted({number for number, _ in numbered})
    assert [event.at for event in events] == sorted(event.at for event in events), f"{run}: time runs backwards"
    assert sum(isinstance(event, RunFinished) for event in events) == 1
    assert isinstance(events[-1], RunFinished)
    fresh_state(accepted_in(events)).handle(*events)  # raises IllegalTransition for a course that cannot be
    assert list(done_again(events)) == [], run
    ended = Counter[str]()
    ended.update(event.step for event in events if isinstance(event, AttemptSucceeded | AttemptFailed))
    started = Counter(event.step for event in events if isinstance(event, AttemptStarted))
    return sum(max(0, count - ended[step]) for step, count in started.items())
