"""Decide when a server that keeps failing is left alone, and when it is tried again. Pure: time is passed in.

    closed ──THRESHOLD failures in a row──▶ open ──after the pause──▶ half-open ──the probe is answered──▶ closed
                                             ▲                            │
                                             └────the probe fails; the pause doubles

While it is half-open one request goes through, the probe. It closes the circuit as soon as the server answers, so that
nobody waits for the end of a long answer; but one more failure, before anything has gone well, opens it again.
"""

from dataclasses import dataclass, replace
from typing import Final, Literal

THRESHOLD: Final = 5
FIRST_PAUSE: Final = 5.0
LONGEST_PAUSE: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """The state of one circuit. Times are in seconds, from any clock that never runs backwards.

    A request that may go has a permit: the `epoch` it was let through in. A new epoch begins whenever the circuit
    opens, so that what was asked before says nothing about the server as it is afterwards. `until` holds while it is
    open, `failures` (in a row) while it is closed; `pause` is how long it opens for the next time.
    """

    state: Literal["closed", "open", "half-open"] = "closed"
    epoch: int = 0
    failures: int = 0
    pause: float = FIRST_PAUSE
    until: float = 0.0

    def ask(self, now: float) -> tuple["Breaker", int | None]:
        """Return the permit of a request that wants to go now, or None: it may not."""
        if self.state == "closed":
            return self, self.epoch
        if self.state == "open" and now >= self.until:
            return replace(self, state="half-open"), self.epoch
        return self, None

    def answered(self, permit: int) -> "Breaker":
        """The server has begun to answer."""
        if self.state == "half-open" and permit == self.epoch:
            return replace(self, state="closed", failures=THRESHOLD - 1)
        return self

    def succeeded(self, permit: int) -> "Breaker":
        """A request has gone well to its end."""
        if self.state == "open" or permit != self.epoch:
            return self
        return Breaker(epoch=self.epoch)

    def failed(self, permit: int, now: float) -> "Breaker":
        """The server failed a request."""
        if self.state == "open" or permit != self.epoch:
            return self
        if self.state == "closed" and self.failures + 1 < THRESHOLD:
            return replace(self, failures=self.failures + 1)
        pause = min(2 * self.pause, LONGEST_PAUSE)
        return Breaker(state="open", epoch=self.epoch + 1, pause=pause, until=now + self.pause)

    def abandoned(self, permit: int) -> "Breaker":
        """The caller gave a request up: that says nothing of the server, but a probe has to be made anew."""
        if self.state == "half-open" and permit == self.epoch:
            return replace(self, state="open")
        return self

    def rests_for(self, now: float) -> float:
        """Return for how many seconds no request may go, 0 if one may or if a probe is on its way."""
        return max(0.0, self.until - now) if self.state == "open" else 0.0


CLOSED: Final = Breaker()
"""A circuit that has seen nothing yet."""
