"""Assemble the answer of a server from its chunks: text, reasoning, tool calls, and what they have taken."""

import json

from orchestrator.engine.client.engine import Completion, OnText, TextPiece
from orchestrator.engine.contract import Finish, TokenLogprob
from orchestrator.engine.thinking import ThoughtSplitter
from orchestrator.pool.remote.wire import (
    BYTES_A_TOKEN,
    CallDelta,
    Chunk,
    Counts,
    DraftCounts,
    WireRequest,
)
from orchestrator.registry.call_syntax import REMOTE
from orchestrator.registry.thinking import TAGS
from orchestrator.task.events import Usage


class ThoughtTooLong(Exception):
    """The reasoning has used up its budget."""


class Answer:
    """An answer, which a server may begin several times.

    The model may reason with `budget` pieces, None for any number. Most servers send reasoning as a field of its own;
    others put it at the start of the text, in tags.
    """

    def __init__(
        self,
        wire: WireRequest,
        on_text: OnText | None,
        on_thought: OnText | None,
        now: float,
        budget: int | None,
        elsewhere: bool,
    ) -> None:
        self.elsewhere = elsewhere  # another replica can answer instead
        self._wire_request = wire
        self._on_text = on_text
        self._on_thought = on_thought
        self._budget = budget
        self._splitter = ThoughtSplitter(TAGS[0])
        self._thoughts: list[str] = []
        self._given_up = 0
        self._queued_at = now
        self._sent: float | None = None
        self._first: float | None = None
        self.last = now  # when the last piece came
        self._pieces: list[str] = []
        self._chunks = 0
        self._length = 0
        self._logprobs: list[TokenLogprob] = []
        self._sent_logprobs = 0
        self._counts, self._drafts = Counts(), DraftCounts()
        self._call: int | None = None  # index of the unfinished tool call
        self._has_arguments = False

    @property
    def begun(self) -> bool:
        return bool(self._pieces or self._thoughts)

    @property
    def delivered(self) -> bool:
        """Whether the caller has got a part of it."""
        return bool((self._pieces and self._on_text) or (self._thoughts and self._on_thought))

    @property
    def tokens(self) -> tuple[int, int]:
        """The tokens of prompt and answer; none if the model was asked twice, because both answers count in them."""
        usage = self._usage(self.last)
        return (0, 0) if self._given_up else (usage.prompt_tokens, usage.output_tokens)

    @property
    def is_too_long(self) -> bool:
        """Whether the server ignores max_tokens."""
        wire = self._wire_request
        return self._length > wire.max_text or self._chunks > wire.max_chunks or len(self._logprobs) > wire.max_logprobs

    def begin(self, now: float) -> None:
        """Note that a request has been sent."""
        self._sent = self.last = now
        self._counts, self._drafts = Counts(), DraftCounts()
        self._splitter = ThoughtSplitter(TAGS[0])

    def take(self, chunk: Chunk, now: float) -> None:
        """Add a chunk. Raises ThoughtTooLong, or what a callback raises."""
        self.last = now
        self._chunks += 1
        self.count(chunk)
        self._logprobs += chunk.logprobs
        if chunk.text or chunk.thought or chunk.calls:
            self._first = self._first or now
        thought, text = self._splitter.push(_encoded(chunk.text)) if chunk.text else (b"", b"")
        self._add_thought(chunk.thought + _decoded(thought))
        self._add_text(_decoded(text))
        for call in chunk.calls:
            self._take_call(call)
        if self._budget is not None and not self._pieces and len(self._thoughts) > self._budget:
            raise ThoughtTooLong

    def _take_call(self, piece: CallDelta) -> None:
        # A new call has another index, or a name.
        number = self._call if piece.index is None and not piece.name else piece.index or 0
        if self._call is None or number != self._call or (piece.index is None and piece.name):
            self._end_call()
            self._add_held()
            self._call, self._has_arguments = number or 0, False
            self._add_text(f"{REMOTE.opening}{json.dumps(piece.name)[1:-1]}{REMOTE.middle}")
        if piece.arguments:
            self._has_arguments = True
            self._add_text(piece.arguments)

    def _end_call(self) -> None:
        if self._call is not None:
            self._add_text(("" if self._has_arguments else "{}") + REMOTE.closing)
            self._call = None

    def ask_again(self) -> None:
        """Note that the model is asked again without reasoning, since it has given nothing else so far."""
        self._budget, self._given_up = None, len(self._thoughts)

    def _add_thought(self, thought: str) -> None:
        if thought:
            self._length += len(thought)
            self._thoughts.append(thought)
            if self._on_thought is not None:
                self._on_thought(thought)

    def _add_text(self, text: str) -> None:
        if text:
            self._length += len(text)
            self._pieces.append(text)
            sent, self._sent_logprobs = self._sent_logprobs, len(self._logprobs)
            if self._on_text is not None:
                self._on_text(TextPiece(text, self._logprobs[sent:]) if self._logprobs[sent:] else text)

    def count(self, chunk: Chunk) -> None:
        """Add what a chunk says of tokens. The latest numbers count."""
        self._counts, self._drafts = chunk.counts or self._counts, chunk.drafts or self._drafts

    def completion(self, finish: Finish, now: float) -> Completion:
        usage = self._usage(now)
        text, thoughts = "".join(self._pieces), "".join(self._thoughts)
        return Completion(text, finish, usage, thoughts, logprobs=tuple(self._logprobs))

    def end(self) -> None:
        """Add text that was held back, because it might have been the start of a tag. Raises what a callback raises."""
        self._end_call()
        self._add_held()

    def _add_held(self) -> None:
        thought, text = self._splitter.finish()
        self._add_thought(_decoded(thought))
        self._add_text(_decoded(text))

    def _usage(self, now: float) -> Usage:
        # Without counts from the server, each chunk counts as one token, as is usual.
        counts = self._counts
        guessed_prompt = -(-self._wire_request.prompt_bytes // BYTES_A_TOKEN) if counts.prompt_tokens is None else 0
        thoughts = len(self._thoughts) - self._given_up
        guessed_output = self._given_up
        if counts.completion_tokens is None:
            guessed_output += len(self._pieces) + thoughts
        output = (counts.completion_tokens or 0) + guessed_output
        reasoning = self._given_up + (thoughts if counts.reasoning_tokens is None else counts.reasoning_tokens)
        if self._sent is None:
            return Usage(queued_seconds=now - self._queued_at)
        first = self.last if self._first is None else self._first
        took = self.last - self._sent
        return Usage(
            prompt_tokens=counts.prompt_tokens or guessed_prompt,
            cached_tokens=counts.cached_tokens,
            output_tokens=output,
            reasoning_tokens=min(output, reasoning),
            estimated_tokens=guessed_prompt + guessed_output,
            queued_seconds=self._sent - self._queued_at,
            prefill_seconds=first - self._sent,
            decode_seconds=self.last - first,
            # How the server shares its time is unknown: all of it counts as work for this request, none of it on our
            # cores.
            work_seconds=took,
            alone_seconds=took,
            drafted_tokens=self._drafts.draft_n,
            accepted_tokens=self._drafts.draft_n_accepted,
        )


def _encoded(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


def _decoded(data: bytes) -> str:
    return data.decode(errors="surrogatepass")
