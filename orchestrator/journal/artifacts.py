"""Show a run's artifacts under their own names, beside the objects that hold them, and export them."""

import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from orchestrator.journal.errors import JournalError
from orchestrator.journal.home import Home
from orchestrator.journal.objects import ObjectStore


def publish(home: Home, objects: ObjectStore, run: str, outputs: Mapping[str, str]) -> Path:
    """Make each artifact of `outputs` (name → digest) appear as `runs/RUN/artifacts/NAME`, and return that folder.

    The names are links to the objects: a view that can be made again at any time, so nothing waits for the disk.
    Raises `JournalError`, also for a name that is a folder of another one.
    """
    folder = home.artifacts(run)
    for name, digest in outputs.items():
        path = _beneath(folder, name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            os.link(objects.path(digest), path)
        except OSError as error:
            raise JournalError(path, f"cannot be published: {error.strerror}") from error
    return folder


def export(objects: ObjectStore, outputs: Mapping[str, str], folder: Path) -> list[Path]:
    """Write each artifact as an ordinary file `NAME` under `folder`, over what was there, and return the files.

    Raises `JournalError`.
    """
    return [_export_one(_beneath(folder, name), objects.get(digest)) for name, digest in outputs.items()]


def _export_one(path: Path, data: bytes) -> Path:
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.unfinished")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_bytes(data)
        unfinished.replace(path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise JournalError(path, f"cannot be written: {error.strerror}") from error
    return path


def _beneath(folder: Path, name: str) -> Path:
    """Return the path of an artifact. Names come from models too, so one that would leave the folder is refused."""
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or "\0" in name:
        raise JournalError(folder, f"{name!r} is no name of an artifact; accepted: relative names without '..'")
    return folder.joinpath(*parts)
