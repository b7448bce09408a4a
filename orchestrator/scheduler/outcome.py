"""Say how a run ends whose plan is finished and whose steps have all ended."""

from collections.abc import Sequence

from orchestrator.scheduler.commands import FinishRun
from orchestrator.scheduler.states import State
from orchestrator.scheduler.step import StepRecord

TOLD = 10
"""Causes that the error of a run names at most. Each step's own is in its view."""


def outcome(steps: Sequence[StepRecord]) -> FinishRun:
    """Return the end of a run with these steps: failed if one failed, else cancelled if one was cancelled."""
    if failed := [str(step.cause) for step in steps if step.state is State.FAILED]:
        return FinishRun("failed", "; ".join(failed[:TOLD]))
    if cancelled := [str(step.cause) for step in steps if step.state is State.CANCELLED]:
        return FinishRun("cancelled", "; ".join(dict.fromkeys(cancelled[:TOLD])))
    return FinishRun("done")
