"""Say when procedures are due by the schedules of the configuration, and which times were missed.

A schedule is a line as crontab(5) has it, with the name of a procedure in place of a command: `0 3 * * * backup`, or
`@daily vacuum days=30`. Times are those of this machine's clock, and around a change to or from summer time they are
those of Debian's cron. Only this file uses cronsim.
"""

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice, takewhile
from pathlib import Path
from typing import Final

from cronsim import CronSim, CronSimError

from procedures.durable import make_private_folder, replace_file

FILE: Final = "schedules.json"
LATE_SECONDS: Final = 300.0
"""A time that is longer ago was missed: the daemon did not run, or the machine slept."""
CLOCK_SET_SECONDS: Final = 3 * 3600.0
"""A clock that is set back by more was wrong before, as Debian's cron has it; by less, nothing is carried out twice."""
MAX_COUNTED: Final = 10_000
"""So many missed times are counted at most."""
_SHORT: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_FIELDS: Final = 5
_FORM: Final = f"MINUTE HOUR DAY MONTH WEEKDAY PROCEDURE [NAME=VALUE ...], or one of {', '.join(_SHORT)} for the times"


class _LocalTime(tzinfo):
    """The time zone of this machine as the C library has it, by TZ or /etc/localtime, with its summer times."""

    def utcoffset(self, when: datetime | None) -> timedelta | None:
        return None if when is None else when.replace(tzinfo=None).astimezone().utcoffset()

    def dst(self, _when: datetime | None) -> None:
        return None

    def tzname(self, _when: datetime | None) -> str:
        return "local"

    def fromutc(self, when: datetime) -> datetime:
        return datetime.fromtimestamp(when.replace(tzinfo=UTC).timestamp()).replace(tzinfo=self)


LOCAL: Final = _LocalTime()


@dataclass(frozen=True, slots=True)
class Schedule:
    """When which procedure is due, with which inputs."""

    text: str
    """The line of the configuration."""
    times: str
    """The cron expression."""
    procedure: str
    inputs: Mapping[str, str]

    def after(self, moment: float) -> float | None:
        """Return the first time it is due after a moment, both in seconds since the epoch; None if it never is again.

        A time that the clock skips in spring is the first one after the change.
        """
        return next(self._from(moment), None)

    def between(self, begin: float, end: float) -> tuple[int, float]:
        """Return how often it was due after `begin` until `end`, `MAX_COUNTED` at most, and when last; 0 for never.

        If it was due more often than is counted, the last time is exact only where it is not late.
        """
        count, last = 0, 0.0
        for time in islice(self._from(begin), MAX_COUNTED):
            if time > end:
                break
            count, last = count + 1, time
        if count == MAX_COUNTED:
            late = takewhile(lambda time: time <= end, self._from(max(begin, end - 2 * LATE_SECONDS)))
            last = max(late, default=last)
        return count, last

    def _from(self, moment: float) -> Iterator[float]:
        times = (found.timestamp() for found in CronSim(self.times, datetime.fromtimestamp(moment, LOCAL)))
        return (time for time in times if time > moment)  # in the hour that is repeated cronsim yields one that is over


@dataclass(frozen=True, slots=True)
class DueSchedule:
    """A schedule whose time has come."""

    schedule: Schedule
    at: float
    """The last time that it was due, in seconds since the epoch."""
    missed: int
    """How many times before that were missed."""
    is_late: bool
    """Whether that last time was missed too."""


def schedule_from(text: str) -> Schedule:
    """Return the schedule that a line of the configuration says. Raises ValueError with what would be accepted."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}; accepted: {_FORM}") from error
    count = 1 if words and words[0] in _SHORT else _FIELDS
    if len(words) <= count:
        raise ValueError(f"{text!r} names no procedure; accepted: {_FORM}")
    times = _SHORT.get(words[0], " ".join(words[:count]))
    try:
        if next(CronSim(times, datetime(2024, 1, 1)), None) is None:
            raise ValueError(f"{text!r} is never due; accepted: {_FORM}")
    except CronSimError as error:
        raise ValueError(f"{text!r}: {error}; accepted: {_FORM}") from error
    inputs = {}
    for word in words[count + 1 :]:
        name, sign, value = word.partition("=")
        if not sign:
            raise ValueError(f"{text!r}: the input {word!r} has no =; accepted: NAME=VALUE")
        inputs[name] = value
    return Schedule(text, times, words[count], inputs)


def schedules_from(texts: Iterable[str]) -> tuple[Schedule, ...]:
    """Return the schedules of a configuration, each once. Raises ValueError."""
    return tuple(schedule_from(text) for text in dict.fromkeys(texts))


class Calendar:
    """Knows until when each schedule was looked after. That is kept in a file, so that missed times are found."""

    def __init__(self, folder: Path) -> None:
        """`folder` is that of the procedures of a state folder."""
        self._path = folder / FILE
        self._handled = _read(self._path)

    def begin(self, schedules: Sequence[Schedule], now: float) -> None:
        """Look after new schedules from now on, and forget those that there are no more. Raises OSError.

        A schedule that was looked after until a moment far in the future, since the clock was wrong, counts as new.
        """
        known = {text: until for text, until in self._handled.items() if until <= now + CLOCK_SET_SECONDS}
        handled = {one.text: known.get(one.text, now) for one in schedules}
        if handled != self._handled:
            self._handled = handled
            self._write()

    def due(self, schedules: Sequence[Schedule], now: float) -> list[DueSchedule]:
        """Return the schedules whose time has come since they were looked after last."""
        found = []
        for one in schedules:
            count, last = one.between(self._handled.get(one.text, now), now)
            if count:
                found.append(DueSchedule(one, last, count - 1, now - last > LATE_SECONDS))
        return found

    def handled(self, schedule: Schedule, until: float) -> None:
        """Note, durably, that a schedule was looked after until a moment. Raises OSError."""
        self._handled[schedule.text] = until
        self._write()

    def _write(self) -> None:
        make_private_folder(self._path.parent)
        replace_file(self._path, json.dumps(self._handled).encode(), 0o600)


def _read(path: Path) -> dict[str, float]:
    """Return what is in the file; nothing if it cannot be read, which only means that no time counts as missed."""
    try:
        stated = json.loads(path.read_bytes())
        return {str(text): float(until) for text, until in stated.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
