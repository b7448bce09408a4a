"""Who takes over from whom, where some models cannot be used."""

from dataclasses import replace
from types import MappingProxyType

import pytest

from orchestrator.registry.load import find_registry, load_registry
from orchestrator.registry.models import Registry
from orchestrator.run.job import escalation_targets
from orchestrator.task.events import EscalationTarget


def without(*roles: str) -> Registry:
    """Return the packaged registry with a cold model for each of these roles."""
    whole = load_registry(find_registry(environment={}))
    cold = replace(whole.models["tiny-large"], id="cold", residency="cold")
    return replace(
        whole,
        models=MappingProxyType({**whole.models, "cold": cold}),
        roles=MappingProxyType({**whole.roles, **{name: replace(whole.roles[name], model="cold") for name in roles}}),
    )


@pytest.mark.parametrize(
    ("unusable", "above"),
    [
        ((), {"worker": EscalationTarget("coder", "B1"), "coder": EscalationTarget("architect", "B2")}),
        (("coder",), {"worker": EscalationTarget("architect", "B2"), "coder": EscalationTarget("architect", "B2")}),
        (("architect",), {"worker": EscalationTarget("coder", "B1")}),
        (("coder", "architect"), {}),
    ],
)
def test_a_role_that_cannot_work_is_passed_over(unusable: tuple[str, ...], above: dict[str, EscalationTarget]) -> None:
    assert escalation_targets(without(*unusable)) == above
