"""Describe an event in one line, for the user."""

from orchestrator.cli.terminal import one_line
from orchestrator.task.events import (
    AnswerChecked,
    AttemptCancelled,
    AttemptFailed,
    AttemptGenerated,
    AttemptStarted,
    AttemptSucceeded,
    CancelRequested,
    Event,
    ModelAwaited,
    NoteChanged,
    PlanFailed,
    PlanFinished,
    PlanningStarted,
    PlanReplaced,
    RatingGiven,
    ReplanFinished,
    ReplanStarted,
    RunAccepted,
    RunBegun,
    RunFinished,
    StepExpanded,
    StepGathered,
    StepsPlanned,
    ToolCalled,
)

ACTION_LENGTH = 60  # characters of an action that are shown


def progress_line(event: Event) -> str:
    """Return one line about an event; empty for an event that is not shown while a run continues."""
    match event:
        case AttemptStarted() | AttemptGenerated() | AttemptSucceeded() | AttemptFailed() | AttemptCancelled():
            return _attempt_line(event)
        case PlanningStarted() | StepsPlanned() | PlanFinished() | PlanFailed():
            return _plan_line(event)
        case ReplanStarted() | ReplanFinished() | PlanReplaced():
            return _later_plan_line(event)
        case ToolCalled() | NoteChanged() | ModelAwaited():
            return _work_line(event)
        case RunAccepted() | RunBegun() | AnswerChecked() | RunFinished():
            return _run_line(event)
        case StepExpanded():
            return f"{event.step} expanded into {event.count} items"
        case StepGathered():
            return f"{event.step} done: all of its items"
        case CancelRequested():
            return f"{event.step or 'run'}: {event.reason}"
        case RatingGiven():
            note = f": {one_line(event.note)}" if event.note else ""
            return f"{event.step or 'run'} rated {event.score:g} by {one_line(event.by)}{note}"


def _work_line(event: ToolCalled | NoteChanged | ModelAwaited) -> str:
    match event:
        case ToolCalled():
            why = f", {one_line(event.message)}" if event.message else ""
            return f"{event.step} called {one_line(event.tool)}: {event.outcome}{why}"
        case NoteChanged():
            return f"{event.step} {event.change} note {event.note}"
        case ModelAwaited():
            return f"{event.step or 'plan'} waits: {one_line(event.reason)}"


def _run_line(event: RunAccepted | RunBegun | AnswerChecked | RunFinished) -> str:
    match event:
        case RunAccepted():
            why = f": {one_line(event.mode_choice.reason)}" if event.mode == "direct" and event.mode_choice else ""
            return f"run {event.run} accepted, {event.mode}{why}"
        case RunBegun():
            return "run begun"
        case AnswerChecked():
            return f"doubtful: {one_line(' '.join(doubt.text for doubt in event.doubts))}" if event.doubts else ""
        case RunFinished():
            doubt = f", but doubtful: {one_line(event.doubt)}" if event.doubt else ""
            return f"run {event.status}{doubt}" + (f": {event.error}" if event.error else "")


def _plan_line(
    event: PlanningStarted | StepsPlanned | PlanFinished | PlanFailed,
) -> str:
    match event:
        case PlanningStarted():
            return "" if event.direct else f"planning: {event.role} on {event.model}"
        case StepsPlanned():
            return _planned_line(event)
        case PlanFinished():
            return f"plan {_end(event)}, {event.origin}" + (f": {event.reason}" if event.reason else "")
        case PlanFailed():
            return (
                f"missing: {'; '.join(event.missing)}" if event.missing else f"planning failed: {event.failure.message}"
            )


def _later_plan_line(event: ReplanStarted | ReplanFinished | PlanReplaced) -> str:
    match event:
        case PlanReplaced():
            return f"the plan has failed, {event.answer.id} answers directly: {one_line(event.reason)}"
        case ReplanStarted():
            return f"planning the rest, after {event.after}: {event.role} on {event.model}"
        case ReplanFinished():
            return f"rest of the plan {_end(event)}, {event.outcome}" + (f": {event.reason}" if event.reason else "")


def _end(event: PlanFinished | ReplanFinished) -> str:
    return f"goes on after {event.goes_on_after}" if event.goes_on_after else "finished"


def _attempt_line(
    event: AttemptStarted | AttemptGenerated | AttemptSucceeded | AttemptFailed | AttemptCancelled,
) -> str:
    again = f" (attempt {event.number})" if event.number > 1 else ""
    match event:
        case AttemptStarted():
            persona = f", persona {event.persona}" if event.persona else ""
            return f"{event.step} started{again}: {event.role} on {event.model}{persona}"
        case AttemptGenerated():
            usage = event.usage
            speed = f", {usage.output_tokens / usage.decode_seconds:.0f} tok/s" if usage.decode_seconds > 0 else ""
            thought = f" ({usage.reasoning_tokens} of thoughts)" if usage.reasoning_tokens else ""
            return f"{event.step} generated{again}: {usage.output_tokens} tokens{thought}{speed}"
        case AttemptSucceeded():
            return f"{event.step} done{again}"
        case AttemptFailed():
            return f"{event.step} failed{again}: {event.failure.kind}: {one_line(event.failure.message)}"
        case AttemptCancelled():
            return f"{event.step} cancelled{again}"


def _planned_line(event: StepsPlanned) -> str:
    if len(event.steps) == 1:
        step = event.steps[0]
        action = one_line(step.action)
        short = action if len(action) <= ACTION_LENGTH else action[: ACTION_LENGTH - 3] + "..."
        return f"{step.id} planned: {step.actor}: {short}"
    return f"{len(event.steps)} steps planned: {event.steps[0].id} to {event.steps[-1].id}" if event.steps else ""
