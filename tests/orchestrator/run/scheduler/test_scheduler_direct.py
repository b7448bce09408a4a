"""Plans that fail, and that one step replaces which answers the whole request."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.run.scheduler.commands import AnswerDirectly
from orchestrator.task.events import AttemptFailed, Failure, FailureKind, PlanFinished, PlanReplaced, StepsPlanned
from orchestrator.task.states import IllegalTransition, State
from orchestrator.task.taskir.models import Step
from tests.orchestrator.scheduler_driver import CHAIN, Driver, step

OF_MODELS = (FailureKind.FORMAT, FailureKind.SCHEMA, FailureKind.CODE, FailureKind.LOGIC)
ANSWER = step(9)


def request(**settings: Any) -> Driver:
    return Driver({"may_answer_directly": True, **settings})


def over_a_list() -> tuple[Step, Step]:
    return step(1), step(2, inputs=("a1",), foreach="a1")


def exhaust(driver: Driver, step_id: str, kind: FailureKind) -> None:
    while step_id in driver.working:
        driver.fail(step_id, kind)


def test_a_list_that_cannot_be_run_over_leads_to_a_direct_answer() -> None:
    driver = request()
    driver.plan(*over_a_list(), step(3, 2))
    driver.succeed("S1")
    driver.fail("S2", FailureKind.SCHEMA)
    assert driver.finish is None
    assert driver.replacing == AnswerDirectly("S2: S2 broke")
    driver.replace(ANSWER)
    driver.succeed("S9")
    assert driver.end().status == "done"
    assert [view.state for view in driver.state.steps.values()] == ["done", "failed", "cancelled", "done"]


@pytest.mark.parametrize("kind", OF_MODELS)
def test_models_that_use_up_their_attempts_lead_to_an_answer_by_the_strongest(kind: FailureKind) -> None:
    driver = request(escalation=CHAIN)
    driver.plan(step(1), step(2))
    exhaust(driver, "S1", kind)
    assert driver.replacing is None, "the other step may still be of use"
    driver.succeed("S2")
    assert driver.replacing is not None
    assert driver.replacing.stronger


@pytest.mark.parametrize("kind", [FailureKind.TIMEOUT, FailureKind.RESOURCE, FailureKind.INFRASTRUCTURE])
def test_a_machine_that_fails_would_fail_the_answer_too(kind: FailureKind) -> None:
    driver = request()
    driver.plan(step(1))
    exhaust(driver, "S1", kind)
    assert driver.end().status == "failed"


def test_an_input_that_cannot_be_read_leads_to_a_direct_answer() -> None:
    driver = request()
    driver.plan(step(1))
    driver.start("S1")
    driver.working.pop("S1")
    failure = Failure(FailureKind.RESOURCE, "no such file", final=True)
    driver.send(AttemptFailed(at=0, step="S1", number=1, failure=failure))
    assert driver.replacing is not None
    assert not driver.replacing.stronger


def test_a_direct_answer_that_fails_ends_the_run() -> None:
    driver = request()
    driver.plan(step(1))
    exhaust(driver, "S1", FailureKind.CODE)
    driver.replace(ANSWER)
    exhaust(driver, "S9", FailureKind.CODE)
    finished = driver.end()
    assert finished.status == "failed"
    assert "S1: " in str(finished.error)
    assert "S9: " in str(finished.error)


@pytest.mark.parametrize("origin", ["direct", "fallback", "procedure"])
def test_a_plan_that_is_a_direct_answer_already_is_not_replaced(origin: Any) -> None:
    driver = request()
    driver.send(StepsPlanned(at=0, steps=(step(1),)))
    driver.send(PlanFinished(at=0, origin=origin))
    exhaust(driver, "S1", FailureKind.CODE)
    assert driver.end().status == "failed"


def test_the_plan_of_a_document_is_not_replaced() -> None:
    driver = Driver({})
    driver.plan(*over_a_list())
    driver.succeed("S1")
    driver.fail("S2", FailureKind.SCHEMA)
    assert driver.end().status == "failed"
    with pytest.raises(IllegalTransition):
        Driver({}).send(PlanReplaced(at=0, answer=ANSWER, reason=""))


def test_who_cancels_a_step_wants_no_direct_answer() -> None:
    driver = request()
    driver.plan(step(1), step(2))
    driver.cancel("S1")
    driver.stopped("S1")
    exhaust(driver, "S2", FailureKind.CODE)
    assert driver.end().status == "failed"


def test_a_run_that_is_cancelled_before_the_answer_is_planned_ends() -> None:
    driver = request()
    driver.plan(step(1))
    exhaust(driver, "S1", FailureKind.CODE)
    driver.cancel()
    assert driver.end().status == "cancelled"


def test_the_answer_may_write_what_the_plan_was_to_write() -> None:
    driver = request()
    driver.plan(step(1, outputs=("x.py",)), step(2, inputs=("x.py",), outputs=("y.md",)))
    exhaust(driver, "S1", FailureKind.CODE)
    driver.replace(step(3, outputs=("x.py", "y.md")))
    assert driver.state.graph.before["S3"] == ()
    assert driver.end().status == "done"


@given(
    st.lists(st.sets(st.integers(1, 5), max_size=3), min_size=1, max_size=6),
    st.dictionaries(st.integers(1, 6), st.sampled_from(FailureKind)),
    st.integers(0, 20),
)
def test_however_a_plan_fails_the_run_ends_once(
    needs: list[set[int]], failures: dict[int, FailureKind], crash: int
) -> None:
    driver = request(escalation=CHAIN)
    steps = [step(n, *sorted(one for one in after if one < n)) for n, after in enumerate(needs, 1)]
    driver.plan(*steps)
    while driver.finish is None:
        if len(driver.journal) == crash:
            driver.crash()
        if driver.finish is None and driver.replacing is not None:
            driver.replace(ANSWER)
        elif driver.working:
            step_id = next(iter(driver.working))
            if (kind := failures.get(int(step_id[1:]))) is not None:
                driver.fail(step_id, kind)
            else:
                driver.succeed(step_id)
    failed = [view for view in driver.state.steps.values() if view.state is State.FAILED]
    answered = "S9" in driver.done
    assert driver.end().status == ("done" if answered or not failed else "failed")
    of_models = all(view.failures[-1].failure.kind in OF_MODELS for view in failed)
    assert answered == bool(failed and of_models), "a machine that fails is no reason to ask again"
