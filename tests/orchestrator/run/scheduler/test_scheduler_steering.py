"""What a user does to single steps of a run: try them again, put them first; and steps that an earlier run has made."""

import pytest

from orchestrator.run.scheduler.commands import HurryAttempt, RestartAttempt
from orchestrator.run.scheduler.queue import FIRST
from orchestrator.task.events import AttemptCancelled, FailureKind, StepReused
from orchestrator.task.states import IllegalTransition
from orchestrator.task.taskir.models import Agent, Parallelism
from tests.orchestrator.scheduler_driver import CHAIN, planned, step


def test_a_running_attempt_is_made_again_without_costing_a_retry() -> None:
    driver = planned(step(1), step(2, 1))
    for number in range(1, 7):
        driver.start("S1")
        driver.retry("S1")
        assert driver.latest == [RestartAttempt("S1", number)]
        driver.restarted("S1")
    assert driver.attempt("S1").number == 7
    assert driver.attempt("S1").reason == "tried again at the request of the user"
    driver.fail("S1", FailureKind.LOGIC)
    assert driver.attempt("S1").number == 8, "its one retry is left"
    assert driver.end().status == "done"


def test_only_an_attempt_that_runs_is_made_again() -> None:
    driver = planned(step(1), step(2, 1))
    for step_id in ("S1", "S2", "S9"):
        driver.retry(step_id)
        assert driver.latest == []
    driver.succeed("S1")
    driver.retry("S1")
    assert driver.latest == []
    driver.start("S2")
    driver.retry("S2")
    driver.retry("S2")
    assert driver.latest == [], "once is enough"


def test_an_outcome_that_comes_first_counts() -> None:
    driver = planned(step(1), step(2))
    for step_id in ("S1", "S2"):
        driver.start(step_id)
        driver.retry(step_id)
    driver.succeed("S1")
    driver.fail("S2", FailureKind.LOGIC)
    assert driver.states() == {"S1": "done", "S2": "running"}
    assert driver.attempt("S2").number == 2


def test_an_attempt_that_nobody_wants_stopped_cannot_end_as_cancelled() -> None:
    driver = planned(step(1))
    driver.start("S1")
    with pytest.raises(IllegalTransition):
        driver.send(AttemptCancelled(at=0, step="S1", number=1))


def test_a_restart_of_the_process_makes_the_attempt_again_whatever_it_had_written() -> None:
    driver = planned(step(1))
    driver.generate("S1", {"a1": "digest"})
    driver.retry("S1")
    driver.crash()
    assert driver.attempt("S1").number == 2, "its outputs are not what the user wants checked"


def test_a_cancelled_step_is_not_made_again() -> None:
    driver = planned(step(1), step(2))
    driver.start("S1")
    driver.retry("S1")
    driver.cancel("S1")
    driver.stopped("S1")
    assert driver.states()["S1"] == "cancelled"


def test_a_retry_goes_to_the_role_that_was_requested() -> None:
    driver = planned(step(1), escalation=CHAIN)
    driver.start("S1", "coder")
    driver.retry("S1")
    driver.restarted("S1")
    assert driver.attempt("S1").role == "worker"


def test_a_step_goes_first_with_what_it_waits_for() -> None:
    steps = (step(1), step(2), step(3), step(4, 3), step(5, 4))
    driver = planned(*steps, step(6, 1, 2), parallelism=Parallelism(max_concurrent_steps=1))
    assert list(driver.working) == ["S3"], "the longest chain"
    driver.prioritise("S2")
    driver.succeed("S3")
    assert driver.attempt("S2").slack == FIRST
    driver.prioritise("S5")
    driver.succeed("S2")
    assert list(driver.working) == ["S4"]
    driver.crash()
    assert driver.attempt("S4").slack == FIRST, "a restart forgets nothing"
    driver.succeed("S4")
    assert list(driver.working) == ["S5"]


def test_attempts_at_work_are_hurried_once() -> None:
    driver = planned(step(1), step(2), step(3, 1))
    driver.prioritise("S3")
    assert driver.latest == [HurryAttempt("S1", 1)]
    driver.prioritise("S1")
    driver.prioritise("S9")
    assert driver.latest == []


def test_items_go_first_with_their_list_or_alone() -> None:
    agents = (Agent(tier="C", role="worker", max_concurrency=1),)
    driver = planned(step(1), step(2, foreach="a1"), step(3, foreach="a1"), agents=agents)
    driver.succeed("S1")
    driver.expand("S2", 2)
    driver.expand("S3", 2)
    assert list(driver.working) == ["S2[0]"]
    driver.prioritise("S3[1]")
    driver.succeed("S2[0]")
    assert list(driver.working) == ["S3[1]"]
    driver.prioritise("S3")
    driver.succeed("S3[1]")
    assert list(driver.working) == ["S3[0]"]


def test_steps_that_come_later_go_first_with_a_step_that_does() -> None:
    driver = planned(step(1), step(2), closed=False, parallelism=Parallelism(max_concurrent_steps=1))
    driver.prioritise("S2")
    driver.plan(step(3, 1), step(4, 3))
    driver.succeed("S1")
    assert list(driver.working) == ["S2"], "though the chain of S3 is longer"


@pytest.mark.parametrize("limit", [None, 1])
def test_what_an_earlier_run_has_made_is_done(limit: int | None) -> None:
    driver = planned(step(1), step(2), step(3, 1), parallelism=Parallelism(max_concurrent_steps=limit))
    driver.send(StepReused(at=0, step="S1", run="R", outputs={"a1": "0"}))
    driver.send(StepReused(at=0, step="S3", run="R", outputs={"a3": "0"}))
    assert driver.states() == {"S1": "done", "S2": "running", "S3": "done"}
    assert driver.state.steps["S1"].attempts == 0
    driver.working.pop("S1", None), driver.working.pop("S3", None)
    driver.done |= {"S1", "S3"}
    assert driver.end().status == "done"


def test_a_list_is_reused_item_by_item() -> None:
    driver = planned(step(1), step(2, foreach="a1"), step(3, inputs=("a2",)))
    driver.reuse("S1")
    driver.expand("S2", 2)
    driver.reuse("S2[1]")
    assert list(driver.working) == ["S2[0]"]
    driver.succeed("S2[0]")
    driver.reuse("S2")
    assert list(driver.working) == ["S3"]


def test_what_has_started_or_waits_is_not_reused() -> None:
    driver = planned(step(1), step(2, 1))
    for step_id in ("S2", "S9"):
        with pytest.raises(IllegalTransition):
            driver.send(StepReused(at=0, step=step_id, run="R", outputs={}))
    driver.start("S1")
    with pytest.raises(IllegalTransition):
        driver.send(StepReused(at=0, step="S1", run="R", outputs={}))


def test_attempts_are_numbered_without_gaps_whatever_is_reused() -> None:
    driver = planned(step(1), step(2), checks_answer=True)
    driver.start("S1")
    driver.retry("S1")
    driver.restarted("S1")
    driver.reuse("S1")
    driver.succeed("S2")
    driver.check(S1="It is too short.")
    assert driver.attempt("S1").number == 2


def test_a_reused_answer_that_is_doubtful_is_repaired() -> None:
    driver = planned(step(1), checks_answer=True)
    driver.reuse("S1")
    driver.check(S1="It is too short.")
    assert driver.attempt("S1").number == 1
    driver.succeed("S1")
    assert driver.end().status == "done"
