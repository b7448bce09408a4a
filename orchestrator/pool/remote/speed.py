"""How fast a server answers, learned from its answers alone. Pure: time is passed in, in seconds.

Nothing is known of a server's hardware, cache or other clients. What counts is what our requests have taken: the time
to the first token by the length of the prompt, the time of a token by the number of our requests that it answers at the
time, and how many it has answered at once.
"""

import math
from dataclasses import dataclass, field
from typing import Final

from orchestrator.pool.policy import Pace

FORGOTTEN_SECONDS: Final = 600.0  # A server that has answered nothing for so long is measured again.
_ANSWERS: Final = 20  # in whose means an answer counts
# Until prompts of several lengths were answered, the time to the first token is assumed to be half for a prompt of this
# many tokens, and half for all else.
_USUAL_PROMPT: Final = 512.0
_ASSUMED: Final = 256.0**2  # the variance of lengths, in tokens, from which on they say more than that assumption
_LATE: Final = 2.0  # A first token after so many times the expected time has waited for another answer to end.


@dataclass(slots=True)
class _Mean:
    value: float = 0.0
    count: int = 0

    def add(self, value: float) -> None:
        self.count = min(self.count + 1, _ANSWERS)
        self.value += (value - self.value) / self.count


@dataclass(slots=True)
class _FirstTokens:
    # A straight line through the times to the first token, by prompt tokens; older answers count less.
    tokens: float = 0.0
    seconds: float = 0.0
    variance: float = 0.0
    covariance: float = 0.0
    count: int = 0

    def add(self, tokens: float, seconds: float) -> None:
        self.count = min(self.count + 1, _ANSWERS)
        weight, off, late = 1 / self.count, tokens - self.tokens, seconds - self.seconds
        self.tokens += weight * off
        self.seconds += weight * late
        self.variance = (1 - weight) * (self.variance + weight * off * off)
        self.covariance = (1 - weight) * (self.covariance + weight * off * late)

    @property
    def slope(self) -> float:
        assumed = self.seconds / (self.tokens + _USUAL_PROMPT)
        slope = (self.covariance + _ASSUMED * assumed) / (self.variance + _ASSUMED)
        return min(max(0.0, slope), self.seconds / self.tokens) if self.tokens else 0.0

    def expected(self, tokens: float) -> float:
        return self.seconds + self.slope * (tokens - self.tokens)


@dataclass(slots=True, eq=False)
class SentRequest:
    """A request that the server has got and not answered yet."""

    at: float
    others: int  # that it was answering or keeping waiting
    ended_before: int
    ended_meanwhile: int = 0  # before the first token
    first_at: float = 0.0  # when the first token came
    streams: int = 0  # answers that were coming then, with this one; 0 before


@dataclass(slots=True)
class ServerSpeed:
    """Call `sent`, `started` at the first token, and `ended` for each request."""

    at_once: int | None = None  # requests that it answers at a time, if more had to wait; None: as many as it gets
    running: int = 0
    streaming: int = 0
    answered_at: float = -math.inf
    _ended: int = 0
    _first: _FirstTokens = field(default_factory=_FirstTokens)
    _tokens: dict[int, _Mean] = field(default_factory=dict)  # seconds of one, by the power of two of answers at a time

    def sent(self, now: float) -> SentRequest:
        self.running += 1
        return SentRequest(now, self.running - 1, self._ended)

    def started(self, request: SentRequest, now: float) -> None:
        if request.streams:
            return
        self.streaming += 1
        request.first_at, request.streams = now, self.streaming
        request.ended_meanwhile = self._ended - request.ended_before
        if self.at_once is not None:
            self.at_once = max(self.at_once, self.streaming)

    def ended(self, request: SentRequest, now: float, prompt_tokens: int = 0, output_tokens: int = 0) -> None:
        """Learn from an answer of `output_tokens`, the last of which came `now`; 0 if it did not come to its end."""
        streams = (request.streams + max(1, self.streaming)) / 2
        self.running -= 1
        self._ended += 1
        if request.streams:
            self.streaming -= 1
        if not output_tokens or not request.streams:
            return
        self.answered_at = now
        if self._waited(request, prompt_tokens):
            self.at_once = request.streams
        else:
            self._first.add(prompt_tokens, request.first_at - request.at)
        if output_tokens > 1:
            seconds = (now - request.first_at) / (output_tokens - 1)
            self._tokens.setdefault(1 << round(math.log2(streams)), _Mean()).add(seconds)

    def busy(self) -> None:
        """Note that the server refuses a request because it has too many."""
        self.at_once = max(1, self.running - 1)

    def _waited(self, request: SentRequest, prompt_tokens: int) -> bool:
        # It took the place of one that ended meanwhile, so no more were answered at once than before.
        if not request.ended_meanwhile or request.streams > request.others or not self._first.count:
            return False
        return request.first_at - request.at > _LATE * self._first.expected(prompt_tokens)

    @property
    def first_seconds(self) -> float | None:
        """The mean time to the first token."""
        return self._first.seconds if self._first.count else None

    def pace(self, now: float) -> Pace | None:
        """Return what answers take; None if that is not known, or not any more."""
        if now - self.answered_at > FORGOTTEN_SECONDS or not self._first.count:
            return None
        tokens = tuple((number, mean.value) for number, mean in sorted(self._tokens.items()))
        slope = self._first.slope
        return Pace(slope, tokens or ((1, 0.0),), max(0.0, self._first.seconds - slope * self._first.tokens))
