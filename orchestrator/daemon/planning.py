"""Ask the frontdoor of this installation for a plan."""

from collections import deque
from collections.abc import Callable, Iterable

from orchestrator.daemon.job import FRONTDOOR, plan_roles
from orchestrator.events import Failure, FailureKind
from orchestrator.frontdoor import PlanError, PlanRequest
from orchestrator.taskir import Step
from registry import Registry


def plan_request(request: str, files: tuple[str, ...], registry: Registry) -> PlanRequest:
    """Return what to ask the registry's frontdoor. The first role of tier C is the one to fall back on."""
    role, roles = registry.roles[FRONTDOOR], plan_roles(registry)
    workers = [name for name in roles if registry.roles[name].tier == "C"]
    return PlanRequest(
        text=request,
        files=files,
        roles=roles,
        fallback_role=(workers or roles)[0],
        model=role.model,
        system=role.system,
        temperature=role.temperature,
        top_p=role.top_p,
    )


def beyond(known: Iterable[Step], accept: Callable[[Step], None]) -> Callable[[Step], None]:
    """Return an `accept` that lets the steps pass which are `known` from before a restart, and takes only those after.

    It raises PlanError when the plan comes out differently this time: what was accepted is frozen.
    """
    expected = deque(known)

    def take(step: Step) -> None:
        if not expected:
            accept(step)
        elif step != expected.popleft():
            message = f"the plan was interrupted, and came out differently at {step.id} the second time"
            raise PlanError(Failure(FailureKind.INFRASTRUCTURE, message, final=True))

    return take
