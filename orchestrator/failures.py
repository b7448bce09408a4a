"""Decide what follows a failed attempt: a retry, an escalation, or the end of the step.

Each kind of failure has its rule, because each has its own cure: a model that broke the format needs to be told, one
that ran out of time needs a stronger role, and one whose engine died is not to blame at all. Everything here is
pure; the scheduler carries the decision out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from orchestrator.events import EscalationTarget, Failure, FailureKind, Level

MAX_RETRIES = 3
"""Retries a step may use, over all kinds and roles. Escalations and re-runs after a restart are not retries."""

FEEDBACK_LENGTH = 600
"""Characters of one failure that go into the next prompt."""

BACK_OFF_SECONDS = (1.0, 4.0, 16.0)
"""Pause before the first, second and third retry of a step that found too little memory or KV cache."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The cure for one kind: how many retries one role gets, and whether a stronger role follows."""

    retries: int
    escalates: bool
    remedy: str
    backs_off: bool = False


RULES: Mapping[FailureKind, Rule] = {
    FailureKind.FORMAT: Rule(MAX_RETRIES, escalates=False, remedy="with the complaint"),
    FailureKind.SCHEMA: Rule(1, escalates=True, remedy="with the validator's message"),
    FailureKind.CODE: Rule(2, escalates=True, remedy="with what the tools reported"),
    FailureKind.LOGIC: Rule(1, escalates=True, remedy="with the critique"),
    FailureKind.TIMEOUT: Rule(0, escalates=True, remedy=""),
    FailureKind.RESOURCE: Rule(MAX_RETRIES, escalates=False, remedy="elsewhere, after a pause", backs_off=True),
    FailureKind.INFRASTRUCTURE: Rule(MAX_RETRIES, escalates=False, remedy="on a fresh engine"),
}

_TAUGHT = (FailureKind.FORMAT, FailureKind.SCHEMA, FailureKind.CODE, FailureKind.LOGIC)
"""Kinds that a model is to blame for, and may avoid when it is told."""


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """A failure, and the role that had it."""

    role: str
    failure: Failure
    asked_role: str | None = None
    """The role that the attempt was asked of, where a router chose another one."""

    @property
    def asked(self) -> str:
        """The role that the attempt was asked of."""
        return self.asked_role or self.role


@dataclass(frozen=True, slots=True)
class Ladder:
    """Who takes over from whom (role -> rung above), and how far up a task allows it.

    `on_second_failure` hurries: a role that fails a second time hands over, even where its rule had a retry left.
    """

    above: Mapping[str, EscalationTarget]
    max_level: Level = "B3"
    on_second_failure: bool = False

    def climb(self, tried: Sequence[str]) -> EscalationTarget | str:
        """Return the rung above the last of the `tried` roles, or why there is none. No rung is climbed twice."""
        rung = self.above.get(tried[-1])
        if rung is None:
            return f"no role stands above {tried[-1]}"
        if rung.level is not None and rung.level > self.max_level:
            return f"{rung.role} ({rung.level}) is above the task's max_level {self.max_level}"
        if rung.role in tried:
            return f"{rung.role} has been tried already"
        return rung


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
    """The step has failed."""

    reason: str


FailureResponse = Retry | Escalate | GiveUp


def decide(failed: FailedAttempt, history: Sequence[FailedAttempt], ladder: Ladder) -> FailureResponse:
    """Return what follows `failed`, given the step's earlier failures (oldest first).

    A step gets at most one attempt, `MAX_RETRIES` more, and one for each rung of the ladder; then it is given up. That
    holds whichever roles a router chooses for the attempts: who failed is who made the attempt, and what counts as a
    retry or an escalation is what was asked for.
    """
    if failed.failure.final:
        return GiveUp(f"{failed.failure.kind}: trying again would not help")
    story = (*history, failed)
    kind, rule, used = failed.failure.kind, RULES[failed.failure.kind], retries_used(story)
    tried = [role for attempt in story for role in (attempt.asked, attempt.role)]
    above = ladder.climb(tried) if rule.escalates else f"{kind} failures never do"
    refused = _why_no_retry(failed, history, used)
    if isinstance(above, EscalationTarget) and (
        refused or (ladder.on_second_failure and _was_to_blame(failed.role, history))
    ):
        return Escalate(above.role, f"{kind}: {above.role} takes over, {refused or 'it is the second failure'}")
    if refused:
        return GiveUp(f"{kind}: {refused}, and no escalation: {above}")
    delay = BACK_OFF_SECONDS[_count(history, kind)] if rule.backs_off else 0.0
    return Retry(f"{kind}: retry {used + 1} of {MAX_RETRIES} as {failed.role} {rule.remedy}", delay)


def failures_shown_to(role: str, history: Sequence[FailedAttempt]) -> tuple[Failure, ...]:
    """Return the failures that the next attempt, of `role`, hears of: its own, and the last one before it took over.

    So its prompts differ from each other, and are not filled with what its predecessors got wrong.
    """
    before = [failed for failed in history if failed.role != role]
    own = [failed for failed in history if failed.role == role]
    return tuple(failed.failure for failed in (*before[-1:], *own))


def feedback(failures: Sequence[Failure]) -> tuple[str, ...]:
    """Return what the next attempt is told of the earlier ones, oldest first: the evidence, shortened.

    A model that is to blame is always told something, since the same prompt would bring the same answer.
    """
    told = (failure.evidence or (failure.message if failure.kind in _TAUGHT else "") for failure in failures)
    return tuple(_shortened(text) for text in told if text)


def retries_used(story: Sequence[FailedAttempt]) -> int:
    """Count the retries among a step's failures: the attempts that were asked of the role that had just failed."""
    return sum(before.role == after.asked for before, after in pairwise(story))


def _why_no_retry(failed: FailedAttempt, history: Sequence[FailedAttempt], used: int) -> str:
    """Say why the role may not try again, or nothing when it may."""
    kind = failed.failure.kind
    allowed = RULES[kind].retries
    if used >= MAX_RETRIES:
        return f"all {MAX_RETRIES} retries of the step are used"
    if _count([attempt for attempt in history if attempt.role == failed.role], kind) < allowed:
        return ""
    return f"{failed.role} has used its {allowed} for this kind" if allowed else "this kind is not retried"


def _was_to_blame(role: str, history: Sequence[FailedAttempt]) -> bool:
    """Whether the role has failed before in a way that a stronger role might not."""
    return any(attempt.role == role and RULES[attempt.failure.kind].escalates for attempt in history)


def _shortened(text: str) -> str:
    """Cut the middle out of a long text, between lines where it has some: its ends tell where and what."""
    if len(text) <= FEEDBACK_LENGTH:
        return text
    head, tail = text[: FEEDBACK_LENGTH // 2], text[-FEEDBACK_LENGTH // 2 :]
    return " … ".join((head.rpartition("\n")[0] or head, tail.partition("\n")[2] or tail))


def _count(attempts: Sequence[FailedAttempt], kind: FailureKind) -> int:
    return sum(attempt.failure.kind is kind for attempt in attempts)
