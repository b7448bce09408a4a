"""Check personas that are made at run time, and decide where a new one goes. Pure: nothing here touches a disk.

Users add personas by command or API, a plan may define one for a step, and the memory proposes some for frequent tasks
that go badly. A near-duplicate is merged into the existing persona, so that both share what is learned.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from orchestrator.errors import Problem
from orchestrator.registry.models import Registry
from orchestrator.registry.names import NAME, NAME_RULE
from orchestrator.registry.persona import Maker
from orchestrator.task.taskir.problems import nearest

MAX_TEXT: Final[Mapping[Maker, int]] = {"user": 4000, "plan": 400, "memory": 400}  # characters
MAX_DESCRIPTION: Final = 400  # characters
MAX_IN_USE: Final = 200  # personas made at run time
MAX_PER_PLAN: Final = 4
RESERVED: Final = frozenset({"auto", "orchestrate", "none"})  # have another meaning in requests
# With marks of chat templates, a text could pretend to be another message.
_MARKS: Final = re.compile(r"<\|.*?\|>|</?s>|\[/?INST\]|<start_of_turn>|<end_of_turn>|</?think>", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Placed:
    name: str  # the proposed persona, or its near-duplicate
    new: bool  # it has to be added
    similarity: float = 1.0  # cosine of its text and that of the persona used instead


def persona_name(words: str) -> str:
    """Return the name for a plan's words: `harbour-historian` for "Harbour historian"; empty for none."""
    plain = "".join(c for c in unicodedata.normalize("NFKD", words.casefold()) if not unicodedata.combining(c))
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:60].rstrip("-")


def persona_problems(
    name: str, text: str, description: str = "", maker: Maker = "user", where: str = "persona"
) -> list[Problem]:
    """Return what is wrong with a proposed persona by itself."""
    problems = []
    if not re.fullmatch(NAME, name):
        problems.append(Problem(f"{where}.name", f"{_short(name)} is no name", NAME_RULE))
    elif name in RESERVED:
        problems.append(Problem(f"{where}.name", f"{name!r} means something else", "another name"))
    most = MAX_TEXT[maker]
    if not text.strip():
        problems.append(Problem(f"{where}.text", "is empty", f"1 to {most:,} characters"))
    elif len(text) > most:
        problems.append(Problem(f"{where}.text", f"has {len(text):,} characters", f"1 to {most:,}"))
    elif bad := _unprintable(text, "\n\t" if maker == "user" else ""):
        problems.append(Problem(f"{where}.text", f"holds the character {bad}", "printable text"))
    elif mark := _MARKS.search(text):
        message = f"holds {mark.group()[:40]!r}, which marks messages in chat templates"
        problems.append(Problem(f"{where}.text", message, "text without such marks"))
    if len(description) > MAX_DESCRIPTION:
        message = f"has {len(description):,} characters"
        problems.append(Problem(f"{where}.description", message, f"at most {MAX_DESCRIPTION}"))
    elif bad := _unprintable(description, ""):
        problems.append(Problem(f"{where}.description", f"holds the character {bad}", "printable text"))
    return problems


def name_taken(name: str, registry: Registry) -> str:
    """Return what has this name already, such as "the role coder"; empty if nothing has."""
    # Requests name models, roles and personas in the same way.
    if name in registry.personas:
        return f"the persona {name}"
    if name in registry.roles:
        return f"the role {name}"
    return f"the model {model}" if (model := registry.model_named(name)) is not None else ""


def unknown_persona(name: str, known: Iterable[str], where: str = "persona") -> Problem:
    names = sorted(known)
    near, listed = nearest(name, names), ", ".join(names[:40]) + (", …" if len(names) > 40 else "")
    accepted = f"{near}? (one of {listed})" if near else listed or "none: there are no personas"
    return Problem(where, f"there is no persona {_short(name)}", accepted)


def _unprintable(text: str, allowed: str) -> str:
    bad = next((c for c in text if not c.isprintable() and c not in allowed), "")
    return f"U+{ord(bad):04X}" if bad else ""


def _short(name: str) -> str:
    return repr(name if len(name) <= 64 else name[:63] + "…")
