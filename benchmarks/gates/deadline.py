"""Compute the deadline of an attempt at code: long enough for answers that end, short for those that do not."""

import math
from collections.abc import Sequence

from benchmarks.gates.rows import Result

FACTOR = 8
"""The multiple of a typical attempt. Stronger models need up to 3, and share the cores; an endless answer needs 17."""


def deadline_of(results: Sequence[Result]) -> float:
    """Return the deadline in seconds: FACTOR times what 95 % of successful attempts at code took at most.

    Raises ValueError if there is no successful attempt at code.
    """
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
