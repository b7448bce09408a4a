"""Say what a request to cancel a run or a step of it comes to."""

from dataclasses import dataclass

from orchestrator.run.record.view import RunView
from orchestrator.run.scheduler import FINAL


@dataclass(frozen=True, slots=True)
class Cancellation:
    """What a request to cancel does."""

    ended: str | None
    """The status of the run, or the state of the step, if it had ended before, so that nothing is cancelled."""
    steps: tuple[str, ...] = ()
    """The steps that are cancelled: the one that was named, then what depends on it; or all of a run that had not
    ended."""
    answered: bool = False
    """Whether all steps of the run were done, so that it ends with the answer that it has."""

    def describe(self, run: str, step: str | None) -> str:
        """Return what was done in a sentence."""
        what = f"run {run}" if step is None else f"step {step} of run {run}"
        if self.ended is not None:
            return f"{what} had ended before: {self.ended}"
        if self.answered and step is None:
            return f"{what} ends with the answer that it has, and its repair is cancelled"
        others = [name for name in self.steps if name != step] if step is not None else []
        return f"{what} is cancelled" + (f", and what depends on it: {', '.join(others)}" if others else "")


def cancellation(view: RunView, step: str | None) -> Cancellation:
    """Return what it comes to if a run, or a step of it, is cancelled now.

    Raises InputError for a step that the run does not have.
    """
    states = view.state.steps
    if step is not None:
        view.check_step(step)
        if states.state_of(step) in FINAL:
            return Cancellation(str(states.state_of(step)))
    if view.ended:
        return Cancellation(view.status)
    concerned = list(states) if step is None else _with_dependents(view, step)
    ends = tuple(name for name in concerned if states.state_of(name) not in FINAL)
    return Cancellation(None, ends, view.state.is_answered)


def _with_dependents(view: RunView, step: str) -> list[str]:
    """Return a step with its children, the step that it is a child of, and all steps that wait for them."""
    parent = view.state.steps.parent_of(step)
    reached = [step, *view.state.steps.children_of(step), *((parent,) if parent else ())]
    for name in reached:  # it grows meanwhile
        reached += [other for other in view.graph.after.get(name, ()) if other not in reached]
    return reached
