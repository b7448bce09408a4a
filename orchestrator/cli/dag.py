"""Draw a DAG as text: a row for each step, and a lane for each result that later steps still wait for.

```
✓       S1
│ ✓     S2
│ │ ✓   S3
✓─┴─╯   S4   reads the results of S1, S2 and S3
```
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.cli.terminal import Glyphs

MAX_LANES = 10
CELL = 2  # characters per lane


@dataclass(frozen=True, slots=True)
class Picture:
    row: str  # printed to the left of a step
    below: str  # printed to the left of further lines of the same step


def draw(
    order: Sequence[str],
    before: Mapping[str, Sequence[str]],
    marks: Mapping[str, str],
    glyphs: Glyphs,
    *,
    growing: bool = False,
) -> dict[str, Picture] | None:
    """Return the picture of each step, all equally wide; None if the DAG needs more than MAX_LANES lanes.

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
        for index, held in enumerate(lanes):
            if held in needs and not waiting[held]:
                lanes[index] = None
        lanes[lane] = step if waiting[step] else None
        ended = None if waiting[step] else lane
        below[step] = "".join((glyphs.vertical if held else " ").ljust(CELL) for held in lanes).rstrip()
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
    held = [index for index, name in enumerate(lanes) if name in needs]
    for index in held:
        if not waiting[str(lanes[index])]:
            return index
    first = held[-1] + 1 if held else 0
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
