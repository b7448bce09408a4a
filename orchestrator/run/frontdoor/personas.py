"""The personas of a plan: when a model is offered them, and which one a part gets."""

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from orchestrator.errors import OrchestratorError
from orchestrator.registry.persona import Persona
from orchestrator.task.events import PlanPersona
from orchestrator.task.persona_placing import place_persona
from orchestrator.task.personas import MAX_PER_PLAN, MAX_TEXT, persona_name, persona_problems, unknown_persona

MAX_LISTED: Final = 20  # personas of the registry that a model is told about
_MANNER: Final = re.compile(
    r"\b(persona|historian|expert|tutor|lawyer|critic|in the (style|voice|manner|role|tone) of|"
    r"(write|act|answer|speak|explain|review|respond) (it |this |them )?(as|like) (an?|the)\b|as if you (are|were)|"
    r"you are (an?|the)\b|pretend|from the (viewpoint|perspective|point of view) of)",
    re.IGNORECASE,
)


class PersonaFlaw(OrchestratorError):
    """A persona that a part cannot have; says why."""


def asks_for_manner(request: str) -> bool:
    """Return whether a request says how or as whom something is to be done."""
    # models that are offered personas for every request give them to steps that need none
    return _MANNER.search(request) is not None


def personas_hint(names: Collection[str]) -> str:
    """Return what the model is told about personas, after the request."""
    listed = f", or one of {', '.join([*names][:MAX_LISTED])}" if names else ""
    return (
        '\nA step may have, after its action, "persona": {"name": who does it, '
        f'"text": one sentence to them about how they work}}{listed}.'
    )


def persona_schema(names: Collection[str]) -> dict[str, Any]:
    """Return the JSON Schema of the persona of a part."""
    definition = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 3, "maxLength": 60},
            "text": {"type": "string", "minLength": 6, "maxLength": MAX_TEXT["plan"]},
        },
        "required": ["name", "text"],
        "additionalProperties": False,
    }
    return {"anyOf": [definition, {"enum": [*names][:MAX_LISTED]}]} if names else definition


class PlanPersonas:
    """The personas of the registry, and those that the plan has defined."""

    def __init__(self, personas: Mapping[str, Persona], defined: Collection[PlanPersona] = ()) -> None:
        # `defined` are those of parts that were accepted before
        self._known = {**personas}
        self._defined = {persona.name for persona in defined}
        for persona in defined:
            self._known.setdefault(persona.name, Persona(persona.name, persona.text, "", "plan"))

    def named(self, name: str) -> str:
        """Return the name of an existing persona. Raises PersonaFlaw if there is none of this name."""
        for candidate in (name, persona_name(name)):
            if candidate in self._known:
                return candidate
        raise PersonaFlaw(str(unknown_persona(name, self._known)))

    def placed(self, called: str, text: str) -> tuple[str, PlanPersona | None]:
        """Return the name of a defined persona, and its definition if it is new. Raises PersonaFlaw.

        A persona that says nearly the same as an existing one is that one.
        """
        name, text_line = persona_name(called), " ".join(text.split())
        if not name:
            raise PersonaFlaw(f"persona.name: {called[:40]!r} is no name; accepted: a word or two")
        if problems := persona_problems(name, text_line, maker="plan"):
            raise PersonaFlaw(str(problems[0]))
        place = place_persona(name, text_line, self._known, "plan")
        if not place.new:
            return place.name, None
        if len(self._defined) >= MAX_PER_PLAN:
            raise PersonaFlaw(f"the plan defines more than {MAX_PER_PLAN} personas; accepted: one of those it has")
        return place.name, PlanPersona(place.name, text_line)

    def take(self, defined: PlanPersona) -> None:
        """Add the persona of a part that was accepted."""
        self._defined.add(defined.name)
        self._known[defined.name] = Persona(defined.name, defined.text, "", "plan")
