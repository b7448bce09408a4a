"""Define what is compared: arms, whose rewards differ, and controls, which plan without having been trained."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from orchestrator.memrl.parl.compare import Contestant
from orchestrator.memrl.parl.harness import FixedPlan, GreedyPolicy
from orchestrator.memrl.parl.requests import WORKER, PlannedRequest
from orchestrator.memrl.parl.reward import RewardSettings
from orchestrator.memrl.reward import Stage
from orchestrator.run.frontdoor.compact import Part, plan_text

UPDATES: Final = 50
STAGE: Final = Stage(first=0.1, outcomes=38, finish=0.5)
"""The parts for parallel and for used steps end with three quarters of the updates."""

ARMS: Final[Mapping[str, RewardSettings]] = {
    "performance only": RewardSettings(stage=replace(STAGE, first=0.0), cost="steps"),
    "without finish": RewardSettings(stage=replace(STAGE, finish=0.0), cost="steps"),
    "annealed": RewardSettings(stage=STAGE, cost="steps"),
    "constant": RewardSettings(stage=STAGE, cost="steps", annealed=False),
    "seconds": RewardSettings(stage=STAGE, cost="seconds"),
}
"""Arms that are trained. The one with seconds is what `orchestrator frontdoor train` does."""
SUPERVISED: Final = "supervised"
"""The arm of imitation alone, from which the others start."""
SHIPPED: Final = "as shipped"
BEST: Final = "best plan"
SEEDS: Final = (0, 1, 2)


CONTROLS: Final[Mapping[str, Callable[[GreedyPolicy], Contestant]]] = {
    SHIPPED: lambda shipped: Contestant(lambda _: shipped, by_cores=False),
    "as shipped, told the cores": lambda shipped: Contestant(lambda _: shipped, by_cores=True),
    "one agent": lambda shipped: Contestant(lambda _: shipped, by_cores=False, mode="direct"),
    "forced width": lambda shipped: Contestant(lambda request: FixedPlan(widest(request)), by_cores=False),
    "discover": lambda shipped: Contestant(lambda _: shipped, by_cores=False, mode="discover"),
}
"""What is measured without training, given the frontdoor as it ships."""


def widest(request: PlannedRequest) -> str:
    """Return the plan with a step for each file, whatever the request needs, and a step that joins what they wrote."""
    each = Part(role=WORKER, action="Summarize {each}.", each=tuple(request.files))
    join = Part(role=WORKER, action=request.text, inputs=("P1",))
    return plan_text([each, join])
