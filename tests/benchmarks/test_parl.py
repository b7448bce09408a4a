"""The figures of the frontdoor's training, and what the page says of them."""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import page, results
from benchmarks.parl.agents import RepeatedAgent, together, used_by
from benchmarks.parl.arms import ARMS, CONTROLS, SHIPPED, SUPERVISED, WINNER, a_step_each, widest
from benchmarks.parl.figures import REMOVAL, estimate, gain_over, goals, removal_goal, row, rows_of, time_share
from benchmarks.parl.memory_modes import CHOICES, by_memory
from benchmarks.parl.publish import CARD, NAME, best_seed, card, publish, with_card
from benchmarks.parl.scale import greatest_harmless
from orchestrator.memrl.parl.compare import HeldOutRun
from orchestrator.memrl.parl.harness import GreedyPolicy, Rollout
from orchestrator.memrl.parl.machines import assumed_machine
from orchestrator.memrl.parl.requests import make_request
from orchestrator.memrl.parl.reward import MeasuredPlan
from orchestrator.memrl.parl.weights import write_adapter
from orchestrator.registry.load import load_registry
from orchestrator.run.frontdoor.builder import PlanBuilder
from orchestrator.run.frontdoor.compact import PlanStream
from tests.memrl.parl.adapters import TINY, some_weights

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
    controls = {name: runs(NARROW) for name in CONTROLS}
    rows = rows_of(controls, arms)
    assert rows["best plan"]["regret"]["value"] == 0
    gains = {name: gain_over(runs(NARROW), arms["seconds"]) for name in CONTROLS}
    results: Any = {"rows": [*rows.values()], "gains": gains, "goals": goals(rows, arms, controls, hours=1.0)}
    met = {goal["name"]: goal["met"] for goal in results["goals"] if "met" in goal}
    assert met["collapse rate without the parallel reward"]
    assert any(met[name] for name in met if name.startswith("wide requests on 96 cores"))
    assert page.SUBJECTS["parl"].headline is not None
    assert page.SUBJECTS["parl"].headline(results).startswith("Trained: 100% right")
    as_good = {**results, "gains": {**gains, "discover": gain_over(runs(BEST), arms["seconds"])}}
    assert page.SUBJECTS["parl"].headline(as_good).startswith("Splitting by rules (discover) is as good")
    lines = [*page.parl_table(results)]
    assert lines[-2:] == ["", "Not measured: critical paths by the clock of two real cores."]
    assert "| 2 cores | 1.00 | 0.00 | 0.00 | 0.00 | 4.00 | 10.0 | 4.00 |" in lines
    assert any("seconds 1.000. The arm that ships" in line for line in lines)


@pytest.mark.parametrize("name", CONTROLS)
def test_controls_say_who_plans(name: str) -> None:
    shipped = GreedyPolicy.__new__(GreedyPolicy)  # asked for nothing
    contestant = CONTROLS[name](shipped)
    assert contestant.policy(make_request("mixed", 3, "control")) is not None
    assert contestant.mode in ("as-planned", "direct", "discover")


def test_times_are_compared_where_both_are_right() -> None:
    slow = runs(replace(NARROW, seconds=40.0), 3)
    wrong = [replace(run, result=replace(run.result, score=0.0)) for run in runs(NARROW, 3)]
    assert time_share(slow, [runs(BEST, 3)], "2 cores") == {"value": 0.25, "low": 0.25, "high": 0.25}
    assert time_share(wrong, [runs(BEST, 3)], "2 cores")["value"] is None


def test_a_goal_is_open_if_only_its_interval_reaches_it() -> None:
    mixed = [*runs(BEST, 17), *(replace(run, request="narrow") for run in runs(NARROW, 1))]
    controls = {name: runs(NARROW, 18) for name in CONTROLS}
    arms: Any = dict.fromkeys((SUPERVISED, *ARMS), [mixed] * 3)
    rows = rows_of(controls, arms)
    written = results.with_states([*goals(rows, arms, controls, hours=1.0), removal_goal(rows[WINNER])])
    by_name = {goal["name"]: goal for goal in written}
    collapse = by_name["collapse rate"]
    assert 0.05 < collapse["value"] < collapse["interval"][1]
    assert (collapse["interval"][0] <= 0.05, collapse["state"]) == (True, "open")
    removed = by_name[REMOVAL]
    assert (removed["value"], removed["state"]) == (None, "not measured")
    assert all("interval" in goal for goal in written if goal["value"] is not None and "hours" not in goal["name"])


def test_a_rule_does_what_a_request_says_with_each_file() -> None:
    request = make_request("gathered", 3, "rule")
    (part,) = PlanStream().feed(a_step_each(request))
    assert part.each == tuple(request.files)
    assert part.action.split(" ", 1)[1] == "the records in {each}."
    (single,) = PlanStream().feed(a_step_each(make_request("chained", 3, "rule")))
    assert not single.each


class Agents:
    """A harness in which one agent answers as it is told."""

    def __init__(self, answers: str) -> None:
        self._answers = answers

    def run(self, *given: object, attempt: int, **options: object) -> Rollout:
        answer = self._answers[attempt]
        return Rollout(replace(NARROW, score=float(answer == "r"), seconds=4.0, tokens=100), (), (answer,))


def repeated(answers: str, budget: Any, **allowed: Any) -> MeasuredPlan:
    request, machine = make_request("mixed", 2, "agent"), assumed_machine(2, ["large"])
    used = {(request.name, machine.name): replace(BEST, **allowed)}
    harness: Any = Agents(answers)
    return RepeatedAgent(used, budget).run(harness, request, machine)


def test_one_agent_tries_again_until_its_budget_is_used() -> None:
    tries = repeated("wrrw", "tokens", tokens=350)
    assert (tries.score, tries.tokens, tries.seconds) == (1.0, 300, 12.0), "the answer that two of three tries gave"
    assert repeated("wr", "tokens", tokens=50).tokens == 100, "it may answer once, whatever that takes"
    assert repeated("rww", "seconds", seconds=9.0).score == 1.0, "the earlier of two different answers"
    assert repeated("r", "seconds", seconds=3.0).score == 0.0, "an answer that is late is none"
    assert together([Rollout(NARROW, (), ("a",))]).seconds == NARROW.seconds


def test_what_plans_have_used_is_by_request_and_machine() -> None:
    assert used_by(runs(BEST, 1)) == {("r0", "2 cores"): BEST, ("r0", "96 cores"): BEST}


def test_the_memory_chooses_the_mode_that_was_right() -> None:
    wrong, texts = replace(BEST, score=0.0), {f"r{number}": "Summarize a.txt and b.txt." for number in range(30)}
    lessons = {name: runs(BEST if name == CHOICES["discover"] else wrong, 30) for name in CHOICES.values()}
    chosen = by_memory(lessons, lessons, texts)
    assert len(chosen) == 60
    assert all(run.result.right for run in chosen)


@pytest.fixture(scope="module")
def measured() -> Mapping[str, Any]:
    """Results in which all arms are better than all controls."""
    arms: Any = {arm: [runs(BEST)] * 3 for arm in (SUPERVISED, *ARMS)}
    controls = {name: runs(NARROW) for name in CONTROLS}
    gains = {name: gain_over(control, arms["seconds"]) for name, control in controls.items()}
    shipped = {
        "seed": 2,
        "scale": 0.6,
        "plans": {"0.0": {"entity": 0.9}, "1.0": {"entity": 0.5}, "0.6": {"entity": 0.895}},
        "row": row("seconds-2 at 0.6", [runs(BEST)]),
        "gain": gains[SHIPPED],
    }
    rows = [*rows_of(controls, arms).values()]
    return {"rows": rows, "gains": gains, "hours": 0.2, "requests": 6, "shipped": shipped}


def test_an_adapter_acts_as_strongly_as_it_spoils_no_other_plans() -> None:
    without = {"entity": 0.99, "wording": 0.975}
    spoiling, harmless = {"entity": 0.985, "wording": 0.95}, {"entity": 0.98, "wording": 0.98}
    assert greatest_harmless({0.0: without, 1.0: spoiling, 0.6: harmless, 0.4: without}) == 0.6
    assert greatest_harmless({0.0: without, 1.0: without, 0.6: harmless}) == 1.0
    assert greatest_harmless({0.0: without, 1.0: spoiling}) is None


def with_gain(results: Mapping[str, Any], control: str, gain: Mapping[str, float]) -> dict[str, Any]:
    return {**results, "gains": {**results["gains"], control: gain}}


def test_the_card_has_the_figures_and_takes_the_place_of_an_earlier_one(measured: Mapping[str, Any]) -> None:
    text = card(measured)
    assert "| with it | 100% (100% to 100%) | 0% (0% to 0%) |" in text
    assert "90.0% are right without it, 89.5% at this scale, and 50.0% at 1.0" in text
    assert "Splitting by rules" not in text
    page_text = with_card("# Adapters\n\n### other.gguf\nIts card.\n", text)
    assert page_text.index("tiny-large") < page_text.index("### other.gguf")
    assert with_card(page_text, text) == page_text
    as_good = with_gain(measured, "each", gain_over(runs(BEST), [runs(BEST)] * 3))
    assert "Splitting by rules (each) is as good" in card(as_good)
    assert best_seed({0: [9.0] * 5 + [0.1] * 10, 1: [0.2] * 12}) == 1


def test_an_adapter_that_is_better_for_certain_ships_with_its_card_and_the_registry(
    measured: Mapping[str, Any], tmp_path: Path
) -> None:
    registry, adapters = tmp_path / "model_registry.yaml", tmp_path / "registry" / "adapters"
    adapters.mkdir(parents=True)
    (tmp_path / "registry" / "tiny").symlink_to(TINY)
    shutil.copy(TINY.parents[1] / "model_registry.yaml", registry)
    (adapters / CARD).write_text("# Adapters\n\n### other.gguf\nIts card.\n")
    before = registry.read_bytes(), (adapters / CARD).read_bytes()
    adapter = write_adapter(some_weights(0.1), TINY / "large.gguf", tmp_path / "a.gguf", alpha=16)
    uncertain = {**measured["shipped"], "gain": {**measured["shipped"]["gain"], "low": -0.01}}
    assert not publish(adapter, {**measured, "shipped": uncertain}, registry)
    assert (registry.read_bytes(), (adapters / CARD).read_bytes()) == before
    assert publish(adapter, measured, registry)
    frontdoor = load_registry(registry).roles["frontdoor"]
    assert [(Path(each.file).name, frontdoor.plans_by_cores) for each in frontdoor.lora] == [(NAME, True)]
    assert (adapters / NAME).read_bytes() == adapter.read_bytes()
    assert [each.scale for each in frontdoor.lora] == [0.6]
    assert card(measured) in (adapters / CARD).read_text()
    after = registry.read_bytes(), (adapters / CARD).read_bytes()
    assert publish(adapter, measured, registry)
    assert (registry.read_bytes(), (adapters / CARD).read_bytes()) == after, "it takes the place of the earlier one"
