"""Build the JSON of chat completion requests, and parse the answers. Pure.

The protocol is OpenAI's `POST /chat/completions` with `stream`.
"""

import json
import re
from collections.abc import Set
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final

import msgspec

from orchestrator.engine.contract import MAX_LOGPROBS, Finish, Generation, Message, TokenLikelihood, TokenLogprob
from orchestrator.engine.errors import BadGrammar, BadRequest, EngineError
from orchestrator.pool.remote.errors import (
    ParameterRefused,
    RemoteBusy,
    RemoteFailed,
    RemotePromptTooLong,
    RemoteRefused,
    ToolsRefused,
)
from orchestrator.registry.options import DEFAULT_SAMPLING, SamplingOptions
from orchestrator.registry.thinking import thinking_budget

BYTES_A_TOKEN: Final = 4  # to estimate prompt tokens that the server does not count
# What is sent instead of a refused parameter: another name, or nothing (None). Most servers only accept `max_tokens`.
# OpenAI's reasoning models refuse it, and sampling parameters. Chat template variables are known to vLLM, SGLang and
# llama-server, and refused by OpenAI.
SUBSTITUTES: Final = {
    "max_tokens": "max_completion_tokens",
    "temperature": None,
    "top_p": None,
    "frequency_penalty": None,
    "presence_penalty": None,
    "repeat_penalty": None,
    "repeat_last_n": None,
    "dry_multiplier": None,
    "dry_base": None,
    "dry_allowed_length": None,
    "dry_penalty_last_n": None,
    "dry_sequence_breakers": None,
    "reasoning_effort": None,
    "chat_template_kwargs": None,
}
THOUGHT_TOKENS: Final = 8192  # allowance for reasoning without a limit, in addition to the answer
MAX_TOKEN_TEXT: Final = 64  # average characters per token; about four are usual
MAX_TOKEN_CHUNKS: Final = 16  # average chunks per token; most servers send one
MAX_TOKEN_JSON: Final = 8 << 10  # average bytes of JSON per token, with those of twenty likely tokens
SPARE_CHUNKS: Final = 1024  # extra chunks: start and end of an answer, and empty ones
MAX_MESSAGE: Final = 400  # characters of a server's message that an error repeats
_SEED_BITS: Final = 31
_RULED_OUT: Final = -100.0  # the bias with which OpenAI's API rules a token out
_FINISHES: Final[dict[str, Finish]] = {
    "stop": "stop",
    "length": "length",
    "abort": "cancelled",
    "tool_calls": "stop",
    "function_call": "stop",
}
# Messages of servers that take no tools: Ollama, vLLM without a tool parser, llama-server without Jinja, others.
_NO_TOOLS: Final = re.compile(
    r"does not support (?:tool|function)|tool choice requires|tools? param(?:eter)? requires"
    r"|(?:tools?|tool[_ ]call(?:s|ing)?|tool[_ ]use|function calling) (?:is|are) not supported"
    r"|(?:unsupported|unknown|unrecognized)[^.]{0,40}\btools?\b",
    re.I,
)
_TOO_LONG: Final = re.compile(r"maximum context length|context (size|length|window)|exceed_context_size|n_ctx", re.I)
_LIMIT: Final = re.compile(r"context (?:length is|size \(|window is|window of) ?(\d+)", re.I)
_ASKED: Final = re.compile(r"(?:requested|resulted in|request \() ?(\d+) tokens", re.I)
_UNSUPPORTED: Final = re.compile(
    r"(?:unsupported|unknown) (?:parameter|value)\W{1,4}([a-z_]+)|'([a-z_]+)' is not supported"
    r"|unrecognized request arguments? supplied\W{1,4}([a-z_]+)|extra_forbidden[^]]{1,40}\"([a-z_]+)\"\]",
    re.I,
)
_WORD: Final = re.compile(r"[a-z_]{1,32}")
_SCHEMA: Final = re.compile(r"schema|response_format|grammar", re.I)


@dataclass(frozen=True, slots=True)
class WireRequest:
    body: bytes  # JSON
    parameters: frozenset[str]
    structured: bool  # the answer must follow a schema
    prompt_bytes: int  # of all messages, in UTF-8
    max_tokens: int  # of the answer with reasoning: the sent limit, or else the context

    @property
    # Some servers ignore `max_tokens`, hence these limits.
    def max_text(self) -> int:
        """The most accepted characters of text, reasoning and calls."""
        return MAX_TOKEN_TEXT * (self.max_tokens + SPARE_CHUNKS)

    @property
    def max_chunks(self) -> int:
        return MAX_TOKEN_CHUNKS * (self.max_tokens + SPARE_CHUNKS)

    @property
    def max_logprobs(self) -> int:
        return self.max_tokens + SPARE_CHUNKS

    @property
    def max_json(self) -> int:
        return MAX_TOKEN_JSON * (self.max_tokens + SPARE_CHUNKS)


def can_be_sent(request: Generation) -> bool:
    """Return whether servers can be asked for this: a chat without a grammar or adapters, which only engines have."""
    named_texts = any(isinstance(token, str) for token, _ in request.logit_bias)
    return bool(request.messages) and not (request.grammar or request.schema is False or request.lora or named_texts)


def wire_request(model: str, request: Generation, context: int, refused: Set[str] = frozenset()) -> WireRequest:
    """Return the request for a server's `model` with `context` tokens of context.

    `refused` parameters are replaced as in SUBSTITUTES. Raises BadRequest, BadGrammar.
    """
    try:
        if problem := request.problem():
            raise BadRequest(problem)
        if not request.messages:
            raise BadRequest("another server runs the model, which is asked with messages; accepted: a chat")
        # None if any JSON is accepted, which not every server supports: the prompt asks for JSON, and the reader checks
        # it.
        schema = _schema(request)
        fields: dict[str, Any] = {
            "model": model,
            "messages": [_message(message) for message in request.messages],
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": request.temperature,
        }
        if request.top_p < 1:
            fields["top_p"] = request.top_p
        max_tokens = context
        if request.max_tokens is not None:
            max_tokens = fields["max_tokens"] = min(request.max_tokens + _thought_tokens(request), context)
        if request.seed is not None:
            # Every server accepts 31 bits.
            fields["seed"] = request.seed % (1 << _SEED_BITS)
        if request.stop:
            fields["stop"] = list(request.stop)
        if schema is not None:
            fields["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
        fields |= _sampling(request.sampling) | _shaping(request) | _tools(request)
        fields |= _thinking(request)
        fields = {name: value for key, value in fields.items() if (name := _name(key, refused)) is not None}
        body = json.dumps(fields, ensure_ascii=False, allow_nan=False).encode()
        prompt_bytes = sum(len(text.encode()) for text in request.prompt_texts)
    except UnicodeEncodeError as error:
        raise BadRequest(f"text that is no Unicode: {error}") from error
    except (TypeError, ValueError, RecursionError) as error:
        raise BadGrammar(f"the schema is no JSON: {error}") from error
    return WireRequest(body, frozenset(fields), schema is not None, prompt_bytes, max_tokens)


def _message(message: Message) -> dict[str, Any]:
    sent: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        sent["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    return sent | ({"tool_call_id": message.tool_call_id} if message.tool_call_id else {})


def _tools(request: Generation) -> dict[str, Any]:
    if not request.tools:
        return {}
    functions = [
        {"name": tool.name, "description": tool.description, "parameters": json.loads(tool.parameters)}
        for tool in request.tools
    ]
    fields: dict[str, Any] = {"tools": [{"type": "function", "function": function} for function in functions]}
    if request.tool_choice == "required":
        fields["tool_choice"] = "required"
    elif request.tool_choice != "auto":
        fields["tool_choice"] = {"type": "function", "function": {"name": request.tool_choice}}
    return fields


def _thought_tokens(request: Generation) -> int:
    # Every server counts reasoning in the limit of the answer.
    if request.limits_thoughts or request.thinking in ("auto", "off"):
        return 0
    budget = thinking_budget(request.thinking, None)
    return THOUGHT_TOKENS if budget is None else budget


def _sampling(options: SamplingOptions) -> dict[str, Any]:
    # OpenAI's API and llama-server share the names of the options.
    usual = asdict(DEFAULT_SAMPLING)
    return {name: value for name, value in asdict(options).items() if value != usual[name]}


def _shaping(request: Generation) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if request.logit_bias:
        for token, _ in request.logit_bias:
            # Only the server knows its tokens.
            if isinstance(token, str):
                problem = f"logit_bias names the text {token!r:.80}, and another server runs the model"
                raise BadRequest(f"{problem}; accepted: ids of tokens")
        fields["logit_bias"] = {str(token): max(bias, _RULED_OUT) for token, bias in request.logit_bias}
    if request.logprobs is not None:
        fields |= {"logprobs": True, "top_logprobs": request.logprobs}
    # OpenAI's API has no names for the rest; these are vLLM's.
    if request.stop_tokens:
        fields["stop_token_ids"] = list(request.stop_tokens)
    if request.min_tokens:
        fields["min_tokens"] = request.min_tokens
    if request.ignore_end:
        fields["ignore_eos"] = True
    if request.continues:
        fields |= {"continue_final_message": True, "add_generation_prompt": False}
    return fields


def _thinking(request: Generation) -> dict[str, Any]:
    arguments: dict[str, Any] = dict(request.template_arguments)
    fields: dict[str, Any] = {}
    if request.thinking != "auto":
        arguments["enable_thinking"] = request.thinking not in ("off", 0)
    if request.thinking in ("low", "medium", "high"):
        fields["reasoning_effort"] = arguments["reasoning_effort"] = request.thinking
    return fields | ({"chat_template_kwargs": arguments} if arguments else {})


def _name(parameter: str, refused: Set[str]) -> str | None:
    return SUBSTITUTES.get(parameter) if parameter in refused else parameter


def _schema(request: Generation) -> dict[str, object] | None:
    if request.grammar is not None:
        raise BadGrammar("a remote model takes no GBNF grammar; accepted: a JSON Schema")
    if request.schema is False:
        raise BadGrammar("no JSON value satisfies the schema")
    return request.schema if isinstance(request.schema, dict) and request.schema else None


class ServerProblem(msgspec.Struct, frozen=True):
    message: str | None = None
    type: str | None = None
    code: str | int | None = None  # a word, or an HTTP status
    param: Any = None  # the name of the offending parameter; some servers put other things here
    n_prompt_tokens: int | None = None  # from llama-server, if the prompt is too long
    n_ctx: int | None = None  # from llama-server, if the prompt is too long


class _Details(msgspec.Struct, frozen=True):
    cached_tokens: int | None = None


class _OutputDetails(msgspec.Struct, frozen=True):
    reasoning_tokens: int | None = None


class Counts(msgspec.Struct, frozen=True):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    completion_tokens_details: _OutputDetails | None = None

    @property
    def cached_tokens(self) -> int:
        # from the server's prefix cache
        return (self.prompt_tokens_details.cached_tokens if self.prompt_tokens_details else None) or 0

    @property
    def reasoning_tokens(self) -> int | None:
        return self.completion_tokens_details.reasoning_tokens if self.completion_tokens_details else None


class DraftCounts(msgspec.Struct, frozen=True):
    """What llama-server says of its drafts among the timings of an answer."""

    draft_n: Annotated[int, msgspec.Meta(ge=0)] = 0
    draft_n_accepted: Annotated[int, msgspec.Meta(ge=0)] = 0


class _FunctionDelta(msgspec.Struct, frozen=True):
    name: str | None = None
    arguments: str | None = None


class CallDelta(msgspec.Struct, frozen=True):
    index: int | None = None  # number of the call in the answer; some servers omit it
    function: _FunctionDelta = _FunctionDelta()

    @property
    def name(self) -> str:
        # only in the first piece of a call
        return self.function.name or ""

    @property
    def arguments(self) -> str:
        # JSON
        return self.function.arguments or ""


class _Delta(msgspec.Struct, frozen=True):
    content: str | None = None
    tool_calls: list[CallDelta] | None = None
    reasoning_content: Any = None  # vLLM, SGLang, llama-server, DeepSeek
    reasoning: Any = None  # Ollama, OpenRouter, newer versions of vLLM

    @property
    def thought(self) -> str:
        return next((text for text in (self.reasoning_content, self.reasoning) if isinstance(text, str) and text), "")


class _Likelihood(msgspec.Struct, frozen=True):
    token: str = ""
    logprob: float = 0.0
    octets: list[int] | None = msgspec.field(default=None, name="bytes")
    top_logprobs: "list[_Likelihood] | None" = None

    @property
    def data(self) -> bytes:
        return self.token.encode() if self.octets is None else bytes(octet % 256 for octet in self.octets)


class _Logprobs(msgspec.Struct, frozen=True):
    content: list[_Likelihood] | None = None


class _Choice(msgspec.Struct, frozen=True):
    delta: _Delta | None = None
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None


class _Body(msgspec.Struct, frozen=True):
    # An error may be at the top level or in `error`.
    choices: list[_Choice] | None = None
    usage: Counts | None = None
    timings: Any = None  # from llama-server and this product; other servers may put other things here
    error: ServerProblem | str | None = None
    object: str | None = None
    message: str | None = None
    detail: Any = None
    type: str | None = None
    code: str | int | None = None

    def problem(self) -> ServerProblem | None:
        if isinstance(self.error, str):
            return ServerProblem(self.error)
        if self.error is None and self.object == "error":
            return ServerProblem(self.message, self.type, self.code)
        return self.error


_bodies = msgspec.json.Decoder(_Body)


class InvalidChunk(Exception):
    """The data is not a chunk of a chat completion."""


@dataclass(frozen=True, slots=True)
class Chunk:
    text: str = ""
    reason: str | None = None  # finish reason; None if the answer continues
    counts: Counts | None = None
    problem: ServerProblem | None = None  # the error that ends the stream
    thought: str = ""  # reasoning
    logprobs: tuple[TokenLogprob, ...] = ()  # if requested
    calls: tuple[CallDelta, ...] = ()
    drafts: DraftCounts | None = None


def read_chunk(data: str) -> Chunk:
    """Read the data of one event. Raises InvalidChunk."""
    try:
        body = _bodies.decode(data)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise InvalidChunk(str(error)) from error
    choice = body.choices[0] if body.choices else _Choice()
    delta = choice.delta or _Delta()
    reason = choice.finish_reason or None  # some servers send "" until the end
    listed = choice.logprobs.content if choice.logprobs is not None else None
    logprobs = tuple(_token_logprob(likelihood) for likelihood in listed or ())
    calls = tuple(delta.tool_calls or ())
    problem, drafts = body.problem(), _draft_counts(body.timings)
    return Chunk(delta.content or "", reason, body.usage, problem, delta.thought, logprobs, calls, drafts)


def _draft_counts(timings: Any) -> DraftCounts | None:
    try:
        return None if timings is None else msgspec.convert(timings, DraftCounts)
    except msgspec.ValidationError:
        return None


def _token_logprob(likelihood: _Likelihood) -> TokenLogprob:
    top = tuple(
        TokenLikelihood(-1, alternative.data, alternative.logprob)
        for alternative in (likelihood.top_logprobs or ())[:MAX_LOGPROBS]
    )
    return TokenLogprob(-1, likelihood.data, likelihood.logprob, top)


def read_problem(body: bytes) -> ServerProblem:
    try:
        decoded = _bodies.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return ServerProblem(body.decode(errors="replace"))
    detail = decoded.detail if isinstance(decoded.detail, str) else None
    message = decoded.message or detail or body.decode(errors="replace")
    return decoded.problem() or ServerProblem(message, decoded.type, decoded.code)


def finish_of(where: str, reason: str) -> Finish:
    """Return how an answer ended, by the finish reason. Raises RemoteRefused, RemoteFailed."""
    if reason == "content_filter":
        raise RemoteRefused(f"{where}: a content filter has cut the answer off")
    if reason not in _FINISHES:
        shown = repr(reason) if _WORD.fullmatch(reason) else "no word"
        raise RemoteFailed(f"{where}: the reason why the answer ended is {shown}; accepted: {', '.join(_FINISHES)}")
    return _FINISHES[reason]


def error_of(
    where: str, status: int, problem: ServerProblem, request: WireRequest, retry_after: float | None
) -> EngineError:
    message = f"{where}: HTTP {status}: {one_line(problem.message or '') or 'no reason given'}"
    if "tools" in request.parameters and status != 429 and _NO_TOOLS.search(problem.message or ""):
        return ToolsRefused(message, status)
    if status == 429:
        return RemoteBusy(message, passing=True, retry_after=retry_after)
    if status == 408 or status >= 500:
        return RemoteFailed(message, passing=True, retry_after=retry_after)
    if status in (400, 413, 422):
        if problem.code == "context_length_exceeded" or _TOO_LONG.search(f"{problem.type} {problem.message}"):
            return _too_long(message, problem)
        if (parameter := _unsupported(problem)) in request.parameters & SUBSTITUTES.keys():
            return ParameterRefused(message, status, parameter)
        if request.structured and _SCHEMA.search(problem.message or ""):
            return BadGrammar(message)
    if 300 <= status < 400:
        message += "; redirections are not followed, since the key would go with them: put the new place into base_url"
    return RemoteRefused(message, status)


def _unsupported(problem: ServerProblem) -> str:
    if problem.code in ("unsupported_parameter", "unsupported_value", "unknown_parameter") and isinstance(
        problem.param, str
    ):
        return problem.param
    # A proxy may have dropped the error code.
    match = _UNSUPPORTED.search(problem.message or "")
    return next(filter(None, match.groups())).lower() if match else ""


def status_of(problem: ServerProblem) -> int:
    """Return the code of an error within a stream if that is an HTTP status, else 500."""
    return problem.code if isinstance(problem.code, int) and 400 <= problem.code < 600 else 500


def one_line(text: str) -> str:
    """Return a server's message on one line, cut to MAX_MESSAGE characters."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= MAX_MESSAGE else f"{line[: MAX_MESSAGE - 1]}…"


def _too_long(error_text: str, problem: ServerProblem) -> RemotePromptTooLong:
    message = problem.message or ""
    tokens, limit = (int(match[1]) if (match := rule.search(message)) else 0 for rule in (_ASKED, _LIMIT))
    return RemotePromptTooLong(error_text, tokens=problem.n_prompt_tokens or tokens, limit=problem.n_ctx or limit)
