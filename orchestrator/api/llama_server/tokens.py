"""Answer /tokenize, /detokenize and /apply-template, with the fields of llama-server and, for tokens, those of vLLM.

Without `model`, the role that plans fall back on is used. A model that is not loaded is loaded. These requests count as
generations, because they take a core and hold a model too.
"""

import asyncio
from collections.abc import Iterable
from typing import Annotated, Final

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from orchestrator.api.dependencies import Entries, LenientBody, LimiterDep, ServiceDep, read_body
from orchestrator.api.errors import DOCUMENTED, TooLarge
from orchestrator.api.openai.calling import tool_prompt
from orchestrator.api.openai.chat import ToolBody, client_tools
from orchestrator.api.openai.names import role_named
from orchestrator.api.openai.protocol import ChatMessage, TemplateArguments, TokenIds, engine_messages
from orchestrator.api.openai.tools import MAX_TOOLS, ClientTools
from orchestrator.engine.contract import TokenizedText, texts_of
from orchestrator.errors import InputError, Problem
from orchestrator.registry.options import MAX_CONTEXT

# Characters of a text to tokenize. The list of tokens is several times as long as the text.
MAX_TOKENIZED: Final = 1 << 20
MAX_RENDERED: Final = 1 << 22  # characters of the messages and tools of a prompt that is rendered or counted
_MANY: Final = 4096  # from this many tokens on, a thread makes the JSON

router = APIRouter(tags=["llama-server"], responses=dict(DOCUMENTED))

Messages = Annotated[Entries[ChatMessage], Field(min_length=1)]


class TokenizeBody(LenientBody):
    """A text to turn into tokens: as `content` (llama-server) or `prompt` (vLLM)."""

    model: str | None = None
    content: str | None = None
    prompt: str | None = None
    add_special: bool = Field(default=False, description="add what the model needs around its whole input, such as BOS")
    parse_special: bool = Field(default=True, description="let names of control tokens mean these tokens")
    with_pieces: bool = Field(default=False, description="return the text of each token too")
    add_special_tokens: bool | None = Field(default=None, description="`add_special`, as vLLM calls it")


class TokenLine(BaseModel):
    """A token and its text; where that is no whole UTF-8, its bytes."""

    id: int
    piece: str | list[int]


class TokenizeAnswer(BaseModel):
    """The tokens of a text."""

    tokens: list[int] | list[TokenLine]
    count: int
    max_model_len: int | None  # tokens of prompt and answer together


class DetokenizeBody(LenientBody):
    """Tokens to turn into text."""

    model: str | None = None
    tokens: TokenIds


class DetokenizeAnswer(BaseModel):
    """The text of tokens."""

    content: str
    prompt: str  # the same, under vLLM's name


class TemplateBody(LenientBody):
    """Messages of a chat to render."""

    model: str | None = None
    messages: Messages
    tools: Annotated[list[ToolBody], Field(max_length=MAX_TOOLS)] | None = None
    chat_template_kwargs: TemplateArguments | None = None
    add_generation_prompt: bool | None = None  # whether the prompt ends with the start of an answer; None: it does


class TemplateAnswer(BaseModel):
    """The prompt that the model gets of the messages."""

    prompt: str


@router.post("/tokenize", response_model=TokenizeAnswer)
async def tokenize(body: TokenizeBody, request: Request, service: ServiceDep, limiter: LimiterDep) -> Response:
    """Turn a text into the tokens of a model."""
    text = body.content if body.content is not None else body.prompt
    if text is None:
        raise InputError(Problem("content", "is missing", "a text, as content or as prompt"))
    check_length("content", [text], MAX_TOKENIZED)
    role = role_named(body.model, service)
    whole = body.add_special if body.add_special_tokens is None else body.add_special_tokens
    tokenized = await limiter.run_while_connected(
        request,
        lambda: service.orchestrator.pool.tokenize(role.model, text, special=body.parse_special, whole=whole),
    )

    def written() -> str:
        return _answer(tokenized, role.context, with_pieces=body.with_pieces).model_dump_json()

    content = await asyncio.to_thread(written) if len(tokenized.tokens) > _MANY else written()
    return Response(content, media_type="application/json")


@router.post("/detokenize")
async def detokenize(
    body: DetokenizeBody, request: Request, service: ServiceDep, limiter: LimiterDep
) -> DetokenizeAnswer:
    """Turn tokens of a model into text."""
    if len(body.tokens) > MAX_CONTEXT:
        problem, accepted = f"are {len(body.tokens)} tokens", f"at most {MAX_CONTEXT}: ask for parts of them"
        raise TooLarge(Problem("tokens", problem, accepted))
    model = role_named(body.model, service).model
    text = await limiter.run_while_connected(request, lambda: service.orchestrator.pool.detokenize(model, body.tokens))
    return DetokenizeAnswer(content=text, prompt=text)


@router.post("/apply-template")
async def apply_template(
    body: TemplateBody, request: Request, service: ServiceDep, limiter: LimiterDep
) -> TemplateAnswer:
    """Return the prompt that a chat with these messages would give the model, without asking it."""
    role = role_named(body.model, service)
    toolbox = await read_body(body, lambda: ClientTools.of(client_tools(body.tools), None))
    chat = engine_messages(body.messages)
    check_length("messages", texts_of(chat, toolbox.offered), MAX_RENDERED)
    messages, tools = tool_prompt(chat, role, toolbox)
    arguments = dict(body.chat_template_kwargs or {})
    if body.add_generation_prompt is not None:
        arguments["add_generation_prompt"] = body.add_generation_prompt
    rendered = await limiter.run_while_connected(
        request, lambda: service.orchestrator.pool.render(role.model, messages, arguments, tools)
    )
    return TemplateAnswer(prompt=rendered)


def check_length(where: str, texts: Iterable[str], most: int) -> None:
    """Raise TooLarge if the texts have more than `most` characters together."""
    if (length := sum(map(len, texts))) > most:
        raise TooLarge(Problem(where, f"has {length} characters", f"at most {most}: send parts of it"))


def _answer(tokenized: TokenizedText, context: int | None, *, with_pieces: bool) -> TokenizeAnswer:
    ids = list(tokenized.tokens)
    shown: list[int] | list[TokenLine] = ids
    if with_pieces:
        shown = [TokenLine(id=id, piece=_piece(piece)) for id, piece in zip(ids, tokenized.pieces, strict=True)]
    return TokenizeAnswer(tokens=shown, count=len(ids), max_model_len=context)


def _piece(piece: bytes) -> str | list[int]:
    try:
        return piece.decode()
    except UnicodeDecodeError:  # a token may be a part of a character
        return list(piece)
