"""The way in for plain language: a request becomes the steps of a TaskIR, handed on while the plan is written."""

from orchestrator.frontdoor.builder import REQUEST_LABEL
from orchestrator.frontdoor.errors import PlanError
from orchestrator.frontdoor.plan import Planned, PlanRequest, make_plan

__all__ = ["REQUEST_LABEL", "PlanError", "PlanRequest", "Planned", "make_plan"]
