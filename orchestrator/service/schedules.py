"""Say when procedures are due by the schedules of the configuration.

A schedule is a line as in crontab(5), with the name of a procedure instead of a command: `0 3 * * * backup`, or
`@daily vacuum days=30`. Times are local to this machine; when summer time starts or ends, they are those of Debian's
cron. Only this file uses cronsim.
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice, takewhile
from typing import Final

from cronsim import CronSim, CronSimError

LATE_SECONDS: Final = 300.0  # an earlier time was missed: the daemon did not run, or the machine slept
MAX_COUNTED: Final = 10_000  # missed times
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


class _LocalTime(tzinfo):  # the C library's, by TZ or /etc/localtime, with its summer times
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

    text: str  # the line of the configuration
    times: str  # the cron expression
    procedure: str
    inputs: Mapping[str, str]

    def after(self, moment: float) -> float | None:
        """Return the first time it is due after `moment`, both in seconds since the epoch; None if never again.

        A time that the clock skips in spring is the first one after the change.
        """
        return next(self._from(moment), None)

    def between(self, begin: float, end: float) -> tuple[int, float]:
        """Return how often it was due after `begin` until `end`, `MAX_COUNTED` at most, and when last; 0: never.

        Beyond that count, the last time is exact only if it is not late.
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
        times = (due.timestamp() for due in CronSim(self.times, datetime.fromtimestamp(moment, LOCAL)))
        return (time for time in times if time > moment)  # in the hour that is repeated cronsim yields one that is over


def schedule_from(text: str) -> Schedule:
    """Parse a line of the configuration. Raises ValueError with what would be accepted."""
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
    """Parse the schedules of a configuration, each once. Raises ValueError."""
    return tuple(schedule_from(text) for text in dict.fromkeys(texts))
