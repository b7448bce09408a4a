"""Draw the steps of a run as a table: the DAG, and the state, role, speed, time and action of each step."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from orchestrator.cli import dag
from orchestrator.cli.board import Board
from orchestrator.cli.terminal import STATE_STYLES, Glyphs, one_line, seconds
from orchestrator.scheduler import State, StepView

NAMED = 3
TELLING = (
    State.RUNNING,
    State.CHECKING,
    State.FAILED,
    State.READY,
    State.WAITING,
    State.CANCELLED,
    State.DONE,
)


def step_table(
    board: Board, views: Sequence[StepView], now: float | None, signs: Glyphs, *, drawn: bool = True
) -> Table:
    """Return a row for each of `views`. `now`, in seconds since the epoch, times what still runs.

    With `drawn`, `views` has to be all steps of the board; without, or where the DAG is too wide to draw, each row
    begins with the mark of its state and says which steps it comes after.
    """
    pictures = _pictures(board, views, signs) if drawn else None
    table = Table.grid(padding=(0, 2, 0, 0), expand=True)
    for _ in range(4):
        table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, justify="right")
    table.add_column(no_wrap=True, justify="right")
    table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    for view in views:
        row = board.row(view.id)
        finished = row.finished if row.finished is not None else now
        took = finished - row.started if finished is not None and row.started is not None else None
        table.add_row(
            Text(pictures[view.id] if pictures else signs.states[view.state]),
            Text(view.id),
            Text(view.state, style=STATE_STYLES[view.state]),
            Text(view.role),
            Text(f"{row.rate:.0f} tok/s" if row.rate else ""),
            Text(seconds(took) if took is not None else ""),
            _remark(board, view, "" if pictures else _after(board, view, signs)),
        )
    return table


def _pictures(board: Board, views: Sequence[StepView], signs: Glyphs) -> dict[str, str] | None:
    graph = board.graph
    if graph is None:
        return None
    marks = {view.id: signs.states[view.state] for view in views}
    drawn = dag.draw(graph.order, graph.before, marks, signs, growing=board.growing)
    if drawn is None:
        return None
    pictures = {step: picture.row for step, picture in drawn.items()}
    pictures.update((view.id, drawn[view.parent].below) for view in views if view.parent)
    return pictures


def _after(board: Board, view: StepView, signs: Glyphs) -> str:
    """Return what stands for the picture of a step: the first of the steps that it comes after."""
    before = board.graph.before.get(view.id, ()) if board.graph else ()
    if not before:
        return ""
    more = f", {signs.more}" if len(before) > NAMED else ""
    return f"after {', '.join(before[:NAMED])}{more}: "


def _remark(board: Board, view: StepView, after: str) -> Text:
    text = Text(no_wrap=True, overflow="ellipsis")
    if view.state in (State.FAILED, State.CANCELLED) and view.cause:
        text.append(one_line(str(view.cause)), style=STATE_STYLES[view.state])
        return text
    if view.attempts > 1:
        text.append(f"attempt {view.attempts}: ", style="yellow")
    if view.children is not None:
        text.append(f"{len(view.children)} items: ", style="cyan")
    text.append(f"{after}{one_line(view.step.action)}")
    return text


def most_telling(views: Sequence[StepView], count: int) -> list[StepView]:
    """Return `count` steps in their order: what runs, then failures, then what comes next, then what was done last."""

    def rank(index: int) -> tuple[int, int]:
        state = views[index].state
        return TELLING.index(state), -index if state is State.DONE else index

    return [views[index] for index in sorted(sorted(range(len(views)), key=rank)[:count])]
