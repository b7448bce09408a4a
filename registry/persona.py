"""Personas: ways to do the work of a role."""

from dataclasses import dataclass
from typing import Final, Literal

NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
NAME_RULE: Final = "letters, digits, '_', '.' and '-', up to 64 characters"


Maker = Literal["file", "user", "plan", "memory"]


@dataclass(frozen=True, slots=True)
class Persona:
    """A way to do the work of any role: `text` is added to the role's system prompt."""

    name: str
    text: str
    description: str
    maker: Maker = "file"
    retired: bool = False  # only for runs that name it already
