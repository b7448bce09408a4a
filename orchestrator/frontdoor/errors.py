"""What can go wrong with a plan within this package."""

from orchestrator.errors import OrchestratorError


class PlanFlaw(OrchestratorError):
    """What is wrong with a plan, in words that help the model to write a better one."""
