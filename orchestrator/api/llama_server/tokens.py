"""Answer /tokenize, /detokenize and /apply-template, with the fields of llama-server and, for tokens, those of vLLM.

`model` may be left out: it is then the role that plans fall back on. A model that is not loaded is loaded.
"""

from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, Field

from orchestrator.api.dependencies import LenientBody, RequestBody, ServiceDep
from orchestrator.api.errors import DOCUMENTED
from orchestrator.api.openai.calling import tool_prompt
from orchestrator.api.openai.chat import ToolBody, client_tools
from orchestrator.api.openai.names import role_named
from orchestrator.api.openai.protocol import ChatMessage, TemplateArguments, TokenIds, engine_messages
from orchestrator.api.openai.tools import MAX_TOOLS, ClientTools
from orchestrator.errors import InputError, Problem

router = APIRouter(tags=["llama-server"], responses=dict(DOCUMENTED))

Messages = Annotated[list[ChatMessage], Field(min_length=1, max_length=4096)]


class TokenizeBody(RequestBody, LenientBody):
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
    max_model_len: int | None
    """How many tokens prompt and answer may have together."""


class DetokenizeBody(RequestBody, LenientBody):
    """Tokens to turn into text."""

    model: str | None = None
    tokens: TokenIds


class DetokenizeAnswer(BaseModel):
    """The text of tokens."""

    content: str
    prompt: str
    """The same, as vLLM calls it."""


class TemplateBody(RequestBody, LenientBody):
    """Messages of a chat to render."""

    model: str | None = None
    messages: Messages
    tools: Annotated[list[ToolBody], Field(max_length=MAX_TOOLS)] | None = None
    chat_template_kwargs: TemplateArguments | None = None


class TemplateAnswer(BaseModel):
    """The prompt that the model gets of the messages."""

    prompt: str


@router.post("/tokenize")
async def tokenize(body: TokenizeBody, service: ServiceDep) -> TokenizeAnswer:
    """Turn a text into the tokens of a model."""
    text = body.content if body.content is not None else body.prompt
    if text is None:
        raise InputError(Problem("content", "is missing", "a text, as content or as prompt"))
    role = role_named(body.model, service)
    whole = body.add_special if body.add_special_tokens is None else body.add_special_tokens
    found = await service.orchestrator.pool.tokenize(role.model, text, special=body.parse_special, whole=whole)
    ids = list(found.tokens)
    shown: list[int] | list[TokenLine] = ids
    if body.with_pieces:
        shown = [TokenLine(id=id, piece=_piece(piece)) for id, piece in zip(ids, found.pieces, strict=True)]
    return TokenizeAnswer(tokens=shown, count=len(ids), max_model_len=role.context)


@router.post("/detokenize")
async def detokenize(body: DetokenizeBody, service: ServiceDep) -> DetokenizeAnswer:
    """Turn tokens of a model into text."""
    text = await service.orchestrator.pool.detokenize(role_named(body.model, service).model, body.tokens)
    return DetokenizeAnswer(content=text, prompt=text)


@router.post("/apply-template")
async def apply_template(body: TemplateBody, service: ServiceDep) -> TemplateAnswer:
    """Return the prompt that a chat with these messages would give the model, without asking it."""
    role = role_named(body.model, service)
    toolbox = ClientTools.of(client_tools(body.tools), None)
    messages, tools = tool_prompt(engine_messages(body.messages), role, toolbox)
    rendered = await service.orchestrator.pool.render(role.model, messages, body.chat_template_kwargs, tools)
    return TemplateAnswer(prompt=rendered)


def _piece(piece: bytes) -> str | list[int]:
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)
