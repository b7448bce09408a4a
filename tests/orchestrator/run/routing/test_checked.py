"""A router that fails or makes things up: what the rules choose instead, and that it is told."""

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.registry.models import Registry
from orchestrator.run.routing import CheckedRouter, Decision, DecisionContext, RuleRouter

GOOD = Decision(role="expert", persona="wordy", model="near", reason="it learned so", propensity=0.25, router="test-1")


class Says:
    """A router that gives one answer, or raises it."""

    def __init__(self, answer: Decision | Exception) -> None:
        self._answer = answer

    async def choose(self, context: DecisionContext) -> Decision:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


@pytest.fixture
def context(registry: Registry) -> DecisionContext:
    return DecisionContext(registry=registry, role="worker", roles=("worker", "expert"))


async def test_a_choice_that_can_be_carried_out_stands(context: DecisionContext) -> None:
    assert await CheckedRouter(Says(GOOD)).choose(context) == GOOD


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"role": "judge"}, "the router chose the role 'judge'; accepted: worker, expert"),
        ({"model": "huge"}, "the router chose the model 'huge'; accepted: far, near"),
        ({"persona": "loud"}, "the router chose the persona 'loud'; accepted: terse, wordy"),
    ],
)
async def test_what_there_is_not_is_replaced_by_the_rules(
    context: DecisionContext, wrong: dict[str, Any], told: str
) -> None:
    ruled = await RuleRouter().choose(context)
    found = await CheckedRouter(Says(replace(GOOD, **wrong))).choose(context)
    assert found == replace(ruled, reason=f"{ruled.reason} ({told})")


async def test_a_router_that_breaks_down_is_replaced_by_the_rules(context: DecisionContext) -> None:
    found = await CheckedRouter(Says(ZeroDivisionError("a defect"))).choose(context)
    assert (found.role, found.router) == ("worker", "rules-1")
    assert "a defect" in found.reason
