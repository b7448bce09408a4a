"""Plan with the registry's role `frontdoor`: the implementation of the Planner port that asks a model."""

from dataclasses import replace
from typing import Final

from orchestrator.engine.client.engine import OnText
from orchestrator.errors import InputError, Problem
from orchestrator.frontdoor.asking import PlanRequest
from orchestrator.frontdoor.extend import Finding, extend_plan
from orchestrator.frontdoor.plan import make_plan
from orchestrator.planning import Accept, Extended, PlanContext, Planned, PlannedBy
from orchestrator.routing import NO_MODEL
from orchestrator.steps.role import resolve_role
from registry.models import Registry

FRONTDOOR: Final = "frontdoor"


class FrontdoorPlanner:
    """Has the model of the role `frontdoor` write plans."""

    def why_not(self, registry: Registry) -> Problem | None:
        """Return why no request can be planned with this registry, or None."""
        if FRONTDOOR not in registry.roles:
            return Problem(f"{registry.path}: roles", f"there is no {FRONTDOOR}", "a role that plans requests")
        if reason := registry.why_not(FRONTDOOR):
            return Problem(f"{registry.path}: roles.{FRONTDOOR}", reason, "a model that is there")
        if not registry.step_roles:
            return Problem(f"{registry.path}: roles", "none can do steps", "one of tier B or C at least")
        return None

    def planned_by(self, registry: Registry) -> PlannedBy:
        """Return the role `frontdoor`, and its model."""
        role = registry.roles.get(FRONTDOOR)
        return PlannedBy(FRONTDOOR, NO_MODEL if role is None else role.model)

    async def plan(self, context: PlanContext, accept: Accept, on_text: OnText) -> Planned:
        """Plan the request as `make_plan` does. Raises InputError, PlanError."""
        return await make_plan(self._request(context), context.models, accept, on_text, context.known)

    async def extend(self, context: PlanContext, after: str, output: str, accept: Accept, on_text: OnText) -> Extended:
        """Go on with the plan as `extend_plan` does. Raises InputError."""
        finding = Finding(after, output, context.known)
        return await extend_plan(self._request(context), finding, context.models, accept, on_text)

    def _request(self, context: PlanContext) -> PlanRequest:
        """Return what to ask. The first role of tier C is the one to fall back on."""
        registry = context.registry
        if (problem := self.why_not(registry)) is not None:
            raise InputError(problem)
        roles = registry.step_roles
        workers = [name for name in roles if registry.roles[name].tier == "C"]
        return PlanRequest(
            text=context.request,
            files=context.files,
            roles=roles,
            fallback_role=(workers or roles)[0],
            role=replace(resolve_role(registry, FRONTDOOR, priority=context.priority), max_tokens=None),
            replans=context.replans,
        )
