"""Build the JSON of a chat completion request, and read text, token counts and errors from the answers. Pure.

The protocol is OpenAI's `POST /chat/completions` with `stream`, which llama-server, vLLM, Ollama and others support.
"""

import json
import re
from collections.abc import Set
from dataclasses import asdict, dataclass
from typing import Any, Final

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
from registry.options import DEFAULT_SAMPLING, SamplingOptions
from registry.thinking import thinking_budget

BYTES_A_TOKEN: Final = 4
"""How many bytes a token is taken to have, for the tokens of a prompt that the server does not count."""
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
"""What is sent instead of a parameter that a server refuses: a parameter of another name, or nothing (None).

Most servers only accept `max_tokens`. OpenAI's reasoning models refuse it, and refuse sampling parameters. Variables of
chat templates are known to vLLM, SGLang and llama-server, and refused by OpenAI.
"""
THOUGHT_TOKENS: Final = 8192
"""How many tokens of thoughts are allowed for, beside those of the answer, where nothing limits the thoughts."""
MAX_TOKEN_TEXT: Final = 64
"""How many characters the tokens of an answer may have on average. They have about four."""
MAX_TOKEN_CHUNKS: Final = 16
"""In how many chunks a token may come on average. Most servers send one for each token."""
MAX_TOKEN_JSON: Final = 8 << 10
"""How many bytes of JSON the tokens of an answer may have on average, with those of twenty other likely tokens."""
SPARE_CHUNKS: Final = 1024
"""How many chunks there may be besides: of the beginning and the end of an answer, and empty ones."""
MAX_MESSAGE: Final = 400
"""The most characters of a server's message that an error repeats."""
_SEED_BITS: Final = 31
_RULED_OUT: Final = -100.0
"""The bias with which OpenAI's API rules a token out."""
_FINISHES: Final[dict[str, Finish]] = {
    "stop": "stop",
    "length": "length",
    "abort": "cancelled",
    "tool_calls": "stop",
    "function_call": "stop",
}
_NO_TOOLS: Final = re.compile(
    r"does not support (?:tool|function)|tool choice requires|tools? param(?:eter)? requires"
    r"|(?:tools?|tool[_ ]call(?:s|ing)?|tool[_ ]use|function calling) (?:is|are) not supported"
    r"|(?:unsupported|unknown|unrecognized)[^.]{0,40}\btools?\b",
    re.I,
)
"""What servers say that take no tools: Ollama, vLLM without a parser of calls, llama-server without Jinja, others."""
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
    """A request as it is sent."""

    body: bytes
    """The JSON."""
    parameters: frozenset[str]
    """The names of its parameters."""
    structured: bool
    """Whether the answer has to follow a schema."""
    prompt_bytes: int
    """The length of all messages in UTF-8."""
    max_tokens: int
    """The most tokens that the answer may have, thoughts included: what the server is told, or else the context."""

    @property
    def max_text(self) -> int:
        """The most characters of text, thoughts and calls that are accepted. Some servers ignore `max_tokens`."""
        return MAX_TOKEN_TEXT * (self.max_tokens + SPARE_CHUNKS)

    @property
    def max_chunks(self) -> int:
        """The most chunks that are accepted."""
        return MAX_TOKEN_CHUNKS * (self.max_tokens + SPARE_CHUNKS)

    @property
    def max_logprobs(self) -> int:
        """The most tokens that are accepted with their logprobs."""
        return self.max_tokens + SPARE_CHUNKS

    @property
    def max_json(self) -> int:
        """The most bytes of all events that are accepted."""
        return MAX_TOKEN_JSON * (self.max_tokens + SPARE_CHUNKS)


def wire_request(model: str, request: Generation, context: int, refused: Set[str] = frozenset()) -> WireRequest:
    """Return the request to send to a server's `model`, whose context has `context` tokens.

    The parameters that the server has `refused` are replaced as SUBSTITUTES says. A seed is reduced to 31 bits, which
    every server accepts. No schema is sent if any JSON is accepted, since not every server supports that: the prompt
    asks for JSON, and the reader of the answer checks it. Raises BadRequest, BadGrammar.
    """
    try:
        if problem := request.problem():
            raise BadRequest(problem)
        if not request.messages:
            raise BadRequest("another server runs the model, which is asked with messages; accepted: a chat")
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
    """Return the tools that the model may call, and whether it has to."""
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
    """Return how many tokens to add to the limit of an answer for thoughts, which every server counts in the limit."""
    if request.limits_thoughts or request.thinking in ("auto", "off"):
        return 0
    budget = thinking_budget(request.thinking, None)
    return THOUGHT_TOKENS if budget is None else budget


def _sampling(options: SamplingOptions) -> dict[str, Any]:
    """Return the options that are not the usual ones, by the names that OpenAI's API and llama-server have for them."""
    usual = asdict(DEFAULT_SAMPLING)
    return {name: value for name, value in asdict(options).items() if value != usual[name]}


def _shaping(request: Generation) -> dict[str, Any]:
    """Return what else shapes the answer, by the names of OpenAI's API, and where that has none by those of vLLM.

    Raises BadRequest for biases of texts, whose tokens only the server knows.
    """
    fields: dict[str, Any] = {}
    if request.logit_bias:
        for one, _ in request.logit_bias:
            if isinstance(one, str):
                what = f"logit_bias names the text {one!r:.80}, and another server runs the model"
                raise BadRequest(f"{what}; accepted: ids of tokens")
        fields["logit_bias"] = {str(token): max(bias, _RULED_OUT) for token, bias in request.logit_bias}
    if request.logprobs is not None:
        fields |= {"logprobs": True, "top_logprobs": request.logprobs}
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
    """Return the parameters that say how much to think, in the words of the servers that know any."""
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
    """The error that a server describes in its answer."""

    message: str | None = None
    type: str | None = None
    code: str | int | None = None
    """A word, or an HTTP status."""
    param: Any = None
    """The name of the parameter that caused the error; some servers put other things here."""
    n_prompt_tokens: int | None = None
    """Sent by llama-server: the length of the prompt, if it is too long."""
    n_ctx: int | None = None
    """Sent by llama-server: the length of the context, if the prompt is too long."""


class _Details(msgspec.Struct, frozen=True):
    cached_tokens: int | None = None


class _OutputDetails(msgspec.Struct, frozen=True):
    reasoning_tokens: int | None = None


class Counts(msgspec.Struct, frozen=True):
    """The tokens of a request, as the server counts them."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    completion_tokens_details: _OutputDetails | None = None

    @property
    def cached_tokens(self) -> int:
        """How many tokens of the prompt the server took from its prefix cache; 0 if it does not say so."""
        return (self.prompt_tokens_details.cached_tokens if self.prompt_tokens_details else None) or 0

    @property
    def reasoning_tokens(self) -> int | None:
        """How many tokens of the answer belong to thoughts; None if the server does not say so."""
        return self.completion_tokens_details.reasoning_tokens if self.completion_tokens_details else None


class _FunctionDelta(msgspec.Struct, frozen=True):
    name: str | None = None
    arguments: str | None = None


class CallDelta(msgspec.Struct, frozen=True):
    """A piece of a call of a tool."""

    index: int | None = None
    """Its number among the calls of the answer; some servers do not send it."""
    function: _FunctionDelta = _FunctionDelta()

    @property
    def name(self) -> str:
        """The name of the tool, which only the first piece of a call has."""
        return self.function.name or ""

    @property
    def arguments(self) -> str:
        """The next piece of the arguments, which are JSON."""
        return self.function.arguments or ""


class _Delta(msgspec.Struct, frozen=True):
    content: str | None = None
    tool_calls: list[CallDelta] | None = None
    reasoning_content: Any = None
    """What the model thinks, as vLLM, SGLang, llama-server and DeepSeek send it."""
    reasoning: Any = None
    """The same, as Ollama, OpenRouter and newer versions of vLLM send it."""

    @property
    def thought(self) -> str:
        """What the model thinks; empty if the piece has nothing of it."""
        return next((one for one in (self.reasoning_content, self.reasoning) if isinstance(one, str) and one), "")


class _Likelihood(msgspec.Struct, frozen=True):
    token: str = ""
    logprob: float = 0.0
    octets: list[int] | None = msgspec.field(default=None, name="bytes")
    top_logprobs: "list[_Likelihood] | None" = None

    @property
    def data(self) -> bytes:
        """The bytes of the token."""
        return self.token.encode() if self.octets is None else bytes(one % 256 for one in self.octets)


class _Logprobs(msgspec.Struct, frozen=True):
    content: list[_Likelihood] | None = None


class _Choice(msgspec.Struct, frozen=True):
    delta: _Delta | None = None
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None


class _Body(msgspec.Struct, frozen=True):
    """Any JSON object that a server sends: a piece of an answer or an error, which some wrap in `error`."""

    choices: list[_Choice] | None = None
    usage: Counts | None = None
    error: ServerProblem | str | None = None
    object: str | None = None
    message: str | None = None
    detail: Any = None
    type: str | None = None
    code: str | int | None = None

    def problem(self) -> ServerProblem | None:
        """Return the error that this describes, or None."""
        if isinstance(self.error, str):
            return ServerProblem(self.error)
        if self.error is None and self.object == "error":
            return ServerProblem(self.message, self.type, self.code)
        return self.error


_bodies = msgspec.json.Decoder(_Body)


class InvalidChunk(Exception):
    """The server sent something else than a chunk of a chat completion."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """One event of a streamed answer."""

    text: str = ""
    reason: str | None = None
    """Why the answer ends with this chunk, or None if it goes on."""
    counts: Counts | None = None
    """The tokens of the request, if this chunk has them."""
    problem: ServerProblem | None = None
    """The error that ends the stream, or None."""
    thought: str = ""
    """What the model thinks before it answers."""
    logprobs: tuple[TokenLogprob, ...] = ()
    """How likely the tokens were, if that was asked for."""
    calls: tuple[CallDelta, ...] = ()
    """Pieces of calls of tools."""


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
    logprobs = tuple(_token_logprob(one) for one in listed or ())
    calls = tuple(delta.tool_calls or ())
    return Chunk(delta.content or "", reason, body.usage, body.problem(), delta.thought, logprobs, calls)


def _token_logprob(one: _Likelihood) -> TokenLogprob:
    top = tuple(TokenLikelihood(-1, other.data, other.logprob) for other in (one.top_logprobs or ())[:MAX_LOGPROBS])
    return TokenLogprob(-1, one.data, one.logprob, top)


def read_problem(body: bytes) -> ServerProblem:
    """Read the body of an answer whose status is not 200, in whatever form it is."""
    try:
        decoded = _bodies.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return ServerProblem(body.decode(errors="replace"))
    detail = decoded.detail if isinstance(decoded.detail, str) else None
    message = decoded.message or detail or body.decode(errors="replace")
    return decoded.problem() or ServerProblem(message, decoded.type, decoded.code)


def finish_of(where: str, reason: str) -> Finish:
    """Return how an answer ended, by the server's finish reason. Raises RemoteRefused, RemoteFailed."""
    if reason == "content_filter":
        raise RemoteRefused(f"{where}: a content filter has cut the answer off")
    if reason not in _FINISHES:
        shown = repr(reason) if _WORD.fullmatch(reason) else "no word"
        raise RemoteFailed(f"{where}: the reason why the answer ended is {shown}; accepted: {', '.join(_FINISHES)}")
    return _FINISHES[reason]


def error_of(
    where: str, status: int, problem: ServerProblem, asked: WireRequest, retry_after: float | None
) -> EngineError:
    """Return the error for an answer with this HTTP status."""
    what = f"{where}: HTTP {status}: {one_line(problem.message or '') or 'no reason given'}"
    if "tools" in asked.parameters and status != 429 and _NO_TOOLS.search(problem.message or ""):
        return ToolsRefused(what, status)
    if status == 429:
        return RemoteBusy(what, passing=True, retry_after=retry_after)
    if status == 408 or status >= 500:
        return RemoteFailed(what, passing=True, retry_after=retry_after)
    if status in (400, 413, 422):
        if problem.code == "context_length_exceeded" or _TOO_LONG.search(f"{problem.type} {problem.message}"):
            return _too_long(what, problem)
        if (parameter := _unsupported(problem)) in asked.parameters & SUBSTITUTES.keys():
            return ParameterRefused(what, status, parameter)
        if asked.structured and _SCHEMA.search(problem.message or ""):
            return BadGrammar(what)
    if 300 <= status < 400:
        what += "; redirections are not followed, since the key would go with them: put the new place into base_url"
    return RemoteRefused(what, status)


def _unsupported(problem: ServerProblem) -> str:
    """Return the parameter that a server refuses, by its error code or, if a proxy has dropped that, by its message."""
    if problem.code in ("unsupported_parameter", "unsupported_value", "unknown_parameter") and isinstance(
        problem.param, str
    ):
        return problem.param
    found = _UNSUPPORTED.search(problem.message or "")
    return next(filter(None, found.groups())).lower() if found else ""


def status_of(problem: ServerProblem) -> int:
    """Return the HTTP status for an error within a stream: its code if that is a status, else 500."""
    return problem.code if isinstance(problem.code, int) and 400 <= problem.code < 600 else 500


def one_line(text: str) -> str:
    """Return a server's message on one line, cut to MAX_MESSAGE characters."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= MAX_MESSAGE else f"{line[: MAX_MESSAGE - 1]}…"


def _too_long(what: str, problem: ServerProblem) -> RemotePromptTooLong:
    message = problem.message or ""
    tokens, limit = (int(found[1]) if (found := rule.search(message)) else 0 for rule in (_ASKED, _LIMIT))
    return RemotePromptTooLong(what, tokens=problem.n_prompt_tokens or tokens, limit=problem.n_ctx or limit)
