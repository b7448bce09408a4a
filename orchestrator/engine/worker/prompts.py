"""Make the tokens of prompts and convert texts: short ones at once, and long ones in a thread beside the loop.

`LongTexts` is that thread, which engines that embed use, too.

A chat template is rendered and a text is tokenized at about a million characters a second, and no step would be
computed meanwhile. llama.cpp's vocabulary may be used by several threads at a time; what is kept beside it, such as
caches, each thread has for itself.
"""

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
from orchestrator.engine.contract import Generation, Message, OfferedTool
from orchestrator.engine.errors import EngineError, PromptTooLong
from orchestrator.engine.llama import Tokens, Vocabulary
from orchestrator.engine.worker.chat import PromptTemplate
from orchestrator.engine.worker.raw_prompts import convert_text, infill_tokens, raw_tokens
from orchestrator.engine.worker.thinking import ThoughtFormat
from registry.chat_template import Arguments

LONG: Final = 1 << 14
"""From how many characters on a text is long. A shorter one takes less than twenty milliseconds."""
LONG_IDS: Final = 1 << 16
"""The same for the ids of tokens, which only have to be looked up."""
_SWITCH_SECONDS: Final = 0.0005
"""How long the thread may keep Python's interpreter from the loop at a time."""

Request = protocol.Submit | protocol.Count | protocol.Tokenize | protocol.Detokenize | protocol.Render
"""What needs the vocabulary or the chat template of the model."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """The prompt of a Submit."""

    tokens: Tokens
    end: str
    """What the template has put behind the last message; empty for a prompt that is no chat."""


Prepared = Prompt | protocol.Reply
"""What a request comes to: a prompt, or the answer where it asks for no text."""


class _Numbered(Protocol):
    @property
    def seq(self) -> int:
        """The number of the request."""


CommandT = TypeVar("CommandT", bound=_Numbered)
PreparedT = TypeVar("PreparedT")
_TakenT = TypeVar("_TakenT", bound=_Numbered, contravariant=True)
_MadeT = TypeVar("_MadeT", covariant=True)


class Preparing(Protocol[_TakenT, _MadeT]):
    """Makes of requests with texts what the loop goes on with. It belongs to one thread."""

    def prepare(self, command: _TakenT) -> _MadeT:
        """Return what a request comes to. Raises EngineError."""


class PromptMaker:
    """Makes prompts for one model, whose sequences have at most `limit` tokens. It belongs to one thread."""

    def __init__(self, vocab: Vocabulary, template: str | None, thinking: ThoughtFormat, limit: int) -> None:
        self.template = PromptTemplate(vocab, template)
        self._vocab = vocab
        self._thinking = thinking
        self._limit = limit

    def prepare(self, command: Request) -> Prepared:
        """Return what a request comes to. Raises BadPrompt, PromptTooLong."""
        match command:
            case protocol.Submit(_, request):
                return self._prompt_of(request)
            case protocol.Count(number, messages, tools, thinking):
                tokens = self._chat(messages, self._thinking.arguments(thinking), tools, continued=False).tokens
                return protocol.Counted(number, len(tokens))
            case protocol.Render(number, messages, arguments, tools):
                segments = self.template.segments(messages, arguments, tools)
                return protocol.Rendered(number, "".join(one.text for one in segments))
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
            self._check_fits(sum(len(one.text) for one in segments))
        tokens = self.template.tokens_of(segments)
        if not len(tokens):
            raise PromptTooLong(0, self._limit)
        return Prompt(tokens, segments[-1].text if segments[-1].special else "")

    def _check_fits(self, characters: int) -> None:
        """Raise PromptTooLong for a text that would be too long even if all its tokens were as long as the longest."""
        least = characters // self._vocab.longest
        if least > self._limit:
            raise PromptTooLong(least, self._limit, at_least=True)


@dataclass(slots=True, eq=False)
class LongPromptJob(Generic[CommandT, PreparedT]):
    """A request whose text is long."""

    command: CommandT
    since: float
    """When it came, as a time of time.monotonic."""
    prepared: PreparedT | EngineError | None = None
    """What it has come to; None until then."""


class LongTexts(Generic[CommandT, PreparedT]):
    """Prepares requests with long texts in a thread, one after the other.

    `make_maker` is called in the thread and returns what it uses. `wake` makes the loop call `take`.
    """

    def __init__(self, make_maker: Callable[[], Preparing[CommandT, PreparedT]], wake: Callable[[], None]) -> None:
        self._make_maker = make_maker
        self._wake = wake
        self._jobs: dict[int, LongPromptJob[CommandT, PreparedT]] = {}
        self._given: queue.SimpleQueue[LongPromptJob[CommandT, PreparedT]] = queue.SimpleQueue()
        self._done: deque[LongPromptJob[CommandT, PreparedT]] = deque()
        self._thread: threading.Thread | None = None

    @property
    def pending(self) -> int:
        """How many requests are not prepared yet."""
        return len(self._jobs)

    def give(self, command: CommandT) -> None:
        """Take in a request."""
        job = self._jobs[command.seq] = LongPromptJob(command, time.monotonic())
        self._given.put(job)
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
        found: list[LongPromptJob[CommandT, PreparedT]] = []
        while self._done:
            job = self._done.popleft()
            if self._jobs.get(job.command.seq) is job:
                del self._jobs[job.command.seq]
                found.append(job)
        return found

    def _work(self) -> None:
        maker = self._make_maker()
        while True:
            job = self._given.get()
            if self._jobs.get(job.command.seq) is job:
                job.prepared = prepared_or_error(maker, job.command)
            self._done.append(job)
            self._wake()


def is_long(command: Request | protocol.Embed) -> bool:
    """Return whether the loop would have to wait for what a request comes to."""
    match command:
        case protocol.Embed(_, embedded, query):
            return sum(map(len, embedded)) + len(query or "") * len(embedded) > LONG
        case protocol.Submit(_, request):
            ids = 0 if isinstance(request.prompt, str) else len(request.prompt or ())
            return ids > LONG_IDS or sum(map(len, request.prompt_texts)) > LONG
        case protocol.Tokenize(_, text):
            return len(text) > LONG
        case protocol.Detokenize(_, tokens):
            return len(tokens) > LONG_IDS
        case protocol.Count(_, messages, tools, _) | protocol.Render(_, messages, _, tools):
            texts = sum(len(text) for message in messages for text in message.texts)
            return texts + sum(len(text) for tool in tools for text in tool) > LONG


def prepared_or_error(maker: Preparing[CommandT, PreparedT], command: CommandT) -> PreparedT | EngineError:
    """Return what a request comes to, or what is wrong with it. No failure of one request may take others with it."""
    try:
        return maker.prepare(command)
    except EngineError as error:
        return error
    except Exception as error:  # noqa: BLE001 (boundary: one request's failure must not take the others with it)
        traceback.print_exc(file=sys.stderr)
        return EngineError(f"the engine failed on this request: {error!r}")
