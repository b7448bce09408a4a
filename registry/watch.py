"""Follow the files of a registry while it is in use, and adopt a new version when it is valid.

Files are compared by size, times and inode. A change counts when two polls in a row find the same, since a file that
still changes is being written. A new version is adopted as a whole or not at all. Here, unlike at the start, it is also
a problem if a model is unusable that is new or was usable before, so no edit takes away a working model.

The difference between two versions says which running engines a change affects.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final, Self, TypeVar

import structlog

from orchestrator.files import Signature, Signatures, signature
from orchestrator.registry.errors import RegistryError, RegistryProblem
from orchestrator.registry.gguf import pieces
from orchestrator.registry.load import read_unchecked
from orchestrator.registry.models import ModelEntry, Registry
from orchestrator.registry.strict_yaml import YamlDocument, parse_file

V = TypeVar("V")
NOT_FOR_THE_ENGINE: Final = frozenset(
    {
        "id",
        "aliases",
        "description",
        "residency",
        "memory",
        "prompts",
        "thinking",
        "sampling",
        "step_context",
        "servers",
    }
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
    """Return the files that an engine reads for a model: its own, those that draft, adapters and a library."""
    weights = [*([] if model.file is None else [model.file]), *map(Path, model.options.draft_files)]
    adapters = (*(adapter.file for adapter in model.options.lora), *model.adapters)
    named = (*adapters, *filter(None, (model.options.llama_library,)))
    return frozenset({*(piece for file in weights for piece in pieces(file)), *map(Path, named)})


_NEVER: Final = object()
# Time between two looks at the files; the second look that finds a change adopts it.
POLL_SECONDS: Final = 1.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Reload:
    """The result of a change: another registry to use, or problems that keep it from being adopted."""

    registry: Registry  # to use from now on; unchanged if there are problems
    difference: Difference  # from the one before; empty if there are problems, or if the last ones are solved
    rewritten: frozenset[Path]  # model files with another content than when they were loaded
    problems: tuple[RegistryProblem, ...]


@dataclass(frozen=True, slots=True)
class WatchStatus:
    """How the files compare with the registry in use."""

    path: Path
    adopted: int  # number of versions
    problems: tuple[RegistryProblem, ...]  # why the present files are not adopted


class Reloader:
    """Follows the files of a registry. `poll` blocks on the disk; it is for one thread at a time."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._files = frozenset({registry.path, *registry.signatures, *_model_files(registry)})
        self._before: Signatures = {}
        # Files that are still as they were when the registry was loaded are not read again.
        self._acted: Signatures = dict(registry.signatures)
        self._content = {file: state.content for file, state in self._acted.items() if state is not None}
        self._rewritten: set[Path] = set()
        self.status = WatchStatus(registry.path, 0, ())

    def poll(self) -> Reload | None:
        """Check the files. Return the result of a change, or None if nothing has changed in effect.

        Raises nothing, whatever the files hold. A change since the registry of the constructor was loaded counts.
        """
        current = {file: signature(file) for file in self._files}
        settled = settled_changes(self._acted, self._before, current)
        self._before = current
        if not settled:
            return None
        self._acted = {**self._acted, **settled}
        for file, state in settled.items():
            if state is not None and self._content.setdefault(file, state.content) != state.content:
                self._content[file] = state.content
                self._rewritten.add(file)
        return self._reload()

    def _reload(self) -> Reload | None:
        registry, problems = self._read()
        rewritten = frozenset() if problems else frozenset(self._rewritten)
        self._rewritten -= rewritten
        changed = difference(self._registry, registry, rewritten)
        if not changed and problems == self.status.problems:
            return None
        self._registry = registry
        self.status = WatchStatus(registry.path, self.status.adopted + bool(changed), problems)
        return Reload(registry, changed, rewritten, problems)

    def _read(self) -> tuple[Registry, tuple[RegistryProblem, ...]]:
        try:
            unchecked = read_unchecked(parse_file(self._registry.path))
        except RegistryError as error:
            return self._registry, error.problems
        self._files = _model_files(self._registry).union(unchecked.signatures)
        if problems := unchecked.problems():
            return self._registry, problems
        fresh = unchecked.registry()
        problems = tuple(_unusable(self._registry, fresh, unchecked.document))
        return (self._registry, problems) if problems else (fresh, ())


async def follow(reloader: Reloader, adopt: Callable[[Reload], Awaitable[None]]) -> None:
    """Await `adopt` for each change in the registry's files, also for one with problems. Never ends."""
    while True:
        await asyncio.sleep(POLL_SECONDS)
        reload = await asyncio.to_thread(reloader.poll)
        if reload is not None:
            _log(reload)
            await adopt(reload)


def _log(reload: Reload) -> None:
    changed = reload.difference
    if changed:
        log.info(
            "the registry has changed",
            models=str(changed.models),
            roles=str(changed.roles),
            personas=str(changed.personas),
            settings=changed.settings,
            loaded_anew=sorted(changed.retired),
        )
    for problem in reload.problems:
        log.warning("the registry's files have a problem; the registry stays as it was", problem=str(problem))
    if not changed and not reload.problems:
        log.info("the registry is in order again")


def _unusable(before: Registry, fresh: Registry, document: YamlDocument) -> Iterator[RegistryProblem]:
    # Models that were unusable before are no problem.
    for name, model in fresh.models.items():
        former = before.models.get(name)
        if model.unavailable is not None and (former is None or former.unavailable is None):
            place = ("models", name, "api_key_env" if model.is_remote else "file")
            yield document.problem(place, model.unavailable)


def settled_changes(acted: Signatures, before: Signatures, now: Signatures) -> dict[Path, Signature | None]:
    """Return the files to act on: unchanged since the poll before, and not as they were when last acted on."""
    return {
        file: state
        for file, state in now.items()
        if before.get(file, _NEVER) == state and acted.get(file, _NEVER) != state
    }


def _model_files(registry: Registry) -> frozenset[Path]:
    return frozenset({file for model in registry.models.values() for file in files_of(model)})
