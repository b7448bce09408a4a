"""How a plan grows while its steps run, and what the scheduler makes of it."""

import pytest

from orchestrator.run.scheduler.commands import ExtendPlan, FinishRun
from orchestrator.task.events import (
    Failure,
    FailureKind,
    PlanFailed,
    PlanFinished,
    ReplanFinished,
    ReplanStarted,
    StepsPlanned,
)
from orchestrator.task.states import IllegalTransition
from orchestrator.task.taskir.problems import InvalidTask
from tests.orchestrator.scheduler_driver import Driver, planned, step


def test_steps_run_while_the_plan_still_streams() -> None:
    driver = planned(step(1), closed=False)
    driver.succeed("S1")
    assert driver.latest == [], "the plan may still grow"
    driver.plan(step(2, 1), closed=False)
    assert list(driver.working) == ["S2"]
    driver.close()
    driver.succeed("S2")
    assert driver.finish == FinishRun("done")


def test_a_plan_cannot_grow_once_it_is_finished() -> None:
    driver = planned(step(1))
    with pytest.raises(IllegalTransition, match="the run: steps_planned came after the plan was finished"):
        driver.plan(step(2))


def test_steps_that_do_not_fit_change_nothing() -> None:
    driver = planned(step(1), closed=False)
    with pytest.raises(InvalidTask, match="S9"):
        driver.plan(step(2), step(3, 9))
    with pytest.raises(InvalidTask):
        driver.plan(step(1))
    driver.plan(step(2, 1))
    assert driver.states() == {"S1": "running", "S2": "waiting"}


def test_steps_are_checked_ahead_of_the_events_that_bring_them() -> None:
    driver = planned(step(1), closed=False)
    state, second, third = driver.state, step(2, 1), step(3, 2)
    state.check([second])
    with pytest.raises(InvalidTask, match="S9"):
        state.check([step(3, 9)])
    state.check([third])
    assert list(state.graph.steps) == ["S1"], "nothing is planned yet"
    driver.plan(second, closed=False)
    assert list(state.graph.steps) == ["S1", "S2"]
    driver.plan(third, closed=False)
    assert state.graph.before["S3"] == ("S2",)


def test_a_part_with_more_steps_than_were_checked_before_it_has_its_graph() -> None:
    driver = Driver({})
    driver.state.check([step(1)])
    wide = [step(2), step(3)]
    driver.state.check(wide)
    assert list(driver.state.graph_with(wide).steps) == ["S1", "S2", "S3"]


def test_what_was_checked_binds_nobody() -> None:
    driver = planned(step(1), closed=False)
    driver.state.check([step(2, 1)])
    driver.state.check([step(3, 2)])
    driver.plan(step(2), closed=False)
    assert driver.state.graph.before["S2"] == ()
    driver.state.check([step(3, 1)])
    driver.plan(step(3, 1))
    assert driver.state.graph.before["S3"] == ("S1",)


def test_a_plan_goes_on_when_the_step_is_done_that_it_hangs_on() -> None:
    driver = planned(step(1), step(2), closed=False, max_replans=1)
    driver.close("S1")
    driver.succeed("S2")
    assert driver.latest == []
    driver.succeed("S1")
    assert driver.latest == [ExtendPlan("S1")], "the run does not end here"
    driver.begin_rest()
    driver.plan(step(3), closed=False)
    assert list(driver.working) == ["S3"], "it starts while the rest is still being written"
    driver.succeed("S3")
    assert (driver.finish, driver.state.growing) == (None, True)
    driver.end_rest()
    assert driver.finish == FinishRun("done")
    assert not driver.state.growing


def test_a_plan_goes_on_at_once_after_a_step_that_was_quicker_than_the_plan() -> None:
    driver = planned(step(1), closed=False, max_replans=1)
    driver.succeed("S1")
    driver.close("S1")
    assert driver.latest == [ExtendPlan("S1")]


def test_a_plan_goes_on_after_a_list_when_its_items_are_gathered() -> None:
    driver = planned(step(1), step(2, foreach="a1"), closed=False, max_replans=1)
    driver.close("S2")
    for step_id in ("S1", "S2", "S2[0]", "S2[1]"):
        driver.succeed(step_id)
        assert driver.extending is None
    driver.succeed("S2")
    assert driver.extending == "S2"


def test_a_plan_does_not_go_on_more_often_than_it_may() -> None:
    driver = planned(step(1), closed=False, max_replans=1)
    driver.close("S1")
    driver.succeed("S1")
    driver.begin_rest()
    driver.plan(step(2), closed=False)
    driver.end_rest("S2")
    assert not driver.state.growing
    driver.succeed("S2")
    assert driver.finish == FinishRun("done")


def test_a_plan_does_not_go_on_after_a_step_that_failed() -> None:
    driver = planned(step(1), step(2), closed=False, max_replans=1)
    driver.close("S1")
    driver.fail("S1")
    assert not driver.state.growing
    driver.succeed("S2")
    assert driver.finish is not None
    assert driver.finish.status == "failed"
    assert driver.extending is None


def going_on(*, begun: bool) -> Driver:
    """Return a run whose plan is to go on after its first step, and maybe has."""
    driver = planned(step(1), closed=False, max_replans=1)
    driver.close("S1")
    driver.succeed("S1")
    if begun:
        driver.begin_rest()
        driver.plan(step(2), closed=False)
    return driver


@pytest.mark.parametrize("begun", [False, True])
def test_a_run_can_be_cancelled_while_its_plan_goes_on(begun: bool) -> None:
    driver = going_on(begun=begun)
    driver.cancel()
    if begun:
        driver.stopped("S2")
    assert driver.finish == FinishRun("cancelled", "cancelled by the user")


@pytest.mark.parametrize("begun", [False, True])
def test_a_plan_goes_on_after_a_restart(begun: bool) -> None:
    driver = going_on(begun=begun)
    if begun:
        driver.start("S2")
    driver.crash()
    assert driver.extending == "S1"
    assert list(driver.working) == ["S2"] * begun
    driver.begin_rest()
    driver.end_rest()
    if begun:
        driver.succeed("S2")
    assert driver.finish == FinishRun("done")


def test_the_rest_of_a_plan_comes_when_it_may() -> None:
    driver = planned(step(1), closed=False, max_replans=1)
    early = ReplanStarted(at=0, after="S1", role="frontdoor", model="m")
    with pytest.raises(IllegalTransition, match="replan_started came while the plan was planning"):
        driver.state.handle(early)
    with pytest.raises(IllegalTransition, match="S9: the plan continues after it, but there is no such step"):
        driver.close("S9")
    driver.close("S1")
    for event in (early, StepsPlanned(at=0, steps=(step(2),)), PlanFinished(at=0, origin="planned")):
        with pytest.raises(IllegalTransition, match="came while the plan was waiting after S1"):
            driver.state.handle(event)
    driver.succeed("S1")
    with pytest.raises(IllegalTransition, match="came while the plan was asked after S1"):
        driver.state.handle(ReplanFinished(at=0, after="S1", outcome="planned"))
    driver.begin_rest()
    with pytest.raises(IllegalTransition, match="after='S2'"):
        driver.state.handle(ReplanFinished(at=0, after="S2", outcome="planned"))


def test_a_plan_that_still_streams_into_a_cancelled_run_is_not_started() -> None:
    driver = planned(step(1), closed=False)
    driver.cancel()
    driver.plan(step(2), closed=False)
    assert driver.states() == {"S1": "running", "S2": "cancelled"}
    driver.stopped("S1")
    driver.plan(step(3))
    assert driver.states()["S3"] == "cancelled"
    assert driver.end().status == "cancelled"


def test_a_run_without_a_plan_fails() -> None:
    driver = planned(step(1), closed=False)
    driver.send(PlanFailed(at=0, failure=Failure(FailureKind.INFRASTRUCTURE, "the frontdoor died")))
    driver.stopped("S1")
    assert driver.end().status == "failed"
    assert driver.journal[-1] == driver.end_event("failed", "no plan: the frontdoor died")
