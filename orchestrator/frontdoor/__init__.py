"""The way in for plain language: a request becomes the steps of a TaskIR, handed on while the plan is written."""

from orchestrator.frontdoor.asking import PlanRequest
from orchestrator.frontdoor.builder import PlannedPart
from orchestrator.frontdoor.errors import PlanError
from orchestrator.frontdoor.extend import Extended, Finding, extend_plan
from orchestrator.frontdoor.plan import Planned, make_plan

__all__ = [
    "Extended",
    "Finding",
    "PlanError",
    "PlanRequest",
    "Planned",
    "PlannedPart",
    "extend_plan",
    "make_plan",
]
