"""Turn a request into the JSON of a chat completion, and what comes back into text, counts and errors. Pure.

The form is OpenAI's, as llama-server, vLLM, Ollama and others speak it: `POST /chat/completions` with `stream`.
"""

import json
import re
from collections.abc import Set
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from orchestrator.engine.contract import Finish, Generation
from orchestrator.engine.errors import BadGrammar, BadRequest, EngineError
from orchestrator.remote.errors import (
    ParameterRefused,
    RemoteBusy,
    RemoteFailed,
    RemotePromptTooLong,
    RemoteRefused,
)

BYTES_A_TOKEN: Final = 4
"""For an estimate of a prompt's tokens where the server does not count them."""
INSTEAD: Final = {"max_tokens": "max_completion_tokens", "temperature": None, "top_p": None}
"""What a server is sent that does not take a parameter: another name, or nothing.

`max_tokens` is what every server took first, and most still take nothing else. OpenAI's models that reason refuse it,
and choose by themselves how they draw their answers.
"""
MAX_TOLD: Final = 400
_SEED_BITS: Final = 31
_FINISHES: Final[dict[str, Finish]] = {"stop": "stop", "length": "length", "abort": "cancelled"}
_TOO_LONG: Final = re.compile(r"maximum context length|context (size|length|window)|exceed_context_size|n_ctx", re.I)
_LIMIT: Final = re.compile(r"context (?:length is|size \(|window is|window of) ?(\d+)", re.I)
_ASKED: Final = re.compile(r"(?:requested|resulted in|request \() ?(\d+) tokens", re.I)
_UNSUPPORTED: Final = re.compile(r"unsupported (?:parameter|value)\W{1,4}([a-z_]+)|'([a-z_]+)' is not supported", re.I)
_WORD: Final = re.compile(r"[a-z_]{1,32}")
_SCHEMA: Final = re.compile(r"schema|response_format|grammar", re.I)


@dataclass(frozen=True, slots=True)
class Question:
    """A request as it is sent, with the names of its `parameters`. `prompt_bytes` of text are in it.

    `structured`: the answer has to follow a schema.
    """

    body: bytes
    parameters: frozenset[str]
    structured: bool
    prompt_bytes: int


def question(model: str, request: Generation, context: int, refused: Set[str] = frozenset()) -> Question:
    """Return what to send for a request to a `model` with a `context` of so many tokens.

    Of the parameters that the server has `refused`, those of INSTEAD are sent under another name or not at all.
    A seed is cut to 31 bits, which every server takes. Any JSON at all is not asked for by a schema, since not every
    server can do that: the prompt says it, and whoever reads the answer checks it. Raises BadRequest, BadGrammar.
    """
    try:
        if problem := request.problem():
            raise BadRequest(problem)
        schema = _schema(request)
        fields: dict[str, Any] = {
            "model": model,
            "messages": [{"role": role, "content": text} for role, text in request.messages],
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": request.temperature,
        }
        if request.top_p < 1:
            fields["top_p"] = request.top_p
        if request.max_tokens is not None:
            fields["max_tokens"] = min(request.max_tokens, context)
        if request.seed is not None:
            fields["seed"] = request.seed % (1 << _SEED_BITS)
        if request.stop:
            fields["stop"] = list(request.stop)
        if schema is not None:
            fields["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
        fields = {name: value for key, value in fields.items() if (name := _name(key, refused)) is not None}
        body = json.dumps(fields, ensure_ascii=False, allow_nan=False).encode()
        prompt_bytes = sum(len(text.encode()) for _, text in request.messages)
    except UnicodeEncodeError as error:
        raise BadRequest(f"text that is no Unicode: {error}") from error
    except (TypeError, ValueError, RecursionError) as error:
        raise BadGrammar(f"the schema is no JSON: {error}") from error
    return Question(body, frozenset(fields), schema is not None, prompt_bytes)


def _name(parameter: str, refused: Set[str]) -> str | None:
    return INSTEAD.get(parameter) if parameter in refused else parameter


def _schema(request: Generation) -> dict[str, object] | None:
    if request.grammar is not None:
        raise BadGrammar("a GBNF grammar cannot be asked of a remote model; accepted: a JSON Schema")
    if request.schema is False:
        raise BadGrammar("no JSON value satisfies the schema")
    return request.schema if isinstance(request.schema, dict) and request.schema else None


class Problem(msgspec.Struct, frozen=True):
    """What a server says is wrong. `code` is a word or an HTTP status; the last two are llama-server's.

    `param` names the parameter that is to blame; some servers put other things there.
    """

    message: str | None = None
    type: str | None = None
    code: str | int | None = None
    param: Any = None
    n_prompt_tokens: int | None = None
    n_ctx: int | None = None


class _Details(msgspec.Struct, frozen=True):
    cached_tokens: int | None = None


class Counts(msgspec.Struct, frozen=True):
    """The tokens of a request, as the server counts them."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None

    @property
    def cached_tokens(self) -> int:
        """The tokens of the prompt that the server had already computed, as far as it says so."""
        return (self.prompt_tokens_details.cached_tokens if self.prompt_tokens_details else None) or 0


class _Delta(msgspec.Struct, frozen=True):
    content: str | None = None


class _Choice(msgspec.Struct, frozen=True):
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Body(msgspec.Struct, frozen=True):
    """Any JSON object that a server sends: a piece of an answer or an error, which some wrap in `error`."""

    choices: list[_Choice] | None = None
    usage: Counts | None = None
    error: Problem | str | None = None
    object: str | None = None
    message: str | None = None
    detail: Any = None
    type: str | None = None
    code: str | int | None = None

    def problem(self) -> Problem | None:
        """Return what it says is wrong, if it says so."""
        if isinstance(self.error, str):
            return Problem(self.error)
        if self.error is None and self.object == "error":
            return Problem(self.message, self.type, self.code)
        return self.error


_bodies = msgspec.json.Decoder(_Body)


class NotUnderstood(Exception):
    """What the server sent is no piece of a chat completion."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """One event of a streamed answer: some text, why the answer ends here if it does, and the counts if they are told.

    With a `problem` it is an error, and nothing more comes.
    """

    text: str = ""
    reason: str | None = None
    counts: Counts | None = None
    problem: Problem | None = None


def read_chunk(data: str) -> Chunk:
    """Read the data of one event. Raises NotUnderstood."""
    try:
        body = _bodies.decode(data)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise NotUnderstood(str(error)) from error
    choice = body.choices[0] if body.choices else _Choice()
    text = choice.delta.content if choice.delta else None
    return Chunk(text or "", choice.finish_reason or None, body.usage, body.problem())  # some say "" until the end


def read_problem(body: bytes) -> Problem:
    """Read the body of an answer that is not 200, whatever it is."""
    try:
        told = _bodies.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return Problem(body.decode(errors="replace"))
    detail = told.detail if isinstance(told.detail, str) else None
    return told.problem() or Problem(told.message or detail or body.decode(errors="replace"), told.type, told.code)


def finish_of(where: str, reason: str) -> Finish:
    """Return what a finish reason means. Raises RemoteRefused, RemoteFailed."""
    if reason == "content_filter":
        raise RemoteRefused(f"{where}: a content filter has cut the answer off")
    if reason not in _FINISHES:
        shown = repr(reason) if _WORD.fullmatch(reason) else "no word"
        raise RemoteFailed(f"{where}: the reason why the answer ended is {shown}; accepted: {', '.join(_FINISHES)}")
    return _FINISHES[reason]


def error_of(where: str, status: int, problem: Problem, asked: Question, retry_after: float | None) -> EngineError:
    """Return the error that an answer with this HTTP status amounts to."""
    told = f"{where}: HTTP {status}: {one_line(problem.message or '') or 'no reason given'}"
    if status == 429:
        return RemoteBusy(told, passing=True, retry_after=retry_after)
    if status == 408 or status >= 500:
        return RemoteFailed(told, passing=True, retry_after=retry_after)
    if status in (400, 413, 422):
        if problem.code == "context_length_exceeded" or _TOO_LONG.search(f"{problem.type} {problem.message}"):
            return _too_long(told, problem)
        if (parameter := _unsupported(problem)) in asked.parameters & INSTEAD.keys():
            return ParameterRefused(told, status, parameter)
        if asked.structured and _SCHEMA.search(problem.message or ""):
            return BadGrammar(told)
    if 300 <= status < 400:
        told += "; redirections are not followed, since the key would go with them: put the new place into base_url"
    return RemoteRefused(told, status)


def _unsupported(problem: Problem) -> str:
    """Return the parameter that a server does not take, by its code or, where a proxy has lost that, by its words."""
    if problem.code in ("unsupported_parameter", "unsupported_value") and isinstance(problem.param, str):
        return problem.param
    found = _UNSUPPORTED.search(problem.message or "")
    return (found[1] or found[2]).lower() if found else ""


def status_of(problem: Problem) -> int:
    """Return the HTTP status of an error that came after a 200: what its code says, else 500."""
    return problem.code if isinstance(problem.code, int) and 400 <= problem.code < 600 else 500


def one_line(text: str) -> str:
    """Return a server's words on one line, shortened to what matters."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= MAX_TOLD else f"{line[: MAX_TOLD - 1]}…"


def _too_long(told: str, problem: Problem) -> RemotePromptTooLong:
    message = problem.message or ""
    tokens, limit = (int(found[1]) if (found := rule.search(message)) else 0 for rule in (_ASKED, _LIMIT))
    return RemotePromptTooLong(told, tokens=problem.n_prompt_tokens or tokens, limit=problem.n_ctx or limit)
