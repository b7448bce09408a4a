"""Tell whether a file has changed without reading it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Signature:
    """Tells two contents of a file apart without reading it. Times are in nanoseconds."""

    device: int
    inode: int
    size: int
    modified: int
    changed: int  # of the inode; a file that becomes readable has the same `modified` as before

    @property
    def content(self) -> tuple[int, ...]:
        """The part that stays the same as long as nobody writes."""
        return self.device, self.inode, self.size, self.modified


Signatures = Mapping[Path, Signature | None]  # None for a file that could not be read


def signature(path: Path) -> Signature | None:
    """Return the signature of a file, or None if it cannot be read."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):  # the latter: a name with a zero byte
        return None
    return Signature(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
