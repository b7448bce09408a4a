"""Compare a plan, while it is written, with a direct answer to the same request."""

from collections.abc import Collection, Sequence
from itertools import chain
from typing import Final

from orchestrator.run.frontdoor.direct import DirectAnswer
from orchestrator.run.planning import Accept, PlannedPart, Predict
from orchestrator.task.analysis import PlanAnalysis
from orchestrator.task.events import ModeForecast
from orchestrator.task.taskir.fields import REQUEST_LABEL
from orchestrator.task.taskir.models import Step

# longest predicted time of a sequential plan, as a share of a direct answer: each step that passes a text on loses
# something, and most predictions are off by as much
CLEARLY_FASTER: Final = 0.8


# share of correct plans from which steps start before their plan is complete: that saves seconds, and steps of a
# flawed plan cost far more
EARLY_QUALITY: Final = 0.9


class PlanTrial:
    """Holds parts back until one shows that the plan may be better than the direct answer.

    From then on, if steps may start `early`, each part is handed to `accept` when it comes.
    """

    def __init__(self, direct: DirectAnswer, predict: Predict, accept: Accept, *, early: bool = True) -> None:
        self.kept = False  # whether parts were handed on
        self._direct, self._predict, self._accept, self._early = direct, predict, accept, early
        self._held: list[PlannedPart] = []
        self._seconds = predict([direct.step()])

    def __call__(self, part: PlannedPart) -> None:
        """Take the next part of the plan."""
        if self.kept:
            self._accept(part)
            return
        self._held.append(part)
        if self._early and gains(self._steps, self._direct):
            self.keep()

    def keep(self) -> None:
        """Hand on the parts that are held back."""
        self.kept = True
        for part in self._held:
            self._accept(part)
        self._held.clear()

    def drop(self) -> bool:
        """Drop the parts that are held back, for a new plan. Return False if parts were handed on already."""
        if not self.kept:
            self._held.clear()
        return not self.kept

    def why_direct(self) -> str:
        """Return why the complete plan gives way to the direct answer; empty if it stays."""
        if self.kept or gains(self._steps, self._direct):
            return ""
        if len(self._steps) == 1:
            return "the plan has only one step"
        if (plan := self._predict(self._steps)) <= CLEARLY_FASTER * self._seconds:
            return ""
        return (
            f"the plan's {len(self._steps)} steps wait for each other and only pass texts on: it was predicted to take "
            f"{plan:.1f} s, and a direct answer {self._seconds:.1f} s"
        )

    def forecast(self, steps: Sequence[Step] = ()) -> ModeForecast:
        """Return the predicted seconds of a direct answer, and of these steps or of those that are held."""
        plan = steps or self._steps
        return ModeForecast(direct_seconds=self._seconds, plan_seconds=self._predict(plan) if plan else None)

    @property
    def _steps(self) -> list[Step]:
        return [*chain.from_iterable(part.steps for part in self._held)]


def gains(steps: Sequence[Step], direct: DirectAnswer) -> str:
    """Return what a plan with these steps has that a direct answer lacks; empty for nothing."""
    if any(step.foreach is not None for step in steps):
        return "it runs over a list"
    if any(step.persona is not None for step in steps):
        return "it has a persona"
    graph = PlanAnalysis([REQUEST_LABEL], direct.files).add(steps)
    if graph.width > 1:
        return f"{graph.width} of its steps can run at a time"
    if _wanted_writers(steps, direct.outputs) > 1:
        return "its steps write several of the files that are asked for"
    if any(step.gates for step in steps) and not direct.step().gates:
        return "gates check what it writes"
    return ""


def _wanted_writers(steps: Sequence[Step], names: Collection[str]) -> int:
    return sum(not set(step.outputs).isdisjoint(names) for step in steps)
