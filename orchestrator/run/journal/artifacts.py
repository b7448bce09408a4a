"""Publish a run's artifacts under their own names, as links to the objects that hold them.

System prompts and personas are objects, too, so that events can name the versions that an attempt used.
"""

import errno
import os
import shutil
from collections.abc import Mapping
from functools import lru_cache, partial
from pathlib import Path, PurePosixPath
from typing import Final

from orchestrator.registry.models import Registry
from orchestrator.run.journal.errors import JournalError, write_error
from orchestrator.run.journal.home import Home
from orchestrator.run.journal.journal import Journal
from orchestrator.run.journal.objects import ObjectStore, digest_of
from orchestrator.run.journal.writer import retry_when_disk_full
from orchestrator.task.events import PromptDigests

# How often a link to an object is tried that other steps replace meanwhile. Each replaces it only once.
MOST_TRIES: Final = 100


def publish(home: Home, objects: ObjectStore, run: str, outputs: Mapping[str, str]) -> Path:
    """Make each artifact of `outputs` (name → digest) appear as `runs/RUN/artifacts/NAME`, and return that folder.

    Raises `DiskFull`, and `JournalError`, also for a name that is a folder of another one.
    """
    folder = home.artifacts(run)
    for name, digest in outputs.items():
        path = _beneath(folder, name)
        try:
            # A link can be made again at any time, so nothing is synced to the disk.
            _link(objects.path(digest), path)
        except OSError as error:
            raise write_error(path, "cannot be published", error) from error
    return folder


def _link(source: Path, path: Path) -> None:
    # The folder is created and the old link removed only if the first try fails.
    try:
        os.link(source, path)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.EEXIST, errno.EMLINK):
            raise
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        _link_or_copy(source, path)


def _link_or_copy(source: Path, path: Path) -> None:
    for tries_left in reversed(range(MOST_TRIES)):
        try:
            os.link(source, path)
        except OSError as error:
            # Another step that made the same bytes replaces the object at this moment.
            if error.errno == errno.ENOENT and tries_left and source.exists():
                continue
            if error.errno != errno.EMLINK:  # the object has as many links as the file system allows: 65,000 on ext4
                raise
            shutil.copyfile(source, path)
        return


def _beneath(folder: Path, name: str) -> Path:
    parts = PurePosixPath(name).parts  # models choose names, too, so a name must not lead out of the folder
    if not parts or name.startswith("/") or ".." in parts or "\0" in name:
        raise JournalError(folder, f"{name!r} is no name of an artifact; accepted: relative names without '..'")
    return folder.joinpath(*parts)


async def keep_prompts(journal: Journal, registry: Registry) -> None:
    """Store the prompts of all roles and personas, once the disk has room for them. Raises JournalError."""
    systems = {registry.system(role, model) for role in registry.roles for model in registry.models}
    texts = systems | {persona.text for persona in registry.personas.values()}
    # Never released, since any attempt may name them.
    for text in sorted(texts - {""}):
        await retry_when_disk_full(partial(journal.put, text.encode()))


def prompt_digests(registry: Registry, role: str, persona: str | None, model: str) -> PromptDigests:
    """Return the digests of an attempt's prompts; empty for a role, persona or model that is gone."""
    system = registry.system(role, model) if role in registry.roles else ""
    added = registry.personas[persona].text if persona is not None and persona in registry.personas else ""
    shipped = registry.models[model].prompts.stamp if model in registry.models else ""
    return PromptDigests(_digest(system), _digest(added), shipped)


@lru_cache(maxsize=256)
def _digest(text: str) -> str:
    return digest_of(text.encode()) if text else ""
