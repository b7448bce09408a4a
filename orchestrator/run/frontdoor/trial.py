"""Compare a plan, while it is written, with a direct answer to the same request."""

from collections.abc import Collection, Sequence
from itertools import chain
from typing import Final

from orchestrator.run.frontdoor.direct import DirectAnswer
from orchestrator.run.planning import Accept, PlannedPart, Predict
from orchestrator.task.analysis import PlanAnalysis
from orchestrator.task.events import ModeForecast
from orchestrator.task.taskir import REQUEST_LABEL, Step

CLEARLY_FASTER: Final = 0.8
"""A plan of one step at a time has to be predicted to take at most this part of the time of a direct answer. Its steps
pass on texts, in which something is lost each time, and predictions are seldom off by less."""


EARLY_QUALITY: Final = 0.9
"""The share of a frontdoor's plans that has to be right for steps to start before their plan is complete. The start is
earlier by the seconds that the rest of a plan takes; steps of a plan that turns out to be flawed cost far more."""


class PlanTrial:
    """Holds the parts of a plan back until one shows that the plan may be better than the direct answer.

    From then on, if they may start `early`, each part is handed to `accept` when it comes, since its steps could start
    while the rest is written.
    """

    def __init__(self, direct: DirectAnswer, predict: Predict, accept: Accept, *, early: bool = True) -> None:
        self.kept = False
        """Whether the parts were handed on."""
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
        """Hand on the parts that were held back."""
        self.kept = True
        for part in self._held:
            self._accept(part)
        self._held.clear()

    def drop(self) -> bool:
        """Drop the parts that are held back, for a plan that is written from the beginning. Return whether that may be.

        It may not once parts were handed on.
        """
        if not self.kept:
            self._held.clear()
        return not self.kept

    def why_direct(self) -> str:
        """Return why the plan, which is complete, gives way to the direct answer; empty if it stays."""
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
        """Return the predictions for a direct answer and for the plan, of these steps or of those that are held."""
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


def _wanted_writers(steps: Sequence[Step], wanted: Collection[str]) -> int:
    return sum(not set(step.outputs).isdisjoint(wanted) for step in steps)
