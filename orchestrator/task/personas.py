"""Check personas that are made at run time, and decide where a new one goes. Pure: nothing here touches a disk.

Users add personas by command or API, a plan may define one for a step, and the memory proposes some for frequent tasks
that go badly. A near-duplicate is merged into the existing persona, so that both share what is learned.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from pydantic import TypeAdapter

from orchestrator.errors import Problem
from orchestrator.registry.persona import NAME, NAME_RULE, Maker, Persona
from orchestrator.task.taskir.problems import nearest


@dataclass(frozen=True, slots=True, kw_only=True)
class MadePersona:
    """A persona that was made at run time. The state folder keeps it even when it is retired."""

    name: str
    text: str
    description: str = ""
    maker: Maker
    by: str = ""  # the user, or the run whose plan defined it; empty for the memory
    made: float  # seconds since the epoch, like `retired`
    retired: float | None = None  # None while it is in use
    why_retired: str = ""

    @property
    def persona(self) -> Persona:
        return Persona(self.name, self.text, self.description, self.maker, retired=self.retired is not None)


@cache  # built at the first use, which most commands never reach
def _made() -> TypeAdapter[MadePersona]:
    return TypeAdapter(MadePersona)


def encode_persona(persona: MadePersona) -> str:
    return _made().dump_json(persona).decode()


def decode_persona(body: str) -> MadePersona:
    """Return the persona that `encode_persona` wrote. Raises `ValueError`."""
    return _made().validate_json(body)


def in_use(made: Iterable[MadePersona]) -> dict[str, MadePersona]:
    return {persona.name: persona for persona in made if persona.retired is None}


def retired(persona: MadePersona, at: float, why: str) -> MadePersona:
    return replace(persona, retired=at, why_retired=why)


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
