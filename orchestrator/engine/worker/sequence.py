"""Follow one generation through the engine: queued, prefill, decode, finished."""

import math
import time
from collections.abc import Callable

import numpy as np

from orchestrator.engine.contract import Finish, Generation
from orchestrator.engine.llama import Grammar, Logits, Tokens, as_tokens
from orchestrator.engine.protocol import Finished
from orchestrator.engine.worker.priority import priority
from orchestrator.engine.worker.sampling import Sampler
from orchestrator.engine.worker.text import TextStream, utf8_rest

_LOOP_TOKENS = 256
_LOOP_PERIOD = 32


class DeadEnd(Exception):
    """No token can continue the grammar."""


class NotFinite(Exception):
    """The logits are NaN."""


class Sequence:
    """One generation. Times are of time.monotonic.

    `prefill_tokens` have to be in the KV cache before it decodes: the prompt, and after it was `preempted` also the
    output so far, but for the last token. `computed` is how many of them are there. The sampler's state survives a
    preemption.
    """

    __slots__ = (
        "answer",
        "arrived",
        "cached",
        "computed",
        "deadline",
        "entered",
        "finish",
        "first",
        "grammar",
        "number",
        "output",
        "pending",
        "preempted",
        "preempted_at",
        "prefill_tokens",
        "priority",
        "prompt",
        "rejections",
        "sampler",
        "seq",
        "stream",
        "text",
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
        self.prompt = self.prefill_tokens = prompt
        self.answer = answer
        self.stream = stream
        self.grammar = grammar
        self.sampler = Sampler(request.temperature, request.top_p, request.seed or 0)
        self.text = TextStream(request.stop + stops)
        self.arrived = now
        self.priority = priority(now, now + request.slack)
        self.deadline = None if request.deadline_seconds is None else now + request.deadline_seconds
        self.seq = -1
        self.cached = 0
        self.computed = 0
        self.output: list[int] = []
        self.rejections = 0
        self.waited = 0
        self.preempted = False
        self.pending = b""
        self.finish: Finish | None = None
        self.entered: float | None = None
        self.first: float | None = None
        self.preempted_at: float | None = None

    def enter(self, seq: int, cached: int) -> None:
        """Leave the queue for a place in the KV cache, which holds `cached` of its prefill tokens already."""
        self.seq, self.computed = seq, cached
        if self.entered is None:
            self.cached, self.entered = cached, time.monotonic()
        self._count_wait(time.monotonic())

    def preempt(self) -> None:
        """Lose the place in the KV cache. It needs another one, and all but its last token computed there."""
        self.seq, self.computed, self.preempted = -1, 0, True
        self.preempted_at = time.monotonic()
        self.prefill_tokens = np.concatenate((self.prompt, as_tokens(self.output[:-1])))

    @property
    def length(self) -> int:
        """How many tokens it has, prompt and output."""
        return len(self.prompt) + len(self.output)

    @property
    def decodes(self) -> bool:
        """Whether its next token follows from its last one, and nothing has to be computed before."""
        return bool(self.output) and self.computed == len(self.prefill_tokens)

    @property
    def left(self) -> int:
        """How many tokens it may still put into the KV cache after its prefill."""
        return self.answer - (len(self.prefill_tokens) - len(self.prompt))

    def choose(self, logits: Logits, greedy: int, piece: Callable[[int], bytes]) -> int:
        """Return the next token, `greedy` being the most likely one. Raises DeadEnd, NotFinite."""
        if math.isnan(logits.item(greedy)):
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
        if self.first is None:
            self.first = time.monotonic()
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
        now = time.monotonic()
        self._count_wait(now)
        entered = now if self.entered is None else self.entered
        first = now if self.first is None else self.first
        return Finished(
            seq=self.number,
            text=self.text.text,
            finish=self.finish or "cancelled",
            prompt_tokens=len(self.prompt),
            cached_tokens=self.cached,
            output_tokens=len(self.output),
            queued_seconds=entered - self.arrived,
            prefill_seconds=first - entered,
            decode_seconds=now - first,
        )

    def _count_wait(self, now: float) -> None:
        """Count the time since it was preempted, if it was, as time in the queue: it is no part of prefill or decoding.

        What happened before is dated later by as much.
        """
        if self.preempted_at is None:
            return
        waited, self.preempted_at = now - self.preempted_at, None
        self.entered = None if self.entered is None else self.entered + waited
        self.first = None if self.first is None else self.first + waited

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
