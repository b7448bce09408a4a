"""Resolve the `model` of a request: a role, a persona, a model, `auto`, `orchestrate`, or an alias.

`auto` lets the router choose, and `orchestrate` is a whole run. Any other name is looked up as a role, then as a
persona (of the role that plans fall back on), then as a model of the registry or its alias; that model is then queried
directly. An unknown name may have a target in `aliases` of `[server]`.
"""

from fnmatch import fnmatchcase
from typing import Final

from orchestrator.api.errors import UnknownName
from orchestrator.errors import InputError, Problem
from orchestrator.registry.forms import EMBEDDER, RERANKER
from orchestrator.registry.models import Registry
from orchestrator.run.job import check_model
from orchestrator.run.orchestrator import Orchestrator
from orchestrator.run.steps.role import ResolvedRole, resolve_model, resolve_role
from orchestrator.service.chats import RoutedChat, route_chat
from orchestrator.service.service import Service
from orchestrator.task.lexical import NAME as LEXICAL

AUTO: Final = "auto"
ORCHESTRATE: Final = "orchestrate"


def chat_names(registry: Registry) -> list[str]:
    """Return every name that can be `model` of a chat or a response, the general ones first."""
    general = [AUTO, ORCHESTRATE] if registry.step_roles else []
    roles = [name for name in registry.roles if registry.why_not(name) is None]
    return list(dict.fromkeys([*general, *roles, *registry.personas, *sorted(registry.usable_names)]))


def all_names(registry: Registry) -> list[str]:
    """Return every name that can be `model` of some request."""
    return list(dict.fromkeys([*chat_names(registry), *embedder_names(registry)]))


def known_name(name: str, service: Service) -> str:
    """Return the target of an alias in `[server]`, else the name itself. `*` in an alias stands for any characters."""
    # An alias never replaces a name that exists.
    if name in all_names(service.orchestrator.registry):
        return name
    aliases = service.configuration.server.aliases
    matching = (target for alias, target in aliases.items() if "*" in alias and fnmatchcase(name, alias))
    return aliases.get(name) or next(matching, name)


def role_named(name: str | None, service: Service, model: str | None = None) -> ResolvedRole:
    """Return the role or the model of a name without the router, for example to count tokens.

    None, `auto`, `orchestrate` and personas stand for the role that answers whole requests, or else the first role.
    `model`, if given, replaces the role's model. Raises UnknownName.
    """
    registry = service.orchestrator.registry
    resolved = known_name(name or AUTO, service)
    if resolved in (AUTO, ORCHESTRATE) or resolved in registry.personas:
        usable = registry.answering_roles or [name for name in registry.roles if registry.why_not(name) is None]
        if usable:
            return resolve_role(registry, usable[0], resolved if resolved in registry.personas else None, model)
    if resolved in registry.roles and registry.why_not(resolved) is None:
        return resolve_role(registry, resolved, registry.roles[resolved].persona, model)
    if resolved in registry.usable_names and (named := registry.model_named(resolved)) is not None:
        return resolve_model(registry, model or named)
    raise UnknownName(f"there is no model {resolved!r}; accepted: {', '.join(all_names(registry))}")


async def resolve_name(
    name: str,
    objective: str,
    orchestrator: Orchestrator,
    response_id: str,
    forced: str | None = None,
    owner: str = "",
) -> tuple[ResolvedRole, RoutedChat | None]:
    """Return the role or the model of a name other than `orchestrate`, and the router's choice if it made one.

    The router decides by `objective`. Its choice has the id of the response, and the chat belongs to `owner`. A
    `forced` model answers whatever `name` is. Raises UnknownName, and InputError for a model that cannot be forced.
    """
    registry = orchestrator.registry
    if forced is not None:
        check_model(registry, forced)
        forced = registry.model_named(forced)
    if name == AUTO and registry.step_roles:
        return await _routed(None, objective, orchestrator, response_id, forced, owner)
    if name in registry.roles and registry.why_not(name) is None:
        return resolve_role(registry, name, registry.roles[name].persona, forced), None
    if name in registry.personas and registry.step_roles:
        return await _routed(name, objective, orchestrator, response_id, forced, owner)
    if name in registry.usable_names and (model := registry.model_named(name)) is not None:
        return resolve_model(registry, forced or model), None
    raise UnknownName(f"there is no model {name!r}; accepted: {', '.join(chat_names(registry))}")


async def _routed(
    persona: str | None, objective: str, orchestrator: Orchestrator, response_id: str, forced: str | None, owner: str
) -> tuple[ResolvedRole, RoutedChat]:
    chat = await route_chat(orchestrator, response_id, objective, persona, forced, owner)
    decision = chat.decision
    if decision.problem is not None:
        raise UnknownName(str(decision.problem))
    registry = orchestrator.registry
    return resolve_role(registry, decision.role, decision.persona, decision.model, thinking=decision.thinking), chat


def embedder_names(registry: Registry) -> list[str]:
    return [LEXICAL, EMBEDDER] if EMBEDDER not in registry.roles or _unusable_reason(registry) is None else [LEXICAL]


def find_embedder(name: str, registry: Registry) -> str | None:
    """Return the model id of an embedder; None for the lexical embedder.

    Accepts `lexical`, the role and the id of its model. Raises UnknownName for other names, and InputError for an
    embedder that cannot be used.
    """
    if name == LEXICAL or (name == EMBEDDER and EMBEDDER not in registry.roles):
        return None
    if name not in (EMBEDDER, _model_of(EMBEDDER, registry)):
        raise UnknownName(f"there is no embedder {name!r}; accepted: {', '.join(embedder_names(registry))}")
    model = registry.roles[EMBEDDER].model
    if (reason := _unusable_reason(registry)) is not None:
        raise InputError(
            Problem("model", f"role {EMBEDDER} is of model {model}, which cannot embed: {reason}", LEXICAL)
        )
    return model


def default_reranker(registry: Registry) -> str:
    """Return what orders documents if a request has no `model`."""
    return RERANKER if RERANKER in registry.roles else EMBEDDER


def is_reranker(name: str, registry: Registry) -> bool:
    return name in (RERANKER, _model_of(RERANKER, registry))


def _model_of(role: str, registry: Registry) -> str | None:
    return registry.roles[role].model if role in registry.roles else None


def find_reranker(registry: Registry) -> str:
    """Return the id of the model that ranks. Raises UnknownName, and InputError if it cannot be used."""
    if RERANKER not in registry.roles:
        accepted = ", ".join(embedder_names(registry))
        raise UnknownName(f"the registry has no role {RERANKER!r}; accepted: {accepted}")
    model = registry.roles[RERANKER].model
    if (reason := _unusable_reason(registry, RERANKER)) is not None:
        problem = f"role {RERANKER} is of model {model}, which cannot rank: {reason}"
        raise InputError(Problem("model", problem, ", ".join(embedder_names(registry))))
    return model


def _unusable_reason(registry: Registry, role: str = EMBEDDER) -> str | None:
    if registry.models[registry.roles[role].model].is_remote:
        return "another server runs it, and only models that are loaded here embed and rank"
    return registry.why_not(role)
