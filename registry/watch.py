"""Follow the files of a registry while it is in use, and take up what changes in them, as `registry.merge` says.

The registry itself, the personas and the models' files are looked at, by size, times and inode; a change is taken up
when two looks in a row have found the same, since a file that still changes is being written.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from registry.diff import Difference, difference, files_of
from registry.errors import RegistryProblem
from registry.merge import KeptOut, Merged, merge
from registry.models import Registry

Seen = Mapping[Path, "Signature | None"]
NEVER: Final = object()


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
    """What a change of the files came to: the registry that is now in force, and what of the files is not in it.

    `rewritten` are model files that have another content than before. `problems` are all that there are, those of
    `kept_out` included. Where there is nothing but problems, `registry` is the same as before, `difference` is empty.
    """

    registry: Registry
    difference: Difference
    rewritten: frozenset[Path]
    kept_out: tuple[KeptOut, ...]
    problems: tuple[RegistryProblem, ...]


@dataclass(frozen=True, slots=True)
class WatchStatus:
    """How the files and the registry in force compare: `taken_up` changes so far, and what is kept out, and why."""

    path: Path
    taken_up: int
    kept_out: tuple[KeptOut, ...]
    problems: tuple[RegistryProblem, ...]


class Reloader:
    """Follows the files of a registry. `poll` blocks on the disk; it is for one thread at a time."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._files = frozenset({registry.path, *_all_files(registry)})
        self._before: Seen = {}
        self._acted: Seen = {}
        self._content: dict[Path, tuple[int, ...]] = {}
        self._rewritten: set[Path] = set()
        self.status = WatchStatus(registry.path, 0, (), ())

    def poll(self) -> Reload | None:
        """Look at the files, and return what has changed in effect, or None. Raises nothing, whatever they hold.

        The first two calls compare the files with the registry that this was made with.
        """
        seen = {file: signature(file) for file in self._files}
        settled = ripe(self._acted, self._before, seen)
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
        merged = merge(self._registry)
        rewritten = self._noticed(merged)
        changed = difference(self._registry, merged.registry, rewritten)
        if merged.files:
            self._files = merged.files
        if not changed and merged.problems == self.status.problems:
            return None
        taken_up = self.status.taken_up + bool(changed)
        self.status = WatchStatus(self._registry.path, taken_up, merged.kept_out, merged.problems)
        if changed:
            self._registry = merged.registry
        return Reload(self._registry, changed, rewritten, merged.kept_out, merged.problems)

    def _noticed(self, merged: Merged) -> frozenset[Path]:
        """Return the rewritten files whose entries were taken up. The others are noticed when theirs are."""
        if not merged.files:
            return frozenset()
        models = merged.registry.models
        held = {entry.name for entry in merged.kept_out if entry.section == "models" and entry.name in models}
        noticed = frozenset(self._rewritten - {file for name in held for file in files_of(models[name])})
        self._rewritten -= noticed
        return noticed


def signature(path: Path) -> Signature | None:
    """Return the signature of a file, or None where there is none that could be looked at."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):  # the latter: a name with a zero byte
        return None
    return Signature(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def ripe(acted: Seen, before: Seen, now: Seen) -> dict[Path, Signature | None]:
    """Return the files to act on: those that are as they were at the last look, and not as they were acted on. Pure."""
    return {
        file: found
        for file, found in now.items()
        if before.get(file, NEVER) == found and acted.get(file, NEVER) != found
    }


def _all_files(registry: Registry) -> set[Path]:
    return {file for model in registry.models.values() for file in files_of(model)}
