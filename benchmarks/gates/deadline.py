"""Set the deadline of an attempt at code: generous for an answer that comes to its end, short for one that does not."""

import math
from collections.abc import Sequence

from benchmarks.gates.rows import Result

FACTOR = 8
"""Stronger models take up to three times as long, and share the cores; an endless answer takes seventeen times."""


def deadline_of(results: Sequence[Result]) -> float:
    """Return the deadline in seconds: so many times what 95 % of the weakest model's attempts at code took here."""
    seconds = sorted(
        attempt.finished - attempt.started
        for result in results
        if result.family == "code"
        for attempt in result.attempts
        if attempt.finished is not None and attempt.outcome == "done"
    )
    if not seconds:
        raise ValueError("no attempt at code has come to its end; accepted: at least one")
    typical = seconds[math.ceil(0.95 * len(seconds)) - 1]
    return math.ceil(10 * FACTOR * typical) / 10
