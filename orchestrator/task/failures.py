"""Decide what follows a failed attempt: a retry, an escalation to a stronger role, or the end of the step.

Each kind of failure has a rule of its own, because each needs something else: a model that broke the format has to see
the complaint, one that ran out of time has to be replaced by a stronger role, and one whose engine died has done
nothing wrong. Everything here is pure; the scheduler carries the decision out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from orchestrator.task.events import EscalationTarget, Failure, FailureKind
from orchestrator.task.taskir import Level

MAX_RETRIES = 3
"""Retries that each role of a step may use, over all kinds. Escalations and re-runs after a restart are no retries."""

FEEDBACK_LENGTH = 600
"""Characters of one failure that go into the next prompt."""

BACK_OFF_SECONDS = (1.0, 4.0, 16.0)
"""Pause before the first, second and third retry of a step that found too little memory or KV cache."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What follows failures of one kind."""

    retries: int
    """How often one role may try again."""
    escalates: bool
    """Whether a stronger role takes over after that."""
    remedy: str
    """How the next attempt differs, in words that complete "retry as ROLE"."""
    backs_off: bool = False
    """Whether there is a pause before the next attempt."""


RULES: Mapping[FailureKind, Rule] = {
    FailureKind.FORMAT: Rule(MAX_RETRIES, escalates=True, remedy="with the complaint"),
    FailureKind.SCHEMA: Rule(1, escalates=True, remedy="with the validator's message"),
    FailureKind.CODE: Rule(2, escalates=True, remedy="with what the tools reported"),
    FailureKind.LOGIC: Rule(1, escalates=True, remedy="with the critique"),
    FailureKind.TIMEOUT: Rule(0, escalates=True, remedy=""),
    FailureKind.RESOURCE: Rule(MAX_RETRIES, escalates=False, remedy="elsewhere, after a pause", backs_off=True),
    FailureKind.INFRASTRUCTURE: Rule(MAX_RETRIES, escalates=False, remedy="on a fresh engine"),
}

_MODEL_FAULTS = (FailureKind.FORMAT, FailureKind.SCHEMA, FailureKind.CODE, FailureKind.LOGIC)
"""Kinds that are the model's fault, and that it may avoid when the prompt says what was wrong."""


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """A failure, and the role that made the attempt."""

    role: str
    failure: Failure
    asked_role: str | None = None
    """The role that the attempt was asked of, where a router chose another one."""
    answer: str = ""
    """The SHA-256 digest of the answer that failed; empty if there was none."""

    @property
    def asked(self) -> str:
        """The role that the attempt was asked of."""
        return self.asked_role or self.role


@dataclass(frozen=True, slots=True)
class EscalationChain:
    """Which roles take over from weaker ones."""

    above: Mapping[str, EscalationTarget]
    """The role that takes over from each role."""
    max_level: Level = "B3"
    """The highest level that the task allows."""
    on_second_failure: bool = False
    """Whether the second failure of a role escalates, even where its rule still allows a retry."""

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

    Each role of the escalation gets at most one attempt and `MAX_RETRIES` more; then the step is given up. That holds
    whichever roles a router chooses for the attempts: a failure counts for the role that made the attempt, and whether
    it was a retry or an escalation follows from the role that was asked for.
    """
    if failed.failure.final:
        return GiveUp(f"{failed.failure.kind}: trying again would not help")
    attempts = (*history, failed)
    kind, rule, used = failed.failure.kind, RULES[failed.failure.kind], retries_used(attempts, failed.role)
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


def failures_shown_to(role: str, history: Sequence[FailedAttempt]) -> tuple[Failure, ...]:
    """Return the failures that the prompt of the next attempt, by `role`, shows.

    These are the role's own failures and the last one before it took over. So no two of its prompts are equal, and none
    is filled with the failures of weaker roles.
    """
    before = [failed for failed in history if failed.role != role]
    return tuple(failed.failure for failed in (*before[-1:], *_own(history, role)))


def previous_answer(role: str, history: Sequence[FailedAttempt]) -> str:
    """Return the digest of the answer of `role` that the last feedback it gets is about; empty if there is none."""
    told = [failed for failed in _own(history, role) if failed.failure.cut_at is None and feedback([failed.failure])]
    return told[-1].answer if told else ""


def feedback(failures: Sequence[Failure]) -> tuple[str, ...]:
    """Return what the next prompt says of earlier failures, oldest first: the evidence of each, shortened.

    Where a failure was the model's fault the prompt always says something, since the same prompt would have the same
    answer.
    """
    shown = (failure.evidence or (failure.message if failure.kind in _MODEL_FAULTS else "") for failure in failures)
    return tuple(_shortened(text) for text in shown if text)


def retries_used(attempts: Sequence[FailedAttempt], role: str) -> int:
    """Return how many of a step's attempts were retries of `role`: they were asked of it when it had just failed."""
    return sum(before.role == after.asked == role for before, after in pairwise(attempts))


def _why_no_retry(failed: FailedAttempt, history: Sequence[FailedAttempt], used: int) -> str:
    """Return why the role may not try again; empty if it may."""
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
    """Return whether the role has failed before in a way that a stronger role might not."""
    return any(attempt.role == role and RULES[attempt.failure.kind].escalates for attempt in history)


def _shortened(text: str) -> str:
    """Return the text without its middle if it is long, cut between lines where it has several."""
    if len(text) <= FEEDBACK_LENGTH:
        return text
    head, tail = text[: FEEDBACK_LENGTH // 2], text[-FEEDBACK_LENGTH // 2 :]
    return " … ".join((head.rpartition("\n")[0] or head, tail.partition("\n")[2] or tail))


def _own(history: Sequence[FailedAttempt], role: str) -> list[FailedAttempt]:
    """Return the failures of attempts that this role made."""
    return [attempt for attempt in history if attempt.role == role]


def _count(attempts: Sequence[FailedAttempt], kind: FailureKind) -> int:
    return sum(attempt.failure.kind is kind for attempt in attempts)
