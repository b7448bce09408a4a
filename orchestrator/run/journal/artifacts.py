"""Publish a run's artifacts under their own names, as links to the objects that hold them."""

import errno
import os
import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from orchestrator.run.journal.errors import JournalError, write_error
from orchestrator.run.journal.home import Home
from orchestrator.run.journal.objects import ObjectStore

MOST_TRIES: Final = 100
"""How often a link to an object is tried that other steps replace at the same time. Each replaces it only once."""


def publish(home: Home, objects: ObjectStore, run: str, outputs: Mapping[str, str]) -> Path:
    """Make each artifact of `outputs` (name → digest) appear as `runs/RUN/artifacts/NAME`, and return that folder.

    The names are links to the objects, which can be made again at any time, so that nothing is synced to the disk.
    Raises `DiskFull`, and `JournalError`, also for a name that is a folder of another one.
    """
    folder = home.artifacts(run)
    for name, digest in outputs.items():
        path = _beneath(folder, name)
        try:
            _link(objects.path(digest), path)
        except OSError as error:
            raise write_error(path, "cannot be published", error) from error
    return folder


def _link(source: Path, path: Path) -> None:
    """Make `path` a link to `source`. The folder is created and the old link removed only if the first try fails."""
    try:
        os.link(source, path)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.EEXIST, errno.EMLINK):
            raise
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        _link_or_copy(source, path)


def _link_or_copy(source: Path, path: Path) -> None:
    """Make a link, or a copy if the object has as many links as the file system allows, which are 65,000 on ext4.

    If another step that made the same bytes replaces the object at this moment, linking fails, and is tried again.
    """
    for tries_left in reversed(range(MOST_TRIES)):
        try:
            os.link(source, path)
        except OSError as error:
            if error.errno == errno.ENOENT and tries_left and source.exists():
                continue
            if error.errno != errno.EMLINK:
                raise
            shutil.copyfile(source, path)
        return


def _beneath(folder: Path, name: str) -> Path:
    """Return the path of an artifact. Models choose names too, so a name that leads out of the folder is refused."""
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or "\0" in name:
        raise JournalError(folder, f"{name!r} is no name of an artifact; accepted: relative names without '..'")
    return folder.joinpath(*parts)
