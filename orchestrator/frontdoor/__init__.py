"""The way in for plain language: a request becomes the steps of a TaskIR, handed on while the plan is written."""

from orchestrator.frontdoor.asking import PlanRequest
from orchestrator.frontdoor.extend import Finding, extend_plan
from orchestrator.frontdoor.plan import make_plan
from orchestrator.frontdoor.planner import FrontdoorPlanner

__all__ = ["Finding", "FrontdoorPlanner", "PlanRequest", "extend_plan", "make_plan"]
