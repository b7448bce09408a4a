"""Ask the disk itself whether there is room: not every error of a write says so."""

import os
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final

from orchestrator.journal.errors import NO_ROOM

PROBE_BYTES: Final = 1 << 16
"""That are written to see whether the disk is full: more than a failed write of SQLite has left of a quota."""


def is_full(folder: Path) -> bool:
    """Try whether a little more can be written into a folder."""
    try:
        with TemporaryFile(dir=folder) as file:
            file.write(bytes(PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())  # some file systems tell only now
    except OSError as error:
        return error.errno in NO_ROOM
    return False
