"""Let a run of an earlier run's job start with what is done there: the plan, and the outputs of finished steps.

A step is made again if the user wants that, if it was not done, if it waits for a step that is made again, or if a file
that it has read, or replaces, is not as it was.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.errors import InputError, Problem
from orchestrator.run.record.steps import RunStep
from orchestrator.run.record.view import RunView
from orchestrator.task.analysis import Source
from orchestrator.task.events import (
    AttemptSucceeded,
    Event,
    NoteChanged,
    PlanFinished,
    ReplanFinished,
    ReplanStarted,
    RunAccepted,
    StepExpanded,
    StepGathered,
    StepReused,
    StepsPlanned,
    Usage,
)
from orchestrator.task.prediction import predict_run
from orchestrator.task.states import State
from orchestrator.task.taskir.models import find_name


@dataclass(frozen=True, slots=True)
class Repeat:
    """The run whose finished steps another run takes over, and the step that is made again in any case."""

    run: str
    step: str


def repeated_events(
    events: Sequence[Event], step: str, accepted: RunAccepted, version: Callable[[str], str]
) -> list[Event]:
    """Return what follows RunAccepted (`accepted`) in a run that makes a step of an ended run again.

    `events` are those of the ended run. `version` returns the digest of a file of the run's folder as it is now.
    Raises InputError for a step that the run does not have, and for one that has replaced the plan.
    """
    view = RunView.of(events)
    view.check_step(step)
    if view.replaced is not None and step == view.replaced.answer.id:
        problem = f"{step} has answered in place of a plan that had failed"
        raise InputError(Problem("step", problem, "a step of the plan, or the whole run"))
    return [*_Repetition(view, events, step, version).events(events, accepted)]


class _Repetition:
    def __init__(self, view: RunView, events: Sequence[Event], step: str, version: Callable[[str], str]) -> None:
        self._view = view
        self._version = version
        # Of the attempts whose outputs stand, by step: the files that they have read, and those that they replace.
        self._reads: dict[str, Mapping[str, str]] = {}
        self._originals: dict[str, Mapping[str, str]] = {}
        for event in events:
            if isinstance(event, AttemptSucceeded | StepReused):
                self._reads[event.step] = event.reads
            if isinstance(event, AttemptSucceeded | StepReused | StepGathered):
                self._originals[event.step] = event.originals
        self._unexpanded: set[str] = set()  # `foreach` steps whose lists are read again
        self._again: set[str] = set()
        self._find_again(step)
        # The rest of a plan follows from what the step before it has written.
        ends = (
            at for at, event in enumerate(events) if isinstance(event, ReplanStarted) and event.after in self._again
        )
        self._end = next(ends, len(events))
        later = [event for event in events[self._end :] if isinstance(event, StepsPlanned)]
        self._add_again(name.id for event in later for name in event.steps)

    def events(self, events: Sequence[Event], accepted: RunAccepted) -> Iterator[Event]:
        """Yield the events of the ended run that hold for the new one, too, at the time when it was accepted."""
        reused = set[str]()
        predicted = predict_run(self._view.graph, accepted)
        for place, event in enumerate(events):
            match event:
                case StepsPlanned() | ReplanStarted() | ReplanFinished() if place >= self._end:
                    continue
                case StepsPlanned(steps=steps):
                    seconds = {step.id: predicted[step.id] for step in steps}
                    yield replace(event, at=accepted.at, predicted=seconds, slowed={})
                case AttemptSucceeded(step=step) | StepGathered(step=step) | StepReused(step=step):
                    if step not in self._again | reused:
                        reused.add(step)
                        yield self._reused(step, accepted.at)
                case _:
                    yield from self._kept(event, accepted.at)

    def _kept(self, event: Event, at: float) -> Iterator[Event]:
        match event:
            case PlanFinished():
                yield replace(event, at=at, forecast=None, usage=Usage(), reasoning="")
            case ReplanStarted():
                yield replace(event, at=at)
            case ReplanFinished():
                yield replace(event, at=at, usage=Usage(), asked=0, reasoning="")
            case StepExpanded(step=step) if step not in self._unexpanded:
                yield replace(event, at=at, usage=Usage())
            case NoteChanged(step=step) if step not in self._again:
                yield replace(event, at=at)

    def _reused(self, step: str, at: float) -> StepReused:
        return StepReused(
            at=at,
            step=step,
            run=self._view.accepted.run,
            outputs=self._view.outputs[step],
            reads=self._reads.get(step, {}),
            originals=self._originals[step],
        )

    def _find_again(self, step: str) -> None:
        steps, graph, again = self._view.state.steps, self._view.graph, self._again
        again |= {step} if self._view.replaced is None else {step, self._view.replaced.answer.id}
        for name in graph.order:
            children = steps[name].children or ()
            if name in again or not again.isdisjoint(graph.before[name]) or not self._has_same_list(steps[name]):
                self._add_again((name,))
                continue
            again |= {child for child in children if not self._stands(steps[child])}
            if not again.isdisjoint(children) or not self._stands(steps[name]):
                again.add(name)

    def _add_again(self, names: Iterable[str]) -> None:
        # With their lists.
        for name in names:
            self._again |= {name, *(self._view.state.steps[name].children or ())}
            self._unexpanded.add(name)

    def _stands(self, row: RunStep) -> bool:
        if row.state is not State.DONE:
            return False
        reads = self._reads.get(row.id, {})
        digests = {**reads, **self._originals.get(row.id, {})}
        if any(self._version(name) != digest for name, digest in digests.items()):
            return False
        # After a restart, gates check outputs without a record of what the attempt has read.
        return row.fans_out or all(name in reads for name in self._files_of(row))

    def _has_same_list(self, row: RunStep) -> bool:
        if not row.fans_out or row.children is None:
            return True
        source = self._sources(row)[row.step.foreach or ""]
        file = self._file(row.step.foreach or "", source)
        if file is None:
            return True
        versions = {self._reads[child][file] for child in row.children if file in self._reads.get(child, {})}
        return versions == {self._version(file)}

    def _files_of(self, row: RunStep) -> list[str]:
        files = (self._file(name, source) for name, source in self._sources(row).items())
        return [file for file in files if file is not None]

    def _file(self, name: str, source: Source) -> str | None:
        # The file of the run's folder that a name stands for; None for anything else.
        accepted, file = self._view.accepted, name
        if source.kind == "artifact":
            return None
        if source.kind == "input":
            task = accepted.task
            inputs = {} if task is None else task.paths | dict(zip(task.labels, task.inputs, strict=True))
            if name not in inputs or inputs[name].type != "path":
                return None
            file = inputs[name].value
        return None if find_name(file, accepted.prior) is not None else file

    def _sources(self, row: RunStep) -> Mapping[str, Source]:
        return self._view.graph.sources[row.parent or row.id]
