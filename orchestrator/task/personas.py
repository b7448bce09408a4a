"""Say what may be a persona that is made at run time, and where a new one goes: pure, nothing here touches a disk.

Personas of the registry's file are the operator's. At run time more of them come from users, who add them by command or
by API, from plans, whose frontdoor may define one for a step, and from the memory, which proposes one for tasks that
come often and are not done well. All of them are checked here. One that says nearly the same as another one is merged
into it, so that what is learned of the one is learned of the other.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from pydantic import TypeAdapter

from orchestrator.errors import Problem
from orchestrator.task.lexical import embed
from orchestrator.task.taskir import nearest
from registry.forms import NAME, NAME_RULE
from registry.models import Maker, Persona, Registry

MAX_TEXT: Final[Mapping[Maker, int]] = {"user": 4000, "plan": 400, "memory": 400}
"""How many characters the text of a persona may have, by its maker."""
MAX_DESCRIPTION: Final = 400
"""How many characters its description may have."""
MAX_IN_USE: Final = 200
"""How many personas that were made at run time may be in use at a time."""
MAX_PER_PLAN: Final = 4
"""How many personas one plan may define."""
ALIKE: Final = 0.75
"""From this similarity of their texts on, two personas are near-duplicates: the cosine of `lexical.embed`. A
text with other punctuation has about 0.9, one that is reworded 0.7 to 0.8, one about another subject below 0.6."""
RESERVED: Final = frozenset({"auto", "orchestrate", "none"})
"""Names that requests give another meaning."""
_MARKS: Final = re.compile(r"<\|.*?\|>|</?s>|\[/?INST\]|<start_of_turn>|<end_of_turn>|</?think>", re.IGNORECASE)
"""Marks of chat templates, by which a text could pretend to be another message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MadePersona:
    """A persona that was made at run time. The state folder keeps it, also when it is retired."""

    name: str
    text: str
    description: str = ""
    maker: Maker
    by: str = ""
    """The user who made it, or the run whose plan did; empty where the memory did."""
    made: float
    """When it was made, in seconds since the epoch."""
    retired: float | None = None
    """When it was retired, in seconds since the epoch; None while it is in use."""
    why_retired: str = ""

    @property
    def persona(self) -> Persona:
        """The entry of the registry that stands for it."""
        return Persona(self.name, self.text, self.description, self.maker, retired=self.retired is not None)


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a proposed persona went."""

    name: str
    """The persona to use: the proposed one, or the one that says the same."""
    new: bool
    """Whether it has to be added."""
    similarity: float = 1.0
    """How alike its text and that of the persona are which is used in its place."""


_MADE: TypeAdapter[MadePersona] = TypeAdapter(MadePersona)


def encode_persona(one: MadePersona) -> str:
    """Return the persona as one JSON object."""
    return _MADE.dump_json(one).decode()


def decode_persona(body: str) -> MadePersona:
    """Return the persona that `encode_persona` wrote. Raises `ValueError` for anything else."""
    return _MADE.validate_json(body)


def persona_name(words: str) -> str:
    """Return the name for what a plan calls a persona: `harbour-historian` for "Harbour historian"; empty for none."""
    plain = "".join(c for c in unicodedata.normalize("NFKD", words.casefold()) if not unicodedata.combining(c))
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:60].rstrip("-")


def persona_problems(
    name: str, text: str, description: str = "", maker: Maker = "user", where: str = "persona"
) -> list[Problem]:
    """Return what is wrong with a proposed persona by itself; nothing if it may be one."""
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
        what = f"holds {mark.group()[:40]!r}, which marks messages in chat templates"
        problems.append(Problem(f"{where}.text", what, "text without such marks"))
    if len(description) > MAX_DESCRIPTION:
        what = f"has {len(description):,} characters"
        problems.append(Problem(f"{where}.description", what, f"at most {MAX_DESCRIPTION}"))
    elif bad := _unprintable(description, ""):
        problems.append(Problem(f"{where}.description", f"holds the character {bad}", "printable text"))
    return problems


def place_persona(name: str, text: str, personas: Mapping[str, Persona], maker: Maker) -> Placed:
    """Return which persona a proposed one is: a near-duplicate that is there already, or a new one.

    A plan whose persona has the name of another one with another text gets a numbered name, as in `historian-2`.
    """
    there = [*personas.values()]
    vectors = embed([text, *(one.text for one in there)])
    alike = vectors[1:] @ vectors[0]
    best = max(range(len(there)), key=lambda at: (alike[at], there[at].name == name), default=None)
    if best is not None and alike[best] >= ALIKE:
        return Placed(there[best].name, False, float(alike[best]))
    if maker == "plan" and name in personas:
        name = next(numbered for n in range(2, 10_000) if (numbered := f"{name}-{n}") not in personas)
    return Placed(name, True)


def name_taken(name: str, registry: Registry) -> str:
    """Return what has this name already, such as "the role coder"; empty if nothing has.

    Requests name models, roles and personas in the same way.
    """
    if name in registry.personas:
        return f"the persona {name}"
    if name in registry.roles:
        return f"the role {name}"
    return f"the model {model}" if (model := registry.model_named(name)) is not None else ""


def unknown_persona(name: str, known: Iterable[str], where: str = "persona") -> Problem:
    """Return the problem of a name that no persona has."""
    names = sorted(known)
    near, listed = nearest(name, names), ", ".join(names[:40]) + (", …" if len(names) > 40 else "")
    accepted = f"{near}? (one of {listed})" if near else listed or "none: there are no personas"
    return Problem(where, f"there is no persona {_short(name)}", accepted)


def in_use(made: Iterable[MadePersona]) -> dict[str, MadePersona]:
    """Return the personas that are not retired, by name."""
    return {one.name: one for one in made if one.retired is None}


def retired(one: MadePersona, at: float, why: str) -> MadePersona:
    """Return a persona as it is when it was retired at this time."""
    return replace(one, retired=at, why_retired=why)


def _unprintable(text: str, allowed: str) -> str:
    bad = next((c for c in text if not c.isprintable() and c not in allowed), "")
    return f"U+{ord(bad):04X}" if bad else ""


def _short(name: str) -> str:
    return repr(name if len(name) <= 64 else name[:63] + "…")
