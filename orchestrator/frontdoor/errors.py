"""What can go wrong with a plan.

PlanError       no plan could be had: the frontdoor's engine could not run
PlanFlaw        the plan that a model wrote cannot be carried out; handled within this package
"""

from orchestrator.errors import OrchestratorError
from orchestrator.events import Failure


class PlanError(OrchestratorError):
    """Nobody could be asked for a plan. `failure` says why, for the run's journal."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class PlanFlaw(OrchestratorError):
    """What is wrong with a plan, in words that help the model to write a better one."""
