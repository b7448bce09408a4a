"""Tell two versions of a registry apart, and which running engines the change concerns. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final, Self, TypeVar

from registry.gguf import pieces
from registry.models import ModelEntry, Registry

V = TypeVar("V")
NOT_FOR_THE_ENGINE: Final = frozenset({"id", "description", "residency", "memory"})


@dataclass(frozen=True, slots=True)
class Names:
    """Entries of one kind, by what became of them; each in the order of the version that has it."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    @classmethod
    def between(cls, old: Mapping[str, V], new: Mapping[str, V]) -> Self:
        """Compare two versions."""
        return cls(
            added=tuple(name for name in new if name not in old),
            changed=tuple(name for name in new if name in old and new[name] != old[name]),
            removed=tuple(name for name in old if name not in new),
        )

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)

    def __str__(self) -> str:
        parts = (("added", self.added), ("changed", self.changed), ("removed", self.removed))
        return "; ".join(f"{what} {', '.join(names)}" for what, names in parts if names) or "none"


@dataclass(frozen=True, slots=True)
class Difference:
    """What changed. `settings` tells of what concerns all entries together: the defaults, the order of the roles.

    `retired` are the models of the old version whose engine, if one runs, no longer is what the registry says: those
    that were removed, may not be loaded any more, or would be loaded in another way. It ends when nobody uses it.
    Whatever else changes is taken up by the next request: a role, a persona, a description, when a model is loaded.
    """

    models: Names = Names()
    roles: Names = Names()
    personas: Names = Names()
    settings: bool = False
    retired: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.models or self.roles or self.personas or self.settings or self.retired)


def difference(old: Registry, new: Registry, rewritten: Collection[Path] = ()) -> Difference:
    """Compare two versions of a registry. `rewritten` are model files whose content is no longer the same."""
    return Difference(
        models=Names.between(old.models, new.models),
        roles=Names.between(old.roles, new.roles),
        personas=Names.between(old.personas, new.personas),
        settings=old.defaults != new.defaults or _common(old.roles, new.roles) != _common(new.roles, old.roles),
        retired=frozenset(name for name in old.models if _is_retired(name, old, new, rewritten)),
    )


def _common(names: Mapping[str, V], others: Mapping[str, V]) -> list[str]:
    return [name for name in names if name in others]


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
    """Return the files that an engine reads when it loads a model: its own, its draft model's, and its adapters."""
    speculation = model.options.speculation
    weights = [model.file, None if speculation is None else Path(speculation.draft)]
    adapters = (Path(adapter.file) for adapter in model.options.lora)
    return frozenset({*(piece for file in weights if file is not None for piece in pieces(file)), *adapters})
