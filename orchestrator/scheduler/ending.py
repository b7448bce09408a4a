"""Follow how a run ends: whether it was stopped, whether it was asked to finish, and that it has."""

from collections.abc import Sequence
from typing import Literal

from orchestrator.events import RunFinished
from orchestrator.scheduler.commands import FinishRun
from orchestrator.scheduler.states import State
from orchestrator.scheduler.step import Cause, StepRecord

TOLD = 10
"""Causes that the error of a run names at most. Each step's own is in its view."""


class Ending:
    """The end of a run. `cause` is why no step starts any more, None as long as the run has not been stopped."""

    def __init__(self) -> None:
        self.cause: Cause | None = None
        self.finished: RunFinished | None = None
        self._stopped: FinishRun | None = None
        self._asked = False

    @property
    def is_due(self) -> bool:
        """Whether the run ends whatever its plan says."""
        return self._stopped is not None or self.finished is not None

    @property
    def is_asked(self) -> bool:
        """Whether somebody was asked to finish the run, or it has finished."""
        return self._asked or self.finished is not None

    def stop(self, status: Literal["failed", "cancelled"], reason: str) -> Cause:
        """The run is to end like this, unless it has been stopped before. Return why its steps are cancelled."""
        self._stopped = self._stopped or FinishRun(status, reason)
        self.cause = Cause(None, reason)
        return self.cause

    def ask(self, steps: Sequence[StepRecord]) -> FinishRun:
        """All steps of the plan have ended: return how the run is to end."""
        self._asked = True
        return self._stopped or outcome(steps)

    def ask_again(self) -> None:
        """What was asked was lost in a restart."""
        self._asked = False

    def finish(self, event: RunFinished) -> Cause:
        """The run has finished. Return why steps are cancelled that have not ended."""
        self.finished = event
        return Cause(None, event.error or f"the run ended as {event.status}")


def outcome(steps: Sequence[StepRecord]) -> FinishRun:
    """Return the end of a run with these steps: failed if one failed, else cancelled if one was cancelled."""
    if failed := [str(step.cause) for step in steps if step.state is State.FAILED]:
        return FinishRun("failed", "; ".join(failed[:TOLD]))
    if cancelled := [str(step.cause) for step in steps if step.state is State.CANCELLED]:
        return FinishRun("cancelled", "; ".join(dict.fromkeys(cancelled[:TOLD])))
    return FinishRun("done")
