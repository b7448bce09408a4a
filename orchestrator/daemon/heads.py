"""Say which system messages the prompts for a model begin with. Pure."""

from orchestrator.steps.prompt import step_messages
from registry import Registry


def system_messages(registry: Registry, model: str) -> tuple[str, ...]:
    """Return those of all roles that the model plays, without a persona and with each."""
    systems = [role.system for role in registry.roles.values() if role.model == model and role.system]
    personas = ["", *(persona.text for persona in registry.personas.values())]
    return tuple(dict.fromkeys(step_messages(one, text, (), "")[0].content for one in systems for text in personas))
