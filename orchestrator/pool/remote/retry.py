"""Compute how long to wait before a request is tried again. Pure: randomness and time are passed in."""

import math
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

TRIES: Final = 4
"""How often a request is sent at most."""
FIRST_PAUSE: Final = 0.5
"""The most seconds between the first and the second try."""
LONGEST_PAUSE: Final = 8.0
"""The most seconds between any two tries, beyond what the server asks for."""
PATIENCE: Final = 30.0
"""If a server asks for more seconds than this, the request fails at once, and the caller decides what follows."""


def pause(tries: int, asked: float | None, chance: float) -> float | None:
    """Return how many seconds to wait after `tries` failed tries, or None if the request is not to be tried again.

    Exponential backoff with full jitter, so that many clients of one server do not come back at the same moment: a
    share `chance` in [0, 1) of FIRST_PAUSE, which doubles with each try. The seconds that the server has `asked` for
    are added.
    """
    if tries >= TRIES or (asked or 0.0) > PATIENCE:
        return None
    return (asked or 0.0) + chance * min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** (tries - 1))


def retry_after(header: str | None, now: datetime) -> float | None:
    """Return the seconds that a Retry-After header (RFC 9110, 10.2.3) asks for; None if it is absent or invalid."""
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
