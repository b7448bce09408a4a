"""Find what followed failures in real runs: how often each kind was retried or escalated, and in which tasks."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from benchmarks.gates.rows import TaskResult
from orchestrator.run.record.view import AttemptRow
from orchestrator.task.events import FailureKind

Attempts = Sequence[AttemptRow]
KINDS = tuple(map(str, FailureKind))


def frequencies(results: Sequence[TaskResult]) -> dict[str, dict[str, int]]:
    """Return for each kind of failure how often a retry, an escalation and the end of the step followed."""
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    for result in results:
        for failed, after in pairwise(result.attempts):
            counts[failed.outcome]["retried" if after.role == failed.role else "escalated"] += 1
        if result.attempts and result.attempts[-1].outcome in counts:
            counts[result.attempts[-1].outcome]["given up"] += 1
    return {kind: dict(count) for kind, count in counts.items() if count}


def format_retry(attempts: Attempts) -> bool:
    """Return whether a FORMAT failure was retried in the same role, and the step was done in the end."""
    moves = [(attempt.outcome, following.role == attempt.role) for attempt, following in pairwise(attempts)]
    return ("format", True) in moves and _was_done(attempts)


def code_retry_then_escalation(attempts: Attempts) -> bool:
    """Return whether a role retried after a CODE failure, then escalated, and the step was done in the end."""
    moves = [(attempt.outcome, following.role == attempt.role) for attempt, following in pairwise(attempts)]
    return ("code", True) in moves and ("code", False) in moves and _was_done(attempts)


def timeout_escalation(attempts: Attempts) -> bool:
    """Return whether a role escalated after a timeout, and the step was done in the end."""
    moves = [(attempt.outcome, following.role == attempt.role) for attempt, following in pairwise(attempts)]
    return ("timeout", False) in moves and _was_done(attempts)


RECOVERIES: Mapping[str, Callable[[Attempts], bool]] = {
    "a FORMAT retry": format_retry,
    "a CODE retry, then an escalation": code_retry_then_escalation,
    "a TIMEOUT escalation": timeout_escalation,
}


def find(results: Sequence[TaskResult]) -> dict[str, list[dict[str, object]]]:
    """Return the tasks in which each kind of recovery happened, by its name."""
    return {
        name: [_describe(result) for result in results if matches(result.attempts)]
        for name, matches in RECOVERIES.items()
    }


def _describe(result: TaskResult) -> dict[str, object]:
    attempts = [
        {"role": attempt.role, "model": attempt.model, "outcome": attempt.outcome, "message": attempt.message}
        for attempt in result.attempts
    ]
    return {"task": result.task, "run": result.run, "outcome": result.outcome, "attempts": attempts}


def _was_done(attempts: Attempts) -> bool:
    return attempts[-1].outcome == "done"
