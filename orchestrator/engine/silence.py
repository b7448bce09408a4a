"""Notice that a process which owes an answer gives no sign of life any more."""

import asyncio
import time
from collections.abc import Callable


class SilenceWatch:
    """Calls `silent` with the seconds of silence, once there were `limit` of them while `owes` said true.

    It costs one timer, and none while nothing is owed. Use it from the event loop that made it.
    """

    def __init__(self, limit: float, owes: Callable[[], bool], silent: Callable[[float], None]) -> None:
        self.limit = limit
        self._owes = owes
        self._silent = silent
        self._loop = asyncio.get_running_loop()
        self._last_sign = time.monotonic()
        self._timer: asyncio.TimerHandle | None = None

    def heard(self) -> None:
        """Begin the silence anew: there was a sign of life, or nothing was owed until now."""
        self._last_sign = time.monotonic()

    def watch(self) -> None:
        """Look again when the silence would be too long, if something is owed."""
        if self._timer is None and self._owes():
            due = self._last_sign + self.limit - time.monotonic()
            self._timer = self._loop.call_later(max(due, 0.01), self._look)

    def allow(self, seconds: float) -> None:
        """Let the silence last so long, from the last sign of life on."""
        if seconds != self.limit:
            self.limit = seconds
            self.rest()
            self.watch()

    def rest(self) -> None:
        """Stop looking, until `watch` is called."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        silence = time.monotonic() - self._last_sign
        if silence >= self.limit and self._owes():
            self._silent(silence)
        else:
            self.watch()
