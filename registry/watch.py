"""Follow the files of a registry while it is in use, and adopt a new version of it when it is valid.

The registry's own file, the personas and the models' files are compared with what they were: by size, times and inode.
A change counts when two looks in a row have found the same, since a file that still changes is being written.

A new version is adopted as a whole or not at all. While its files have a problem, the registry stays as it was. One
problem counts here that does not count at the start: a model cannot be used, for instance because its file is still
being copied, and it could be used before or is new. So no edit takes away a model that works.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from registry.diff import Difference, difference, files_of
from registry.errors import RegistryError, RegistryProblem
from registry.load import read_unchecked
from registry.models import Registry
from registry.strict_yaml import YamlDocument, parse_file

Signatures = Mapping[Path, "Signature | None"]
"""Files and what they were when they were looked at; None for one that could not be looked at."""
_NEVER: Final = object()


@dataclass(frozen=True, slots=True)
class Signature:
    """What tells two contents of a file apart without reading it. Times are in nanoseconds.

    `changed` is that of the inode: a file that may be read from now on has no other `modified` than before.
    """

    device: int
    inode: int
    size: int
    modified: int
    changed: int

    @property
    def content(self) -> tuple[int, ...]:
        """Return what stays the same as long as nobody writes."""
        return self.device, self.inode, self.size, self.modified


@dataclass(frozen=True, slots=True)
class Reload:
    """What a change of the files led to: another registry to use, or problems that keep it from being adopted."""

    registry: Registry
    """The registry to use from now on. If there are problems it is the same as before."""
    difference: Difference
    """How `registry` differs from the one before; empty if there are problems, or if the last ones are solved."""
    rewritten: frozenset[Path]
    """Model files whose content has changed since they were loaded."""
    problems: tuple[RegistryProblem, ...]


@dataclass(frozen=True, slots=True)
class WatchStatus:
    """How the files compare with the registry that is in use."""

    path: Path
    adopted: int
    """How many new versions have been adopted so far."""
    problems: tuple[RegistryProblem, ...]
    """Why the files, as they are now, are not adopted; empty if they are."""


class Reloader:
    """Follows the files of a registry. `poll` blocks on the disk; it is for one thread at a time."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._files = frozenset({registry.path, *_model_files(registry)})
        self._before: Signatures = {}
        self._acted: Signatures = {}
        self._content: dict[Path, tuple[int, ...]] = {}
        self._rewritten: set[Path] = set()
        self.status = WatchStatus(registry.path, 0, ())

    def poll(self) -> Reload | None:
        """Look at the files. Return what a change of them led to, or None if nothing has changed in effect.

        Raises nothing, whatever the files hold. The first two calls compare the files with the registry that this
        object was made with.
        """
        seen = {file: signature(file) for file in self._files}
        settled = settled_changes(self._acted, self._before, seen)
        self._before = seen
        if not settled:
            return None
        self._acted = {**self._acted, **settled}
        for file, found in settled.items():
            if found is not None and self._content.setdefault(file, found.content) != found.content:
                self._content[file] = found.content
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
        """Read the files anew. Return the registry that they make, or the present one and why they make none."""
        try:
            unchecked = read_unchecked(parse_file(self._registry.path))
        except RegistryError as error:
            return self._registry, error.problems
        self._files = unchecked.files | _model_files(self._registry)
        if problems := unchecked.problems():
            return self._registry, problems
        fresh = unchecked.registry()
        problems = tuple(_unusable(self._registry, fresh, unchecked.document))
        return (self._registry, problems) if problems else (fresh, ())


def _unusable(before: Registry, fresh: Registry, document: YamlDocument) -> Iterator[RegistryProblem]:
    """Yield a problem for each model that cannot be used, except for those that could not be used before either."""
    for name, model in fresh.models.items():
        former = before.models.get(name)
        if model.unavailable is not None and (former is None or former.unavailable is None):
            place = ("models", name, "file" if model.remote is None else "api_key_env")
            yield document.problem(place, model.unavailable)


def signature(path: Path) -> Signature | None:
    """Return the signature of a file, or None where there is none that could be looked at."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):  # the latter: a name with a zero byte
        return None
    return Signature(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def settled_changes(acted: Signatures, before: Signatures, now: Signatures) -> dict[Path, Signature | None]:
    """Return the files to act on: those that are as in the look before, and not as they were when last acted on."""
    return {
        file: found
        for file, found in now.items()
        if before.get(file, _NEVER) == found and acted.get(file, _NEVER) != found
    }


def _model_files(registry: Registry) -> frozenset[Path]:
    return frozenset({file for model in registry.models.values() for file in files_of(model)})
