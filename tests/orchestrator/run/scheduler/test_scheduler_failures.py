"""What follows when an attempt fails: a retry, another role, or the end of all that depends on the step."""

from orchestrator.run.scheduler.commands import FinishRun
from orchestrator.task.events import EscalationTarget, Failure, FailureKind, RunFinished
from orchestrator.task.failures import EscalationChain, FailedAttempt
from orchestrator.task.states import Cause, State
from orchestrator.task.taskir.models import Agent
from tests.orchestrator.scheduler_driver import CHAIN, planned, step


def test_a_retry_carries_what_went_wrong() -> None:
    driver = planned(step(1), escalation=CHAIN)
    driver.start("S1")
    driver.fail("S1", FailureKind.SCHEMA)
    again = driver.attempt("S1")
    assert (again.number, again.role, again.delay_seconds) == (2, "worker", 0.0)
    assert again.failures == (FailedAttempt("worker", Failure(FailureKind.SCHEMA, "S1 broke")),)
    assert again.reason == "schema: retry 1 of 3 as worker with the validator's message"


def test_an_escalation_goes_to_the_next_role() -> None:
    driver = planned(step(1), escalation=CHAIN)
    driver.fail("S1", FailureKind.TIMEOUT)
    again = driver.attempt("S1")
    assert (again.number, again.role) == (2, "coder")
    assert driver.state.steps["S1"].role == "coder"


def test_what_follows_a_failure_follows_the_role_that_a_router_chose() -> None:
    driver = planned(
        step(1),
        escalation=EscalationChain(
            {"worker": EscalationTarget("coder", "B1"), "coder": EscalationTarget("architect", "B2")}
        ),
    )
    driver.start("S1", "coder")
    assert driver.state.steps["S1"].role == "coder"
    driver.fail("S1", FailureKind.TIMEOUT)
    assert driver.attempt("S1").role == "architect"
    failed = FailedAttempt("coder", Failure(FailureKind.TIMEOUT, "S1 broke"), asked_role="worker")
    assert driver.attempt("S1").failures == (failed,)


def test_a_slot_that_a_router_does_not_use_is_free_for_others() -> None:
    coders = (Agent(tier="B", role="coder", max_concurrency=1), Agent(tier="C", role="worker", max_concurrency=1))
    driver = planned(step(1), step(2), step(3), agents=coders)
    assert set(driver.working) == {"S1"}
    driver.start("S1", "coder")
    assert set(driver.working) == {"S1", "S2"}
    assert not driver.state.admits("S2", "coder")
    assert driver.state.admits("S2", "architect")


def test_after_a_restart_the_same_role_is_asked_again() -> None:
    driver = planned(step(1), escalation=CHAIN)
    driver.start("S1", "coder")
    driver.crash()
    assert (driver.attempt("S1").number, driver.attempt("S1").role) == (2, "worker")


def test_what_found_no_memory_waits_and_the_pause_ends_with_the_retry() -> None:
    driver = planned(step(1), escalation=CHAIN)
    driver.fail("S1", FailureKind.RESOURCE)
    assert driver.attempt("S1").delay_seconds == 1.0
    driver.start("S1")
    driver.crash()
    assert driver.attempt("S1").delay_seconds == 0.0


def test_a_failed_step_cancels_its_dependants_and_spares_the_others() -> None:
    driver = planned(step(1), step(2), step(3, 1), step(4, 3), step(5, 2))
    driver.fail("S1", FailureKind.TIMEOUT)
    driver.succeed("S2")
    driver.succeed("S5")
    assert driver.states() == {"S1": "failed", "S2": "done", "S3": "cancelled", "S4": "cancelled", "S5": "done"}
    reason = "S1 broke (timeout: this kind is not retried, and no escalation: no role stands above worker)"
    assert driver.state.steps["S1"].cause == Cause("S1", reason)
    assert driver.state.steps["S4"].cause == Cause("S1", reason), "S4 names the step where it began"
    assert driver.finish == FinishRun("failed", f"S1: {reason}")


def test_a_step_planned_behind_a_failed_one_is_cancelled() -> None:
    driver = planned(step(1), closed=False)
    driver.fail("S1", FailureKind.TIMEOUT)
    driver.plan(step(2, 1), step(3, 2), step(4))
    assert driver.states() == {"S1": "failed", "S2": "cancelled", "S3": "cancelled", "S4": "running"}


def test_a_chain_of_any_length_can_be_cancelled() -> None:
    driver = planned(step(1), *(step(number, number - 1) for number in range(2, 3000)))
    driver.fail("S1", FailureKind.TIMEOUT)
    assert len(driver.in_state(State.CANCELLED)) == 2998


def test_a_step_that_an_earlier_version_gave_up_has_failed_and_was_not_cancelled() -> None:
    driver = planned(step(1), step(2, 1), escalation=CHAIN)
    for _ in range(4):
        driver.fail("S1", FailureKind.FORMAT)
    assert driver.attempt("S1").role == "coder", "today a stronger role takes over"
    driver.send(RunFinished(at=0, status="failed", error="S1: S1 broke"))
    assert driver.state.steps["S1"].state is State.FAILED
    assert driver.state.steps["S2"].cause == Cause("S1", "S1 broke")
