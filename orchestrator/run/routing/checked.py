"""Check a router's choice. If it fails, or its choice cannot be carried out, the rules choose instead."""

from dataclasses import replace

import structlog

from orchestrator.run.routing.contract import Decision, DecisionContext, Router, RouterUnavailable
from orchestrator.run.routing.rules import by_rules

log = structlog.get_logger(__name__)


class CheckedRouter:
    """Each of its choices can be carried out, or has a `problem` that says why not."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def choose(self, context: DecisionContext) -> Decision:
        try:
            decision = await self._router.choose(context)
        except RouterUnavailable as error:
            log.warning("the router cannot choose; the rules choose instead", error=repr(error.__cause__))
            return fall_back_to_rules(context, str(error))
        except Exception as error:
            log.exception("the router broke down; the rules choose instead")
            return fall_back_to_rules(context, f"the router broke down: {error!r}")
        if decision.problem is None and (why := _why_not(decision, context)):
            log.warning("the router made a choice that cannot be carried out; the rules choose instead", why=why)
            return fall_back_to_rules(context, why)
        return decision


def fall_back_to_rules(context: DecisionContext, why: str) -> Decision:
    """Return what the rules choose, and `why` they do in place of a router."""
    decision = by_rules(context)
    return replace(decision, reason=f"{decision.reason} ({why})")


def _why_not(decision: Decision, context: DecisionContext) -> str:
    # Empty if the choice can be carried out.
    registry = context.registry
    if decision.role not in context.roles and decision.role != context.role:
        return f"the router chose the role {decision.role!r}; accepted: {', '.join(context.roles)}"
    if decision.role not in registry.roles:
        return f"the router chose the role {decision.role!r}, which does not exist"
    if decision.model not in registry.models:
        return f"the router chose the model {decision.model!r}; accepted: {', '.join(registry.models)}"
    if context.model is not None and decision.model != registry.model_named(context.model):
        return f"the router chose the model {decision.model!r}, and the request forces {context.model}"
    if context.persona is not None and decision.persona != context.persona:
        return f"the router chose the persona {decision.persona!r}, and {context.persona} is named"
    if decision.mode is not None and decision.mode not in context.modes:
        return f"the router chose the mode {decision.mode!r}; accepted: {', '.join(context.modes) or 'none'}"
    if decision.persona is not None and decision.persona not in registry.personas:
        return f"the router chose the persona {decision.persona!r}; accepted: {', '.join(registry.personas) or 'none'}"
    return ""
