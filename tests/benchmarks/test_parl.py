"""The figures of the frontdoor's training, and what the page says of them."""

from typing import Any

import pytest

from benchmarks import page
from benchmarks.parl.arms import ARMS, CONTROLS, SUPERVISED, widest
from benchmarks.parl.figures import estimate, goals, row, rows_of
from orchestrator.memrl.parl.compare import HeldOutRun
from orchestrator.memrl.parl.harness import GreedyPolicy
from orchestrator.memrl.parl.requests import make_request
from orchestrator.memrl.parl.reward import MeasuredPlan
from orchestrator.run.frontdoor.builder import PlanBuilder
from orchestrator.run.frontdoor.compact import PlanStream

BEST = MeasuredPlan(score=1.0, seconds=10.0, serial_seconds=30.0, critical_steps=2, width=4, steps=5, used=5)
NARROW = MeasuredPlan(score=1.0, seconds=20.0, serial_seconds=20.0, critical_steps=1, width=1, steps=1, used=1)


def runs(result: MeasuredPlan, count: int = 6) -> list[HeldOutRun]:
    return [
        HeldOutRun(request=f"r{number}", family="mixed", machine=machine, result=result, best=BEST)
        for number in range(count)
        for machine in ("2 cores", "96 cores")
    ]


def test_figures_of_narrow_plans_show_the_collapse() -> None:
    found = row("narrow", [runs(NARROW), runs(NARROW)])
    assert found["collapse"] == {"value": 1.0, "low": 1.0, "high": 1.0}
    assert (found["success"]["value"], found["regret"]["value"], found["width"]["value"]) == (1.0, 1.0, 1.0)
    assert found["by_machine"]["2 cores"]["seconds"] == 20.0


def test_an_interval_has_seeds_and_requests_in_it() -> None:
    mixed = [[*runs(BEST, 3), *runs(NARROW, 3)], runs(BEST)]
    found = estimate(mixed, lambda run: run.result.seconds, lambda run: True)
    assert found["value"] is not None
    assert found["low"] is not None
    assert found["high"] is not None
    assert found["low"] < found["value"] < found["high"]
    assert estimate(mixed, lambda run: 1.0, lambda run: False)["value"] is None


def test_the_widest_plan_has_a_step_for_each_file() -> None:
    request = make_request("traps", 6, "widest")
    builder, stream = PlanBuilder([*request.files], ("worker",), request=request.text), PlanStream()
    for part in stream.feed(widest(request)):
        builder.add(part)
    assert len(builder.steps) == 7


def test_goals_and_the_page_follow_from_the_rows() -> None:
    arms: Any = {arm: [runs(NARROW if arm == SUPERVISED else BEST)] * 3 for arm in (SUPERVISED, *ARMS)}
    rows = rows_of({name: runs(NARROW) for name in CONTROLS}, arms)
    assert rows["best plan"]["regret"]["value"] == 0
    found = {"rows": [*rows.values()], "goals": goals(rows, arms, hours=1.0)}
    met = {goal["name"]: goal["met"] for goal in found["goals"] if "met" in goal}
    assert met["collapse rate without the parallel reward"]
    assert met["critical path on many cores as a share of one agent's"]
    assert page.SUBJECTS["parl"].headline is not None
    assert page.SUBJECTS["parl"].headline(found).startswith("Trained: 100% right")
    rows["discover"] = row("discover", [runs(BEST)])
    assert page.SUBJECTS["parl"].headline({"rows": [*rows.values()]}).startswith("Splitting by rules (discover)")
    assert len([*page.parl_table(found)]) == 2 + len(rows)


@pytest.mark.parametrize("name", CONTROLS)
def test_controls_say_who_plans(name: str) -> None:
    shipped = GreedyPolicy.__new__(GreedyPolicy)  # asked for nothing
    contestant = CONTROLS[name](shipped)
    assert contestant.policy(make_request("mixed", 3, "control")) is not None
    assert contestant.mode in ("as-planned", "direct", "discover")
