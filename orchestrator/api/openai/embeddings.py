"""Answer /v1/embeddings with the built-in lexical embedder. See `orchestrator.lexical` for what its vectors are."""

import base64
from typing import Annotated, Any, Final, Literal

import msgspec
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from orchestrator.api.access import TheService
from orchestrator.api.errors import DOCUMENTED
from orchestrator.api.openai.asking import workplace
from orchestrator.api.openai.names import UnknownName
from orchestrator.api.openai.sampling import Lenient
from orchestrator.errors import InputError, Problem
from orchestrator.lexical import DIMENSIONS, NAME, Vectors, embed
from registry import Registry

ROLE: Final = "embedder"
MOST_TEXTS: Final = 2048

Dimensions = Annotated[int, Field(ge=64, le=2048)]

router = APIRouter(prefix="/v1", tags=["openai"], responses=dict(DOCUMENTED))


class EmbeddingBody(Lenient):
    """Texts to be embedded."""

    model: str
    input: str | Annotated[list[str], Field(min_length=1, max_length=MOST_TEXTS)]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Dimensions | None = None


class EmbeddingLine(BaseModel):
    """One vector: numbers, or base64 of little-endian 32-bit floats."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingUsage(BaseModel):
    """Words, since there are no tokens."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingList(BaseModel):
    """One vector for each text, in order."""

    object: Literal["list"] = "list"
    data: list[EmbeddingLine]
    model: str
    usage: EmbeddingUsage


@router.post("/embeddings", response_model=EmbeddingList)
async def create(body: EmbeddingBody, request: Request, service: TheService) -> Response:
    """Embed texts. `model` is `lexical`, or `embedder`, which is the same where the registry has no such role."""
    check_embedder(body.model, service.orchestrator.registry)
    texts = [body.input] if isinstance(body.input, str) else body.input
    for number, text in enumerate(texts):
        if not text:
            raise InputError(Problem(f"input/{number}", "is empty", "text"))
    as_text = body.encoding_format == "base64"
    dimensions = body.dimensions or DIMENSIONS
    answer = await workplace(request).compute(lambda: _answer(texts, dimensions, as_text))
    return Response(answer, media_type="application/json")


def embedder_names(registry: Registry) -> list[str]:
    """Return the names under which texts can be embedded."""
    return [NAME] if ROLE in registry.roles else [NAME, ROLE]


def check_embedder(name: str, registry: Registry) -> None:
    """Raise UnknownName for what is no embedder, and InputError for one of the registry's: it is never replaced."""
    if name in embedder_names(registry):
        return
    if name == ROLE:
        model = registry.roles[ROLE].model
        raise InputError(Problem("model", f"role {ROLE} is of model {model}, and no model embeds texts here", NAME))
    raise UnknownName(f"there is no embedder {name!r}; accepted: {', '.join(embedder_names(registry))}")


def _answer(texts: list[str], dimensions: int, as_text: bool) -> bytes:
    """Return the body of the answer, an `EmbeddingList`. It may have millions of numbers, so not the loop writes it."""
    words = sum(len(text.split()) for text in texts)
    lines = [
        {"object": "embedding", "index": number, "embedding": _told(vector, as_text)}
        for number, vector in enumerate(embed(texts, dimensions))
    ]
    usage = {"prompt_tokens": words, "total_tokens": words}
    answer: dict[str, Any] = {"object": "list", "data": lines, "model": NAME, "usage": usage}
    return msgspec.json.encode(answer)


def _told(vector: Vectors, as_text: bool) -> list[float] | str:
    if as_text:
        return base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")
    return [float(number) for number in vector]
