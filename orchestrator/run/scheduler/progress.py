"""Keep track of how a run's plan grows, part by part, and of how the run ends."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Literal

from orchestrator.run.scheduler.commands import AnswerDirectly, FinishRun
from orchestrator.run.scheduler.queue import Rank, rank
from orchestrator.run.scheduler.states import IllegalTransition, State
from orchestrator.run.scheduler.step import Cause, StepRecord
from orchestrator.task.analysis import PlanAnalysis, StepGraph
from orchestrator.task.events import (
    AnswerChecked,
    AnswerDoubt,
    Event,
    FailureKind,
    Mode,
    PlanFailed,
    PlanFinished,
    PlanReplaced,
    ReplanFinished,
    ReplanStarted,
    RunFinished,
    StepsPlanned,
)
from orchestrator.task.taskir import Step

Stage = Literal["planning", "waiting", "asked", "extending", "closed", "replacing"]

Estimate = Callable[[StepGraph], Mapping[str, float]]
"""Predicts how many seconds each step of a plan takes, by its id."""


class PlanProgress:
    """The plan of a run, as far as it is known.

    It is in one of six stages. While it is "planning", steps are added. If it is to go on after its last step, it is
    "waiting" for that step, then the planner is "asked" for the rest, and while it is "extending" more steps are added;
    after that it may wait again. It may go on `most` times. When it is "closed", no more steps come,
    unless it fails: while it is "replacing", one step is awaited that does the whole request.

    Methods that take an event raise IllegalTransition for an event that cannot come now, and then nothing has changed.
    """

    def __init__(
        self, analysis: PlanAnalysis, mode: Mode, estimate: Estimate, most: int, *, replaceable: bool = False
    ) -> None:
        self.replaceable = replaceable and mode != "direct"
        """Whether one step that does the whole request may take the place of the plan if it fails."""
        self.direct: str | None = None
        """The step that has taken the place of the plan."""
        self._analysis = analysis
        self._checked: deque[StepGraph] = deque()
        self.graph = self._analysis.graph
        self.stage: Stage = "planning"
        self.after: str | None = None
        self._mode, self._estimate = mode, estimate
        self._left = most

    @property
    def awaited(self) -> str | None:
        """The step that has to be done before the plan goes on."""
        return self.after if self.stage == "waiting" else None

    @property
    def is_open(self) -> bool:
        """Whether more steps may come."""
        return self.stage != "closed"

    def ask(self) -> None:
        """Take note that the awaited step is done, and that the planner is asked for the rest of the plan."""
        self.stage = "asked"

    def ask_again(self) -> None:
        """Wait for the step again: what the planner was asked for was lost in a restart."""
        if self.stage in ("asked", "extending"):
            self.stage = "waiting"
        elif self.stage == "replacing":
            self.stage = "closed"

    def ask_directly(self) -> None:
        """Take note that the plan has failed, and that a step was asked for that does the whole request."""
        self.stage = "replacing"

    def replace(self, event: PlanReplaced) -> Mapping[str, Rank]:
        """Add the step that does the whole request, and return the ranks of all steps. It is the last one."""
        if not self.replaceable:
            raise IllegalTransition(event.answer.id, "the plan cannot be replaced, or was replaced before")
        self.graph = self._analysis.add_apart(event.answer)
        self.direct, self.replaceable = event.answer.id, False
        self.close()
        return rank(self.graph, self._mode, self._estimate(self.graph))

    def close(self) -> None:
        """Take note that no more steps will come."""
        self.stage = "closed"

    def check(self, steps: Sequence[Step]) -> None:
        """Check whether these steps may come next, behind those that were checked before. Raises InvalidTask.

        The plan does not grow by this, but the analysis is kept for when it does.
        """
        self._checked.append(self._analysis.add(steps))

    def grow(self, event: StepsPlanned) -> Mapping[str, Rank]:
        """Add steps to the plan, and return the ranks of all steps. Raises InvalidTask for steps that do not fit."""
        self._require(event, "planning", "extending")
        self.graph = self._analyzed(event.steps)
        return rank(self.graph, self._mode, self._estimate(self.graph))

    def _analyzed(self, steps: Sequence[Step]) -> StepGraph:
        """Return the graph with these steps: the one that `check` has made, if they are what was checked."""
        if self._checked:
            graph = self._checked.popleft()
            if [*islice(graph.steps.values(), len(self.graph.steps), None)] == [*steps]:
                return graph
            self._checked.clear()
            self._analysis.graph = self.graph
        return self._analysis.add(steps)

    def finish_first(self, event: PlanFinished | PlanFailed) -> None:
        """Take note that the first plan is complete, or that there is none."""
        self._require(event, "planning")
        if isinstance(event, PlanFailed) or event.origin in ("direct", "fallback", "procedure"):
            self.replaceable = False
        self._end(event.goes_on_after if isinstance(event, PlanFinished) else None)

    def begin_rest(self, event: ReplanStarted) -> None:
        """Take note that the rest of the plan is being written. After a restart this may happen a second time."""
        self._require(event, "asked", "extending")
        self.stage = "extending"

    def finish_rest(self, event: ReplanFinished) -> None:
        """Take note that the rest of the plan is complete, or that there is none."""
        self._require(event, "extending")
        self._end(event.goes_on_after)

    def _end(self, goes_on_after: str | None) -> None:
        if goes_on_after is not None and goes_on_after not in self.graph.steps:
            raise IllegalTransition(goes_on_after, "the plan is to go on after it, but there is no such step")
        if goes_on_after is None or not self._left:
            self.close()
        else:
            self.stage, self.after, self._left = "waiting", goes_on_after, self._left - 1

    def _require(self, event: Event, *stages: Stage) -> None:
        if self.stage == "closed":
            raise IllegalTransition(None, f"{event.kind} came after the plan was finished")
        fits = not isinstance(event, ReplanStarted | ReplanFinished) or event.after == self.after
        if self.stage not in stages or not fits:
            after = f" after {self.after}" if self.after else ""
            raise IllegalTransition(None, f"{event.kind} came while the plan was {self.stage}{after}: {event}")


SHOWN_CAUSES = 10
"""How many causes the error of a run names at most. The cause of each step is in its view."""


class Ending:
    """How a run ends."""

    def __init__(self) -> None:
        self.cause: Cause | None = None
        """Why no step starts any more; None as long as the run has not been stopped."""
        self.finished: RunFinished | None = None
        """The event that has ended the run."""
        self._stopped: FinishRun | None = None
        self._asked = False

    @property
    def is_due(self) -> bool:
        """Whether the run ends whatever its plan says."""
        return self._stopped is not None or self.finished is not None

    @property
    def is_asked(self) -> bool:
        """Whether the run was asked to finish, or has finished."""
        return self._asked or self.finished is not None

    def stop(self, status: Literal["failed", "cancelled"], reason: str) -> Cause:
        """Let the run end with this status and reason, unless it was stopped before. Return why steps are cancelled."""
        self._stopped = self._stopped or FinishRun(status, reason)
        self.cause = Cause(None, reason)
        return self.cause

    def ask(self, end: FinishRun, doubt: str) -> FinishRun:
        """Return how the run is to end, now that all steps of the plan have ended: at `end`, unless it was stopped.

        `doubt` is about its answer.
        """
        self._asked = True
        return self._stopped or replace(end, doubt=doubt)

    def ask_again(self) -> None:
        """Let the run be asked to finish once more: the first time was lost in a restart."""
        self._asked = False

    def finish(self, event: RunFinished) -> Cause:
        """Take note that the run has finished. Return why steps that have not ended are cancelled."""
        self.finished = event
        return Cause(None, event.error or f"the run ended as {event.status}")


class AnswerCheck:
    """The comparison of the answer with the request after the last step, and the repair that may follow from it.

    It is "due", then "asked" for; then steps may be "repairing" the answer, after which it is asked for once more; and
    then it is "over".
    """

    def __init__(self, *, due: bool) -> None:
        self.doubts: tuple[AnswerDoubt, ...] = ()
        """The doubts about the answer as it is now."""
        self._stage: Literal["due", "asked", "repairing", "asked again", "over"] = "due" if due else "over"
        self._stopped = False

    @property
    def has_begun(self) -> bool:
        """Whether all steps were done, so that the run has an answer which stands whatever happens now."""
        return self._stage in ("asked", "repairing", "asked again")

    @property
    def doubt(self) -> str:
        """The doubts in one text."""
        return " ".join(dict.fromkeys(doubt.text for doubt in self.doubts))

    def ask(self) -> bool:
        """Return whether the answer is to be compared now that all steps are done. If so, take note that it is."""
        if self._stage not in ("due", "repairing"):
            return False
        self._stage = "asked" if self._stage == "due" else "asked again"
        return True

    def ask_again(self) -> None:
        """Let the answer be compared once more: the first time was lost in a restart."""
        if self._stage == "asked":
            self._stage = "due"
        elif self._stage == "asked again":
            self._stage = "repairing"

    def skip(self) -> None:
        """Take note that there is nothing to compare."""
        self._stage = "over"

    def stop(self) -> None:
        """Take note that the run is to end, so that there is no repair."""
        self._stopped = True

    def take(self, event: AnswerChecked) -> bool:
        """Take note of the doubts about the answer, and return whether it is to be repaired."""
        if not self.has_begun:
            raise IllegalTransition(None, f"{event.kind} came, but the answer was not to be checked")
        first, self.doubts = self._stage == "asked", event.doubts
        self._stage = "over"
        return first and not self._stopped

    def repair(self) -> None:
        """Take note that steps repair the answer."""
        self._stage = "repairing"


def outcome(steps: Sequence[StepRecord], direct: str | None = None) -> FinishRun:
    """Return the end of a run with these steps: failed if one failed, else cancelled if one was cancelled.

    If the step `direct` has taken the place of a failed plan and is done, so is the run.
    """
    if any(step.id == direct and step.state is State.DONE for step in steps):
        return FinishRun("done")
    if failed := [str(step.cause) for step in steps if step.state is State.FAILED]:
        return FinishRun("failed", "; ".join(failed[:SHOWN_CAUSES]))
    if cancelled := [str(step.cause) for step in steps if step.state is State.CANCELLED]:
        return FinishRun("cancelled", "; ".join(dict.fromkeys(cancelled[:SHOWN_CAUSES])))
    return FinishRun("done")


_OF_MODELS = frozenset({FailureKind.FORMAT, FailureKind.SCHEMA, FailureKind.CODE, FailureKind.LOGIC})
"""Kinds of failure that come from what models wrote."""


def answer_directly(steps: Sequence[StepRecord]) -> AnswerDirectly | None:
    """Return the command by which a run goes on whose plan has failed; None if it has not, or if that would not help.

    It helps if a list could not be run over, if something could not be read, or if all attempts wrote what the gates
    refused. It does not help if models cannot run or have too little memory or time, or if the user cancelled a step.
    """
    failed = [step for step in steps if step.state is State.FAILED]
    causes = {step.cause for step in failed}
    if not failed or any(step.cause not in causes for step in steps if step.state is State.CANCELLED):
        return None
    failures = [(step.fans_out, step.failures[-1].failure) for step in map(_origin, failed) if step.failures]
    of_models = [not structural and failure.kind in _OF_MODELS for structural, failure in failures]
    for (structural, failure), of_model in zip(failures, of_models, strict=True):
        if not (structural or of_model or (failure.final and failure.kind is FailureKind.RESOURCE)):
            return None
    return AnswerDirectly("; ".join(str(step.cause) for step in failed[:SHOWN_CAUSES]), stronger=any(of_models))


def _origin(step: StepRecord) -> StepRecord:
    """Return the step, or the child of it that failed first."""
    return next((child for child in step.children or () if child.state is State.FAILED), step)
