"""What a run goes on with after a restart, from its journal alone."""

from typing import Any

import pytest

from orchestrator.run.scheduler.commands import CancelAttempt, CheckOutputs, FinishRun
from orchestrator.task.events import FailureKind
from orchestrator.task.failures import EscalationChain
from orchestrator.task.taskir.models import Parallelism
from tests.orchestrator.scheduler_driver import Driver, planned, step


def test_an_attempt_lost_in_a_crash_runs_again_under_the_next_number_and_is_no_retry() -> None:
    driver = planned(step(1), step(2), escalation=EscalationChain({}))
    for _ in range(6):
        driver.start("S1")
        driver.crash()
    assert driver.attempt("S1").number == 7
    assert driver.attempt("S2").number == 1, "S2 was asked for and never started"
    assert driver.state.steps["S1"].reason == "run again: the orchestrator was restarted"
    driver.start("S1")
    for number in (8, 9):
        driver.fail("S1", FailureKind.CODE)
        assert driver.attempt("S1").number == number, "all its retries are left"


def test_outputs_that_wait_for_their_gates_are_checked_again_and_not_made_again() -> None:
    driver = planned(step(1), step(2))
    driver.generate("S1", {"a1": "digest"})
    driver.generate("S2")
    for _ in range(2):
        driver.crash()
        assert driver.working["S1"] == CheckOutputs(driver.state.graph.steps["S1"], 1, {"a1": "digest"})
        assert driver.attempt("S2").number == 2, "nothing of it was stored"
    driver.fail("S1", FailureKind.CODE)
    assert driver.attempt("S1").number == 2
    driver.start("S1")
    driver.crash()
    assert driver.attempt("S1").number == 3, "what an earlier attempt has made is not checked"


def test_a_crash_forgets_nothing_that_was_asked_for() -> None:
    driver = planned(step(1), step(2, foreach="a1"), step(3, foreach="a1"), step(4))
    driver.succeed("S1")
    driver.expand("S2", 0)
    driver.start("S4")
    driver.cancel("S4")
    working, to_cancel = dict(driver.working), dict(driver.to_cancel)
    driver.crash()
    assert driver.working == {step_id: working[step_id] for step_id in ("S2", "S3")}
    assert driver.to_cancel == to_cancel
    driver.stopped("S4")
    driver.succeed("S2")
    driver.expand("S3", 0)
    driver.succeed("S3")
    finish = driver.finish
    driver.crash()
    assert driver.finish == finish == FinishRun("cancelled", "S4: cancelled by the user")


def test_a_replay_under_other_estimates_takes_the_journal_s_word() -> None:
    driver = Driver({"parallelism": Parallelism(max_concurrent_steps=1)}, lambda step: float(step.id == "S1"))
    driver.plan(step(1), step(2), step(3))
    driver.start("S1")
    driver.crash(lambda step: float(step.id == "S2"))
    assert list(driver.working) == ["S2"], "by now it is S2 that counts most"
    driver.succeed("S2")
    driver.start("S1")
    driver.crash(lambda step: 1.0)
    assert driver.states() == {"S1": "running", "S2": "done", "S3": "ready"}
    assert driver.end().status == "done"


def test_a_retry_that_a_restart_lost_may_be_cancelled_before_it_starts_again() -> None:
    driver = planned(step(1))
    driver.start("S1")
    driver.crash()
    driver.cancel()
    assert driver.latest == [CancelAttempt("S1", 2)]
    driver.crash()
    driver.stopped("S1")
    assert driver.end().status == "cancelled"


def test_a_cancelled_step_that_had_only_been_given_a_slot_does_not_keep_it_after_a_restart() -> None:
    driver = Driver({"parallelism": Parallelism(max_concurrent_steps=1)}, lambda step: float(step.id == "S1"))
    driver.plan(step(1), step(2))
    driver.start("S1")
    driver.cancel("S2")
    driver.crash(lambda step: float(step.id == "S2"))
    assert list(driver.working) == ["S1"], "nothing is at work for S2"
    assert driver.end().status == "cancelled"


def test_a_step_that_started_again_while_it_was_being_cancelled_replays() -> None:
    driver = planned(step(1), step(2))
    driver.start("S1")
    driver.generate("S1")
    driver.crash()
    driver.cancel("S1")
    driver.start("S1")
    driver.generate("S1")
    driver.crash()
    assert driver.to_cancel == {"S1": CancelAttempt("S1", 2)}
    driver.stopped("S1")
    assert driver.end().status == "cancelled"


def test_attempts_that_were_lost_in_turn_and_are_cancelled_hold_no_slots_after_a_restart() -> None:
    driver = planned(step(1), step(2), step(3), parallelism=Parallelism(max_concurrent_steps=1))
    driver.start("S1")
    driver.crash(lambda step: float(step.id == "S2"))
    driver.start("S2")
    driver.cancel("S1")
    driver.cancel("S2")
    driver.crash()
    assert list(driver.working) == ["S3"]
    assert set(driver.to_cancel) <= {"S1", "S2"}
    driver.start("S3")
    assert driver.end().status == "cancelled"


@pytest.mark.parametrize("begun", [False, True])
def test_a_replay_under_other_estimates_names_the_same_role_for_a_cancelled_step(begun: bool) -> None:
    driver = first_of_two()
    driver.cancel("S1")  # the replay that `end` makes still has S1 in its queue then
    if begun:
        driver.start("S1", "coder")
    driver.stopped("S1")
    driver.end()
    assert driver.state.steps["S1"].role == ("coder" if begun else "worker")


def test_a_step_that_is_cancelled_after_a_restart_keeps_the_role_of_its_interrupted_attempt() -> None:
    driver = planned(step(1), step(2))
    driver.start("S1", "coder")
    driver.crash()
    assert driver.attempt("S1").role == "worker", "the role is chosen again"
    driver.cancel("S1")
    driver.stopped("S1")
    driver.end()
    assert driver.state.steps["S1"].role == "coder"


@pytest.mark.parametrize("begun", [False, True])
def test_a_cancelled_repair_replays_under_other_estimates(begun: bool) -> None:
    driver = first_of_two(checks_answer=True)
    driver.succeed("S1")
    driver.succeed("S2")
    driver.check(S1="a1 is empty.", S2="a2 is empty.")
    driver.cancel("S1")
    if begun:
        driver.start("S1", "coder")
    driver.stopped("S1")
    assert driver.end().status == "done"


def first_of_two(**settings: Any) -> Driver:
    """Return the driver of a run of two steps, one at a time; only S1 is expected to take long, so it comes first."""
    settings |= {"parallelism": Parallelism(max_concurrent_steps=1)}
    driver = Driver(settings, lambda step: float(step.id == "S1"))
    driver.plan(step(1), step(2))
    return driver
