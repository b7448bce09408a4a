"""What the scheduler does, case by case. That it does so in every mixture is in test_scheduler_machine."""

import pytest
from scheduler_driver import Driver, step

from orchestrator.events import (
    AttemptCancelled,
    AttemptFailed,
    AttemptGenerated,
    AttemptStarted,
    AttemptSucceeded,
    Failure,
    FailureKind,
    Mode,
    PlanFailed,
    PlanFinished,
    PlanningStarted,
    ReplanFinished,
    ReplanStarted,
    RunAccepted,
    Rung,
    StepExpanded,
    StepGathered,
    StepsPlanned,
    Usage,
)
from orchestrator.failures import Ladder
from orchestrator.scheduler import (
    TRANSITIONS,
    CancelAttempt,
    Cause,
    ExpandStep,
    ExtendPlan,
    FinishRun,
    GatherStep,
    IllegalTransition,
    StartAttempt,
    State,
)
from orchestrator.scheduler.states import FINAL
from orchestrator.taskir import Agent, InvalidTask, Parallelism

SCHEMA, CODE, TIMEOUT, RESOURCE = FailureKind.SCHEMA, FailureKind.CODE, FailureKind.TIMEOUT, FailureKind.RESOURCE
CHAIN = Ladder({"worker": Rung("coder", "B1")})


def planned(*steps: object, closed: bool = True, **settings: object) -> Driver:
    driver = Driver(settings)
    driver.plan(*steps, closed=closed)  # type: ignore[arg-type]
    return driver


def test_a_step_starts_the_moment_its_last_dependency_is_done() -> None:
    driver = planned(step(1), step(2), step(3, 1, 2))
    assert list(driver.working) == ["S1", "S2"]
    driver.succeed("S2")
    assert list(driver.working) == ["S1"]
    driver.succeed("S1")
    assert driver.latest == [StartAttempt(driver.state.graph.steps["S3"], 1, "worker", "first attempt")]


def test_data_flow_is_waited_for() -> None:
    driver = planned(step(1), step(2, inputs=("a1",)))
    assert list(driver.working) == ["S1"]


def test_a_run_is_done_when_its_steps_are() -> None:
    driver = planned(step(1), step(2, 1))
    driver.succeed("S1")
    driver.succeed("S2")
    assert driver.latest == [FinishRun("done")]
    assert driver.state.status == "running"
    driver.end()
    assert driver.state.status == "done"


def test_the_status_follows_the_run() -> None:
    driver = Driver({})
    assert driver.state.status == "queued"
    driver.send(RunAccepted(at=0, run="r", mode="as-planned", request="Do it."))
    driver.send(PlanningStarted(at=0, role="frontdoor", model="m"))
    assert driver.state.status == "planning"
    driver.plan(step(1), closed=False)
    assert driver.state.status == "running"


def test_the_states_of_a_step() -> None:
    driver = planned(step(1), step(2, 1), step(3, 2))
    for step_id in ("S1", "S2"):
        driver.start(step_id)
        driver.generate(step_id)
        driver.succeed(step_id)
    driver.start("S3")
    driver.fail("S3", TIMEOUT)
    assert [str(state) for state in driver.state.steps["S2"].story] == [
        "waiting",
        "ready",
        "running",
        "checking",
        "done",
    ]
    assert driver.states() == {"S1": "done", "S2": "done", "S3": "failed"}


def test_nothing_leaves_a_final_state() -> None:
    assert not [pair for pair in TRANSITIONS if pair[0] in FINAL]
    assert {to for _, to in TRANSITIONS} == set(State) - {State.WAITING}


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


@pytest.mark.parametrize("begun", [False, True])
def test_a_run_can_be_cancelled_while_its_plan_goes_on(begun: bool) -> None:
    driver = planned(step(1), closed=False, max_replans=1)
    driver.close("S1")
    driver.succeed("S1")
    if begun:
        driver.begin_rest()
        driver.plan(step(2), closed=False)
    driver.cancel()
    if begun:
        driver.stopped("S2")
    assert driver.finish == FinishRun("cancelled", "cancelled by the user")


@pytest.mark.parametrize("begun", [False, True])
def test_a_plan_goes_on_after_a_restart(begun: bool) -> None:
    driver = planned(step(1), closed=False, max_replans=1)
    driver.close("S1")
    driver.succeed("S1")
    if begun:
        driver.begin_rest()
        driver.plan(step(2), closed=False)
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
    with pytest.raises(IllegalTransition, match="S9: the plan is to go on after it, but there is no such step"):
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


def test_a_retry_carries_what_went_wrong() -> None:
    driver = planned(step(1), ladder=CHAIN)
    driver.start("S1")
    driver.fail("S1", SCHEMA)
    again = driver.attempt("S1")
    assert (again.number, again.role, again.delay_seconds) == (2, "worker", 0.0)
    assert again.failures == (Failure(SCHEMA, "S1 broke"),)
    assert again.reason == "schema: retry 1 of 3 as worker with the validator's message"


def test_an_escalation_goes_to_the_next_role() -> None:
    driver = planned(step(1), ladder=CHAIN)
    driver.fail("S1", TIMEOUT)
    again = driver.attempt("S1")
    assert (again.number, again.role) == (2, "coder")
    assert driver.state.steps["S1"].role == "coder"


def test_what_found_no_memory_waits_and_the_pause_ends_with_the_retry() -> None:
    driver = planned(step(1), ladder=CHAIN)
    driver.fail("S1", RESOURCE)
    assert driver.attempt("S1").delay_seconds == 1.0
    driver.start("S1")
    driver.crash()
    assert driver.attempt("S1").delay_seconds == 0.0


def test_a_failed_step_cancels_its_dependants_and_spares_the_others() -> None:
    driver = planned(step(1), step(2), step(3, 1), step(4, 3), step(5, 2))
    driver.fail("S1", TIMEOUT)
    driver.succeed("S2")
    driver.succeed("S5")
    assert driver.states() == {"S1": "failed", "S2": "done", "S3": "cancelled", "S4": "cancelled", "S5": "done"}
    reason = "S1 broke (timeout: this kind is not retried, and no escalation: no role stands above worker)"
    assert driver.state.steps["S1"].cause == Cause("S1", reason)
    assert driver.state.steps["S4"].cause == Cause("S1", reason), "S4 names the step where it began"
    assert driver.finish == FinishRun("failed", f"S1: {reason}")


def test_a_step_planned_behind_a_failed_one_is_cancelled() -> None:
    driver = planned(step(1), closed=False)
    driver.fail("S1", TIMEOUT)
    driver.plan(step(2, 1), step(3, 2), step(4))
    assert driver.states() == {"S1": "failed", "S2": "cancelled", "S3": "cancelled", "S4": "running"}


def test_a_chain_of_any_length_can_be_cancelled() -> None:
    driver = planned(step(1), *(step(number, number - 1) for number in range(2, 3000)))
    driver.fail("S1", TIMEOUT)
    assert len(driver.in_state(State.CANCELLED)) == 2998


def test_the_least_slack_goes_first() -> None:
    seconds = {"S1": 1.0, "S2": 1.0, "S3": 5.0, "S4": 2.0, "S5": 1.0}
    driver = Driver({"parallelism": Parallelism(max_concurrent_steps=1)}, lambda step: seconds[step.id])
    driver.plan(step(1), step(2), step(3, 2), step(4), step(5))
    order = []
    while driver.working:
        order += driver.working
        driver.succeed(next(iter(driver.working)))
    assert order == ["S2", "S3", "S4", "S1", "S5"], "the critical path, then by slack, then in document order"
    assert [driver.state.steps[step_id].slack for step_id in order] == [0.0, 0.0, 4.0, 5.0, 5.0]


def test_waiting_for_a_slot_uses_slack_up() -> None:
    # At the start S3 has 4 s of slack and S4 only 2 s, but by the time that S4 can start, S3 has 1 s left, S4 still 2.
    seconds = {"S1": 10.0, "S2": 5.0, "S3": 6.0, "S4": 3.0}
    driver = Driver({"parallelism": Parallelism(max_concurrent_workers=1)}, lambda step: seconds[step.id])
    driver.plan(step(1, actor="coder"), step(2), step(3), step(4, 2))
    slack = {step_id: driver.state.steps[step_id].slack for step_id in seconds}
    assert slack == {"S1": 0.0, "S2": 2.0, "S3": 4.0, "S4": 2.0}
    assert list(driver.working) == ["S1", "S2"], "the longest chain of the workers' goes first"
    driver.succeed("S2")
    assert list(driver.working) == ["S1", "S3"]


def test_growth_changes_who_goes_first() -> None:
    driver = planned(step(1), step(2), step(3), closed=False, parallelism=Parallelism(max_concurrent_steps=1))
    assert list(driver.working) == ["S1"]
    driver.plan(step(4, 3))
    driver.succeed("S1")
    assert list(driver.working) == ["S3"], "S4 waits for it"


def test_limits_hold_in_all_per_role_and_for_workers() -> None:
    agents = (
        Agent(tier="C", role="scout"),
        Agent(tier="B", role="coder", max_concurrency=1),
        Agent(tier="B", role="coder", max_concurrency=9),
    )
    roles = ["worker", "worker", "scout", "coder", "coder", "judge", "judge", "judge"]
    steps = [step(number, actor=role) for number, role in enumerate(roles, start=1)]
    limits = Parallelism(max_concurrent_steps=5, max_concurrent_workers=2)
    driver = planned(*steps, agents=agents, parallelism=limits)
    assert list(driver.working) == ["S1", "S2", "S4", "S6", "S7"]
    driver.succeed("S1")
    assert list(driver.working) == ["S2", "S4", "S6", "S7", "S3"]
    driver.succeed("S6")
    assert list(driver.working) == ["S2", "S4", "S7", "S3", "S8"]


def test_an_escalated_step_needs_a_slot_of_its_new_role() -> None:
    agents = (Agent(tier="B", role="coder", max_concurrency=1),)
    driver = planned(step(1), step(2, actor="coder"), step(3), agents=agents, ladder=CHAIN)
    driver.fail("S1", TIMEOUT)
    assert list(driver.working) == ["S2", "S3"]
    driver.succeed("S2")
    assert driver.attempt("S1").role == "coder"


def test_serial_mode_runs_one_step_at_a_time_in_topological_then_document_order() -> None:
    seconds = {"S1": 1.0, "S2": 1.0, "S3": 50.0, "S4": 1.0}
    driver = Driver({"mode": "serial"}, lambda step: seconds[step.id])
    driver.plan(step(1, 4), step(2, foreach="a4"), step(3), step(4))
    order = []
    while driver.working:
        assert len(driver.working) == 1
        (step_id,) = driver.working
        order.append(step_id)
        driver.succeed(step_id)
    assert order == ["S3", "S4", "S1", "S2", "S2[0]", "S2[1]", "S2"]


@pytest.mark.parametrize(("mode", "working"), [("as-planned", ["S1"]), ("discover", ["S1", "S2"])])
def test_discover_mode_drops_edges_that_carry_nothing(mode: Mode, working: list[str]) -> None:
    driver = planned(step(1), step(2, 1), step(3, inputs=("a1",)), mode=mode)
    assert list(driver.working) == working


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
    driver.fail("S2[1]", TIMEOUT)
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
    driver.fail("S2[1]", CODE)
    assert (driver.attempt("S2[1]").number, driver.attempt("S2[0]").number) == (2, 1)
    assert driver.attempt("S2[1]").item == 1


def test_a_list_that_cannot_be_read_or_joined_fails_the_step() -> None:
    driver = planned(step(1), step(2, foreach="a1"), step(3, foreach="a1"))
    driver.succeed("S1")
    driver.fail("S2", SCHEMA)
    driver.expand("S3", 0)
    driver.fail("S3", FailureKind.INFRASTRUCTURE)
    assert driver.states() == {"S1": "done", "S2": "failed", "S3": "failed"}
    assert driver.finish == FinishRun("failed", "S2: S2 broke; S3: S3 broke")


def test_a_fan_out_may_feed_the_next() -> None:
    driver = planned(step(1), step(2, foreach="a1"), step(3, foreach="a2"))
    for step_id in ("S1", "S2", "S2[0]", "S2[1]", "S2", "S3", "S3[0]", "S3[1]", "S3"):
        driver.succeed(step_id)
    assert driver.finish == FinishRun("done")


def test_cancelling_a_run_stops_what_runs_and_never_starts_the_rest() -> None:
    driver = planned(step(1), step(2, 1), closed=False)
    driver.cancel()
    assert driver.latest == [CancelAttempt("S1", 1)]
    assert driver.states() == {"S1": "running", "S2": "cancelled"}
    driver.stopped("S1")
    assert driver.latest == [FinishRun("cancelled", "cancelled by the user")]


def test_a_plan_that_still_streams_into_a_cancelled_run_is_not_started() -> None:
    driver = planned(step(1), closed=False)
    driver.cancel()
    driver.plan(step(2), closed=False)
    assert driver.states() == {"S1": "running", "S2": "cancelled"}
    driver.stopped("S1")
    driver.plan(step(3))
    assert driver.states()["S3"] == "cancelled"
    assert driver.end().status == "cancelled"


@pytest.mark.parametrize("outcome", ["success", "failure"])
def test_what_comes_too_late_to_be_cancelled_is_cancelled_all_the_same(outcome: str) -> None:
    driver = planned(step(1), step(2), step(3, 1), ladder=CHAIN)
    driver.start("S1")
    driver.cancel("S1")
    (driver.succeed if outcome == "success" else driver.fail)("S1")
    assert driver.states() == {"S1": "cancelled", "S2": "running", "S3": "cancelled"}
    driver.succeed("S2")
    assert driver.finish == FinishRun("cancelled", "S1: cancelled by the user")


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


def test_cancelling_what_has_ended_or_never_was_changes_nothing() -> None:
    driver = planned(step(1), step(2))
    driver.succeed("S1")
    driver.cancel("S1")
    driver.cancel("S77")
    assert driver.states() == {"S1": "done", "S2": "running"}


def test_a_run_without_a_plan_fails() -> None:
    driver = planned(step(1), closed=False)
    driver.send(PlanFailed(at=0, failure=Failure(FailureKind.INFRASTRUCTURE, "the frontdoor died")))
    driver.stopped("S1")
    assert driver.end().status == "failed"
    assert driver.journal[-1] == driver.end_event("failed", "no plan: the frontdoor died")


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


def test_an_attempt_lost_in_a_crash_runs_again_under_the_next_number_and_is_no_retry() -> None:
    driver = planned(step(1), step(2), ladder=Ladder({}))
    for _ in range(6):
        driver.start("S1")
        driver.crash()
    assert driver.attempt("S1").number == 7
    assert driver.attempt("S2").number == 1, "S2 was asked for and never started"
    assert driver.state.steps["S1"].reason == "run again: the orchestrator was restarted"
    driver.start("S1")
    for number in (8, 9):
        driver.fail("S1", CODE)
        assert driver.attempt("S1").number == number, "all its retries are left"


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


STARTED = AttemptStarted(at=0, step="S1", number=1, role="worker", persona=None, model="m", reason="")
GENERATED = AttemptGenerated(at=0, step="S1", number=1, usage=Usage())
SUCCEEDED = AttemptSucceeded(at=0, step="S1", number=1, outputs={})
FAILED = AttemptFailed(at=0, step="S1", number=1, failure=Failure(CODE, ""))


@pytest.mark.parametrize(
    ("before", "event"),
    [
        ([STARTED], STARTED),
        ([], GENERATED),
        ([], SUCCEEDED),
        ([], FAILED),
        ([], AttemptCancelled(at=0, step="S1", number=1)),
        ([STARTED], AttemptCancelled(at=0, step="S1", number=1)),
        ([STARTED, GENERATED], GENERATED),
        ([STARTED, SUCCEEDED], SUCCEEDED),
        ([STARTED, SUCCEEDED], STARTED),
        ([STARTED, SUCCEEDED], FAILED),
        ([STARTED, FAILED], SUCCEEDED),
        ([STARTED], AttemptSucceeded(at=0, step="S1", number=2, outputs={})),
        ([], AttemptSucceeded(at=0, step="S2", number=1, outputs={})),
        ([], AttemptSucceeded(at=0, step="S9", number=1, outputs={})),
        ([], StepExpanded(at=0, step="S1", count=1)),
        ([], StepExpanded(at=0, step="S3", count=1)),
        ([STARTED, SUCCEEDED], StepGathered(at=0, step="S3", outputs={})),
        ([STARTED, SUCCEEDED, StepExpanded(at=0, step="S3", count=1)], StepExpanded(at=0, step="S3", count=1)),
        ([STARTED, SUCCEEDED, StepExpanded(at=0, step="S3", count=1)], StepGathered(at=0, step="S3", outputs={})),
        (
            [STARTED, SUCCEEDED, StepExpanded(at=0, step="S3", count=1)],
            AttemptFailed(at=0, step="S3", number=0, failure=Failure(CODE, "")),
        ),
        ([STARTED, SUCCEEDED], AttemptSucceeded(at=0, step="S3", number=0, outputs={})),
        ([STARTED, SUCCEEDED], AttemptStarted(at=0, step="S3", number=0, role="r", persona=None, model="m", reason="")),
        ([], PlanFinished(at=0, origin="planned")),
        ([], PlanFailed(at=0, failure=Failure(CODE, ""))),
        ([], StepsPlanned(at=0, steps=(step(9),))),
    ],
)
def test_what_cannot_happen_is_refused_and_changes_nothing(before: list[object], event: object) -> None:
    driver = planned(step(1), step(2, 1), step(3, foreach="a1"))
    driver.state.handle(*before)  # type: ignore[arg-type]
    states = dict(driver.state.steps)
    with pytest.raises(IllegalTransition):
        driver.state.handle(event)  # type: ignore[arg-type]
    assert dict(driver.state.steps) == states
    assert driver.state.handle() == []


def test_an_illegal_transition_tells_the_step_s_story() -> None:
    driver = planned(step(1))
    driver.succeed("S1")
    with pytest.raises(IllegalTransition, match=r"S1: unexpected attempt_failed.*waiting → ready → running → done"):
        driver.state.handle(FAILED)


def test_a_retry_that_a_restart_lost_may_be_cancelled_before_it_starts_again() -> None:
    driver = planned(step(1))
    driver.start("S1")
    driver.crash()
    driver.cancel()
    assert driver.latest == [CancelAttempt("S1", 2)]
    driver.crash()
    driver.stopped("S1")
    assert driver.end().status == "cancelled"


def test_views_cannot_change_the_run() -> None:
    driver = planned(step(1))
    with pytest.raises(AttributeError):
        driver.state.steps["S1"].state = State.DONE  # type: ignore[misc]
    with pytest.raises(TypeError):
        driver.state.steps["S2"] = driver.state.steps["S1"]  # type: ignore[index]
