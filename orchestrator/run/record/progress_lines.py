"""Describe in sentences what happens to a run, for whoever waits for its answer."""

from collections.abc import Iterator, Mapping, Sequence

from orchestrator.task.events import (
    AnswerChecked,
    AttemptCancelled,
    AttemptFailed,
    AttemptStarted,
    AttemptSucceeded,
    CancelRequested,
    EscalationTarget,
    Event,
    ModelAwaited,
    NoteChanged,
    PlanFailed,
    PlanFinished,
    PlanningStarted,
    PlanReplaced,
    ReplanFinished,
    ReplanStarted,
    RetryRequested,
    RunAccepted,
    RunFinished,
    StepExpanded,
    StepGathered,
    StepPrioritised,
    StepReused,
    StepsPlanned,
    ToolCalled,
)
from orchestrator.task.taskir.models import Step


class ProgressLines:
    """Describes the events of one run. It needs each of them, from the first one on."""

    def __init__(self) -> None:
        self._steps = 0
        self._above: Mapping[str, EscalationTarget] = {}  # the role that takes over from each role
        self._roles: dict[str, str] = {}  # of the latest attempt at each step
        self._failed: set[str] = set()  # the steps whose latest attempt has failed

    def lines(self, event: Event) -> tuple[str, ...]:
        """Return the sentences about an event, without line breaks at their ends; may be none.

        Sentences about a step start with the step's id.
        """
        match event:
            case RunAccepted(run=run, rungs=rungs):
                self._above = rungs
                mode_choice = event.mode_choice if event.mode == "direct" else None
                direct = () if mode_choice is None else (f"It is answered directly: {_in_line(mode_choice.reason)}",)
                return (f"Run {run} is accepted.", *direct)
            case CancelRequested(step=step, reason=reason):
                return (f"{step or 'The run'} is to be cancelled: {_in_line(reason)}",)
            case RetryRequested(step=step):
                return (f"{step} is stopped, to be tried again: the user wants that.",)
            case StepPrioritised(step=step):
                return (f"{step} goes first from now on, with what it waits for.",)
            case StepReused(step=step, run=run):
                return (f"{step} is done: run {run} has made it.",)
            case AnswerChecked(doubts=doubts, corrections=corrections):
                corrected = (f"The answer is corrected: {_in_line(correction.text)}" for correction in corrections)
                return (*corrected, *(f"The answer is doubtful: {_in_line(doubt.text)}" for doubt in doubts))
            case RunFinished(status=status, error=error, doubt=doubt):
                why = f": {_in_line(error)}" if error else "."
                doubtful = (f"Its answer is doubtful: {_in_line(doubt)}",) if doubt else ()
                return (f"The run is {status}{why}", *doubtful)
            case ModelAwaited(step=step, reason=reason):
                return (f"{step or 'The plan'} waits: {_in_line(reason)}",)
        return self._of_plan(event) or self._of_step(event)

    def _of_step(self, event: Event) -> tuple[str, ...]:
        match event:
            case AttemptStarted():
                return (self._begun(event),)
            case AttemptFailed(step=step, failure=failure):
                self._failed.add(step)
                return (f"{step} failed ({failure.kind}): {_in_line(failure.message)}",)
            case AttemptSucceeded(step=step) | StepGathered(step=step):
                return (f"{step} is done.",)
            case AttemptCancelled(step=step):
                return (f"{step} is cancelled.",)
            case StepExpanded(step=step, read_as="whole"):
                return (f"{step} runs once for all of the text, which is no list.",)
            case StepExpanded(step=step, count=count):
                relisted = (
                    " The list was asked for again, as the first text was none." if event.read_as == "asked" else ""
                )
                return (f"{step} runs {count} times, once for each item of its list.{relisted}",)
            case ToolCalled(step=step, tool=tool, outcome=outcome):
                why = f": {_in_line(event.message)}" if event.message else ""
                return (f"{step} has called {tool}: {outcome}{why}",)
            case NoteChanged(step=step, note=note, change=change):
                return (f"{step} has {change} the note {note}.",)
        return ()

    def _of_plan(self, event: Event) -> tuple[str, ...]:
        match event:
            case PlanningStarted(role=role, model=model, direct=direct):
                return () if direct else (f"{role} plans, on {model}.",)
            case StepsPlanned(steps=steps):
                return self._planned(steps, {persona.name: persona.text for persona in event.personas})
            case PlanFinished(origin=origin, reason=reason, goes_on_after=after):
                how = f" ({origin}: {_in_line(reason)})" if reason else ""
                rest = f", and continues after {after}" if after is not None else ""
                return (f"The plan has {_counted(self._steps)}{rest}{how}.",)
            case PlanReplaced(answer=step, reason=reason):
                failed = f"The plan has failed: {_in_line(reason)}"
                return (failed, f"The request is answered directly. {_planned_step(step)}")
            case PlanFailed(missing=(_, *_) as missing):
                return tuple(f"Missing: {_in_line(sentence)}." for sentence in missing)
            case PlanFailed(failure=failure):
                return (f"There is no plan: {_in_line(failure.message)}",)
            case ReplanStarted(after=after, role=role, model=model):
                return (f"{role} plans what follows {after}, on {model}.",)
            case ReplanFinished(after=after, outcome=outcome, reason=reason):
                why = f": {_in_line(reason)}" if reason else "."
                return (f"The plan after {after} is {outcome}{why}",)
        return ()

    def _planned(self, steps: Sequence[Step], personas: dict[str, str]) -> tuple[str, ...]:
        self._steps += len(steps)
        lines = [f"Persona {name}: {_in_line(text)}" for name, text in personas.items()]
        return (*lines, *(_planned_step(step) for step in steps))

    def _begun(self, event: AttemptStarted) -> str:
        before, failed = self._roles.get(event.step), event.step in self._failed
        self._roles[event.step] = event.role
        self._failed.discard(event.step)
        who = f"{event.role} on {event.model}"
        if before is None:
            return f"{event.step} begins: {who}."
        if failed and event.role in self._all_above(before):
            return f"{event.step} escalates from {before} to {event.role}, on {event.model} (attempt {event.number})."
        how = "is tried again" if failed else "is begun again after an interruption"
        return f"{event.step} {how}: {who} (attempt {event.number})."

    def _all_above(self, role: str) -> Iterator[str]:
        # Those that take over directly or later.
        passed = {role}
        while (target := self._above.get(role)) is not None and target.role not in passed:
            role = target.role
            passed.add(role)
            yield role


def _planned_step(step: Step) -> str:
    reads = f" Reads {', '.join(step.inputs)}." if step.inputs else ""
    per_item = f" Once for each item of {step.foreach}." if step.foreach is not None else ""
    after = f" After {', '.join(step.depends_on)}." if step.depends_on else ""
    return f"{step.id}, {step.actor}: {_in_line(step.action)}{per_item}{reads}{after} Writes {', '.join(step.outputs)}."


def _counted(steps: int) -> str:
    return f"{steps} step" if steps == 1 else f"{steps} steps"


def _in_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 300 else f"{line[:300]}…"
