"""Which step goes first, and how many run at once."""

import pytest

from orchestrator.task.events import FailureKind
from orchestrator.task.modes import Mode
from orchestrator.task.taskir.models import Agent, Parallelism
from tests.orchestrator.scheduler_driver import CHAIN, Driver, planned, step


def test_the_least_slack_goes_first() -> None:
    seconds = {"S1": 1.0, "S2": 1.0, "S3": 5.0, "S4": 2.0, "S5": 1.0}
    driver = Driver({"parallelism": Parallelism(max_concurrent_steps=1)}, lambda step: seconds[step.id])
    driver.plan(step(1), step(2), step(3, 2), step(4), step(5))
    order: list[str] = []
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
    driver = planned(step(1), step(2, actor="coder"), step(3), agents=agents, escalation=CHAIN)
    driver.fail("S1", FailureKind.TIMEOUT)
    assert list(driver.working) == ["S2", "S3"]
    driver.succeed("S2")
    assert driver.attempt("S1").role == "coder"


def test_serial_mode_runs_one_step_at_a_time_in_topological_then_document_order() -> None:
    seconds = {"S1": 1.0, "S2": 1.0, "S3": 50.0, "S4": 1.0}
    driver = Driver({"mode": "serial"}, lambda step: seconds[step.id])
    driver.plan(step(1, 4), step(2, foreach="a4"), step(3), step(4))
    order: list[str] = []
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
