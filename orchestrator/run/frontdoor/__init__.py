"""Plan requests in plain language: a request becomes the steps of a TaskIR, which start while the plan is written.

planner     FrontdoorPlanner, the Planner port that asks a model; make_plan, extend_plan; which outputs are wanted
generation  one plan, or the rest of one, while a model writes it
compact     the form in which a model writes a plan: Part, its JSON Schema, PlanStream, PlanFlaw
listed      the JSON Schema of a plan that can only name existing files and parts
builder     PlanBuilder: turns parts into steps
review      PlanReview: repairs parts against the request, and checks the complete plan
trial       compares a plan with the direct answer
direct      the single step that answers a request without a plan
personas    which persona a part gets
request     which files a request names, wants and lacks; sentences, clauses, orders, changes read its text
references  which files and parts a name stands for; words compares words of four languages
doubts      what speaks against an answer; wishes and languages read what was wanted
"""

from orchestrator.run.frontdoor.generation import PlanRequest
from orchestrator.run.frontdoor.planner import FrontdoorPlanner, ReplanInput, extend_plan, make_plan

__all__ = ["FrontdoorPlanner", "PlanRequest", "ReplanInput", "extend_plan", "make_plan"]
