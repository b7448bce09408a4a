"""Keep track of how a run's plan grows, part by part, and of how the run ends."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Literal

from orchestrator.run.scheduler.commands import AnswerDirectly, FinishRun
from orchestrator.run.scheduler.queue import Rank, rank
from orchestrator.run.scheduler.step import StepRecord
from orchestrator.task.analysis import PlanAnalysis, StepGraph
from orchestrator.task.events import (
    AnswerChecked,
    AnswerDoubt,
    Event,
    FailureKind,
    PlanFailed,
    PlanFinished,
    PlanReplaced,
    Prediction,
    ReplanFinished,
    ReplanStarted,
    RunFinished,
    StepsPlanned,
)
from orchestrator.task.modes import Mode
from orchestrator.task.states import Cause, IllegalTransition, State
from orchestrator.task.taskir.models import Step

# While the plan is "planning", steps are added. If it continues after its last step, it is "waiting" for that step,
# then "asked" (the planner has the request), then "extending" while more steps are added. When it is "closed", no more
# steps come, unless it fails: while it is "replacing", one step is awaited that does the whole request.
Stage = Literal["planning", "waiting", "asked", "extending", "closed", "replacing"]

Estimate = Callable[[StepGraph], Mapping[str, float]]  # predicted seconds of each step of a plan, by its id


class PlanProgress:
    """The known part of a run's plan, and the stage of planning.

    Methods that take an event raise IllegalTransition for an event that cannot come now, and then nothing has changed.
    """

    def __init__(
        self, analysis: PlanAnalysis, mode: Mode, estimate: Estimate, most: int, *, replaceable: bool = False
    ) -> None:
        # Whether one step that does the whole request may replace a plan that fails.
        self.replaceable = replaceable and mode != "direct"
        self.direct: str | None = None  # the step that has replaced the plan
        self._analysis = analysis
        self._checked: deque[StepGraph] = deque()
        self.graph = self._analysis.graph
        self.stage: Stage = "planning"
        self.after: str | None = None
        self._mode, self._estimate = mode, estimate
        self._seconds: dict[str, float] = {}  # predicted in the events, by step
        self._left = most  # how often planning may continue

    @property
    def awaited(self) -> str | None:
        """The step that has to be done before planning continues."""
        return self.after if self.stage == "waiting" else None

    @property
    def is_open(self) -> bool:
        """Whether more steps may come."""
        return self.stage != "closed"

    def ask(self) -> None:
        self.stage = "asked"

    def ask_again(self) -> None:
        """Go back a stage after a restart, which lost the command to the planner."""
        if self.stage in ("asked", "extending"):
            self.stage = "waiting"
        elif self.stage == "replacing":
            self.stage = "closed"

    def ask_directly(self) -> None:
        self.stage = "replacing"

    def replace(self, event: PlanReplaced) -> Mapping[str, Rank]:
        """Add the step that does the whole request, as the last one, and return the ranks of all steps."""
        if not self.replaceable:
            raise IllegalTransition(event.answer.id, "the plan cannot be replaced, or was replaced before")
        self.graph = self._analysis.add_apart(event.answer)
        self.direct, self.replaceable = event.answer.id, False
        self.close()
        return self._ranked(event.predicted, {})

    def close(self) -> None:
        self.stage = "closed"

    def check(self, steps: Sequence[Step]) -> None:
        """Check whether these steps may come next, after those checked before. Raises InvalidTask."""
        # The plan does not grow yet: `grow` uses this analysis.
        self._checked.append(self._analysis.add(steps))

    def graph_with(self, steps: Sequence[Step]) -> StepGraph:
        """Return the graph of the plan with these steps, which come next. Raises InvalidTask."""
        for graph in self._checked:
            if _ends_with(graph, steps):
                return graph
        self.check(steps)
        return self._checked[-1]

    def grow(self, event: StepsPlanned) -> Mapping[str, Rank]:
        """Add steps to the plan, and return the ranks of all steps. Raises InvalidTask for steps that do not fit."""
        self._require(event, "planning", "extending")
        self.graph = self._analyzed(event.steps)
        return self._ranked(event.predicted, event.slowed)

    def _ranked(self, predicted: Mapping[str, Prediction], slowed: Mapping[str, float]) -> Mapping[str, Rank]:
        self._seconds |= {step: prediction.seconds for step, prediction in predicted.items()}
        self._seconds |= slowed
        seconds = self._seconds if self._seconds.keys() >= self.graph.steps.keys() else self._estimate(self.graph)
        return rank(self.graph, self._mode, seconds)

    def _analyzed(self, steps: Sequence[Step]) -> StepGraph:
        if self._checked:
            graph = self._checked.popleft()
            if [*islice(graph.steps.values(), len(self.graph.steps), None)] == [*steps]:
                return graph  # `check` has analyzed just these steps
            self._checked.clear()
            self._analysis.graph = self.graph
        return self._analysis.add(steps)

    def finish_first(self, event: PlanFinished | PlanFailed) -> None:
        self._require(event, "planning")
        if isinstance(event, PlanFailed) or event.origin in ("direct", "fallback", "procedure"):
            self.replaceable = False
        self._end(event.goes_on_after if isinstance(event, PlanFinished) else None)

    def begin_rest(self, event: ReplanStarted) -> None:
        self._require(event, "asked", "extending")  # after a restart this may happen a second time
        self.stage = "extending"

    def finish_rest(self, event: ReplanFinished) -> None:
        self._require(event, "extending")
        self._end(event.goes_on_after)

    def _end(self, goes_on_after: str | None) -> None:
        if goes_on_after is not None and goes_on_after not in self.graph.steps:
            raise IllegalTransition(goes_on_after, "the plan continues after it, but there is no such step")
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


def _ends_with(graph: StepGraph, steps: Sequence[Step]) -> bool:
    before = len(graph.steps) - len(steps)
    return before >= 0 and [*islice(graph.steps.values(), before, None)] == [*steps]


# How many causes the error of a run names at most; the cause of each step is in its view.
SHOWN_CAUSES = 10


class Ending:
    def __init__(self) -> None:
        self.cause: Cause | None = None  # why no step starts any more; None until the run is stopped
        self.finished: RunFinished | None = None
        self._stopped: FinishRun | None = None
        self._asked = False

    @property
    def is_due(self) -> bool:
        """Whether the run ends even if its plan is incomplete."""
        return self._stopped is not None or self.finished is not None

    @property
    def is_asked(self) -> bool:
        """Whether the run was asked to finish, or has finished."""
        return self._asked or self.finished is not None

    def stop(self, status: Literal["failed", "cancelled"], reason: str) -> Cause:
        """Let the run end with this status, unless it was stopped before. Return why steps are cancelled."""
        self._stopped = self._stopped or FinishRun(status, reason)
        self.cause = Cause(None, reason)
        return self.cause

    def ask(self, end: FinishRun, doubt: str) -> FinishRun:
        """Return how the run ends, now that all its steps have ended: as `end` says, unless it was stopped."""
        self._asked = True
        return self._stopped or replace(end, doubt=doubt)

    def ask_again(self) -> None:
        """Ask again: a restart lost the command."""
        self._asked = False

    def finish(self, event: RunFinished) -> Cause:
        """Record the end of the run. Return why steps that have not ended are cancelled."""
        self.finished = event
        return Cause(None, event.error or f"the run ended as {event.status}")


class AnswerCheck:
    """The comparison of the answer with the request after the last step, and the repair that may follow."""

    def __init__(self, *, due: bool) -> None:
        self.doubts: tuple[AnswerDoubt, ...] = ()  # about the answer as it is now
        # If steps are "repairing" the answer, it is checked a second time ("asked again").
        self._stage: Literal["due", "asked", "repairing", "asked again", "over"] = "due" if due else "over"
        self._stopped = False

    @property
    def has_begun(self) -> bool:
        """Whether all steps were done, so that the run has an answer which stands whatever happens now."""
        return self._stage in ("asked", "repairing", "asked again")

    @property
    def doubt(self) -> str:
        return " ".join(dict.fromkeys(doubt.text for doubt in self.doubts))

    def ask(self) -> bool:
        """Return whether to compare the answer now that all steps are done, and record that it is asked for."""
        if self._stage not in ("due", "repairing"):
            return False
        self._stage = "asked" if self._stage == "due" else "asked again"
        return True

    def ask_again(self) -> None:
        """Go back one stage, so that a command that a restart lost is issued again."""
        if self._stage == "asked":
            self._stage = "due"
        elif self._stage == "asked again":
            self._stage = "repairing"

    def skip(self) -> None:
        self._stage = "over"

    def stop(self) -> None:
        """Allow no repair, since the run is to end."""
        self._stopped = True

    def take(self, event: AnswerChecked) -> bool:
        """Record the doubts about the answer, and return whether it is to be repaired."""
        if not self.has_begun:
            raise IllegalTransition(None, f"{event.kind} came, but the answer was not to be checked")
        first, self.doubts = self._stage == "asked", event.doubts
        self._stage = "over"
        return first and not self._stopped

    def repair(self) -> None:
        self._stage = "repairing"


def outcome(steps: Sequence[StepRecord], direct: str | None = None) -> FinishRun:
    """Return the end of a run with these steps: failed if one failed, else cancelled if one was cancelled."""
    # The step that has replaced a failed plan decides.
    if any(step.id == direct and step.state is State.DONE for step in steps):
        return FinishRun("done")
    if failed := [str(step.cause) for step in steps if step.state is State.FAILED]:
        return FinishRun("failed", "; ".join(failed[:SHOWN_CAUSES]))
    if cancelled := [str(step.cause) for step in steps if step.state is State.CANCELLED]:
        return FinishRun("cancelled", "; ".join(dict.fromkeys(cancelled[:SHOWN_CAUSES])))
    return FinishRun("done")


# Kinds of failure that come from what models wrote.
_OF_MODELS = frozenset({FailureKind.FORMAT, FailureKind.SCHEMA, FailureKind.CODE, FailureKind.LOGIC})


def answer_directly(steps: Sequence[StepRecord]) -> AnswerDirectly | None:
    """Return the command to continue a run whose plan has failed; None if it has not, or if that would not help."""
    failed = [step for step in steps if step.state is State.FAILED]
    causes = {step.cause for step in failed}
    if not failed or any(step.cause not in causes for step in steps if step.state is State.CANCELLED):
        return None  # nothing has failed, or the user has cancelled a step
    failures = [(step.fans_out, step.failures[-1].failure) for step in map(_origin, failed) if step.failures]
    of_models = [not structural and failure.kind in _OF_MODELS for structural, failure in failures]
    for (structural, failure), of_model in zip(failures, of_models, strict=True):
        # It helps if a list could not be run over, an input could not be read, or gates refused all attempts. It does
        # not help if models cannot run or lack memory or time.
        if not (structural or of_model or (failure.final and failure.kind is FailureKind.RESOURCE)):
            return None
    return AnswerDirectly("; ".join(str(step.cause) for step in failed[:SHOWN_CAUSES]), stronger=any(of_models))


def _origin(step: StepRecord) -> StepRecord:
    # The child that failed first.
    return next((child for child in step.children or () if child.state is State.FAILED), step)
