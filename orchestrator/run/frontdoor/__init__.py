"""Plan requests in plain language: a request becomes the steps of a TaskIR, which are handed on while it is written.

planner     FrontdoorPlanner, the implementation of the Planner port; make_plan, extend_plan
generation  PlanGeneration: asks the model for a plan, or the rest of one, and once more for a repair
compact     the form in which a model writes a plan: Part, its JSON Schema, PlanStream, PlanFlaw
builder     PlanBuilder: turns parts into steps, each checked against those before it
personas    the personas that parts of a plan have or define
references  what the names in a request or a plan stand for
request     RequestFiles: the files that a request names, wants and lacks; missing_needs
sentences   what a sentence does with the name of a file
orders      requests that only a tool could fulfil
review      PlanReview: repairs the parts of a plan against the request, and checks the complete plan
clauses     what a clause or an action makes
wanted      which outputs of a plan the user wants
words       compares words of four languages
procedures  ProcedurePlanner: answers requests to maintain the installation with a procedure
"""

from orchestrator.run.frontdoor.generation import PlanRequest
from orchestrator.run.frontdoor.planner import FrontdoorPlanner, ReplanInput, extend_plan, make_plan

__all__ = ["FrontdoorPlanner", "PlanRequest", "ReplanInput", "extend_plan", "make_plan"]
