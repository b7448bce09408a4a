"""Who does a step, and what is said where the registry has lost who was to do it."""

import json
from pathlib import Path

import pytest

from orchestrator.routing import NO_MODEL, Route, route
from orchestrator.taskir import Agent, Step
from registry import Registry, load_registry


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    """A registry with the roles worker and expert, and the persona terse."""
    path = tmp_path / "registry.yaml"
    model = {"backend": "openai", "base_url": "http://127.0.0.1:1/v1", "model": "m"}
    roles = {"worker": {"model": "far", "tier": "C"}, "expert": {"model": "far", "tier": "B", "persona": "terse"}}
    path.write_text(json.dumps({"models": {"far": model}, "roles": roles, "personas": "personas.yaml"}))
    (tmp_path / "personas.yaml").write_text(json.dumps({"personas": {"terse": {"text": "Be brief."}}}))
    return load_registry(path)


def step(**fields: object) -> Step:
    return Step.model_validate({"id": "S1", "actor": "worker", "action": "a", "outputs": ["o"], **fields})


def chosen(registry: Registry, asked: Step, role: str = "worker", *agents: Agent) -> Route:
    return route(asked, role, agents, registry)


def test_a_role_brings_its_model_and_its_persona(registry: Registry) -> None:
    found = chosen(registry, step(), "expert")
    assert (found.role, found.persona, found.model, found.problem) == ("expert", "terse", "far", None)
    assert "escalated from worker" in found.reason


def test_a_role_that_is_gone_leads_nowhere_and_says_so(registry: Registry) -> None:
    found = chosen(registry, step(actor="helper"), "helper")
    assert (found.role, found.model) == ("helper", NO_MODEL)
    assert found.problem is not None
    assert found.problem.where == f"{registry.path}: roles"
    assert found.problem.what == "there is no 'helper' any more, which step S1 needs"
    assert found.problem.accepted == "helper put back and the run tried again; now there are: worker, expert"


def test_so_does_a_persona_that_is_gone_whoever_named_it(registry: Registry) -> None:
    hinted = Agent.model_validate({"tier": "C", "role": "worker", "persona_hint": "wordy"})
    for found in (chosen(registry, step(persona="wordy")), chosen(registry, step(), "worker", hinted)):
        assert found.persona == "wordy"
        assert str(found.problem).startswith(f"{registry.path}: personas: there is no 'wordy' any more")
        assert str(found.problem).endswith("now there are: terse")
