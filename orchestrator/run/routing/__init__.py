"""Choose which role makes an attempt or answers a chat, with which persona and model, and for which reason.

contract    the Router port: what a choice may depend on (DecisionContext), and what a router returns (Decision)
rules       RuleRouter: follows the registry, and the hints of the task's agents
hybrid      HybridRouter: follows what was learned from earlier outcomes where that is sure, else the rules
checked     CheckedRouter: falls back to the rules where a router fails, or chooses something that does not exist

`hybrid` is not imported from here: it brings faiss, which only the daemon needs.
"""

from orchestrator.run.routing.checked import CheckedRouter
from orchestrator.run.routing.contract import NO_MODEL, Decision, DecisionContext, Router
from orchestrator.run.routing.rules import RuleRouter

__all__ = ["NO_MODEL", "CheckedRouter", "Decision", "DecisionContext", "Router", "RuleRouter"]
