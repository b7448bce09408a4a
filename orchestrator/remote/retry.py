"""Say how long to wait before a server is asked again. Pure: chance and time are passed in."""

import math
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

TRIES: Final = 4
FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 8.0
PATIENCE: Final = 30.0
"""A server that asks for more seconds than this is not waited for: whoever wants the answer decides what follows."""


def pause(tries: int, asked: float | None, chance: float) -> float | None:
    """Return the seconds to wait after `tries` in vain, or None: enough.

    Exponential with full jitter: anything up to FIRST_PAUSE, doubling with each try, so that many clients of one
    server do not come back at the same moment. `chance` is in [0, 1). What the server has `asked` for is waited for in
    any case.
    """
    if tries >= TRIES or (asked or 0.0) > PATIENCE:
        return None
    return (asked or 0.0) + chance * min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** (tries - 1))


def retry_after(header: str | None, now: datetime) -> float | None:
    """Read a Retry-After header (RFC 9110, 10.2.3): seconds or a date. None if it is absent or makes no sense."""
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        return _until(header, now)
    return seconds if 0 <= seconds < math.inf else None


def _until(date: str, now: datetime) -> float | None:
    try:
        when = parsedate_to_datetime(date)
    except ValueError:
        return None
    return max(0.0, ((when if when.tzinfo else when.replace(tzinfo=UTC)) - now).total_seconds())
