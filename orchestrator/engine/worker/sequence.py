"""Follow one generation through the engine: queued, prefill, decode, finished."""

import math
import time
from collections.abc import Callable, Container, Mapping

import numpy as np

from orchestrator.engine.contract import Finish, Generation
from orchestrator.engine.kv.prompt_history import Blocks
from orchestrator.engine.llama import Grammar, Logits, Tokens, as_tokens
from orchestrator.engine.protocol import Finished
from orchestrator.engine.step_cost.model import StepShare
from orchestrator.engine.worker.call_grammars import CallGrammars
from orchestrator.engine.worker.logprobs import AnswerLogprobs, PromptLogprobs
from orchestrator.engine.worker.penalties import Penalties
from orchestrator.engine.worker.priority import priority
from orchestrator.engine.worker.repetition import LOOP_PERIOD, RepetitionGuard, cycle_length
from orchestrator.engine.worker.sampling import Sampler
from orchestrator.engine.worker.text import TextStream, utf8_rest
from orchestrator.engine.worker.thinking import Thoughts
from orchestrator.task.reuse import Reuse

Biases = tuple[Tokens, Logits]  # tokens, which may repeat, and what is added to the logit of each
_LONGEST_ENDING = 16  # the most tokens that are looked ahead for the end of a text


class NoTokenAllowed(Exception):
    """The grammar or the biases of a sequence allow none of the model's tokens next."""


class LogitsAreNaN(Exception):
    """The model's logits for a sequence are NaN."""


class Sequence:
    """One generation. Times are in seconds, as of time.monotonic."""

    __slots__ = (
        "accepted_tokens",
        "alone_seconds",
        "arrived",
        "biases",
        "blocks",
        "cached",
        "call_grammars",
        "computed",
        "deadline",
        "drafted_tokens",
        "end_tokens",
        "ends",
        "entered",
        "finish",
        "first",
        "grammar",
        "guard",
        "ignore_end",
        "interactive",
        "logprobs",
        "looked_up",
        "lora",
        "marks",
        "max_answer",
        "max_tokens",
        "min_tokens",
        "number",
        "output",
        "packed_seconds",
        "penalties",
        "pending",
        "preempted",
        "preempted_at",
        "prefill_tokens",
        "priority",
        "prompt",
        "prompt_logprobs",
        "rejections",
        "reuse",
        "role",
        "sampler",
        "seq",
        "steps_left_out",
        "stop_tokens",
        "stream",
        "takes_likeliest",
        "text",
        "thoughts",
        "work_seconds",
    )

    def __init__(
        self,
        number: int,
        request: Generation,
        prompt: Tokens,
        *,
        max_tokens: int,
        stops: tuple[str, ...],
        grammar: Grammar | None,
        stream: bool,
        max_answer: int | None = None,
        thoughts: Thoughts | None = None,
        penalties: Penalties | None = None,
        marks: Mapping[int, bytes] | None = None,
        call_grammars: CallGrammars | None = None,
        biases: Biases | None = None,
        ends: Tokens | None = None,
        logprobs: AnswerLogprobs | None = None,
        prompt_logprobs: PromptLogprobs | None = None,
        vocabulary: int = 0,
        guard: RepetitionGuard | None = None,
    ) -> None:
        now = time.monotonic()
        self.number = number
        # `prefill_tokens` have to be in the KV cache before it decodes: the prompt, and after a preemption also the
        # output, except for its last token.
        self.prompt = self.prefill_tokens = prompt
        self.max_tokens = max_tokens  # for thoughts and answer together
        self.max_answer = max_tokens if max_answer is None else max_answer  # for the answer alone
        self.thoughts = thoughts
        self.penalties = penalties
        self.marks = marks or {}  # control tokens that are part of its text
        # For calls that the model starts by itself. During such a call, `grammar` is one of them.
        self.call_grammars = call_grammars
        self.biases = biases
        self.ends = as_tokens(()) if ends is None else ends  # tokens that end a text
        self.end_tokens = frozenset(self.ends.tolist())
        self.min_tokens = request.min_tokens
        self.ignore_end = request.ignore_end
        self.stop_tokens = frozenset(request.stop_tokens)
        self.logprobs = logprobs
        self.prompt_logprobs = prompt_logprobs
        self.guard = guard
        self.stream = stream
        self.lora = request.lora  # in addition to the model's own adapters
        self.grammar = grammar
        self.sampler = Sampler(request.temperature, request.top_p, request.seed or 0, request.sampling, vocabulary)
        # The next token is then the one with the largest of the model's own logits, of those that may come.
        self.takes_likeliest = self.sampler.greedy and penalties is None and biases is None
        self.text = TextStream(request.stop + stops)
        self.arrived = now
        self.priority = priority(now, now + request.slack)
        self.interactive = request.priority == "interactive"
        self.role = request.role
        self.deadline = None if request.deadline_seconds is None else now + request.deadline_seconds
        self.seq = -1  # number in the KV cache, -1 outside
        self.cached = 0  # prefill tokens that a shared prefix saved when it first entered the cache
        self.reuse = Reuse()  # what was expected of the cache then
        self.blocks: Blocks = ()  # of the prompt
        self.computed = 0  # prefill tokens that are in the cache
        self.looked_up = False  # whether its start was looked for on disk since it was queued
        self.output: list[int] = []
        self.drafted_tokens = self.accepted_tokens = 0  # see orchestrator.task.events.Usage
        self.rejections = 0
        self.steps_left_out = 0  # steps in which it was ready to decode and others were chosen
        self.preempted = False
        self.pending = b""  # the bytes of an unfinished character
        self.finish: Finish | None = None
        self.entered: float | None = None
        self.first: float | None = None
        self.preempted_at: float | None = None
        self.work_seconds = self.alone_seconds = self.packed_seconds = 0.0  # see orchestrator.task.events.Usage

    def enter(self, seq: int, cached: int) -> None:
        """Record that it has entered the KV cache, which already holds `cached` of its prefill tokens."""
        self.seq, self.computed = seq, cached
        if self.entered is None:
            self.cached, self.entered = cached, time.monotonic()
        self._count_wait(time.monotonic())

    def preempt(self) -> None:
        """Record that it has lost its cells of the KV cache."""
        self.seq, self.computed, self.preempted, self.looked_up = -1, 0, True, False
        self.preempted_at = time.monotonic()
        # All tokens but the last are computed again. The states of sampler and penalties survive.
        self.prefill_tokens = np.concatenate((self.prompt, as_tokens(self.output[:-1])))

    def add_share(self, share: StepShare) -> None:
        self.work_seconds += share.work
        self.alone_seconds += share.alone
        self.packed_seconds += share.packed

    @property
    def shares(self) -> bool:
        """Whether it may start with cells of another sequence."""
        # Shared cells come without the logits that logprobs of the prompt need.
        return self.prompt_logprobs is None or self.prompt_logprobs.complete

    @property
    def length(self) -> int:
        return len(self.prompt) + len(self.output)

    @property
    def decodes(self) -> bool:
        """Whether its prefill is computed, and its next token follows from its last one."""
        return bool(self.output) and self.computed == len(self.prefill_tokens)

    @property
    def remaining(self) -> int:
        """How many tokens it may still put into the KV cache after its prefill."""
        return self.max_tokens - (len(self.prefill_tokens) - len(self.prompt))

    def sample(self, logits: Logits, greedy: int, piece: Callable[[int], bytes]) -> int:
        """Return the next token, which the caller has to append. Raises NoTokenAllowed, LogitsAreNaN.

        `logits` are of shape (vocabulary,), `greedy` is the token with the largest, and `piece` returns the bytes of a
        token.
        """
        if math.isnan(logits.item(greedy)):
            raise LogitsAreNaN
        token = self._choose(logits, greedy, piece)
        if self.logprobs is not None:
            self.logprobs.choose(logits, token)
        return token

    def _choose(self, logits: Logits, greedy: int, piece: Callable[[int], bytes]) -> int:
        if self.takes_likeliest and self.grammar is None and greedy not in self.end_tokens:
            if self.thoughts is None or self.thoughts.answering:
                # Whether end tokens may come makes no difference here. Copying the logits and searching again
                # takes 0.1 ms with a vocabulary of 49,152 tokens.
                return greedy
        logits, ends = self._adjusted(logits)
        if self.penalties is not None or self.biases is not None or ends is not None:
            greedy = int(logits.argmax())
            if logits[greedy] == -np.inf:
                raise NoTokenAllowed
        token = greedy if self.sampler.greedy else self.sampler.pick(logits)
        if self.thoughts is not None and not self.thoughts.answering:
            thought = self.thoughts.choose(token)
            if thought is not None:
                return thought
        if self.grammar is None or (self.grammar.allows(token) and self._is_text(piece(token))):
            return token
        self.rejections += 1
        allowed = self._allowed(self.grammar, logits, piece)
        if allowed is None and ends is not None:
            logits[self.ends] = ends
            allowed = self._allowed(self.grammar, logits, piece)
        if allowed is None:
            raise NoTokenAllowed
        return allowed

    def _allowed(self, grammar: Grammar, logits: Logits, piece: Callable[[int], bytes]) -> int | None:
        if not self.sampler.greedy:
            masked = grammar.mask(logits)
            while masked.max() > -np.inf:
                token = self.sampler.pick(masked)
                if self._is_text(piece(token)):
                    return token
                masked[token] = -np.inf
            return None
        for tokens in grammar.allowed_by_likelihood(logits):
            scores = logits[tokens]
            while scores.max(initial=-np.inf) > -np.inf:
                at = int(scores.argmax())
                if self._is_text(piece(int(tokens[at]))):
                    return int(tokens[at])
                scores[at] = -np.inf
        return None

    def piece_of(self, piece: Callable[[int], bytes]) -> Callable[[int], bytes]:
        """Return a function like `piece`, but with the bytes of tokens in this text."""
        return (lambda token: self.marks.get(token) or piece(token)) if self.marks else piece

    def _adjusted(self, logits: Logits) -> tuple[Logits, Logits | None]:
        # Adds biases and penalties, and removes end tokens if none may come yet. Also returns the logits of these.
        adjusted = logits
        if self.biases is not None:
            adjusted = logits.copy()
            np.add.at(adjusted, *self.biases)
        if self.penalties is not None:
            adjusted = self.penalties.apply(adjusted)
        is_thinking = self.thoughts is not None and self.thoughts.thinking  # an end token ends the thought then
        if is_thinking or (not self.ignore_end and self.answer_tokens >= self.min_tokens):
            return adjusted, None
        adjusted = logits.copy() if adjusted is logits else adjusted
        ends = adjusted[self.ends]
        adjusted[self.ends] = -np.inf
        return adjusted, ends

    def _is_text(self, data: bytes) -> bool:
        return utf8_rest(self.pending, data) is not None  # llama.cpp's grammars do not check UTF-8

    def is_end(self, token: int, ends: Container[int]) -> bool:
        """Return whether the next token ends the text. `ends` are the model's end tokens."""
        # An end token may be part of the mark that ends a thought.
        return token in ends and (self.thoughts is None or self.thoughts.answering or self.thoughts.is_end(token))

    def append(self, token: int, data: bytes, end: bool) -> str:
        """Add a token with its bytes, and return the text of the answer that is certain by now.

        `end`: the token ends the text. Sets `finish` if the sequence ends.
        """
        if self.first is None:
            self.first = time.monotonic()
        if end:
            return self.finish_early("stop")
        self.output.append(token)
        self.sampler.accept(token)
        if self.penalties is not None:
            self.penalties.append(token)
        answers = True
        if self.thoughts is not None and not self.thoughts.answering:
            data, answers = self.thoughts.take(token, data)
            if self.thoughts.thinking and len(self.output) % LOOP_PERIOD == 0 and cycle_length(self.output):
                self.thoughts.close()
        text = self._push(data, answers or bool(data))
        if self.text.stopped:
            self.finish = "stop"
        elif answers and token in self.stop_tokens and self.answer_tokens > self.min_tokens:
            text += self.finish_early("stop")
        elif len(self.output) >= self.max_tokens or self.answer_tokens >= self.max_answer:
            text += self.finish_early("length")
        if self.finish is None and (answers or (data and self.call_grammars is not None)):
            text += self._follow_grammar(token, data)
        return text

    def _follow_grammar(self, token: int, data: bytes) -> str:
        if self.grammar is not None:
            self.grammar.accept(token)
            self.pending = utf8_rest(self.pending, data) or b""
            if self.guard is not None and self.guard.ends(self.output, self.grammar, self.text):
                return self.finish_early("repetition")
        if self.call_grammars is not None:
            self._follow_call(self.call_grammars, data)
        return ""

    def _follow_call(self, calls: CallGrammars, data: bytes) -> None:
        # The call may end here, so its grammar no longer holds.
        if self.grammar is not None and any(self.grammar.allows(end) for end in self.end_tokens):
            self.grammar.close()
            self.grammar, self.pending = None, b""
        grammar = calls.push(data)
        if grammar is not None:
            if self.grammar is not None:
                self.grammar.close()
            self.grammar = grammar

    def append_ending(self, ends: Container[int], piece: Callable[[int], bytes]) -> str:
        """Finish the text if the grammar leaves only one way to its end: add those tokens.

        Returns the text of the answer that is certain by now.
        """
        # Biases may forbid what the grammar demands.
        if self.finish is not None or self.grammar is None or self.logprobs is not None or self.biases is not None:
            return ""
        if self.call_grammars is not None:  # the text may continue after a call
            return ""
        if self.thoughts is not None and not self.thoughts.answering:
            return ""
        # The model need not compute these tokens: it would be asked for the only token that is allowed. So the text
        # is the same, and the steps for these tokens and the end token are saved.
        ending = _forced_ending(self.grammar, ends, piece, self.pending)
        if ending is None:
            return ""
        text = ""
        for token in ending:
            text += self.append(token, piece(token), False)
            if self.finish is not None:
                return text
        return text + self.finish_early("stop")

    def _push(self, data: bytes, listed: bool) -> str:
        start = self.text.characters
        text = self.text.push(data, may_stop=not self.min_tokens or self.answer_tokens > self.min_tokens)
        # `listed`: the bytes belong to a token of the answer
        if self.logprobs is not None and listed:
            self.logprobs.append(data, self.text.decoded, start, unfinished=self.text.unfinished)
            self.logprobs.release(self.text.released, stopped=self.text.stopped)
        return text

    def finish_early(self, finish: Finish) -> str:
        """Finish here, and return the text that was held back."""
        self.finish = finish
        held = b"" if self.thoughts is None else self.thoughts.finish()
        text = (self.text.push(held) if held else "") + self.text.finish()
        if self.logprobs is not None:
            self.logprobs.release(self.text.released, stopped=self.text.stopped)
            self.logprobs.finish()
        return text

    @property
    def answer_tokens(self) -> int:
        return len(self.output) - self.reasoning_tokens

    @property
    def reasoning_tokens(self) -> int:
        return 0 if self.thoughts is None else self.thoughts.tokens

    def report(self) -> Finished:
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
            reasoning="" if self.thoughts is None else self.thoughts.text,
            reasoning_tokens=self.reasoning_tokens,
            work_seconds=self.work_seconds,
            alone_seconds=self.alone_seconds,
            packed_seconds=self.packed_seconds,
            stop_string=self.text.stopped_by,
            logprobs=() if self.logprobs is None else tuple(self.logprobs.released),
            prompt_logprobs=() if self.prompt_logprobs is None else self.prompt_logprobs.found,
            reuse=self.reuse,
            drafted_tokens=self.drafted_tokens,
            accepted_tokens=self.accepted_tokens,
        )

    def _count_wait(self, now: float) -> None:
        if self.preempted_at is None:
            return
        # The time since a preemption counts as time in the queue, so earlier events are dated later.
        waited, self.preempted_at = now - self.preempted_at, None
        self.entered = None if self.entered is None else self.entered + waited
        self.first = None if self.first is None else self.first + waited

    def close(self) -> None:
        if self.grammar is not None:
            self.grammar.close()  # frees memory of llama.cpp
            self.grammar = None


# The tokens that must follow up to the end of a text, without the end token; empty if it has to end here. None: the
# text may continue in several ways, or takes too long to end. `pending` has the bytes of an unfinished character.
def _forced_ending(
    grammar: Grammar, ends: Container[int], piece: Callable[[int], bytes], pending: bytes
) -> list[int] | None:
    allowed = grammar.allowed_if_alike()
    if allowed is None:
        return None
    tokens: list[int] = []
    walker = grammar.clone()
    try:
        while allowed is not None and len(allowed):
            if all(token in ends for token in allowed.tolist()):
                return tokens
            if len(allowed) > 1 or len(tokens) == _LONGEST_ENDING:
                return None
            token = int(allowed[0])
            rest = utf8_rest(pending, piece(token))
            if rest is None:
                return None
            pending = rest
            tokens.append(token)
            walker.accept(token)
            allowed = walker.allowed_if_alike()
    finally:
        walker.close()
    return None
