"""Prepare prompts and convert texts: short ones at once, and long ones in a thread."""

import queue
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from orchestrator.engine import protocol
from orchestrator.engine.contract import Generation, Message, OfferedTool, texts_of
from orchestrator.engine.errors import EngineError, PromptTooLong
from orchestrator.engine.llama import Tokens, Vocabulary
from orchestrator.engine.worker.chat import PromptTemplate
from orchestrator.engine.worker.raw_prompts import convert_text, infill_tokens, raw_tokens
from orchestrator.engine.worker.thinking import ThoughtFormat
from orchestrator.registry.chat_template import Arguments

# Longer texts, in characters, are prepared in a thread while steps are computed. Others take less than 20 ms.
LONG: Final = 1 << 14
# The same for token ids, which only have to be looked up.
LONG_IDS: Final = 1 << 16
_SWITCH_SECONDS: Final = 0.0005  # how long the thread may keep Python's interpreter from the loop at a time

# These need the vocabulary or the chat template.
Request = (
    protocol.Submit
    | protocol.Locate
    | protocol.Export
    | protocol.Count
    | protocol.Tokenize
    | protocol.Detokenize
    | protocol.Render
)


@dataclass(frozen=True, slots=True)
class Prompt:
    tokens: Tokens
    end: str  # what the template puts after the last message; empty for a prompt that is no chat


Prepared = Prompt | protocol.Reply  # the prompt of a Submit, Locate or Export, or the answer to another request


class _Numbered(Protocol):
    @property
    def seq(self) -> int:
        """The number of the request."""


CommandT = TypeVar("CommandT", bound=_Numbered)
PreparedT = TypeVar("PreparedT")
_TakenT = TypeVar("_TakenT", bound=_Numbered, contravariant=True)
_MadeT = TypeVar("_MadeT", covariant=True)


class Preparing(Protocol[_TakenT, _MadeT]):
    """Prepares requests in one thread."""

    def prepare(self, command: _TakenT) -> _MadeT:
        """Return the prepared request. Raises EngineError."""


class PromptMaker:
    """Makes prompts for one model, whose sequences have at most `limit` tokens, in one thread."""

    def __init__(self, vocab: Vocabulary, template: str | None, thinking: ThoughtFormat, limit: int) -> None:
        self.template = PromptTemplate(vocab, template)
        self._vocab = vocab
        self._thinking = thinking
        self._limit = limit

    def prepare(self, command: Request) -> Prepared:
        """Return the prompt of a request, or the answer to one that needs no more. Raises BadPrompt, PromptTooLong."""
        match command:
            case protocol.Submit(_, request) | protocol.Locate(_, request) | protocol.Export(_, request):
                return self._prompt_of(request)
            case protocol.Count(number, messages, tools, thinking):
                tokens = self._chat(messages, self._thinking.arguments(thinking), tools, continued=False).tokens
                return protocol.Counted(number, len(tokens))
            case protocol.Render(number, messages, arguments, tools):
                segments = self.template.segments(messages, arguments, tools)
                return protocol.Rendered(number, "".join(segment.text for segment in segments))
        return convert_text(self._vocab, command)

    def _prompt_of(self, request: Generation) -> Prompt:
        if request.messages:
            arguments = {**request.template_arguments, **self._thinking.arguments(request.thinking)}
            return self._chat(request.messages, arguments, request.tools, continued=request.continues, fits=True)
        if request.infill is not None:
            self._check_fits(sum(map(len, request.infill.texts)))
            return Prompt(infill_tokens(self._vocab, request.infill), "")
        prompt = request.prompt if request.prompt is not None else ()
        if isinstance(prompt, str):
            self._check_fits(len(prompt))
        return Prompt(raw_tokens(self._vocab, prompt), "")

    def _chat(
        self,
        messages: tuple[Message, ...],
        arguments: Arguments | None,
        tools: tuple[OfferedTool, ...],
        *,
        continued: bool,
        fits: bool = False,
    ) -> Prompt:
        segments = self.template.segments(messages, arguments, tools, continued=continued)
        if fits:
            self._check_fits(sum(len(segment.text) for segment in segments))
        tokens = self.template.tokens_of(segments)
        if not len(tokens):
            raise PromptTooLong(0, self._limit)
        return Prompt(tokens, segments[-1].text if segments[-1].special else "")

    def _check_fits(self, characters: int) -> None:
        least = characters // self._vocab.longest  # even if all tokens were as long as the longest
        if least > self._limit:
            raise PromptTooLong(least, self._limit, at_least=True)


@dataclass(slots=True, eq=False)
class LongPromptJob(Generic[CommandT, PreparedT]):
    command: CommandT
    since: float  # when it came, as time.monotonic
    prepared: PreparedT | EngineError | None = None  # None until it is done


class LongTexts(Generic[CommandT, PreparedT]):
    """Prepares requests with long texts in a thread, which calls `make_maker`. `wake` makes the loop call `take`."""

    def __init__(self, make_maker: Callable[[], Preparing[CommandT, PreparedT]], wake: Callable[[], None]) -> None:
        self._make_maker = make_maker
        self._wake = wake
        self._jobs: dict[int, LongPromptJob[CommandT, PreparedT]] = {}
        self._queue: queue.SimpleQueue[LongPromptJob[CommandT, PreparedT]] = queue.SimpleQueue()
        self._prepared: deque[LongPromptJob[CommandT, PreparedT]] = deque()
        self._thread: threading.Thread | None = None

    @property
    def pending(self) -> int:
        return len(self._jobs)

    def give(self, command: CommandT) -> None:
        job = self._jobs[command.seq] = LongPromptJob(command, time.monotonic())
        self._queue.put(job)
        if self._thread is None:
            sys.setswitchinterval(_SWITCH_SECONDS)
            self._thread = threading.Thread(target=self._work, name="long texts", daemon=True)
            self._thread.start()

    def cancel(self, number: int) -> CommandT | None:
        """Forget a request that is not prepared yet, and return it; None if there is no such request."""
        job = self._jobs.pop(number, None)
        return None if job is None else job.command

    def take(self) -> list[LongPromptJob[CommandT, PreparedT]]:
        """Return the requests that were prepared since the last call."""
        jobs: list[LongPromptJob[CommandT, PreparedT]] = []
        while self._prepared:
            job = self._prepared.popleft()
            if self._jobs.get(job.command.seq) is job:
                del self._jobs[job.command.seq]
                jobs.append(job)
        return jobs

    def _work(self) -> None:
        # Threads may share llama.cpp's vocabulary, but not the caches next to it.
        maker = self._make_maker()
        while True:
            job = self._queue.get()
            if self._jobs.get(job.command.seq) is job:
                job.prepared = prepared_or_error(maker, job.command)
            self._prepared.append(job)
            self._wake()


def is_long(command: Request | protocol.Embed) -> bool:
    """Return whether preparing a request would keep the loop waiting."""
    match command:
        case protocol.Embed(_, embedded, query):
            return sum(map(len, embedded)) + len(query or "") * len(embedded) > LONG
        case protocol.Submit(_, request) | protocol.Locate(_, request) | protocol.Export(_, request):
            ids = 0 if isinstance(request.prompt, str) else len(request.prompt or ())
            return ids > LONG_IDS or sum(map(len, request.prompt_texts)) > LONG
        case protocol.Tokenize(_, text):
            return len(text) > LONG
        case protocol.Detokenize(_, tokens):
            return len(tokens) > LONG_IDS
        case protocol.Count(_, messages, tools, _) | protocol.Render(_, messages, _, tools):
            return sum(map(len, texts_of(messages, tools))) > LONG


def prepared_or_error(maker: Preparing[CommandT, PreparedT], command: CommandT) -> PreparedT | EngineError:
    """Return the prepared request, or what is wrong with it."""
    try:
        return maker.prepare(command)
    except EngineError as error:
        return error
    except Exception as error:  # noqa: BLE001 (boundary: one request's failure must not take the others with it)
        traceback.print_exc(file=sys.stderr)
        return EngineError(f"the engine failed on this request: {error!r}")
