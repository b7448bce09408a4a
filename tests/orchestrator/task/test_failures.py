"""Every rule of the failure table, and the bounds that hold whatever happens."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.task.events import EscalationTarget, Failure, FailureKind
from orchestrator.task.failures import (
    BACK_OFF_SECONDS,
    FEEDBACK_LENGTH,
    MAX_LOSSES,
    MAX_RETRIES,
    RULES,
    Escalate,
    EscalationChain,
    FailedAttempt,
    FailureResponse,
    GiveUp,
    Retry,
    decide,
    failures_shown_to,
    feedback,
    retries_used,
)

FORMAT, SCHEMA, CODE, LOGIC, TIMEOUT, RESOURCE, INFRASTRUCTURE = FailureKind
CHAIN = {
    "worker": EscalationTarget("coder", "B1"),
    "coder": EscalationTarget("architect", "B2"),
    "architect": EscalationTarget("oracle", "B3"),
}


def follow(kinds: Sequence[FailureKind], escalation: EscalationChain, role: str = "worker") -> list[FailureResponse]:
    """Fail once for each kind, in whichever role the step has got to, and return what was decided each time."""
    history: list[FailedAttempt] = []
    decisions: list[FailureResponse] = []
    for kind in kinds:
        failed = FailedAttempt(role, Failure(kind, f"{kind} went wrong"))
        decisions.append(decide(failed, history, escalation))
        history.append(failed)
        if isinstance(decisions[-1], GiveUp):
            break
        role = decisions[-1].role if isinstance(decisions[-1], Escalate) else role
    return decisions


def names(decisions: Sequence[FailureResponse]) -> list[str]:
    return [decision.role if isinstance(decision, Escalate) else type(decision).__name__ for decision in decisions]


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ("ab", "Retry"),
        ("aa", "GiveUp"),
        ("aba", "GiveUp"),
        (["", ""], "Retry"),
    ],
)
def test_a_role_that_gives_the_same_answer_again_does_not_get_a_third_try(
    answers: Sequence[str], expected: str
) -> None:
    code = Failure(CODE, "gate unit failed")
    *history, failed = [FailedAttempt("worker", code, answer=answer) for answer in answers]
    assert type(decide(failed, history, EscalationChain({}))).__name__ == expected
    above = decide(failed, history, EscalationChain(CHAIN))
    assert isinstance(above, Escalate) == (expected == "GiveUp")
    if isinstance(above, Escalate):
        assert above.reason == "code: coder takes over, worker has given the same answer again"


def test_the_same_answer_of_a_weaker_role_does_not_count() -> None:
    code = Failure(CODE, "gate unit failed")
    weaker = [FailedAttempt("worker", code, answer="a")]
    assert isinstance(decide(FailedAttempt("coder", code, answer="a"), weaker, EscalationChain(CHAIN)), Retry)


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ([FORMAT] * 6, ["Retry", "Retry", "Retry", "coder", "Retry", "Retry"]),
        ([CODE] * 10, ["Retry", "Retry", "coder", "Retry", "Retry", "architect", "Retry", "Retry", "oracle", "Retry"]),
        ([SCHEMA] * 3, ["Retry", "coder", "Retry"]),
        ([CODE] * 4, ["Retry", "Retry", "coder", "Retry"]),
        ([LOGIC] * 3, ["Retry", "coder", "Retry"]),
        ([TIMEOUT] * 4, ["coder", "architect", "oracle", "GiveUp"]),
        ([RESOURCE] * 4, ["Retry", "Retry", "Retry", "GiveUp"]),
        ([INFRASTRUCTURE] * 4, ["Retry", "Retry", "Retry", "GiveUp"]),
        ([SCHEMA, CODE, CODE, CODE], ["Retry", "Retry", "Retry", "coder"]),
        ([LOGIC] * 8, ["Retry", "coder", "Retry", "architect", "Retry", "oracle", "Retry", "GiveUp"]),
        ([TIMEOUT, SCHEMA, TIMEOUT], ["coder", "Retry", "architect"]),
        ([RESOURCE, RESOURCE, RESOURCE, CODE], ["Retry", "Retry", "Retry", "coder"]),
        ([RESOURCE, RESOURCE, RESOURCE, INFRASTRUCTURE], ["Retry", "Retry", "Retry", "GiveUp"]),
    ],
)
def test_each_kind_has_its_rule(kinds: list[FailureKind], expected: list[str]) -> None:
    assert names(follow(kinds, EscalationChain(CHAIN))) == expected


def test_the_loss_of_a_node_costs_no_retry_but_does_not_happen_without_end() -> None:
    lost = FailedAttempt("worker", Failure(INFRASTRUCTURE, "the node was lost", lost=True))
    code = FailedAttempt("worker", Failure(CODE, "gate unit failed"))
    chain = EscalationChain({})
    decisions = [decide(lost, [lost] * before, chain) for before in range(MAX_LOSSES + 1)]
    assert names(decisions) == [*["Retry"] * MAX_LOSSES, "GiveUp"]
    assert decisions[0].reason == "infrastructure: again as worker, since its node was lost; this is no retry"
    assert decisions[-1].reason == f"infrastructure: {MAX_LOSSES + 1} of its nodes were lost"
    assert decide(code, [lost, code, lost, lost, lost], chain) == decide(code, [code], chain)
    assert names([decide(lost, [code, code], chain)]) == ["Retry"]


def test_a_retry_says_what_it_brings() -> None:
    remedies = {kind: follow([kind], EscalationChain(CHAIN))[0].reason for kind in FailureKind if RULES[kind].retries}
    assert remedies == {
        FORMAT: "format: retry 1 of 3 as worker with the complaint",
        SCHEMA: "schema: retry 1 of 3 as worker with the validator's message",
        CODE: "code: retry 1 of 3 as worker with what the tools reported",
        LOGIC: "logic: retry 1 of 3 as worker with the critique",
        RESOURCE: "resource: retry 1 of 3 as worker elsewhere, after a pause",
        INFRASTRUCTURE: "infrastructure: retry 1 of 3 as worker on a fresh engine",
    }


def test_what_ran_out_of_resources_waits_longer_each_time() -> None:
    # An engine that dies in between is no reason to wait less.
    decisions = follow([RESOURCE, INFRASTRUCTURE, RESOURCE], EscalationChain(CHAIN))
    assert [decision.delay_seconds for decision in decisions if isinstance(decision, Retry)] == [1.0, 0.0, 4.0]
    decisions = follow([RESOURCE] * 3, EscalationChain(CHAIN))
    assert tuple(decision.delay_seconds for decision in decisions if isinstance(decision, Retry)) == BACK_OFF_SECONDS
    assert list(BACK_OFF_SECONDS) == sorted(set(BACK_OFF_SECONDS))
    assert len(BACK_OFF_SECONDS) == MAX_RETRIES


@pytest.mark.parametrize(
    ("max_level", "expected"),
    [("B1", ["coder", "GiveUp"]), ("B2", ["coder", "architect", "GiveUp"])],
)
def test_escalation_stops_at_the_task_s_level(max_level: str, expected: list[str]) -> None:
    decisions = follow([TIMEOUT] * 4, EscalationChain(CHAIN, max_level=max_level))  # type: ignore[arg-type]
    assert names(decisions) == expected
    assert f"above the task's max_level {max_level}" in decisions[-1].reason


def test_a_role_without_a_level_is_open_to_every_task() -> None:
    escalation = EscalationChain(
        {"worker": EscalationTarget("senior"), "senior": EscalationTarget("coder", "B2")}, max_level="B1"
    )
    assert names(follow([TIMEOUT, TIMEOUT], escalation)) == ["senior", "GiveUp"]


def test_the_end_of_the_chain_is_reported() -> None:
    (decision,) = follow([TIMEOUT], EscalationChain({}))
    assert decision == GiveUp("timeout: this kind is not retried, and no escalation: no role stands above worker")


def test_a_chain_that_leads_in_a_circle_ends() -> None:
    escalation = EscalationChain({"worker": EscalationTarget("coder"), "coder": EscalationTarget("worker")})
    decisions = follow([TIMEOUT, TIMEOUT], escalation)
    assert names(decisions) == ["coder", "GiveUp"]
    assert "worker has been tried already" in decisions[-1].reason


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ([CODE, CODE], ["Retry", "coder"]),
        ([SCHEMA, CODE], ["Retry", "coder"]),
        ([CODE, CODE, CODE, CODE], ["Retry", "coder", "Retry", "architect"]),
        ([FORMAT, CODE], ["Retry", "coder"]),
        # These are not the model's fault.
        ([INFRASTRUCTURE, CODE, RESOURCE], ["Retry", "Retry", "Retry"]),
    ],
)
def test_a_task_in_a_hurry_escalates_at_the_second_failure(kinds: list[FailureKind], expected: list[str]) -> None:
    assert names(follow(kinds, EscalationChain(CHAIN, on_second_failure=True))) == expected


def test_a_task_in_a_hurry_still_retries_where_nobody_stands_above() -> None:
    assert names(follow([CODE, CODE, CODE], EscalationChain({}, on_second_failure=True))) == [
        "Retry",
        "Retry",
        "GiveUp",
    ]


ROLES = ("worker", "coder", "architect", "oracle")
LEVELS = ("B1", "B2", "B3")
chains = st.builds(
    EscalationChain,
    st.dictionaries(
        st.sampled_from(ROLES), st.builds(EscalationTarget, st.sampled_from(ROLES), st.none() | st.sampled_from(LEVELS))
    ),
    max_level=st.sampled_from(LEVELS),
    on_second_failure=st.booleans(),
)


@given(st.lists(st.sampled_from(FailureKind), min_size=20, max_size=20), chains, st.sampled_from(ROLES))
def test_bounds_hold_for_any_failures_on_any_chain(
    kinds: list[FailureKind], escalation: EscalationChain, first: str
) -> None:
    decisions = follow(kinds, escalation, first)
    escalations = [decision for decision in decisions if isinstance(decision, Escalate)]
    retries = [decision for decision in decisions if isinstance(decision, Retry)]

    assert isinstance(decisions[-1], GiveUp), "whatever fails, it ends"
    assert len(retries) <= MAX_RETRIES * (1 + len(escalations))
    visited = [first, *(escalation.role for escalation in escalations)]
    assert len(set(visited)) == len(visited), "no role is asked again once it has handed over"
    for below, above in pairwise(visited):
        target = escalation.above[below]
        assert target.role == above
        assert target.level is None or target.level <= escalation.max_level
    for kind, decision in zip(kinds, decisions, strict=False):
        assert not (isinstance(decision, Escalate) and not RULES[kind].escalates)
        assert not (isinstance(decision, Retry) and kind is TIMEOUT)
    for role in visited:
        own = [decision for decision in retries if f" as {role} " in decision.reason]
        pauses = [decision.delay_seconds for decision in own if decision.delay_seconds]
        assert pauses == sorted(set(pauses)), "the pauses of a role grow"


@given(st.lists(st.tuples(st.sampled_from(ROLES), st.integers(1, 4)), unique_by=lambda turn: turn[0]))
def test_retries_are_what_is_not_an_escalation(turns: list[tuple[str, int]]) -> None:
    story = [FailedAttempt(role, Failure(CODE, "")) for role, attempts in turns for _ in range(attempts)]
    for role, attempts in turns:
        assert retries_used(story, role) == attempts - 1


@given(st.sampled_from(FailureKind), chains)
def test_what_would_fail_again_is_given_up_at_once(kind: FailureKind, escalation: EscalationChain) -> None:
    failed = FailedAttempt("worker", Failure(kind, "the prompt is too long", final=True))
    assert decide(failed, [], escalation) == GiveUp(f"{kind}: trying again would not help")


def test_the_next_prompt_has_what_the_model_can_learn_from() -> None:
    failures = [
        Failure(CODE, "gate lint failed", "a.py:2: F821 Undefined name `b`"),
        Failure(INFRASTRUCTURE, "the engine died"),
        Failure(TIMEOUT, "not done within 5 s"),
        Failure(TIMEOUT, "gate unit failed", "the tests used all of their 20 seconds of processor time"),
        Failure(FORMAT, "the answer is empty"),
    ]
    assert feedback(failures) == (
        "a.py:2: F821 Undefined name `b`",
        "the tests used all of their 20 seconds of processor time",
        "the answer is empty",
    )


def test_a_stronger_role_hears_of_the_last_failure_before_it_took_over() -> None:
    story = [FailedAttempt(role, Failure(CODE, text)) for role, text in zip("aabb", "1234", strict=True)]
    told = [
        [failure.message for failure in failures_shown_to(role, story[:count])] for count, role in enumerate("aabbc")
    ]
    assert told == [[], ["1"], ["2"], ["2", "3"], ["4"]]


@given(st.sampled_from([FORMAT, SCHEMA, CODE, LOGIC]), st.text(min_size=1), st.text())
def test_a_model_that_is_to_blame_never_gets_the_same_prompt_again(
    kind: FailureKind, message: str, evidence: str
) -> None:
    once = feedback([Failure(kind, message, evidence)])
    assert once
    assert feedback([Failure(kind, message, evidence)] * 2) == once * 2


@given(st.text(min_size=FEEDBACK_LENGTH, max_size=5 * FEEDBACK_LENGTH))
def test_feedback_is_shortened_in_the_middle(text: str) -> None:
    (told,) = feedback([Failure(CODE, "", text)])
    assert len(told) <= FEEDBACK_LENGTH + len(" … ")
    assert (told[0], told[-1]) == (text[0], text[-1]) or "\n" in text


KINDS = st.sampled_from(FailureKind)


@given(
    st.lists(st.tuples(KINDS, st.sampled_from([None, *CHAIN, "oracle", "stranger"])), min_size=40, max_size=40),
    st.booleans(),
)
def test_a_step_ends_whoever_a_router_lets_make_its_attempts(turns: list[tuple[FailureKind, str]], hurry: bool) -> None:
    escalation, story, asked = EscalationChain(CHAIN, on_second_failure=hurry), list[FailedAttempt](), "worker"
    for kind, chosen in turns:
        failed = FailedAttempt(chosen or asked, Failure(kind, "x"), asked)
        decision = decide(failed, story, escalation)
        story.append(failed)
        match decision:
            case GiveUp():
                break
            case Retry():
                assert failed.role in decision.reason, "who is asked again is who made the attempt"
                asked = failed.role
            case Escalate(role):
                assert role not in {attempt.asked for attempt in story}, "no target is climbed twice"
                asked = role
    for role in {attempt.role for attempt in story}:
        assert retries_used(story, role) <= MAX_RETRIES
    assert isinstance(decision, GiveUp), "it ends"
