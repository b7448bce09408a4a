"""Find the answer of one attempt at a step, also if it failed."""

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.errors import InputError, Problem
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.record.report import StepRow


@dataclass(frozen=True, slots=True)
class AttemptAnswer:
    """The text of an attempt, and its outcome."""

    step: str
    number: int
    role: str
    model: str
    outcome: str  # done, cancelled, interrupted, running, checking or the kind of failure
    message: str  # why it failed
    evidence: str  # of the gate that failed, if one did
    answer: str  # may be empty; early versions did not keep failed answers
    outputs: dict[str, str]  # the same text by the name of each output, empty if it has not been read as outputs


def attempt_answer(journal: JournalReader, step: StepRow, number: int) -> AttemptAnswer:
    """Return the answer of an attempt at a step. Blocks on the disk. Raises `InputError`, `JournalError`."""
    row = next((row for row in step.attempts if row.number == number), None)
    if row is None:
        numbers = ", ".join(str(row.number) for row in step.attempts) or "none: no attempt was made"
        raise InputError(Problem("attempt", f"{step.id} has no attempt {number}", numbers))
    evidence = next((gate.evidence for gate in row.gates if gate.status == "failed"), "")
    outputs = _texts(journal, row.made or {})
    text = _text(_texts(journal, {"": row.answer})) if row.answer else _text(outputs)
    return AttemptAnswer(step.id, row.number, row.role, row.model, row.outcome, row.message, evidence, text, outputs)


def _texts(journal: JournalReader, digests: Mapping[str, str]) -> dict[str, str]:
    return {name: journal.get(digest).decode(errors="replace") for name, digest in digests.items()}


def _text(outputs: Mapping[str, str]) -> str:
    if len(outputs) < 2:
        return "".join(outputs.values())
    return "\n\n".join(f"[{name}]\n{text}" for name, text in outputs.items())
