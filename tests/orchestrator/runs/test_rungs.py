"""Who takes over from whom, where some models cannot be used."""

from dataclasses import replace
from types import MappingProxyType

import pytest

from orchestrator.events import Rung
from orchestrator.runs.job import rungs
from registry.load import find_registry, load_registry
from registry.models import Registry


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
        ((), {"worker": Rung("coder", "B1"), "coder": Rung("architect", "B2")}),
        (("coder",), {"worker": Rung("architect", "B2"), "coder": Rung("architect", "B2")}),
        (("architect",), {"worker": Rung("coder", "B1")}),
        (("coder", "architect"), {}),
    ],
)
def test_a_role_that_cannot_work_is_passed_over(unusable: tuple[str, ...], above: dict[str, Rung]) -> None:
    assert rungs(without(*unusable)) == above
