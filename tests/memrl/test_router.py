"""The router that learns: when it follows the memory, what it never overrides, and what it journals."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any, get_args

import numpy as np
import pytest

from orchestrator.memrl.episodes import Action, Outcome, situation_of
from orchestrator.memrl.memory import Memory
from orchestrator.memrl.policy import ExplorationSettings, Policy, PolicySettings
from orchestrator.memrl.reward import staged
from orchestrator.memrl.router import CONFIDENT, HybridRouter, Learned, Use, candidates, settle
from orchestrator.registry.memory import MemoryEstimate
from orchestrator.registry.models import Registry
from orchestrator.registry.persona import Persona
from orchestrator.run.routing import CheckedRouter, DecisionContext, by_rules
from orchestrator.task.events import Failure, FailureKind, InputSize
from orchestrator.task.failures import FailedAttempt
from orchestrator.task.lexical import DIMENSIONS, NAME, embed
from orchestrator.task.modes import Mode
from orchestrator.task.taskir.models import Agent, Step
from orchestrator.task.taskir.parse import task_from

RULED = Action("worker", "", "far")
BETTER = Action("worker", "", "near")
TEXTS = [f"Extract the fields of record {number} as JSON." for number in range(60)]


async def embedder(texts: Any) -> Any:
    return embed(texts)


@pytest.fixture
def learned(tmp_path: Path) -> Iterator[Learned]:
    settings = PolicySettings(exploration=ExplorationSettings(by_type={"": 0.1}))
    memory = Memory.open(tmp_path / "memory", NAME, DIMENSIONS)
    yield Learned(memory, Policy(DIMENSIONS, settings), embedder, Lock())
    memory.close()


def teach(learned: Learned, text: str, action: Action, success: float, number: int) -> None:
    step = Step(id="S1", actor="worker", action=text, outputs=("o",))
    situation = situation_of(role="worker", objective="", task=None, step=step)
    vector, outcome = embed([situation.text])[0], Outcome(success=success, source="checker")
    reward = staged(outcome, learned.policy.observed)
    neighbours = learned.memory.retrieve(vector, 100)
    learned.memory.observe(
        situation,
        vector,
        action,
        outcome=outcome,
        reward=reward,
        propensity=1.0,
        at=1.0,
        key=("R", action.model, number),
    )
    learned.policy.observe(situation, vector, action, outcome, neighbours=neighbours)


@pytest.fixture
def experienced(learned: Learned) -> Learned:
    """What was learned from tasks at which the rules' model fails, and the other one does not."""
    for number, text in enumerate(TEXTS):
        for action in (RULED, Action("expert", "terse", "far"), replace(RULED, persona="wordy")):
            teach(learned, text, action, 0.0, number)
        teach(learned, text, replace(RULED, persona="terse"), 0.0, number)
        teach(learned, text, BETTER, 1.0, number)
    return learned


def context(registry: Registry, **fields: Any) -> DecisionContext:
    step = Step(id="S1", actor="worker", action="Extract the fields of record 99 as JSON.", outputs=("o",))
    given = {"role": "worker", "roles": ("worker", "expert"), "step": step, "priority": "batch"}
    return DecisionContext(registry=registry, **given | fields)  # type: ignore[arg-type]


def router(learned: Learned | None, use: Use = "on", seed: int = 0) -> HybridRouter:
    return HybridRouter(lambda: learned, lambda: use, np.random.default_rng(seed))


async def test_without_experience_the_rules_choose(registry: Registry, learned: Learned) -> None:
    found = await router(learned, seed=3).choose(context(registry, priority="interactive"))
    assert (found.role, found.model, found.propensity) == ("worker", "far", 1.0)
    assert "the memory is not sure enough" in found.reason
    assert found.advice is not None
    assert not found.advice.followed
    assert found.advice.confidence < CONFIDENT


async def test_what_was_learned_is_followed_and_told(registry: Registry, experienced: Learned) -> None:
    found = await router(experienced).choose(context(registry, priority="interactive"))
    assert (found.role, found.persona, found.model, found.router) == ("worker", None, "near", "hybrid-1")
    assert found.reason.startswith("worker on near: chosen by memory, confidence ")
    assert found.reason.endswith("the rules: worker on far")
    assert {one.model for one in found.candidates} == {"far", "near"}
    advice = found.advice
    assert advice is not None
    assert advice.followed
    best = advice.estimates[0]
    assert (best.model, best.probability) == ("near", 1.0)
    assert best.voices
    assert best.worth > 0.8
    assert max(voice.q for voice in best.voices) > 0.6


async def test_in_the_shadow_the_rules_choose_and_the_advice_is_journaled(
    registry: Registry, experienced: Learned
) -> None:
    found = await router(experienced, "shadow").choose(context(registry))
    assert (found.model, found.propensity, found.router) == ("far", 1.0, "rules-1")
    assert found.advice is not None
    assert (found.advice.model, found.advice.followed) == ("near", False)
    assert "it would choose worker on near" in found.reason


@pytest.mark.parametrize("use", ["off", "on"])
async def test_off_and_a_memory_that_is_not_open_leave_it_to_the_rules(registry: Registry, use: Use) -> None:
    assert await router(None, use).choose(context(registry)) == by_rules(context(registry))


async def test_what_the_user_names_always_wins(registry: Registry, experienced: Learned) -> None:
    hint = Agent.model_validate({"tier": "C", "role": "worker", "model_hint": "far"})
    checked = CheckedRouter(router(experienced))
    assert (await checked.choose(context(registry, agents=(hint,)))).model == "far"
    assert (await checked.choose(context(registry, model="far"))).model == "far"
    assert (await checked.choose(context(registry, persona="terse"))).persona == "terse"
    assert (await checked.choose(context(registry, model="near", role="expert"))).model == "near"


async def test_a_forced_choice_says_how_probable_it_would_have_been(registry: Registry, experienced: Learned) -> None:
    for use, own in (("on", "near"), ("shadow", "far"), ("off", "far")):
        asked = router(experienced, use)  # type: ignore[arg-type]
        assert (await asked.choose(context(registry))).unforced is None, "nothing was forced"
        chances = {
            model: (await asked.choose(context(registry, model=model, priority="interactive"))).unforced
            for model in ("far", "near")
        }
        assert chances == {model: float(model == own) for model in ("far", "near")}, use
    batch = await router(experienced).choose(context(registry, model="far"))
    assert batch.unforced is not None
    assert 0 < batch.unforced < 0.1, "it would have been tried on purpose now and then"
    free = await router(experienced).choose(context(registry))
    assert free.advice is not None
    tried = next(one.probability for one in free.advice.estimates if (one.model, one.persona) == ("far", ""))
    assert batch.unforced == pytest.approx(tried)


async def test_a_persona_is_forced_by_a_task_or_a_chat_and_not_by_a_plan(
    registry: Registry, experienced: Learned
) -> None:
    step = {"id": "S1", "actor": "worker", "action": "a", "outputs": ["o"]}
    task = task_from({"objective": "x", "plan": {"steps": [step]}})
    hint = Agent.model_validate({"tier": "C", "role": "worker", "persona_hint": "terse"})
    shadow = router(experienced, "shadow")
    assert (await shadow.choose(context(registry, persona="terse"))).unforced is None
    assert (await shadow.choose(context(registry, persona="terse", task=task))).unforced == 0.0
    assert (await shadow.choose(context(registry, persona="terse", step=None))).unforced == 0.0
    assert (await shadow.choose(context(registry, agents=(hint,), task=task))).unforced == 0.0


def test_the_candidates_keep_to_the_highest_level_and_to_an_escalation(registry: Registry) -> None:
    roles = {**registry.roles, "expert": replace(registry.roles["expert"], level="B2")}
    leveled = replace(registry, roles=roles)
    step = {"id": "S1", "actor": "worker", "action": "a", "outputs": ["o"]}
    for level, expected in (("B1", {"worker"}), ("B2", {"worker", "expert"})):
        task = task_from({"objective": "x", "plan": {"steps": [step]}, "escalation": {"max_level": level}})
        asked = context(leveled, task=task)
        assert {one.role for one in candidates(asked, by_rules(asked))} == expected
    failed = FailedAttempt("worker", Failure(FailureKind.LOGIC, "x"))
    escalated = context(registry, role="expert", failures=(failed,))
    assert {one.role for one in candidates(escalated, by_rules(escalated))} == {"expert"}


def test_a_retired_persona_is_no_candidate(registry: Registry) -> None:
    made = registry.with_personas(
        [Persona("gone", "Be gone.", "", "user", retired=True), Persona("new", "Be.", "", "user")]
    )
    asked = context(made)
    names = {one.persona for one in candidates(asked, by_rules(asked))}
    assert names == {"", "terse", "wordy", "new"}


async def test_a_plan_may_be_run_in_another_mode(registry: Registry, learned: Learned) -> None:
    for number in range(60):
        for mode, success in (("planned", 0.0), ("serial", 0.0), ("discover", 1.0)):
            situation = situation_of(role="worker", objective=f"Compare {number}", task=None, step=None, plan=True)
            vector, outcome = embed([situation.text])[0], Outcome(success=success, source="person")
            learned.policy.observe(situation, vector, Action("worker", "", "far", "", mode), outcome)
    asked = DecisionContext(
        registry=registry,
        role="worker",
        roles=("worker",),
        objective="Compare 99",
        modes=("as-planned", "discover", "serial", "direct"),
    )
    found = await CheckedRouter(router(learned)).choose(asked)
    assert (found.mode, found.role) == ("discover", "worker")
    assert (await router(learned, "shadow").choose(asked)).mode == "as-planned"


async def test_a_direct_answer_is_learned_like_any_other_mode(registry: Registry, learned: Learned) -> None:
    for number in range(60):
        for mode, success in (("planned", 0.0), ("serial", 0.0), ("discover", 0.0), ("direct", 1.0)):
            situation = situation_of(role="worker", objective=f"Compare {number}", task=None, step=None, plan=True)
            vector, outcome = embed([situation.text])[0], Outcome(success=success, source="person")
            learned.policy.observe(situation, vector, Action("worker", "", "far", "", mode), outcome)
    asked = DecisionContext(
        registry=registry, role="worker", roles=("worker",), objective="Compare 99", modes=get_args(Mode)
    )
    assert (await CheckedRouter(router(learned)).choose(asked)).mode == "direct"


async def test_something_else_is_tried_while_somebody_waits_only_if_that_is_asked_for(
    registry: Registry, experienced: Learned
) -> None:
    asked = context(registry, priority="interactive")
    experienced.policy = with_exploration(experienced.policy, first=0.5, least=0.5)
    asking = HybridRouter(lambda: experienced, lambda: "on", np.random.default_rng(1), lambda: True)
    never = [await router(experienced, seed=seed).choose(asked) for seed in range(40)]
    always = [await asking.choose(asked) for _ in range(40)]
    assert {(found.model, found.persona, found.propensity) for found in never} == {("near", None, 1.0)}
    assert len({(found.role, found.model, found.persona) for found in always}) > 3
    assert all(found.propensity < 1 for found in always)


def with_exploration(policy: Policy, **options: Any) -> Policy:
    """Return a policy with what another one has learned that explores in another way."""
    settings = replace(policy.settings, exploration=ExplorationSettings(**options))
    return Policy.from_bytes(policy.to_bytes(), policy.dimensions, settings)


async def test_thompson_sampling_s_propensity_is_how_often_an_action_is_taken(
    registry: Registry, learned: Learned
) -> None:
    for number, text in enumerate(TEXTS[:3]):
        teach(learned, text, RULED, 0.0, number)
        teach(learned, text, BETTER, 1.0, number)
    step = {"id": "S1", "actor": "worker", "action": "a", "outputs": ["o"]}
    task = {"objective": "x", "task_type": "code", "plan": {"steps": [step]}}
    learned.policy = with_exploration(learned.policy, method="off", by_type={"code": "thompson"})
    one = router(learned)
    plain = [await one.choose(context(registry)) for _ in range(20)]
    assert {found.propensity for found in plain} == {1.0}, "other types are not explored"
    drawn = [await one.choose(context(registry, task=task_from(task))) for _ in range(600)]
    for model in ("near", "far"):
        own = [found for found in drawn if (found.role, found.model, found.persona) == ("worker", model, None)]
        assert len(own) / len(drawn) == pytest.approx(own[0].propensity, abs=0.05)


async def test_the_propensity_is_how_often_an_action_is_taken(registry: Registry, experienced: Learned) -> None:
    asked = context(registry)
    one = router(experienced)
    drawn = [await one.choose(asked) for _ in range(600)]
    for model, persona in (("near", None), ("far", "wordy")):
        own = [found for found in drawn if (found.role, found.model, found.persona) == ("worker", model, persona)]
        assert own
        assert len(own) / len(drawn) == pytest.approx(own[0].propensity, abs=0.05)


async def test_where_the_memory_is_unsure_the_probabilities_still_add_up(registry: Registry, learned: Learned) -> None:
    asked = context(registry)
    actions = candidates(asked, by_rules(asked))
    situation = situation_of(role="worker", objective="", task=None, step=asked.step)
    choice = learned.policy.choose(situation, embed(["x"])[0], [], actions, rng=np.random.default_rng(0), explore=True)
    settled = settle(choice, actions[0], actions, use="on")
    assert sum(settled.probabilities) == pytest.approx(1.0)
    assert max(zip(settled.probabilities, actions, strict=True), key=lambda one: one[0])[1] == actions[0]


async def test_it_leaves_what_is_bad_though_it_does_not_know_which_of_two_good_actions_is_best(
    registry: Registry, learned: Learned
) -> None:
    for number, text in enumerate(TEXTS[:40]):
        teach(learned, text, RULED, 0.0, number)
        for good in (BETTER, replace(BETTER, persona="terse"), replace(RULED, persona="wordy")):
            teach(learned, text, good, 1.0, number)
    found = await router(learned).choose(context(registry, priority="interactive"))
    assert (found.model, found.persona) != ("far", None)
    assert found.advice is not None
    assert found.advice.followed


async def test_a_switch_of_model_is_charged_what_it_loads_and_what_was_read_in_vain(
    registry: Registry, experienced: Learned
) -> None:
    async def prices(resident: frozenset[str], size: int | None) -> dict[tuple[str, str], float]:
        inputs = () if size is None else (InputSize("a.txt", size),)
        asked = context(heavy, priority="interactive", resident=resident, inputs=inputs)
        advice = (await router(experienced).choose(asked)).advice
        assert advice is not None
        return {(one.model, one.persona): one.price for one in advice.estimates if one.role == "worker"}

    near = replace(registry.models["near"], file=Path("near"), servers=(), memory=MemoryEstimate(8_000_000_000, 0, 0))
    heavy = replace(registry, models={**registry.models, "near": near})
    loaded = await prices(frozenset({"near", "far"}), None)
    cold = await prices(frozenset({"far"}), None)
    reading = await prices(frozenset({"near", "far"}), 40_000)
    assert cold["near", ""] - loaded["near", ""] == pytest.approx(0.002 * 8e9 / 5e8, abs=1e-4)
    assert reading["near", ""] - loaded["near", ""] == pytest.approx(0.01 * 10, abs=1e-4)
    assert cold["far", ""] == loaded["far", ""] == reading["far", ""]


class Broken(Memory):
    """A memory whose index is damaged."""

    def retrieve(self, *arguments: Any, **more: Any) -> Any:
        raise ValueError("the index is damaged")


async def test_a_broken_memory_leaves_it_to_the_rules_and_says_so(
    registry: Registry, learned: Learned, tmp_path: Path
) -> None:
    broken = Broken.open(tmp_path / "broken", NAME, DIMENSIONS)
    found = await CheckedRouter(router(replace(learned, memory=broken))).choose(context(registry))
    broken.close()
    assert (found.model, found.router) == ("far", "rules-1")
    assert "the memory could not be asked: ValueError('the index is damaged')" in found.reason
