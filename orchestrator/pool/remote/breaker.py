"""A circuit breaker: decides when a server that keeps failing gets no requests. Pure: time is passed in.

    closed ──THRESHOLD failures in a row──▶ open ──after the pause──▶ half-open ──the probe is answered──▶ closed
                                             ▲                            │
                                             └────the probe fails; the pause doubles

While the circuit is half-open, one request goes through: the probe. The circuit closes as soon as the server starts to
answer it, so that other requests need not wait for the end of a long answer. One more failure before a success opens
it again.
"""

from dataclasses import dataclass, replace
from typing import Final, Literal

THRESHOLD: Final = 5  # failures in a row that open the circuit
FIRST_PAUSE: Final = 5.0  # seconds that the circuit stays open for the first time
LONGEST_PAUSE: Final = 60.0  # seconds that it stays open at most
# When it has opened so many times in a row, after six minutes or more, no request waits for it to close.
GIVE_UP: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """The state of one circuit. Times are seconds of a monotonic clock.

    A request gets a permit, the current `epoch`. Results with an older permit do not show how the server is now, and
    are ignored.
    """

    state: Literal["closed", "open", "half-open"] = "closed"
    epoch: int = 0  # how often the circuit has opened
    reopened: int = 0  # how often it has opened since the last success
    failures: int = 0  # in a row, while the circuit is closed
    pause: float = FIRST_PAUSE  # seconds of the next open phase
    until: float = 0.0  # when an open circuit may be probed

    def ask(self, now: float) -> tuple["Breaker", int | None]:
        """Return the next state, and the permit of the request, or None if it may not be sent now."""
        if self.state == "closed":
            return self, self.epoch
        if self.state == "open" and now >= self.until:
            return replace(self, state="half-open"), self.epoch
        return self, None

    def answered(self, permit: int) -> "Breaker":
        if self.state == "half-open" and permit == self.epoch:
            return replace(self, state="closed", failures=THRESHOLD - 1)
        return self

    def succeeded(self, permit: int) -> "Breaker":
        if self.state == "open" or permit != self.epoch:
            return self
        return Breaker(epoch=self.epoch)

    def failed(self, permit: int, now: float, threshold: int = THRESHOLD) -> "Breaker":
        if self.state == "open" or permit != self.epoch:
            return self
        if self.state == "closed" and self.failures + 1 < threshold:
            return replace(self, failures=self.failures + 1)
        pause = min(2 * self.pause, LONGEST_PAUSE)
        return Breaker(
            state="open", epoch=self.epoch + 1, reopened=self.reopened + 1, pause=pause, until=now + self.pause
        )

    def abandoned(self, permit: int) -> "Breaker":
        # If that was the probe, another one is needed.
        if self.state == "half-open" and permit == self.epoch:
            return replace(self, state="open")
        return self

    def admits(self, now: float) -> bool:
        return self.ask(now)[1] is not None

    @property
    def hopeless(self) -> bool:
        """Whether the server has failed for so long that only the next probe waits for it."""
        return self.reopened >= GIVE_UP

    def open_seconds(self, now: float) -> float:
        """Return the seconds until a request may be sent; 0 also while a probe runs."""
        return max(0.0, self.until - now) if self.state == "open" else 0.0


CLOSED: Final = Breaker()  # before the first request
