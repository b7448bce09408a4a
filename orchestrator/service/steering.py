"""Check what a user may do with one step of a run that has not ended: try it again, or put it first."""

from collections import deque

from orchestrator.run.record.view import RunView
from orchestrator.service.errors import Conflict
from orchestrator.task.states import FINAL


def check_restart(view: RunView, step: str) -> None:
    """Check that an attempt of the step runs. Raises InputError for an unknown step, and Conflict."""
    view.check_step(step)
    row = view.state.steps[step]
    if not row.can_be_restarted:
        raise Conflict(
            f"{step} of run {view.accepted.run} is {row.state}, and no attempt of it runs; "
            "accepted: a step whose attempt runs, or any step when the run has ended"
        )


def steps_put_first(view: RunView, step: str) -> list[str]:
    """Return the step and those that it waits for, which go first with it, as far as they have not ended.

    Raises InputError for an unknown step, and Conflict for one that has ended.
    """
    view.check_step(step)
    steps = view.state.steps
    if steps.state_of(step) in FINAL:
        raise Conflict(f"{step} of run {view.accepted.run} has ended: {steps.state_of(step)}; accepted: another step")
    first = dict.fromkeys([step])  # in the order in which they are reached
    pending = deque([step])
    while pending:
        earlier = [before for before in view.graph.before.get(pending.popleft(), ()) if before not in first]
        first |= dict.fromkeys(earlier)
        pending += earlier
    return [name for name in first if steps.state_of(name) not in FINAL]
