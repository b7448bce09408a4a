"""The personas of a plan: when a model is told that a part may have one, and which persona a part gets in the end."""

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from orchestrator.errors import OrchestratorError
from orchestrator.task.events import PlanPersona
from orchestrator.task.personas import (
    MAX_PER_PLAN,
    MAX_TEXT,
    persona_name,
    persona_problems,
    place_persona,
    unknown_persona,
)
from registry.models import Persona

MAX_LISTED: Final = 20
"""How many personas of the registry a model is told of."""
_MANNER: Final = re.compile(
    r"\b(persona|historian|expert|tutor|lawyer|critic|in the (style|voice|manner|role|tone) of|"
    r"(write|act|answer|speak|explain|review|respond) (it |this |them )?(as|like) (an?|the)\b|as if you (are|were)|"
    r"you are (an?|the)\b|pretend|from the (viewpoint|perspective|point of view) of)",
    re.IGNORECASE,
)


class PersonaFlaw(OrchestratorError):
    """A persona that a part cannot have; says why."""


def asks_for_manner(request: str) -> bool:
    """Return whether a request speaks of how or as whom something is to be done.

    Models that are offered personas for every request give them to steps that need none.
    """
    return _MANNER.search(request) is not None


def personas_hint(names: Collection[str]) -> str:
    """Return what the model is told about personas, behind the request."""
    there = f", or one of {', '.join([*names][:MAX_LISTED])}" if names else ""
    return (
        '\nA step may have, after its action, "persona": {"name": who does it, '
        f'"text": one sentence to them about how they work}}{there}.'
    )


def persona_schema(names: Collection[str]) -> dict[str, Any]:
    """Return the JSON Schema of the persona of a part."""
    made = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 3, "maxLength": 60},
            "text": {"type": "string", "minLength": 6, "maxLength": MAX_TEXT["plan"]},
        },
        "required": ["name", "text"],
        "additionalProperties": False,
    }
    return {"anyOf": [made, {"enum": [*names][:MAX_LISTED]}]} if names else made


class PlanPersonas:
    """The personas that the parts of one plan can have: those of the registry, and those that the plan has defined."""

    def __init__(self, known: Mapping[str, Persona], defined: Collection[PlanPersona] = ()) -> None:
        """`defined` are those that the parts have defined which were accepted before now."""
        self._known = {**known}
        self._defined = {one.name for one in defined}
        for one in defined:
            self._known.setdefault(one.name, Persona(one.name, one.text, "", "plan"))

    def named(self, name: str) -> str:
        """Return the persona of the registry or of an earlier part that a part names. Raises PersonaFlaw."""
        for one in (name, persona_name(name)):
            if one in self._known:
                return one
        raise PersonaFlaw(str(unknown_persona(name, self._known)))

    def placed(self, called: str, text: str) -> tuple[str, PlanPersona | None]:
        """Return the persona that stands for one which a part defines, and the definition where it is a new one.

        One that says nearly the same as another one is that one. Raises PersonaFlaw.
        """
        name, said = persona_name(called), " ".join(text.split())
        if not name:
            raise PersonaFlaw(f"persona.name: {called[:40]!r} is no name; accepted: a word or two")
        if problems := persona_problems(name, said, maker="plan"):
            raise PersonaFlaw(str(problems[0]))
        place = place_persona(name, said, self._known, "plan")
        if not place.new:
            return place.name, None
        if len(self._defined) >= MAX_PER_PLAN:
            raise PersonaFlaw(f"the plan defines more than {MAX_PER_PLAN} personas; accepted: one of those it has")
        return place.name, PlanPersona(place.name, said)

    def take(self, defined: PlanPersona) -> None:
        """Take a persona into the plan, since its part was accepted."""
        self._defined.add(defined.name)
        self._known[defined.name] = Persona(defined.name, defined.text, "", "plan")
