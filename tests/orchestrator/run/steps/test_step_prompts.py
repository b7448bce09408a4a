from dataclasses import replace
from types import MappingProxyType

from orchestrator.engine.contract import SystemPrompt
from orchestrator.registry.persona import Persona
from orchestrator.run.steps.role import StepInput, step_messages, system_messages
from tests.orchestrator.run_jobs import REGISTRY


def test_prompts_begin_with_what_is_said_here() -> None:
    persona = Persona("sailor", "Speak like a sailor.", "")
    registry = replace(REGISTRY, personas=MappingProxyType({"sailor": persona}))
    worker = registry.roles["worker"]
    messages = system_messages(registry, worker.model)
    for text in ("", persona.text):
        said = step_messages(worker.system, text, [StepInput("a", "b")], "do it")[0].content
        assert SystemPrompt(said, worker.lora) in messages
    frontdoor = registry.roles["frontdoor"]
    assert [prompt for prompt in messages if prompt.ahead] == [SystemPrompt(frontdoor.system, frontdoor.lora, True)]
    assert len(set(messages)) == len(messages)
    systems = {role.system for role in registry.roles.values() if role.model == worker.model}
    assert len(messages) == 2 * len(systems - {""})


def test_a_model_without_roles_has_none() -> None:
    assert system_messages(REGISTRY, "nobody") == ()
