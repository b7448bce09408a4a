"""Compare two versions of a registry, and find the running engines that a change affects. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final, Self, TypeVar

from orchestrator.registry.gguf import pieces
from orchestrator.registry.models import ModelEntry, Registry

V = TypeVar("V")
NOT_FOR_THE_ENGINE: Final = frozenset(
    {"id", "aliases", "description", "residency", "memory", "prompts", "thinking", "sampling", "step_context"}
)


@dataclass(frozen=True, slots=True)
class ChangedNames:
    """Differing entries of one kind, in the order of the version that has them."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    @classmethod
    def between(cls, old: Mapping[str, V], new: Mapping[str, V]) -> Self:
        return cls(
            added=tuple(name for name in new if name not in old),
            changed=tuple(name for name in new if name in old and new[name] != old[name]),
            removed=tuple(name for name in old if name not in new),
        )

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)

    def __str__(self) -> str:
        parts = (("added", self.added), ("changed", self.changed), ("removed", self.removed))
        return "; ".join(f"{change} {', '.join(names)}" for change, names in parts if names) or "none"


@dataclass(frozen=True, slots=True)
class Difference:
    """How two versions of a registry differ.

    Only `retired` ends engines: the next request uses the new role, persona or description.
    """

    models: ChangedNames = ChangedNames()
    roles: ChangedNames = ChangedNames()
    personas: ChangedNames = ChangedNames()
    settings: bool = False  # the defaults or the order of the roles
    # Models that were removed, may no longer be loaded, or would be loaded in another way. Their engines end when they
    # are idle.
    retired: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.models or self.roles or self.personas or self.settings or self.retired)


def difference(old: Registry, new: Registry, rewritten: Collection[Path] = ()) -> Difference:
    """Compare two versions of a registry. `rewritten` are model files whose content has changed."""
    return Difference(
        models=ChangedNames.between(old.models, new.models),
        roles=ChangedNames.between(old.roles, new.roles),
        personas=ChangedNames.between(old.personas, new.personas),
        settings=old.defaults != new.defaults or _common(old.roles, new.roles) != _common(new.roles, old.roles),
        retired=frozenset(name for name in old.models if _is_retired(name, old, new, rewritten)),
    )


def _common(names: Mapping[str, V], reference: Mapping[str, V]) -> list[str]:
    return [name for name in names if name in reference]


def _is_retired(name: str, old: Registry, new: Registry, rewritten: Collection[Path]) -> bool:
    if old.models[name].why_not is not None:
        return False
    if name not in new.models or new.models[name].why_not is not None:
        return True
    before, after = old.models[name], new.models[name]
    return _as_loaded(before) != _as_loaded(after) or not files_of(after).isdisjoint(rewritten)


def _as_loaded(model: ModelEntry) -> tuple[object, ...]:
    return tuple(getattr(model, field.name) for field in fields(model) if field.name not in NOT_FOR_THE_ENGINE)


def files_of(model: ModelEntry) -> frozenset[Path]:
    """Return the files that an engine reads for a model: its own, its draft model's, adapters and a library."""
    speculation = model.options.speculation
    weights = [model.file, None if speculation is None else Path(speculation.draft)]
    adapters = (*(adapter.file for adapter in model.options.lora), *model.adapters)
    named = (*adapters, *filter(None, (model.options.llama_library,)))
    return frozenset({*(piece for file in weights if file is not None for piece in pieces(file)), *map(Path, named)})
