"""Draw the steps of a run as a table: the DAG, and the state, role, speed, time and action of each step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from rich.table import Table
from rich.text import Text

from orchestrator.cli.terminal import STATE_STYLES, Glyphs, counted, one_line, seconds
from orchestrator.run.record.steps import RunStep
from orchestrator.run.record.view import RunView
from orchestrator.task.states import State

if TYPE_CHECKING:
    from orchestrator.run.updates import Progress

MAX_LANES = 10
CELL = 2  # characters per lane
NAMED = 3  # the most steps that a row names in place of a picture
NO_PROGRESS: Final[Mapping[str, "Progress"]] = MappingProxyType({})
# The order in which steps are selected for a small table.
STATES_BY_INTEREST = (
    State.RUNNING,
    State.CHECKING,
    State.FAILED,
    State.READY,
    State.WAITING,
    State.CANCELLED,
    State.DONE,
)


def step_table(
    run: RunView,
    steps: Sequence[RunStep],
    now: float | None,
    signs: Glyphs,
    *,
    progress: Mapping[str, "Progress"] = NO_PROGRESS,
    drawn: bool = True,
) -> Table:
    """Return a row for each of `steps`. `now`, in seconds since the run was accepted, times active steps.

    `progress` is the latest progress of each writing step. With `drawn`, `steps` must be all steps of the run. Without
    it, or if the DAG is too wide to draw, each row starts with the mark of its state and names its dependencies. There
    is a column for nodes if any of `steps` runs elsewhere than on this machine.
    """
    pictures = _pictures(run, steps, signs) if drawn else None
    nodes = {step.id: _nodes(run, step.id, progress) for step in steps}
    has_nodes = any(nodes.values())
    table = Table.grid(padding=(0, 2, 0, 0), expand=True)
    for _ in range(4 + has_nodes):
        table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, justify="right")
    table.add_column(no_wrap=True, justify="right")
    table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    for step in steps:
        started, finished = run.times(step.id)
        end = finished if finished is not None else now
        took = end - started if end is not None and started is not None else None
        rate = _rate(run, step.id, progress)
        table.add_row(
            Text(pictures[step.id] if pictures else signs.states[step.state]),
            Text(step.id),
            Text(step.state, style=STATE_STYLES[step.state]),
            Text(step.role),
            *([Text(nodes[step.id])] if has_nodes else []),
            Text(f"{rate:.0f} tok/s" if rate else ""),
            Text(seconds(took) if took is not None else ""),
            _wait(run, step.id, now, progress)
            or _stage(run, step.id, progress)
            or _remark(step, "" if pictures else _after(run, step, signs)),
        )
    return table


def _rate(run: RunView, step: str, progress: Mapping[str, "Progress"]) -> float:
    attempts = run.attempts.get(step)
    if not attempts:
        return 0.0  # not known
    last = attempts[-1]
    if last.usage.decode_seconds > 0:
        return last.usage.output_tokens / last.usage.decode_seconds
    # While an attempt decodes, its usage is still empty.
    latest = progress.get(step)
    return latest.tokens_per_second if latest is not None and latest.attempt == last.number else 0.0


def _nodes(run: RunView, step: str, progress: Mapping[str, "Progress"]) -> str:
    attempts, latest = run.attempts.get(step), progress.get(step)
    if not attempts:
        return ""
    last = attempts[-1]
    nodes = latest.nodes if latest is not None and latest.attempt == last.number else ()
    return one_line(", ".join(last.usage.nodes or nodes))


def _wait(run: RunView, step: str, now: float | None, progress: Mapping[str, "Progress"]) -> Text | None:
    attempts = run.attempts.get(step)
    if not attempts or not attempts[-1].waits or now is None or attempts[-1].outcome != "running":
        return None
    last, latest = attempts[-1].waits[-1], progress.get(step)
    remaining = None if last.seconds is None else last.since + last.seconds - now
    # Progress of this attempt means that its wait is over.
    if (remaining is not None and remaining <= 0) or (latest is not None and latest.attempt == attempts[-1].number):
        return None
    when = f"waits for {last.model}" if remaining is None else f"waits for {last.model}, {seconds(remaining)} more"
    return Text(f"{when}: {one_line(last.reason)}", style="yellow", no_wrap=True, overflow="ellipsis")


def _stage(run: RunView, step: str, progress: Mapping[str, "Progress"]) -> Text | None:
    attempts, latest = run.attempts.get(step), progress.get(step)
    if not attempts or latest is None or attempts[-1].finished is not None or latest.attempt != attempts[-1].number:
        return None
    return Text(latest.wait, style="cyan", no_wrap=True, overflow="ellipsis") if latest.wait else None


def _pictures(run: RunView, views: Sequence[RunStep], signs: Glyphs) -> dict[str, str] | None:
    marks = {view.id: signs.states[view.state] for view in views}
    drawn = draw_dag(run.graph.order, run.graph.before, marks, signs, growing=run.state.growing)
    if drawn is None:
        return None
    pictures = {step: picture.row for step, picture in drawn.items()}
    pictures.update((view.id, drawn[view.parent].below) for view in views if view.parent)
    return pictures


def _after(run: RunView, step: RunStep, signs: Glyphs) -> str:
    before = run.graph.before.get(step.id, ())
    if not before:
        return ""
    more = f", {signs.more}" if len(before) > NAMED else ""
    return f"after {', '.join(before[:NAMED])}{more}: "


def _remark(view: RunStep, after: str) -> Text:
    text = Text(no_wrap=True, overflow="ellipsis")
    if view.state in (State.FAILED, State.CANCELLED) and view.cause:
        text.append(one_line(str(view.cause)), style=STATE_STYLES[view.state])
        return text
    if view.attempts > 1:
        text.append(f"attempt {view.attempts}: ", style="yellow")
    if view.children is not None:
        text.append(f"{counted(len(view.children), 'item')}: ", style="cyan")
    text.append(f"{after}{one_line(view.step.action)}")
    return text


def select_steps(views: Sequence[RunStep], count: int) -> list[RunStep]:
    """Return the `count` most interesting steps, in their order.

    Running steps come first, then failed ones, then those that run next, then the latest that are done.
    """

    def rank(index: int) -> tuple[int, int]:
        state = views[index].state
        return STATES_BY_INTEREST.index(state), -index if state is State.DONE else index

    return [views[index] for index in sorted(sorted(range(len(views)), key=rank)[:count])]


@dataclass(frozen=True, slots=True)
class Picture:
    row: str  # printed to the left of a step
    below: str  # printed to the left of further lines of the same step


def draw_dag(
    order: Sequence[str],
    before: Mapping[str, Sequence[str]],
    marks: Mapping[str, str],
    glyphs: Glyphs,
    *,
    growing: bool = False,
) -> dict[str, Picture] | None:
    """Return the picture of each step, all equally wide; None if the DAG needs more than MAX_LANES lanes.

    A step has a row, and each result that later steps still wait for a lane:

    ```
    ✓       S1
    │ ✓     S2
    │ │ ✓   S3
    ✓─┴─╯   S4   reads the results of S1, S2 and S3
    ```

    `order` is topological; `before` gives the direct dependencies; `marks` the character that stands for each step.
    In a plan that is still `growing`, the lanes of steps that nothing reads stay open.
    """
    waiting = _consumers(order, before)
    if growing:
        waiting = {step: count or 1 for step, count in waiting.items()}
    lanes: list[str | None] = []
    ended: int | None = None
    rows: dict[str, str] = {}
    below: dict[str, str] = {}
    for step in order:
        needs = set(before[step])
        for name in needs:
            waiting[name] -= 1
        lane = _lane_for(lanes, needs, waiting, ended)
        if lane >= MAX_LANES:
            return None
        lanes.extend([None] * (lane + 1 - len(lanes)))
        rows[step] = _row(lanes, lane, needs, waiting, marks[step], glyphs)
        for index, occupant in enumerate(lanes):
            if occupant in needs and not waiting[occupant]:
                lanes[index] = None
        lanes[lane] = step if waiting[step] else None
        ended = None if waiting[step] else lane
        below[step] = "".join((glyphs.vertical if occupant else " ").ljust(CELL) for occupant in lanes).rstrip()
    width = max(map(len, rows.values()), default=0)
    return {step: Picture(text.ljust(width), below[step].ljust(width)) for step, text in rows.items()}


def _consumers(order: Sequence[str], before: Mapping[str, Sequence[str]]) -> dict[str, int]:
    counts = dict.fromkeys(order, 0)
    for step in order:
        for name in set(before[step]):
            counts[name] += 1
    return counts


def _lane_for(lanes: Sequence[str | None], needs: set[str], waiting: Mapping[str, int], ended: int | None) -> int:
    # A dependency that no other step waits for passes on its lane; else a free lane right of all dependencies is taken.
    lane_indexes = [index for index, name in enumerate(lanes) if name in needs]
    for index in lane_indexes:
        if not waiting[str(lanes[index])]:
            return index
    first = lane_indexes[-1] + 1 if lane_indexes else 0
    # A mark directly below another continues its lane, so the lane that has just ended is not free yet.
    free = (index for index in range(first, len(lanes) + 2) if index != ended and _is_free(lanes, index))
    return next(free)


def _is_free(lanes: Sequence[str | None], index: int) -> bool:
    return index >= len(lanes) or lanes[index] is None


def _row(
    lanes: Sequence[str | None], lane: int, needs: set[str], waiting: Mapping[str, int], mark: str, glyphs: Glyphs
) -> str:
    touched = [index for index, name in enumerate(lanes) if name in needs] + [lane]
    left, right = min(touched), max(touched)
    cells = []
    for index, name in enumerate(lanes):
        if index == lane:
            cell = mark
        elif name is None:
            cell = glyphs.horizontal if left < index < right else " "
        elif name not in needs:
            cell = glyphs.vertical
        elif waiting[name]:
            cell = glyphs.tee if index < right else glyphs.tee_left
        else:
            cell = glyphs.end if index == right else glyphs.join
        cells.append(cell + (glyphs.horizontal if left <= index < right else " ") * (CELL - 1))
    return "".join(cells).rstrip()
