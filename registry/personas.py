"""Load a personas file."""

from pathlib import Path

from registry.forms import PersonasForm, read_form
from registry.models import Persona
from registry.strict_yaml import parse_file


def load_personas(path: Path) -> dict[str, Persona]:
    """Return the personas in `path` by name. Raises RegistryError."""
    return personas_of(read_form(PersonasForm, parse_file(path)))


def personas_of(form: PersonasForm) -> dict[str, Persona]:
    """Return the personas that a form holds, by name."""
    return {name: Persona(name, entry.text, entry.description) for name, entry in form.personas.items()}
