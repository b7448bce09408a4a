"""Say which schedules are due, and which of their times were missed."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator.procedures.durable import make_private_folder, replace_file
from orchestrator.service.schedules import LATE_SECONDS, Schedule

FILE: Final = "schedules.json"
# A clock that is set back by more was wrong before; by less, nothing is executed twice (as in Debian's cron).
CLOCK_SET_SECONDS: Final = 3 * 3600.0


@dataclass(frozen=True, slots=True)
class DueSchedule:
    schedule: Schedule
    at: float  # the last time that it was due, in seconds since the epoch
    missed: int  # how many times before that were missed
    is_late: bool  # that last time was missed too


class Calendar:
    """Stores in a file until when each schedule was handled, so that missed times are found.

    `folder` is that of the procedures of a state folder.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._handled = _read(self._path)

    def begin(self, schedules: Sequence[Schedule], now: float) -> None:
        """Handle new schedules from now on, and forget those that are gone. Raises OSError."""
        # A moment far in the future comes from a wrong clock, so the schedule counts as new.
        earlier = {text: until for text, until in self._handled.items() if until <= now + CLOCK_SET_SECONDS}
        handled = {schedule.text: earlier.get(schedule.text, now) for schedule in schedules}
        if handled != self._handled:
            self._handled = handled
            self._write()

    def due(self, schedules: Sequence[Schedule], now: float) -> list[DueSchedule]:
        """Return the schedules whose time has come since they were handled last."""
        due_schedules = []
        for schedule in schedules:
            count, last = schedule.between(self._handled.get(schedule.text, now), now)
            if count:
                due_schedules.append(DueSchedule(schedule, last, count - 1, now - last > LATE_SECONDS))
        return due_schedules

    def handled(self, schedule: Schedule, until: float) -> None:
        """Note, durably, that a schedule was handled until a moment. Raises OSError."""
        self._handled[schedule.text] = until
        self._write()

    def _write(self) -> None:
        make_private_folder(self._path.parent)
        replace_file(self._path, json.dumps(self._handled).encode(), 0o600)


def _read(path: Path) -> dict[str, float]:
    try:
        stated = json.loads(path.read_bytes())
        return {str(text): float(until) for text, until in stated.items()}
    except (OSError, ValueError, TypeError, AttributeError):  # then no time counts as missed
        return {}
