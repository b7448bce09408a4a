"""Choose the role, persona and model of each attempt and chat, with the reason.

contract    the Router port: what a choice may depend on (DecisionContext), and the choice (Decision)
rules       RuleRouter: follows the registry, and the hints of the task's agents
checked     CheckedRouter: falls back to the rules if a router fails or its choice cannot be carried out
"""

from orchestrator.run.routing.checked import CheckedRouter
from orchestrator.run.routing.contract import NO_MODEL, Decision, DecisionContext, Router, RouterUnavailable
from orchestrator.run.routing.rules import RuleRouter

__all__ = ["NO_MODEL", "CheckedRouter", "Decision", "DecisionContext", "Router", "RouterUnavailable", "RuleRouter"]
