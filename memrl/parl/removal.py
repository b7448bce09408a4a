"""Leave one step out of a plan, to try whether the answer needs it. Pure."""

import json
import re
from typing import Any, Final

from orchestrator.task.taskir.json_text import compact_json

LISTS: Final = ("each", "inputs", "after")


def without_a_step(plan: str) -> list[str]:
    """Return a plan without each of its steps in turn, as the frontdoor would write it.

    Of a part with a step for each name, one name is left out; of others, the part, which no other part then names. A
    plan of one step has nothing to leave out.
    """
    parts: list[dict[str, Any]] = json.loads(plan)["plan"]
    shorter: list[list[dict[str, Any]]] = []
    for at, part in enumerate(parts):
        names = part.get("each", [])
        if len(names) > 1:
            for name in names:
                fewer = {**part, "each": [other for other in names if other != name]}
                shorter.append([*parts[:at], fewer, *parts[at + 1 :]])
        elif len(parts) > 1:
            shorter.append([_renumbered(other, at + 1) for other in (*parts[:at], *parts[at + 1 :])])
    return [compact_json({"plan": each}) for each in shorter]


def _renumbered(part: dict[str, Any], removed: int) -> dict[str, Any]:
    # without references to a part that was removed; those to later parts are one less
    changed = dict(part)
    for key in LISTS:
        if key in part:
            changed[key] = [_shifted(name, removed) for name in part[key] if _number(name) != removed]
    if "foreach" in part:
        changed["foreach"] = _shifted(part["foreach"], removed)
        if _number(part["foreach"]) == removed:
            del changed["foreach"]
    return {key: value for key, value in changed.items() if value}


def _shifted(name: str, removed: int) -> str:
    number = _number(name)
    return name if number is None or number < removed else f"P{number - 1}"


def _number(name: str) -> int | None:
    return int(name[1:]) if re.fullmatch(r"P\d+", name) else None
