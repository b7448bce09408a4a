"""Follow one generation through the engine: queued, prefill, decode, finished."""

import time
from collections.abc import Callable

import numpy as np

from orchestrator.engine.contract import Finish, Generation
from orchestrator.engine.llama import Grammar, Logits, Tokens
from orchestrator.engine.protocol import Finished
from orchestrator.engine.sampling import Sampler
from orchestrator.engine.text import TextStream, utf8_rest

_LOOP_TOKENS = 256
_LOOP_PERIOD = 32


class DeadEnd(Exception):
    """No token can continue the grammar."""


class NotFinite(Exception):
    """The logits are NaN."""


class Sequence:
    """One generation. Times are of time.monotonic."""

    __slots__ = (
        "answer",
        "cached",
        "computed",
        "deadline",
        "due",
        "finish",
        "grammar",
        "number",
        "output",
        "pending",
        "prompt",
        "rejections",
        "sampler",
        "seq",
        "stream",
        "text",
        "times",
        "waited",
    )

    def __init__(
        self,
        number: int,
        request: Generation,
        prompt: Tokens,
        *,
        answer: int,
        stops: tuple[str, ...],
        grammar: Grammar | None,
        stream: bool,
    ) -> None:
        now = time.monotonic()
        self.number = number
        self.prompt = prompt
        self.answer = answer
        self.stream = stream
        self.grammar = grammar
        self.sampler = Sampler(request.temperature, request.top_p, request.seed or 0)
        self.text = TextStream(request.stop + stops)
        self.due = now + request.slack
        self.deadline = None if request.deadline_seconds is None else now + request.deadline_seconds
        self.seq = -1
        self.cached = 0
        self.computed = 0
        self.output: list[int] = []
        self.rejections = 0
        self.waited = 0
        self.pending = b""
        self.finish: Finish | None = None
        self.times = [now, now, now, now]

    def enter(self, seq: int, cached: int) -> None:
        """Leave the queue for a place in the KV cache, where `cached` tokens of the prompt are already."""
        self.seq, self.cached, self.computed = seq, cached, cached
        self.times[1:] = [time.monotonic()] * 3

    @property
    def length(self) -> int:
        """How many tokens it has, prompt and output."""
        return len(self.prompt) + len(self.output)

    def choose(self, logits: Logits, greedy: int, piece: Callable[[int], bytes]) -> int:
        """Return the next token, `greedy` being the most likely one. Raises DeadEnd, NotFinite."""
        if np.isnan(logits[greedy]):
            raise NotFinite
        token = greedy if self.sampler.greedy else self.sampler.pick(logits)
        if self.grammar is None or (self.grammar.allows(token) and self._is_text(piece(token))):
            return token
        self.rejections += 1
        masked = self.grammar.mask(logits)
        while True:
            if masked.max() == -np.inf:
                raise DeadEnd
            token = self.sampler.pick(masked)
            if self._is_text(piece(token)):
                return token
            masked[token] = -np.inf

    def _is_text(self, data: bytes) -> bool:
        """Return whether these bytes continue the text as UTF-8; llama.cpp's grammars do not look."""
        return utf8_rest(self.pending, data) is not None

    def take(self, token: int, data: bytes, end: bool) -> str:
        """Add a token, which may finish the sequence, and return the text that is certain by now."""
        if not self.output:
            self.times[2] = time.monotonic()
        if end:
            self.finish = "stop"
            return self.text.finish()
        self.output.append(token)
        text = self.text.push(data)
        if self.text.stopped:
            self.finish = "stop"
        elif len(self.output) >= self.answer:
            self.finish = "length"
            text += self.text.finish()
        if self.grammar is not None and self.finish is None:
            self.grammar.accept(token)
            self.pending = utf8_rest(self.pending, data) or b""
            if len(self.output) % _LOOP_PERIOD == 0 and loops(self.output):
                self.finish = "repetition"
                text += self.text.finish()
        return text

    def end(self, finish: Finish) -> str:
        """Finish from outside, and return the text that was held back."""
        self.finish = finish
        return self.text.finish()

    def report(self) -> Finished:
        """Return the result, after the end."""
        queued, entered, first = self.times[:3]
        now = time.monotonic()
        if self.seq < 0:
            entered = first = now
        elif not self.output:
            first = now
        return Finished(
            seq=self.number,
            text=self.text.text,
            finish=self.finish or "cancelled",
            prompt_tokens=len(self.prompt),
            cached_tokens=self.cached,
            output_tokens=len(self.output),
            queued_seconds=entered - queued,
            prefill_seconds=first - entered,
            decode_seconds=now - first,
        )

    def close(self) -> None:
        """Free what llama.cpp holds for it besides the KV cache."""
        if self.grammar is not None:
            self.grammar.close()
            self.grammar = None


def loops(output: list[int]) -> bool:
    """Return whether the last tokens do nothing but repeat a short cycle: a model that has lost its way."""
    if len(output) < _LOOP_TOKENS:
        return False
    tail = np.asarray(output[-_LOOP_TOKENS:])
    return any(bool((tail[period:] == tail[:-period]).all()) for period in range(1, _LOOP_PERIOD + 1))
