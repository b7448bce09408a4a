"""Be the daemon, but one that can be told to die at any write, and whose system clock can be set.

`python doomed_daemon.py FOLDER`: in FOLDER the file `arm` holds a number n; from when it is there, the n-th write of
the journal is the last thing that the process does, and the file `died` says which kind it was. The file `clock` holds
the seconds by which the system clock is off.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from orchestrator.app import daemon
from orchestrator.run.journal import journal
from orchestrator.run.journal.store import EventRow, JournalRow, RefusedEvents, Store


class Doom:
    """Counts writes, once it is armed, and kills this process at the chosen one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._left: int | None = None
        self._lock = Lock()

    def reach(self, point: str) -> None:
        """Take note of a write, and do not return if it is the last one."""
        with self._lock:
            if self._left is None:
                self._left = self._armed()
            if self._left is None:
                return
            self._left -= 1
            if self._left == 0:
                (self._folder / "died").write_text(point)
                os.kill(os.getpid(), signal.SIGKILL)

    def _armed(self) -> int | None:
        try:
            return int((self._folder / "arm").read_text())
        except FileNotFoundError:
            return None


def doomed_store(doom: Doom) -> type[Store]:
    """Return a store that may die with a row inserted but not committed, and with rows committed but not told."""

    class DoomedStore(Store):
        def append(self, groups: Iterable[Sequence[JournalRow]]) -> list[RefusedEvents | None]:
            refused = super().append(groups)
            doom.reach("committed")
            return refused

        def _append_row(self, row: EventRow) -> None:
            super()._append_row(row)
            doom.reach(f"inserted {row.kind}")

    return DoomedStore


def dying(doom: Doom, point: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """Return the call, with a point to die at before it."""

    def called(*arguments: Any, **named: Any) -> Any:
        doom.reach(point)
        return call(*arguments, **named)

    return called


def jumping(folder: Path, clock: Callable[[], float]) -> Callable[[], float]:
    """Return the system clock, off by what the file says at the moment."""

    def told() -> float:
        try:
            return clock() + float((folder / "clock").read_text())
        except (FileNotFoundError, ValueError):
            return clock()

    return told


if __name__ == "__main__":
    place = Path(sys.argv[1])
    fate = Doom(place)
    journal.Store = doomed_store(fate)  # type: ignore[attr-defined]
    os.fsync = dying(fate, "before an fsync", os.fsync)
    os.link = dying(fate, "before a link", os.link)
    time.time = jumping(place, time.time)
    sys.exit(daemon())
