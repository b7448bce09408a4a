"""A circuit breaker: decides when a server that keeps failing is not asked for a while. Pure: time is passed in.

    closed ──THRESHOLD failures in a row──▶ open ──after the pause──▶ half-open ──the probe is answered──▶ closed
                                             ▲                            │
                                             └────the probe fails; the pause doubles

While the circuit is half-open, one request goes through: the probe. The circuit closes as soon as the server begins to
answer the probe, so that other requests need not wait for the end of a long answer. One more failure before a request
has succeeded opens it again.
"""

from dataclasses import dataclass, replace
from typing import Final, Literal

THRESHOLD: Final = 5
"""How many failures in a row open the circuit."""
FIRST_PAUSE: Final = 5.0
"""Seconds that the circuit stays open for the first time."""
LONGEST_PAUSE: Final = 60.0
"""Seconds that it stays open at most."""
GIVE_UP: Final = 10
"""When it has opened so many times in a row, after six minutes or more, no request waits for it to close."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """The state of one circuit. Times are in seconds, from any clock that never runs backwards.

    A request that may be sent gets a permit, which is the current `epoch`. Results of requests with the permit of an
    earlier epoch are ignored, since they do not show how the server is now.
    """

    state: Literal["closed", "open", "half-open"] = "closed"
    epoch: int = 0
    """Counts how often the circuit has opened."""
    reopened: int = 0
    """How often it has opened since a request has succeeded."""
    failures: int = 0
    """The failures in a row, while the circuit is closed."""
    pause: float = FIRST_PAUSE
    """How many seconds the circuit opens for the next time."""
    until: float = 0.0
    """When the circuit may be probed, while it is open."""

    def ask(self, now: float) -> tuple["Breaker", int | None]:
        """Return the next state, and the permit of a request that is to be sent, or None if it may not be sent now."""
        if self.state == "closed":
            return self, self.epoch
        if self.state == "open" and now >= self.until:
            return replace(self, state="half-open"), self.epoch
        return self, None

    def answered(self, permit: int) -> "Breaker":
        """Return the breaker after the server has begun to answer the request with this permit."""
        if self.state == "half-open" and permit == self.epoch:
            return replace(self, state="closed", failures=THRESHOLD - 1)
        return self

    def succeeded(self, permit: int) -> "Breaker":
        """Return the breaker after the request with this permit has succeeded."""
        if self.state == "open" or permit != self.epoch:
            return self
        return Breaker(epoch=self.epoch)

    def failed(self, permit: int, now: float) -> "Breaker":
        """Return the breaker after the server has failed the request with this permit."""
        if self.state == "open" or permit != self.epoch:
            return self
        if self.state == "closed" and self.failures + 1 < THRESHOLD:
            return replace(self, failures=self.failures + 1)
        pause = min(2 * self.pause, LONGEST_PAUSE)
        return Breaker(
            state="open", epoch=self.epoch + 1, reopened=self.reopened + 1, pause=pause, until=now + self.pause
        )

    def abandoned(self, permit: int) -> "Breaker":
        """Return the breaker after the caller has given the request up. If it was the probe, another one is needed."""
        if self.state == "half-open" and permit == self.epoch:
            return replace(self, state="open")
        return self

    def admits(self, now: float) -> bool:
        """Return whether a request may be sent now."""
        return self.ask(now)[1] is not None

    @property
    def hopeless(self) -> bool:
        """Whether the server has failed for so long that only the next probe waits for it."""
        return self.reopened >= GIVE_UP

    def open_seconds(self, now: float) -> float:
        """Return for how many seconds no request may be sent; 0 if one may, or if a probe is under way."""
        return max(0.0, self.until - now) if self.state == "open" else 0.0


CLOSED: Final = Breaker()
"""The state of a circuit before the first request."""
