"""Make the bodies of requests for runs whose answers are as short, or as long, as a measurement needs.

A schema fixes the form and length of the answers, so that it does not matter how well the model does the task.
"""

from collections.abc import Sequence
from typing import Any, Final

Body = dict[str, Any]
DIGITS: Final = [*range(10)]


def short(priority: str = "interactive") -> Body:
    """Return the body of a run of one step, whose answer is two digits."""
    return _body([_step(1, [])], priority)


def modest(priority: str) -> Body:
    """Return the body of a run of one step, whose answer takes some dozens of tokens."""
    return _body([_step(1, [], items=24)], priority)


def lasting() -> Body:
    """Return the body of a batch run that decodes for a long time."""
    return _body([_step(number, [number - 1] if number > 1 else [], items=100) for number in range(1, 13)], "batch")


def chain(steps: int) -> Body:
    """Return the body of a run of width 1: each step reads the output of the one before."""
    return _body([_step(number, [number - 1] if number > 1 else []) for number in range(1, steps + 1)], "interactive")


def layered(steps: int, width: int) -> Body:
    """Return the body of a run of layers of `width` steps: each step reads the outputs of two in the layer before."""
    return _body([_step(number, _above(number, width)) for number in range(1, steps + 1)], "interactive")


def many_lines(width: int) -> Body:
    """Return the body of a run of `width` steps that write for long, none of which waits for another."""
    return _body([_step(number, [], items=200) for number in range(1, width + 1)], "interactive")


def _above(number: int, width: int) -> list[int]:
    layer, place = divmod(number - 1, width)
    if layer == 0:
        return []
    first = (layer - 1) * width
    return [first + place + 1, first + (place + 1) % width + 1] if width > 1 else [first + 1]


def _step(number: int, reads: Sequence[int], items: int = 2) -> dict[str, Any]:
    return {
        "id": f"S{number}",
        "actor": "worker",
        "action": "Go on with the list.",
        "inputs": [f"list{step}.json" for step in reads],
        "outputs": [f"list{number}.json"],
        "output_schema": {
            "type": "array",
            "items": {"enum": DIGITS},  # one key, since a request may have 131,072 keys, and a run 10,000 steps
            "minItems": items,
            "maxItems": items,
        },
        "max_tokens": max(32, 6 * items),
    }


def _body(steps: list[dict[str, Any]], priority: str) -> Body:
    return {"task": {"objective": "a measurement", "plan": {"steps": steps}}, "priority": priority}
