"""What is stopped when a run or a step is cancelled, or the journal says that it is over."""

import pytest

from orchestrator.run.scheduler.commands import CancelAttempt, FinishRun
from orchestrator.task.states import Cause, IllegalTransition
from tests.orchestrator.scheduler_driver import CHAIN, planned, step


def test_cancelling_a_run_stops_what_runs_and_never_starts_the_rest() -> None:
    driver = planned(step(1), step(2, 1), closed=False)
    driver.cancel()
    assert driver.latest == [CancelAttempt("S1", 1)]
    assert driver.states() == {"S1": "running", "S2": "cancelled"}
    driver.stopped("S1")
    assert driver.latest == [FinishRun("cancelled", "cancelled by the user")]


@pytest.mark.parametrize("outcome", ["success", "failure"])
def test_what_comes_too_late_to_be_cancelled_is_cancelled_all_the_same(outcome: str) -> None:
    driver = planned(step(1), step(2), step(3, 1), escalation=CHAIN)
    driver.start("S1")
    driver.cancel("S1")
    (driver.succeed if outcome == "success" else driver.fail)("S1")
    assert driver.states() == {"S1": "cancelled", "S2": "running", "S3": "cancelled"}
    driver.succeed("S2")
    assert driver.finish == FinishRun("cancelled", "S1: cancelled by the user")


def test_cancelling_what_has_ended_or_never_was_changes_nothing() -> None:
    driver = planned(step(1), step(2))
    driver.succeed("S1")
    driver.cancel("S1")
    driver.cancel("S77")
    assert driver.states() == {"S1": "done", "S2": "running"}


def test_the_journal_s_word_that_a_run_is_over_is_final() -> None:
    driver = planned(step(1), step(2, foreach="a1"), step(3))
    driver.succeed("S1")
    driver.expand("S2", 2)
    driver.send(driver.end_event("failed", "the disk is full"))
    assert driver.states() == {
        "S1": "done",
        "S2": "cancelled",
        "S3": "cancelled",
        "S2[0]": "cancelled",
        "S2[1]": "cancelled",
    }
    assert driver.state.steps["S3"].cause == Cause(None, "the disk is full")
    with pytest.raises(IllegalTransition, match="after the run had finished"):
        driver.cancel()
