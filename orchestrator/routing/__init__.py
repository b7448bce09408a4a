"""Choose who does an attempt, or answers a chat: role, persona and model, with the reason.

contract    the Router port: what a choice may depend on, and what it says
rules       RuleRouter: the registry's rules, and the hints of the task's agents
checked     CheckedRouter: keeps a router that fails, or names what there is not, from doing harm
"""

from orchestrator.routing.checked import CheckedRouter
from orchestrator.routing.contract import NO_MODEL, Decision, DecisionContext, Router
from orchestrator.routing.rules import RuleRouter

__all__ = ["NO_MODEL", "CheckedRouter", "Decision", "DecisionContext", "Router", "RuleRouter"]
