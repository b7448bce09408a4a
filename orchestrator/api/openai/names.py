"""Say what a model's name stands for.

`auto` is routed like a step; `orchestrate` is a whole run; else a role, else a persona of the role that `auto` falls
to, else a model of the registry. A role is asked as its steps are, in their layout; a model is asked as it is.
"""

from dataclasses import dataclass
from typing import Final

from orchestrator.api.errors import NotFound
from orchestrator.runs import Orchestrator
from registry.models import Registry

AUTO: Final = "auto"
ORCHESTRATE: Final = "orchestrate"


class UnknownName(NotFound):
    """No model goes by this name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Who answers, and how: `laid_out` as steps are. `reason` says why it is them."""

    name: str
    model: str
    system: str = ""
    persona: str = ""
    laid_out: bool = False
    temperature: float = 0.0
    top_p: float = 1.0
    max_tokens: int | None = None
    reason: str = ""


def known_names(registry: Registry) -> list[str]:
    """Return every name that can be asked, the general ones first."""
    roles = registry.step_roles
    general = [AUTO, ORCHESTRATE] if roles else []
    return list(dict.fromkeys([*general, *_usable(registry), *registry.personas, *sorted(registry.usable_models)]))


async def find_target(name: str, said: str, orchestrator: Orchestrator) -> Target:
    """Return who is asked under a name; `orchestrate` has no target. Raises UnknownName.

    Where the router chooses, what the user `said` last is what it can go by.
    """
    registry = orchestrator.registry
    if name == AUTO and registry.step_roles:
        return await _routed(name, None, said, orchestrator)
    if name in registry.roles and registry.why_not(name) is None:
        return _role(name, name, registry.roles[name].persona, None, f"role {name}", registry)
    if name in registry.personas and registry.step_roles:
        return await _routed(name, name, said, orchestrator)
    if name in registry.usable_models:
        return Target(name=name, model=name, reason=f"model {name}")
    raise UnknownName(f"there is no model {name!r}; accepted: {', '.join(known_names(registry))}")


def _usable(registry: Registry) -> list[str]:
    return [name for name in registry.roles if registry.why_not(name) is None]


async def _routed(name: str, persona: str | None, said: str, orchestrator: Orchestrator) -> Target:
    """Let the router choose in the place of the role that plans fall back on. Raises UnknownName."""
    registry = orchestrator.registry
    roles = registry.step_roles
    role = next((role for role in roles if registry.roles[role].tier == "C"), roles[0])
    chosen = await orchestrator.choose(role, said, persona)
    if chosen.problem is not None:
        raise UnknownName(str(chosen.problem))
    return _role(name, chosen.role, chosen.persona, chosen.model, chosen.reason, registry)


def _role(name: str, role: str, persona: str | None, model: str | None, reason: str, registry: Registry) -> Target:
    entry = registry.roles[role]
    return Target(
        name=name,
        model=model or entry.model,
        system=entry.system,
        persona=registry.personas[persona].text if persona else "",
        laid_out=True,
        temperature=entry.temperature,
        top_p=entry.top_p,
        max_tokens=entry.max_tokens,
        reason=reason,
    )
