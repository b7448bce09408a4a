"""Personas that were made at run time, as the state folder keeps them."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache

from pydantic import TypeAdapter

from orchestrator.registry.persona import Maker, Persona


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
