"""Models, roles and personas: what this installation has, typed and checked when it is read."""

from registry.errors import GgufError, RegistryError, RegistryProblem
from registry.gguf import GgufHeader, read_header
from registry.load import find_registry, load_registry
from registry.memory import MemoryEstimate
from registry.models import Defaults, Endpoint, ModelEntry, Persona, PromptLookup, Registry, RoleEntry, Speculation

__all__ = [
    "Defaults",
    "Endpoint",
    "GgufError",
    "GgufHeader",
    "MemoryEstimate",
    "ModelEntry",
    "Persona",
    "PromptLookup",
    "Registry",
    "RegistryError",
    "RegistryProblem",
    "RoleEntry",
    "Speculation",
    "find_registry",
    "load_registry",
    "read_header",
]
