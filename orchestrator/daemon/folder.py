"""Say how much the state folder takes, and whether there is room for more."""

import os
import shutil
from pathlib import Path
from typing import Final

from orchestrator.daemon.configuration import FolderSettings

_GONE: Final = "runs (`orchestrator vacuum`, after `orchestrator delete RUN` too), backups"


def folder_bytes(path: Path) -> int:
    """Return the bytes of all files below a folder, each counted once however many names it has."""
    seen: set[tuple[int, int]] = set()
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                status = os.lstat(os.path.join(folder, name))
            except FileNotFoundError:  # removed meanwhile
                continue
            if (status.st_dev, status.st_ino) not in seen:
                seen.add((status.st_dev, status.st_ino))
                total += status.st_size
    return total


def why_full(path: Path, settings: FolderSettings) -> str | None:
    """Return why no run may be accepted any more, or None. Walks over the folder where its size is limited."""
    free = shutil.disk_usage(path).free
    if free < settings.min_free_bytes:
        less = "lower [folder] min_free_bytes in the configuration"
        told = f"{free} bytes are free on the disk of {path}, {settings.min_free_bytes} have to stay free"
        return f"{told}; accepted when {_GONE} or other files are gone, or {less}"
    if settings.max_bytes and (used := folder_bytes(path)) > settings.max_bytes:
        more = "raise [folder] max_bytes in the configuration (0: no limit)"
        return f"{path} takes {used} bytes, {settings.max_bytes} are allowed; accepted when {_GONE} are gone, or {more}"
    return None
