"""Show a run while it runs: a live table in a terminal, plain lines in a pipe, nothing under `--json`."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from orchestrator.cli.report_view import format_nodes
from orchestrator.cli.step_table import NO_PROGRESS, select_steps, step_table
from orchestrator.cli.terminal import STATE_STYLES, Glyphs, counted, glyphs, one_line, seconds, write
from orchestrator.run.record.view import RunView
from orchestrator.run.updates import Progress
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
    RetryRequested,
    RunAccepted,
    RunBegun,
    RunFinished,
    StepExpanded,
    StepGathered,
    StepPrioritised,
    StepReused,
    StepsPlanned,
    ToolCalled,
)
from orchestrator.task.states import State

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
            return f"{event.step} expanded into {counted(event.count, 'item')}"
        case StepGathered():
            return f"{event.step} done: all of its items"
        case CancelRequested() | RetryRequested() | StepPrioritised() | StepReused():
            return _steering_line(event)
        case RatingGiven():
            note = f": {one_line(event.note)}" if event.note else ""
            return f"{event.step or 'run'} rated {event.score:g} by {one_line(event.by)}{note}"


def _steering_line(event: CancelRequested | RetryRequested | StepPrioritised | StepReused) -> str:
    match event:
        case CancelRequested():
            return f"{event.step or 'run'}: {event.reason}"
        case RetryRequested():
            return f"{event.step} stopped, {event.reason}"
        case StepPrioritised():
            return f"{event.step} goes first, with what it waits for"
        case StepReused():
            return f"{event.step} done, by run {event.run}"


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
            results = (("corrected", event.corrections), ("doubtful", event.doubts))
            return "; ".join(
                f"{label}: {one_line(' '.join(doubt.text for doubt in doubts))}" for label, doubts in results if doubts
            )
        case RunFinished():
            doubt = f", but doubtful: {one_line(event.doubt)}" if event.doubt else ""
            return f"run {event.status}{doubt}" + (f": {event.error}" if event.error else "")


def _plan_line(event: PlanningStarted | StepsPlanned | PlanFinished | PlanFailed) -> str:
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
    return f"continues after {event.goes_on_after}" if event.goes_on_after else "finished"


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
            tokens = counted(usage.output_tokens, "token")
            return f"{event.step} generated{again}: {tokens}{thought}{speed}{format_nodes(usage)}"
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


FRAMES_PER_SECOND = 8
DRAWING_SHARE = 20  # drawing takes at most one part in this many of the time
LINES_AROUND_ROWS = 7  # lines of a frame that are not rows of steps
# Without a terminal: seconds of silence until a line tells the progress, and until one says "still at work".
PROGRESS_PAUSE = 2.0
STILL_PAUSE = 10.0
TAIL_LENGTH = 200  # characters that are kept of a step's latest text
TAIL_SHOWN = 50  # characters of these that are shown


class RunDisplay:
    """Shows runs to the user while they run. `begin` comes before the first run, `end` after the last one.

    This one shows nothing: with --json, stdout holds one JSON object, and stderr nothing.
    """

    def begin(self) -> None:
        """Do nothing."""

    def event(self, event: Event) -> None:
        """Show an event. This base class shows nothing."""

    def progress(self, progress: Progress) -> None:
        """Do nothing."""

    def show_message(self, text: str) -> None:
        """Do nothing."""

    def end(self) -> None:
        """Do nothing."""

    async def animate(self) -> None:
        """Do nothing."""


class PlainDisplay(RunDisplay):
    """Writes one line per event, with the seconds since the run was accepted."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.time) -> None:
        self._console = console
        self._clock = clock
        self._start: float | None = None
        self._written = clock()

    def event(self, event: Event) -> None:
        if self._start is None or isinstance(event, RunAccepted):
            self._start = event.at
        if line := progress_line(event):
            self._print(f"{event.at - self._start:8.2f} s  {one_line(line)}")

    def progress(self, progress: Progress) -> None:
        if self._clock() - self._written < PROGRESS_PAUSE:
            return
        name = progress.step or "plan"
        self._print_now(f"{name}: {progress.wait}" if progress.wait else f"{name} is {progress.words}")

    async def animate(self) -> None:
        while True:
            await asyncio.sleep(STILL_PAUSE)
            # Models take a while to load, and long prompts to read
            if self._clock() - self._written >= STILL_PAUSE:
                self._print_now("still at work" if self._start is not None else "models are being loaded")

    def _print_now(self, line: str) -> None:
        since = f"{max(0.0, self._clock() - self._start):8.2f} s  " if self._start is not None else ""
        self._print(f"{since}{line}")

    def show_message(self, text: str) -> None:
        self._print(text)

    def _print(self, line: str) -> None:
        self._written = self._clock()
        write(lambda: self._console.print(Text(line), soft_wrap=True))


class LiveDisplay(RunDisplay):
    """Redraws the DAG with the state, role and speed (tokens per second) of each step until the run has ended."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._run: RunView | None = None
        self._progress: dict[str, Progress] = {}
        self._message = "ctrl-C cancels"
        self._tail = ("", "")  # the step that writes, and its latest text
        self._skew = 0.0  # seconds by which this clock was ahead of the latest event

    def begin(self) -> None:
        self._live.start()

    def end(self) -> None:
        """Restore the terminal. May be called more than once, also from a signal handler."""
        write(self._live.stop)

    def event(self, event: Event) -> None:
        if isinstance(event, RunAccepted):
            self._run, self._progress = RunView(event), {}
        else:
            assert self._run is not None, "a run's first event is RunAccepted"
            self._run.apply(event)
        self._tail = ("", "")
        self._skew = time.time() - event.at

    def progress(self, progress: Progress) -> None:
        self._progress[progress.step] = progress
        label = f"{progress.step or 'plan'} thinks" if progress.thinking else progress.step
        self._tail = (label, progress.text_tail[-TAIL_LENGTH:])

    def show_message(self, text: str) -> None:
        self._message = text
        self._refresh()

    async def animate(self) -> None:
        while True:
            # Draw also when nothing happens, since a frame shows the time that has passed.
            start = time.monotonic()
            self._refresh()
            elapsed = time.monotonic() - start
            await asyncio.sleep(max(1 / FRAMES_PER_SECOND, elapsed * DRAWING_SHARE))

    def _refresh(self) -> None:
        height = max(4, self._console.size.height - LINES_AROUND_ROWS)
        now, signs = time.time() - self._skew, glyphs(self._console)
        frame = render(self._run, now, height, self._message, self._tail, signs, self._progress)
        write(lambda: self._live.update(frame, refresh=True))


def render(
    run: RunView | None,
    now: float,
    height: int,
    message: str,
    tail: tuple[str, str],
    signs: Glyphs,
    progress: Mapping[str, Progress] = NO_PROGRESS,
) -> Group:
    """Return one frame with at most `height` rows of steps. `now` is in seconds since the epoch.

    `message` is the last line. `tail` is the step that writes or thinks (empty: the plan), and its latest text.
    `progress` is the latest progress of each active step; its empty key is the plan.
    """
    foot = Text(message, no_wrap=True, overflow="ellipsis", style="dim")
    step, text = tail
    if text:  # behind the message, so that a narrow terminal cuts off the tail first
        foot.append(f"  {step or 'plan'}: {one_line(text)[-TAIL_SHOWN:]}", style="italic")
    if run is None:
        return Group(Text("starting", style="bold"), Text(), Text(), foot)
    now = max(0.0, now - run.accepted.at)
    return Group(*_head(run, now), Text(), *_rows(run, now, height, signs, progress), Text(), foot)


def _head(run: RunView, now: float) -> tuple[Text, Text]:
    steps = [step for step in run.steps() if step.parent is None]
    done_count = sum(step.state is State.DONE for step in steps)
    head = Text(one_line(run.title), style="bold", no_wrap=True, overflow="ellipsis")
    status = Text(f"{run.accepted.run}  ", no_wrap=True, overflow="ellipsis")
    status.append(run.status, style=STATE_STYLES.get(run.status, ""))
    elapsed = run.wall_seconds if run.ended else now
    status.append(f"  {run.accepted.mode}  {done_count} of {len(steps)} done  {seconds(elapsed)}")
    if steps and run.state.growing:
        status.append("  more steps may come", style="dim")
    return head, status


def _rows(run: RunView, now: float, height: int, signs: Glyphs, progress: Mapping[str, Progress]) -> list[Text | Table]:
    steps = list(run.steps())
    if not steps:
        return [_planning(progress)] if run.status == "planning" else []
    if len(steps) <= height:
        return [step_table(run, steps, now, signs, progress=progress)]
    selected = select_steps(steps, height - 1)
    counts = Counter(step.state for step in steps)
    states = ", ".join(f"{counts[state]} {state}" for state in State if counts[state])
    more = Text(f"{len(steps) - len(selected)} more; of all: {states}", style="dim")
    return [step_table(run, selected, now, signs, progress=progress, drawn=False), more]


def _planning(progress: Mapping[str, Progress]) -> Text:
    text = Text("the frontdoor is making a plan", style="dim")
    if (plan := progress.get("")) is not None and plan.wait:
        text.append(f": {plan.wait}")
    return text


def choose_display(out: Console, err: Console, *, as_json: bool) -> RunDisplay:
    """Return the live display if both stdout and stderr are terminals, the silent one for JSON, else plain lines."""
    if as_json:
        return RunDisplay()
    if out.is_terminal and err.is_terminal:
        return LiveDisplay(err)
    return PlainDisplay(err)
