"""Plans that give way to a direct answer, and plans that do not."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.run.frontdoor.direct import CLEARLY_FASTER, DirectAnswer, PlanTrial, gains
from orchestrator.run.planning import PlannedPart
from orchestrator.task.prediction import PredictedPath
from orchestrator.task.taskir.models import Step

FILES = ("a.txt", "b.txt")
DIRECT = DirectAnswer(request="do it", role="worker", model="m", inputs=FILES, outputs=("x.md", "y.md"), files=FILES)


def step(number: int, *reads: str, output: str = "", **more: Any) -> Step:
    given: dict[str, Any] = {"inputs": reads} if reads else {}
    return Step(id=f"S{number}", actor="worker", action="go", outputs=(output or f"o{number}",), **given, **more)


def a_second_each(steps: Sequence[Step]) -> PredictedPath:
    return PredictedPath(float(len(steps)))


CHAIN = (step(1, "a.txt"), step(2, "o1"), step(3, "o2"))


@pytest.mark.parametrize(
    ("steps", "gain"),
    [
        (CHAIN, ""),
        (CHAIN[:1], ""),
        ((step(1, "a.txt"), step(2, "b.txt")), "2 of its steps can run at a time"),
        ((step(1), step(2, "o1", foreach="o1")), "it runs over a list"),
        (
            (step(1, output="x.md"), step(2, "x.md", output="y.md")),
            "its steps write several of the files that are asked for",
        ),
        ((step(1, gates=("lint",)), step(2, "o1")), "gates check what it writes"),
        ((step(1, persona="poet"),), "it has a persona"),
    ],
)
def test_what_a_plan_gains(steps: Sequence[Step], gain: str) -> None:
    assert gains(steps, DIRECT) == gain


def test_parts_are_held_back_until_the_plan_promises_more() -> None:
    accepted = list[PlannedPart]()
    trial = PlanTrial(DIRECT, a_second_each, accepted.append)
    parts = [PlannedPart((one,)) for one in (step(1, "a.txt"), step(2, "b.txt"), step(3, "o1", "o2"))]
    trial(parts[0])
    assert accepted == []
    trial(parts[1])
    assert accepted == parts[:2]
    trial(parts[2])
    assert accepted == parts, "and from then on they are handed on when they come"
    assert trial.why_direct() == ""


def test_parts_of_a_frontdoor_that_often_errs_wait_for_the_whole_plan() -> None:
    accepted = list[PlannedPart]()
    trial = PlanTrial(DIRECT, a_second_each, accepted.append, early=False)
    for part in (parts := [PlannedPart((one,)) for one in (step(1, "a.txt"), step(2, "b.txt"))]):
        trial(part)
    assert (accepted, trial.why_direct()) == ([], "")
    trial.keep()
    assert accepted == parts


def test_a_plan_of_one_step_or_of_one_at_a_time_gives_way() -> None:
    trial = PlanTrial(DIRECT, lambda steps: PredictedPath(2.0 * len(steps)), lambda part: None)
    trial(PlannedPart(CHAIN[:1]))
    assert trial.why_direct() == "the plan has only one step"
    trial(PlannedPart(CHAIN[1:]))
    assert trial.why_direct() == (
        "the plan's 3 steps wait for each other and only pass texts on: it was predicted to take 6.0 s, and a direct "
        "answer 2.0 s"
    )
    assert (trial.forecast().direct_seconds, trial.forecast().plan_seconds) == (2.0, 6.0)


def test_a_comparison_says_which_times_are_assumed() -> None:
    trial = PlanTrial(DIRECT, lambda steps: PredictedPath(3.0, assumed=len(steps) == 1), lambda part: None)
    trial(PlannedPart(CHAIN))
    assert trial.why_direct().endswith("take 3.0 s, and a direct answer 3.0 s (assumed, no data)")
    forecast = trial.forecast()
    assert (forecast.direct_assumed, forecast.plan_assumed) == (True, False)


@given(st.floats(0.01, 100), st.floats(0.01, 100))
def test_a_chain_stays_only_if_it_is_clearly_faster(plan: float, direct: float) -> None:
    trial = PlanTrial(DIRECT, lambda steps: PredictedPath(plan if len(steps) > 1 else direct), lambda part: None)
    trial(PlannedPart(CHAIN))
    assert bool(trial.why_direct()) == (plan > CLEARLY_FASTER * direct)


def test_parts_that_are_held_back_can_be_dropped() -> None:
    accepted = list[PlannedPart]()
    trial = PlanTrial(DIRECT, a_second_each, accepted.append, early=False)
    trial(PlannedPart(CHAIN[:1]))
    assert trial.drop()
    trial(PlannedPart(CHAIN))
    trial.keep()
    assert accepted == [PlannedPart(CHAIN)]
    assert not trial.drop(), "they were handed on"


@st.composite
def plans(draw: st.DrawFn) -> list[PlannedPart]:
    parts = list[PlannedPart]()
    for number in range(1, draw(st.integers(1, 6)) + 1):
        earlier = [f"o{before}" for before in range(1, number)]
        reads = draw(st.lists(st.sampled_from([*FILES, *earlier]), max_size=3, unique=True))
        parts.append(PlannedPart((step(number, *reads),)))
    return parts


@given(plans())
def test_parts_are_handed_on_all_and_in_order_or_not_at_all(parts: list[PlannedPart]) -> None:
    accepted = list[PlannedPart]()
    trial = PlanTrial(DIRECT, a_second_each, accepted.append)
    for part in parts:
        trial(part)
    assert accepted in ([], parts)
    assert trial.kept == bool(accepted) == bool(gains([s for part in parts for s in part.steps], DIRECT))
    trial.keep()
    assert accepted == parts
