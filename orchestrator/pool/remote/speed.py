"""How fast a server answers, learned from its answers alone. Pure: time is passed in, in seconds.

Nothing is known of a server's hardware, cache or other clients. What counts is what our requests have taken: the time
to the first token by the length of the prompt, the time of a token by the number of our requests that it answers at the
time, and how many it has answered at once.
"""

import math
from dataclasses import dataclass, field
from typing import Final

from orchestrator.pool.replica_choice import Pace

# A server that has had nothing to answer for a while is measured again: its first answer may have waited until it had
# loaded the model. The while is this long for each of its answers, and at most `MOST_SECONDS`.
FORGOTTEN_SECONDS: Final = 30.0
MOST_SECONDS: Final = 600.0
_ANSWERS: Final = 20  # in whose means an answer counts
# Until prompts of several lengths were answered, the time to the first token is assumed to be half for a prompt of this
# many tokens, and half for all else.
_USUAL_PROMPT: Final = 512.0
_ASSUMED: Final = 256.0**2  # the variance of lengths, in tokens, from which on they say more than that assumption
_LATE: Final = 2.0  # A first token that takes longer than this multiple has waited for another answer to end.


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
    others: int  # that the server had
    streams: int  # the most answers that have come at the same time since it was sent
    renews: bool  # what its answer takes replaces all that was learned before
    ended: int = 0  # answers that ended before its own started
    first_at: float | None = None  # when its first token came


@dataclass(slots=True)
class ServerSpeed:
    """Call `sent`, `started` at the first token, and `ended` for each request."""

    at_once: int | None = None  # requests that it answers at a time, if more had to wait; None: as many as it gets
    idle_since: float = -math.inf
    _running: set[SentRequest] = field(default_factory=set)
    _streaming: int = 0
    _first: _FirstTokens = field(default_factory=_FirstTokens)
    _tokens: dict[int, _Mean] = field(default_factory=dict)  # seconds of one, by the power of two of answers at a time

    def sent(self, now: float) -> SentRequest:
        request = SentRequest(now, len(self._running), self._streaming, self._is_forgotten(now))
        self._running.add(request)
        return request

    def started(self, request: SentRequest, now: float) -> None:
        if request.first_at is not None:
            return
        request.first_at = now
        self._streaming += 1
        for other in self._running:
            other.streams = max(other.streams, self._streaming)
        if self.at_once is not None:
            self.at_once = max(self.at_once, self._streaming)

    def ended(self, request: SentRequest, now: float, prompt_tokens: int = 0, output_tokens: int = 0) -> None:
        """Learn from an answer of `output_tokens`, the last of which came `now`; 0 if it did not come to its end."""
        streaming = self._streaming
        self._running.discard(request)
        self.idle_since = now
        if request.first_at is None:
            return
        self._streaming -= 1
        for other in self._running:
            other.ended += other.first_at is None
        if not output_tokens:
            return
        if request.renews:
            self._first, self._tokens, self.at_once = _FirstTokens(), {}, None
        first_seconds = request.first_at - request.at
        if self._waited(request, first_seconds, prompt_tokens):
            self.at_once = request.streams
        else:
            self._first.add(prompt_tokens, first_seconds)
        if output_tokens > 1:
            seconds = (now - request.first_at) / (output_tokens - 1)
            self._tokens.setdefault(1 << round(math.log2(streaming)), _Mean()).add(seconds)

    def busy(self) -> bool:
        """Note that the server refuses a request because it has too many. Returns whether it has others of ours."""
        self.at_once = max(1, len(self._running) - 1)
        return len(self._running) > 1

    def _is_forgotten(self, now: float) -> bool:
        return not self._running and now - self.idle_since > min(MOST_SECONDS, FORGOTTEN_SECONDS * self._first.count)

    def _waited(self, request: SentRequest, first_seconds: float, prompt_tokens: int) -> bool:
        # It took the place of one that ended: there were never as many answers at once as there were requests.
        if not request.ended or request.streams > request.others or not self._first.count:
            return False
        return first_seconds > _LATE * self._first.expected(prompt_tokens)

    @property
    def first_seconds(self) -> float | None:
        """The mean time to the first token."""
        return self._first.seconds if self._first.count else None

    def pace(self, now: float) -> Pace | None:
        """Return what answers take; None if that is not known, or not any more."""
        if not self._first.count or self._is_forgotten(now):
            return None
        tokens = tuple((number, mean.value) for number, mean in sorted(self._tokens.items()))
        slope = self._first.slope
        return Pace(slope, tokens or ((1, 0.0),), max(0.0, self._first.seconds - slope * self._first.tokens))
