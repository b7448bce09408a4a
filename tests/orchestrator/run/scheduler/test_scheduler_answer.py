"""The answer of a run is compared with its request when all steps are done, and a doubtful one is repaired once."""

from typing import Any

import pytest

from orchestrator.run.scheduler.commands import FinishRun, StartAttempt
from orchestrator.task.events import AnswerChecked, AnswerDoubt, AttemptSucceeded, FailureKind
from orchestrator.task.failures import previous_answer
from orchestrator.task.states import IllegalTransition, State
from orchestrator.task.taskir.models import Step
from tests.orchestrator.scheduler_driver import Driver, planned, step


def answered(*steps: Step, **settings: Any) -> Driver:
    """Return the driver of a run whose steps are all done, so that its answer is to be compared with the request."""
    driver = planned(*steps, checks_answer=True, **settings)
    while driver.working:
        driver.succeed(next(iter(driver.working)))
    assert driver.checking
    assert driver.finish is None
    return driver


def test_an_answer_without_doubt_ends_the_run() -> None:
    driver = answered(step(1), step(2, 1))
    driver.check()
    assert driver.finish == FinishRun("done")


def test_the_step_of_a_doubtful_answer_runs_once_more_with_the_doubt_as_evidence() -> None:
    driver = answered(step(1), step(2, 1))
    driver.check(S2="It has 3 of 5.")
    command = driver.attempt("S2")
    assert (command.number, command.role) == (2, "worker")
    assert command.reason == "repair of the answer: It has 3 of 5."
    assert [(each.failure.kind, each.failure.evidence) for each in command.failures] == [
        (FailureKind.LOGIC, "It has 3 of 5.")
    ]
    driver.succeed("S2")
    driver.check()
    assert driver.finish == FinishRun("done"), "the repair has removed the doubt"


def test_a_repair_is_asked_for_what_the_answer_lacks() -> None:
    driver = answered(step(1))
    doubts = (AnswerDoubt("It has 3 of 5.", "S1", "Give 5."), AnswerDoubt("It is in English.", "S1", "Use German."))
    driver.check_with(doubts)
    (failed,) = driver.attempt("S1").failures
    assert failed.failure.demand == "Give 5. Use German."
    assert previous_answer("worker", [failed]) == "", "a model that is shown its answer repeats it"


def test_a_doubt_without_a_demand_is_said_with_all_the_others() -> None:
    driver = answered(step(1))
    driver.check_with((AnswerDoubt("It has 3 of 5.", "S1", "Give 5."), AnswerDoubt("It is empty.", "S1")))
    (failed,) = driver.attempt("S1").failures
    assert (failed.failure.demand, failed.failure.evidence) == ("", "It has 3 of 5. It is empty.")


def test_an_answer_is_repaired_only_once() -> None:
    driver = answered(step(1))
    driver.check(S1="It has 3 of 5.")
    driver.succeed("S1")
    driver.check(S1="It has 4 of 5.")
    assert driver.finish == FinishRun("done", doubt="It has 4 of 5.")
    assert driver.end().doubt == "It has 4 of 5."


@pytest.mark.parametrize("kind", list(FailureKind))
def test_a_repair_that_fails_leaves_the_run_done(kind: FailureKind) -> None:
    driver = answered(step(1))
    driver.check(S1="It has 3 of 5.")
    driver.fail("S1", kind)
    assert not driver.working, "there is no retry and no escalation"
    driver.check(S1="It has 3 of 5.")
    assert driver.finish == FinishRun("done", doubt="It has 3 of 5.")


def test_several_doubtful_outputs_are_repaired_at_the_same_time() -> None:
    driver = answered(step(1), step(2), step(3))
    driver.check(S1="a1 is empty.", S3="a3 is empty.")
    assert set(driver.working) == {"S1", "S3"}
    driver.succeed("S3")
    driver.fail("S1")
    driver.check(S1="a1 is empty.")
    assert driver.finish == FinishRun("done", doubt="a1 is empty.")


@pytest.mark.parametrize(
    ("steps", "doubtful"),
    [
        pytest.param((step(1), step(2, 1)), "S1", id="another step has read it"),
        pytest.param((step(1, tools=("calculator",), kind="tool"),), "S1", id="it acts"),
        pytest.param((step(1), step(2, foreach="a1")), "S2", id="its children wrote it"),
        pytest.param((step(1),), "", id="no single step wrote it"),
    ],
)
def test_what_cannot_be_written_once_more_is_only_marked(steps: tuple[Step, ...], doubtful: str) -> None:
    driver = answered(*steps)
    driver.check(**{doubtful: "It has 3 of 5."})
    assert driver.finish == FinishRun("done", doubt="It has 3 of 5.")


@pytest.mark.parametrize("begun", [False, True])
def test_a_run_that_is_cancelled_during_the_repair_ends_with_its_answer(begun: bool) -> None:
    driver = answered(step(1))
    driver.check(S1="It has 3 of 5.")
    if begun:
        driver.start("S1")
    driver.cancel()
    driver.stopped("S1")
    driver.check(S1="It has 3 of 5.")
    assert driver.finish == FinishRun("done", doubt="It has 3 of 5.")
    driver.end()


def test_a_repair_that_waits_for_a_slot_can_be_cancelled() -> None:
    driver = answered(step(1), step(2), mode="serial")
    driver.check(S1="a1 is empty.", S2="a2 is empty.")
    assert set(driver.working) == {"S1"}
    driver.cancel("S2")
    assert driver.states() == {"S1": "running", "S2": "done"}
    driver.succeed("S1")
    driver.check(S2="a2 is empty.")
    assert driver.finish == FinishRun("done", doubt="a2 is empty.")


def test_a_run_that_is_cancelled_while_its_answer_is_compared_is_not_repaired() -> None:
    driver = answered(step(1))
    driver.cancel()
    driver.check(S1="It has 3 of 5.")
    assert driver.finish == FinishRun("done", doubt="It has 3 of 5.")


@pytest.mark.parametrize("moment", ["asked", "ready", "started", "generated", "asked again"])
def test_the_check_and_the_repair_survive_a_restart(moment: str) -> None:
    driver = answered(step(1))
    if moment != "asked":
        driver.check(S1="It has 3 of 5.")
    if moment in ("started", "generated"):
        driver.start("S1")
    if moment == "generated":
        driver.generate("S1")
    if moment == "asked again":
        driver.succeed("S1")
    driver.crash()
    if moment == "asked":
        driver.check(S1="It has 3 of 5.")
    if moment != "asked again":
        again = driver.attempt("S1")
        assert again.number == (3 if moment in ("started", "generated") else 2)
        assert again.failures[-1].failure.evidence == "It has 3 of 5."
        driver.succeed("S1")
    driver.check(S1="It has 4 of 5.")
    assert driver.end().doubt == "It has 4 of 5."


def test_a_cancelled_repair_survives_a_restart() -> None:
    driver = answered(step(1))
    driver.check(S1="It has 3 of 5.")
    driver.start("S1")
    driver.cancel()
    driver.crash()
    driver.stopped("S1")
    driver.check(S1="It has 3 of 5.")
    assert driver.end().doubt == "It has 3 of 5."


def test_the_answer_of_a_document_is_not_compared() -> None:
    driver = planned(step(1))
    driver.succeed("S1")
    assert driver.finish == FinishRun("done")


def test_a_run_that_has_failed_has_no_answer_to_compare() -> None:
    driver = planned(step(1), step(2), checks_answer=True)
    driver.succeed("S1")
    driver.fail("S2")
    assert driver.finish is not None
    assert driver.finish.status == "failed"


def test_an_answer_is_not_compared_before_the_last_step_is_done() -> None:
    driver = planned(step(1), checks_answer=True)
    with pytest.raises(IllegalTransition):
        driver.state.handle(AnswerChecked(at=0))
    driver.succeed("S1")
    driver.check()
    with pytest.raises(IllegalTransition):
        driver.state.handle(AnswerChecked(at=0))


def test_a_step_that_was_done_begins_again_only_for_a_repair() -> None:
    driver = answered(step(1))
    with pytest.raises(IllegalTransition):
        driver.state.handle(AttemptSucceeded(at=0, step="S1", number=2, outputs={}))
    driver.check(S1="It is empty.")
    assert isinstance(driver.working["S1"], StartAttempt)
    assert driver.state.steps["S1"].state_history[-3:] == (State.DONE, State.READY, State.RUNNING)
