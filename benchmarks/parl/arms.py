"""Define what is compared: arms, whose rewards differ, and controls, which plan without having been trained."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, Literal

from orchestrator.bench.families.words import listing
from orchestrator.memrl.parl.compare import Planned
from orchestrator.memrl.parl.harness import FixedPlan, GreedyPolicy
from orchestrator.memrl.parl.requests import WORKER, PlannedRequest
from orchestrator.memrl.parl.reward import RewardSettings, stage_over
from orchestrator.run.frontdoor.compact import Part, plan_text

UPDATES: Final = 50
STAGE: Final = stage_over(UPDATES)

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
AGENT: Final = "one agent"
BEST: Final = "best plan"
MEMORY: Final = "memory's choice of mode"
WINNER: Final = "seconds"
"""The arm that ships if it is better."""
AGENTS: Final[Mapping[str, Literal["tokens", "seconds"]]] = {
    "one agent, as many tokens": "tokens",
    "one agent, as much time": "seconds",
}
"""Controls that have what the plans of the arm that ships have used."""
SEEDS: Final = (0, 1, 2)


CONTROLS: Final[Mapping[str, Callable[[GreedyPolicy], Planned]]] = {
    SHIPPED: lambda shipped: Planned(lambda _: shipped, by_cores=False),
    "as shipped, told the cores": lambda shipped: Planned(lambda _: shipped, by_cores=True),
    AGENT: lambda shipped: Planned(lambda _: shipped, by_cores=False, mode="direct"),
    "forced width": lambda shipped: Planned(lambda request: FixedPlan(widest(request)), by_cores=False),
    "each": lambda shipped: Planned(lambda request: FixedPlan(a_step_each(request)), by_cores=False),
    "discover": lambda shipped: Planned(lambda _: shipped, by_cores=False, mode="discover"),
}
"""What is measured without training, given the frontdoor as it ships."""


def widest(request: PlannedRequest) -> str:
    """Return the plan with a step for each file, whatever the request needs, and a step that joins what they wrote."""
    each = Part(role=WORKER, action="Summarize {each}.", each=tuple(request.files))
    join = Part(role=WORKER, action=request.text, inputs=("P1",))
    return plan_text([each, join])


def a_step_each(request: PlannedRequest) -> str:
    """Return the plan of a rule: if a request names several files, a step does what it says with each of them."""
    files = listing([*request.files])
    if len(request.files) < 2 or files not in request.text:
        return plan_text([Part(role=WORKER, action=request.text, inputs=tuple(request.files))])
    return plan_text([Part(role=WORKER, action=request.text.replace(files, "{each}"), each=tuple(request.files))])
