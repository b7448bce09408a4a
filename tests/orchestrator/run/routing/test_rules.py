"""Who does a step, and what is said where the registry has lost who was to do it."""

from dataclasses import replace
from typing import Any

from orchestrator.registry.models import Registry
from orchestrator.run.routing import NO_MODEL, Decision, DecisionContext, RuleRouter
from orchestrator.task.events import Failure, FailureKind, RouteCandidate
from orchestrator.task.failures import FailedAttempt
from orchestrator.task.taskir.models import Agent, Step


def step(**fields: object) -> Step:
    return Step.model_validate({"id": "S1", "actor": "worker", "action": "a", "outputs": ["o"], **fields})


async def chosen(registry: Registry, asked: Step, role: str = "worker", **fields: Any) -> Decision:
    context = DecisionContext(registry=registry, role=role, roles=(), step=asked, persona=asked.persona, **fields)
    return await RuleRouter().choose(context)


async def test_a_role_brings_its_model_and_its_persona(registry: Registry) -> None:
    found = await chosen(registry, step(), "expert")
    assert (found.role, found.persona, found.model, found.problem) == ("expert", "terse", "far", None)
    assert "escalated from worker" in found.reason


async def test_a_decision_tells_how_it_was_made(registry: Registry) -> None:
    found = await chosen(registry, step(), "expert")
    assert found.candidates == (RouteCandidate("expert", "terse", "far", 1.0),)
    assert (found.router, found.propensity) == ("rules-1", 1.0)


async def test_hints_of_the_agents_come_before_what_the_registry_says(registry: Registry) -> None:
    hint = Agent.model_validate({"tier": "C", "role": "worker", "model_hint": "near", "persona_hint": "terse"})
    found = await chosen(registry, step(), agents=(hint,))
    assert (found.model, found.persona) == ("near", "terse")
    assert found.reason.endswith("model near: hint of the task's agents; persona terse: hint of the task's agents")


async def test_the_step_s_persona_comes_before_any_other(registry: Registry) -> None:
    found = await chosen(registry, step(persona="wordy"), "expert")
    assert found.persona == "wordy"


async def test_a_retry_of_who_was_chosen_instead_of_the_actor_is_no_escalation(registry: Registry) -> None:
    failed = FailedAttempt("expert", Failure(FailureKind.CODE, "x"), asked_role="worker")
    found = await chosen(registry, step(), "expert", failures=(failed,))
    assert found.reason.startswith("role expert: chosen before in the place of worker")


async def test_a_chat_has_no_step(registry: Registry) -> None:
    found = await RuleRouter().choose(DecisionContext(registry=registry, role="worker", roles=(), objective="hello"))
    assert (found.role, found.model) == ("worker", "far")
    assert found.reason.startswith("role worker: the one that plans fall back on")


async def test_a_role_that_is_gone_leads_nowhere_and_says_so(registry: Registry) -> None:
    found = await chosen(registry, step(actor="helper"), "helper")
    assert (found.role, found.model) == ("helper", NO_MODEL)
    assert found.problem is not None
    assert found.problem.where == f"{registry.path}: roles"
    assert found.problem.what == "there is no 'helper' any more, which step S1 needs"
    assert found.problem.accepted == "helper put back and the run tried again; now there are: worker, expert"


async def test_so_does_a_persona_that_is_gone_where_the_step_names_it(registry: Registry) -> None:
    found = await chosen(registry, step(persona="loud"))
    assert found.persona == "loud"
    assert str(found.problem).startswith(f"{registry.path}: personas: there is no 'loud' any more")
    assert str(found.problem).endswith("now there are: terse, wordy")


async def test_a_hint_of_what_is_not_here_changes_nothing(registry: Registry) -> None:
    hint = Agent.model_validate({"tier": "C", "role": "expert", "model_hint": "gone", "persona_hint": "loud"})
    found = await chosen(registry, step(), "expert", agents=(hint,))
    assert (found.model, found.persona, found.problem) == ("far", "terse", None)


async def test_a_hint_may_name_a_model_by_an_alias(registry: Registry) -> None:
    models = {**registry.models, "near": replace(registry.models["near"], aliases=("gpt-4o",))}
    hint = Agent.model_validate({"tier": "C", "role": "worker", "model_hint": "gpt-4o"})
    found = await chosen(replace(registry, models=models), step(), agents=(hint,))
    assert found.model == "near"
