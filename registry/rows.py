"""The models and roles of a registry, as commands and the API list them."""

from dataclasses import dataclass

from orchestrator.registry.models import ModelEntry, Registry, RoleEntry


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A model of a registry. What only its file's header says is None if there is none that can be read."""

    id: str
    usable: bool
    why_not: str | None  # None if it is usable
    residency: str
    architecture: str | None
    parameters: int | None
    file_bytes: int | None
    memory_bytes: int | None  # when loaded, with its draft model
    context: int  # tokens
    slots: int
    description: str


@dataclass(frozen=True, slots=True)
class RoleRow:
    """A role of a registry."""

    name: str
    tier: str
    level: str | None
    model: str
    persona: str | None
    escalates_to: str | None
    usable: bool
    why_not: str | None  # None if it is usable
    description: str


def model_rows(registry: Registry) -> list[ModelRow]:
    return [_model(entry) for entry in registry.models.values()]


def role_rows(registry: Registry) -> list[RoleRow]:
    return [_role(entry, registry.why_not(entry.name)) for entry in registry.roles.values()]


def _model(entry: ModelEntry) -> ModelRow:
    header = entry.header
    return ModelRow(
        id=entry.id,
        usable=entry.why_not is None,
        why_not=entry.why_not,
        residency=entry.residency,
        architecture=None if header is None else header.architecture,
        parameters=None if header is None else header.parameters,
        file_bytes=None if header is None else header.file_bytes,
        memory_bytes=None if entry.memory is None else entry.memory.total,
        context=entry.context,
        slots=entry.slots,
        description=entry.description,
    )


def _role(entry: RoleEntry, why_not: str | None) -> RoleRow:
    return RoleRow(
        name=entry.name,
        tier=entry.tier,
        level=entry.level,
        model=entry.model,
        persona=entry.persona,
        escalates_to=entry.escalates_to,
        usable=why_not is None,
        why_not=why_not,
        description=entry.description,
    )
