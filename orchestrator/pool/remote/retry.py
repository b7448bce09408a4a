"""Compute the pause before a retry. Pure: randomness and time are passed in."""

import math
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

TRIES: Final = 4  # including the first
FIRST_PAUSE: Final = 0.5  # seconds between the first two tries at most
LONGEST_PAUSE: Final = 8.0  # seconds at most, plus what the server asks for
PATIENCE: Final = 30.0  # If a server asks for more seconds, the request fails at once, and the caller decides.


def pause(tries: int, server_seconds: float | None, chance: float) -> float | None:
    """Return the seconds to wait after `tries` failed tries, or None to give up.

    Exponential backoff with full jitter: `chance` in [0, 1) of a pause that doubles with each try, plus the
    `server_seconds` that the server asked for.
    """
    if tries >= TRIES or (server_seconds or 0.0) > PATIENCE:
        return None
    # The jitter keeps the clients of one server from returning at the same moment.
    return (server_seconds or 0.0) + chance * min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** (tries - 1))


def retry_after(header: str | None, now: datetime) -> float | None:
    """Return the seconds of a Retry-After header (RFC 9110, 10.2.3); None if it is absent or invalid."""
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
