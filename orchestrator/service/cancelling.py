"""Determine what a request to cancel a run, or a step of it, does."""

from dataclasses import dataclass

from orchestrator.run.record.view import RunView
from orchestrator.task.states import FINAL


@dataclass(frozen=True, slots=True)
class Cancellation:
    """What a request to cancel does."""

    # The status of the run, or the state of the step, if it had ended before: then nothing is cancelled.
    ended: str | None
    steps: tuple[str, ...] = ()  # the named step and then what depends on it; or all steps of a run that had not ended
    answered: bool = False  # all steps were done: the run ends with the answer that it has

    def describe(self, run: str, step: str | None) -> str:
        subject = f"run {run}" if step is None else f"step {step} of run {run}"
        if self.ended is not None:
            return f"{subject} had ended before: {self.ended}"
        if self.answered and step is None:
            return f"{subject} ends with the answer that it has, and its repair is cancelled"
        dependents = [name for name in self.steps if name != step] if step is not None else []
        return f"{subject} is cancelled" + (f", and what depends on it: {', '.join(dependents)}" if dependents else "")


def cancellation(view: RunView, step: str | None) -> Cancellation:
    """Return what cancelling a run, or a step of it, does now. Raises InputError for an unknown step."""
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
    parent = view.state.steps.parent_of(step)
    reached = [step, *view.state.steps.children_of(step), *((parent,) if parent else ())]
    for name in reached:  # it grows meanwhile
        reached += [dependent for dependent in view.graph.after.get(name, ()) if dependent not in reached]
    return reached
