"""How a `foreach` step runs as its children, and what becomes of it."""

from orchestrator.run.scheduler.commands import (
    CancelAttempt,
    ExpandStep,
    FinishRun,
    GatherStep,
)
from orchestrator.task.events import FailureKind
from orchestrator.task.states import Cause
from orchestrator.task.taskir.models import Parallelism
from tests.orchestrator.scheduler_driver import planned, step


def test_a_foreach_step_runs_as_its_children() -> None:
    driver = planned(step(1), step(2, foreach="a1", persona="terse", timeout_seconds=5.0), step(3, inputs=("a2",)))
    driver.succeed("S1")
    assert driver.latest == [ExpandStep(driver.state.graph.steps["S2"])]
    driver.expand("S2", 2)
    parent = driver.state.graph.steps["S2"]
    for item in range(2):
        child = driver.attempt(f"S2[{item}]")
        assert child.item == item
        assert child.step == parent.model_copy(update={"id": f"S2[{item}]", "outputs": (f"a2[{item}]",)})
    driver.succeed("S2[1]")
    driver.succeed("S2[0]")
    assert driver.latest == [GatherStep(parent, ("S2[0]", "S2[1]"))], "in order, whoever was done first"
    assert "S3" not in driver.working, "those who depend on the parent wait until the list is written"
    driver.succeed("S2")
    assert list(driver.working) == ["S3"]
    view = driver.state.steps["S2"]
    assert (view.children, view.attempts, driver.state.steps["S2[1]"].parent) == (("S2[0]", "S2[1]"), 0, "S2")


def test_an_empty_list_is_gathered_all_the_same() -> None:
    driver = planned(step(1), step(2, foreach="a1"))
    driver.succeed("S1")
    driver.expand("S2", 0)
    assert driver.latest == [GatherStep(driver.state.graph.steps["S2"], ())]
    driver.succeed("S2")
    assert driver.finish == FinishRun("done")


def test_a_failed_child_fails_its_parent_when_its_siblings_are_done() -> None:
    driver = planned(step(1), step(2, foreach="a1"), step(3, 2))
    driver.succeed("S1")
    driver.expand("S2", 3)
    driver.fail("S2[1]", FailureKind.TIMEOUT)
    assert driver.states()["S2"] == "running"
    driver.succeed("S2[0]")
    driver.succeed("S2[2]")
    assert driver.states() == {
        "S1": "done",
        "S2": "failed",
        "S3": "cancelled",
        "S2[0]": "done",
        "S2[1]": "failed",
        "S2[2]": "done",
    }
    causes = {step_id: driver.state.steps[step_id].cause for step_id in ("S2", "S3")}
    assert [cause and cause.step for cause in causes.values()] == ["S2[1]", "S2[1]"]


def test_a_child_is_retried_on_its_own() -> None:
    driver = planned(step(1), step(2, foreach="a1"))
    driver.succeed("S1")
    driver.expand("S2", 2)
    driver.fail("S2[1]", FailureKind.CODE)
    assert (driver.attempt("S2[1]").number, driver.attempt("S2[0]").number) == (2, 1)
    assert driver.attempt("S2[1]").item == 1


def test_a_list_that_cannot_be_read_or_joined_fails_the_step() -> None:
    driver = planned(step(1), step(2, foreach="a1"), step(3, foreach="a1"))
    driver.succeed("S1")
    driver.fail("S2", FailureKind.SCHEMA)
    driver.expand("S3", 0)
    driver.fail("S3", FailureKind.INFRASTRUCTURE)
    assert driver.states() == {"S1": "done", "S2": "failed", "S3": "failed"}
    assert driver.finish == FinishRun("failed", "S2: S2 broke; S3: S3 broke")


def test_a_fan_out_may_feed_the_next() -> None:
    driver = planned(step(1), step(2, foreach="a1"), step(3, foreach="a2"))
    for step_id in ("S1", "S2", "S2[0]", "S2[1]", "S2", "S3", "S3[0]", "S3[1]", "S3"):
        driver.succeed(step_id)
    assert driver.finish == FinishRun("done")


def test_a_cancelled_fan_out_stops_its_children() -> None:
    driver = planned(step(1), step(2, foreach="a1"), step(3, 2), parallelism=Parallelism(max_concurrent_steps=1))
    driver.succeed("S1")
    driver.expand("S2", 2)
    driver.cancel("S2")
    assert driver.latest == [CancelAttempt("S2[0]", 1)]
    assert driver.states()["S2[1]"] == "cancelled"
    driver.stopped("S2[0]")
    assert driver.states()["S2"] == driver.states()["S3"] == "cancelled"


def test_a_fan_out_that_is_cancelled_while_its_list_is_read_has_no_children() -> None:
    driver = planned(step(1), step(2, foreach="a1"))
    driver.succeed("S1")
    driver.cancel("S2")
    driver.crash()
    driver.expand("S2", 5)
    assert driver.states() == {"S1": "done", "S2": "cancelled"}


def test_a_cancelled_child_cancels_its_parent_when_its_siblings_are_done() -> None:
    driver = planned(step(1), step(2, foreach="a1"))
    driver.succeed("S1")
    driver.expand("S2", 2)
    driver.cancel("S2[0]")
    driver.stopped("S2[0]")
    driver.succeed("S2[1]")
    assert driver.states()["S2"] == "cancelled"
    assert driver.state.steps["S2"].cause == Cause("S2[0]", "cancelled by the user")
