"""Decide whether a proposed persona is new, or says nearly the same as an existing one. Pure."""

from collections.abc import Mapping
from typing import Final

from orchestrator.registry.persona import Maker, Persona
from orchestrator.task.lexical import embed
from orchestrator.task.personas import Placed

# Near-duplicates have at least this cosine of `lexical.embed`. Other punctuation gives about 0.9, a reworded text 0.7
# to 0.8, another subject below 0.6.
ALIKE: Final = 0.75


def place_persona(name: str, text: str, personas: Mapping[str, Persona], maker: Maker) -> Placed:
    """Return which persona a proposed one becomes: an existing near-duplicate, or a new one.

    If a plan reuses a name with another text, the name gets a number, as in `historian-2`.
    """
    existing = [*personas.values()]
    vectors = embed([text, *(persona.text for persona in existing)])
    alike = vectors[1:] @ vectors[0]
    best = max(range(len(existing)), key=lambda at: (alike[at], existing[at].name == name), default=None)
    if best is not None and alike[best] >= ALIKE:
        return Placed(existing[best].name, False, float(alike[best]))
    if maker == "plan" and name in personas:
        name = next(numbered for n in range(2, 10_000) if (numbered := f"{name}-{n}") not in personas)
    return Placed(name, True)
