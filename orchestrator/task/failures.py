"""Decide what follows a failed attempt: a retry, an escalation to a stronger role, or the end of the step.

Each kind of failure has its own rule: a model that broke the format has to see the complaint, one that ran out of time
is replaced by a stronger role, and one whose engine died did nothing wrong. Everything here is pure; the scheduler
acts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from orchestrator.task.events import AnswerDoubt, EscalationTarget, Failure, FailureKind, RunAccepted
from orchestrator.task.taskir.models import Level

# Per role of a step, over all kinds. Escalations and re-runs after a restart or the loss of a node are no retries.
MAX_RETRIES = 3
MAX_LOSSES = 10  # of nodes per step: it may be what ends them

FEEDBACK_LENGTH = 600  # characters of one failure that go into the next prompt

BACK_OFF_SECONDS = (1.0, 4.0, 16.0)  # before the 1st, 2nd and 3rd retry after too little memory or KV cache


@dataclass(frozen=True, slots=True)
class Rule:
    retries: int  # per role
    escalates: bool  # to a stronger role, after the retries
    remedy: str  # how the next attempt differs; completes "retry as ROLE"
    backs_off: bool = False  # pause before the next attempt


RULES: Mapping[FailureKind, Rule] = {
    FailureKind.FORMAT: Rule(MAX_RETRIES, escalates=True, remedy="with the complaint"),
    FailureKind.SCHEMA: Rule(1, escalates=True, remedy="with the validator's message"),
    FailureKind.CODE: Rule(2, escalates=True, remedy="with what the tools reported"),
    FailureKind.LOGIC: Rule(1, escalates=True, remedy="with the critique"),
    FailureKind.TIMEOUT: Rule(0, escalates=True, remedy=""),
    FailureKind.RESOURCE: Rule(MAX_RETRIES, escalates=False, remedy="elsewhere, after a pause", backs_off=True),
    FailureKind.INFRASTRUCTURE: Rule(MAX_RETRIES, escalates=False, remedy="on a fresh engine"),
}

# The model may avoid these if the prompt says what was wrong.
_MODEL_FAULTS = (FailureKind.FORMAT, FailureKind.SCHEMA, FailureKind.CODE, FailureKind.LOGIC)


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    role: str
    failure: Failure
    asked_role: str | None = None  # if a router chose another role than this one
    answer: str = ""  # SHA-256 of the failed answer; empty if there was none

    @property
    def asked(self) -> str:
        return self.asked_role or self.role


@dataclass(frozen=True, slots=True)
class EscalationChain:
    above: Mapping[str, EscalationTarget]  # by the weaker role
    max_level: Level = "B3"  # the highest that the task allows
    on_second_failure: bool = False  # escalate then, even if the rule allows a retry

    def next_target(self, tried: Sequence[str]) -> EscalationTarget | str:
        """Return what takes over from the last of the `tried` roles, or why nothing does. No role takes over twice."""
        target = self.above.get(tried[-1])
        if target is None:
            return f"no role stands above {tried[-1]}"
        if target.level is not None and target.level > self.max_level:
            return f"{target.role} ({target.level}) is above the task's max_level {self.max_level}"
        if target.role in tried:
            return f"{target.role} has been tried already"
        return target


def chain_of(accepted: RunAccepted) -> EscalationChain:
    """Return the escalation of a run: its roles, within the limits of its task."""
    escalation = accepted.task.escalation if accepted.task is not None else None
    if escalation is None:
        return EscalationChain(accepted.rungs)
    return EscalationChain(accepted.rungs, escalation.max_level, escalation.on_second_failure)


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again in the same role, not earlier than `delay_seconds` from now."""

    reason: str
    delay_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Escalate:
    """Try again in a stronger role."""

    role: str
    reason: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Let the step fail."""

    reason: str


FailureResponse = Retry | Escalate | GiveUp


def decide(failed: FailedAttempt, history: Sequence[FailedAttempt], escalation: EscalationChain) -> FailureResponse:
    """Return what follows `failed`, given the step's earlier failures (oldest first).

    Each role of the escalation gets at most one attempt and `MAX_RETRIES` more; then the step fails.
    """
    if failed.failure.final:
        return GiveUp(f"{failed.failure.kind}: trying again would not help")
    if failed.failure.lost:
        return _after_loss(failed, history)
    history = [earlier for earlier in history if not earlier.failure.lost]
    attempts = (*history, failed)
    kind, rule, used = failed.failure.kind, RULES[failed.failure.kind], retries_used(attempts, failed.role)
    # A router may have chosen another role than the requested one. A failure counts for the role that ran.
    tried = [role for attempt in attempts for role in (attempt.asked, attempt.role)]
    above = escalation.next_target(tried) if rule.escalates else f"{kind} failures never do"
    refused = _why_no_retry(failed, history, used)
    if isinstance(above, EscalationTarget) and (
        refused or (escalation.on_second_failure and _failed_by_itself(failed.role, history))
    ):
        return Escalate(above.role, f"{kind}: {above.role} takes over, {refused or 'it is the second failure'}")
    if refused:
        return GiveUp(f"{kind}: {refused}, and no escalation: {above}")
    delay = BACK_OFF_SECONDS[_count(_own(history, failed.role), kind)] if rule.backs_off else 0.0
    return Retry(f"{kind}: retry {used + 1} of {MAX_RETRIES} as {failed.role} {rule.remedy}", delay)


def _after_loss(failed: FailedAttempt, history: Sequence[FailedAttempt]) -> FailureResponse:
    losses = 1 + sum(earlier.failure.lost for earlier in history)
    if losses > MAX_LOSSES:
        return GiveUp(f"{failed.failure.kind}: {losses} of its nodes were lost")
    return Retry(f"{failed.failure.kind}: again as {failed.role}, since its node was lost; this is no retry")


def failures_shown_to(role: str, history: Sequence[FailedAttempt]) -> tuple[Failure, ...]:
    """Return the failures that the prompt of the next attempt of `role` shows."""
    # The role's own failures make its prompts differ; those of weaker roles would only fill them.
    before = [failed for failed in history if failed.role != role]
    return tuple(failed.failure for failed in (*before[-1:], *_own(history, role)))


def previous_answer(role: str, history: Sequence[FailedAttempt]) -> str:
    """Return the digest of the answer of `role` that its latest feedback is about; empty if there is none."""
    own = [failed for failed in _own(history, role) if failed.failure.cut_at is None and not failed.failure.demand]
    shown = [failed for failed in own if feedback([failed.failure])]
    return shown[-1].answer if shown else ""


def feedback(failures: Sequence[Failure]) -> tuple[str, ...]:
    """Return what the next prompt says about earlier failures, oldest first: the evidence of each, shortened."""
    # After a fault of the model, always say something: the same prompt would give the same answer.
    shown = (failure.evidence or (failure.message if failure.kind in _MODEL_FAULTS else "") for failure in failures)
    return tuple(_shortened(text) for text in shown if text)


def demands(failures: Sequence[Failure]) -> tuple[str, ...]:
    """Return what the next prompt asks for in place of what was wrong; embedded models are told what was wrong."""
    return tuple(dict.fromkeys(failure.demand for failure in failures if failure.demand))


def doubted(doubts: Sequence[AnswerDoubt]) -> Failure:
    """Return the failure that the repair of a doubtful answer follows. It has a demand if each of the doubts has."""
    reason, wanted = " ".join(doubt.text for doubt in doubts), [doubt.demand for doubt in doubts]
    demand = " ".join(dict.fromkeys(wanted)) if all(wanted) else ""
    return Failure(FailureKind.LOGIC, reason, evidence=reason, demand=demand)


def retries_used(attempts: Sequence[FailedAttempt], role: str) -> int:
    """Return how many of a step's attempts were retries of `role`: requested from it right after it failed."""
    return sum(before.role == after.asked == role for before, after in pairwise(attempts))


def _why_no_retry(failed: FailedAttempt, history: Sequence[FailedAttempt], used: int) -> str:
    kind = failed.failure.kind
    allowed = RULES[kind].retries
    if used >= MAX_RETRIES:
        return f"all {MAX_RETRIES} retries of {failed.role} are used"
    own = _own(history, failed.role)
    if kind in _MODEL_FAULTS and failed.answer and any(before.answer == failed.answer for before in own):
        return f"{failed.role} has given the same answer again"
    if _count(own, kind) < allowed:
        return ""
    return f"{failed.role} has used its {allowed} for this kind" if allowed else "this kind is not retried"


def _failed_by_itself(role: str, history: Sequence[FailedAttempt]) -> bool:
    # A stronger role might do better.
    return any(attempt.role == role and RULES[attempt.failure.kind].escalates for attempt in history)


def _shortened(text: str) -> str:
    if len(text) <= FEEDBACK_LENGTH:
        return text
    head, tail = text[: FEEDBACK_LENGTH // 2], text[-FEEDBACK_LENGTH // 2 :]
    return " … ".join((head.rpartition("\n")[0] or head, tail.partition("\n")[2] or tail))


def _own(history: Sequence[FailedAttempt], role: str) -> list[FailedAttempt]:
    return [attempt for attempt in history if attempt.role == role]


def _count(attempts: Sequence[FailedAttempt], kind: FailureKind) -> int:
    return sum(attempt.failure.kind is kind for attempt in attempts)
