"""Answer /v1/embeddings: with the built-in lexical embedder (see `orchestrator.lexical`), or the registry's own.

Neither ever stands in for the other, as their vectors cannot be compared.
"""

import asyncio
import base64
from functools import partial
from typing import Annotated, Any, Final, Literal

import msgspec
import numpy as np
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from orchestrator.api.access import TheService
from orchestrator.api.bodies import Body
from orchestrator.api.errors import DOCUMENTED
from orchestrator.api.openai.asking import workplace
from orchestrator.api.openai.names import UnknownName
from orchestrator.api.openai.sampling import Lenient
from orchestrator.errors import InputError, Problem
from orchestrator.lexical import DIMENSIONS, NAME, Vectors, embed
from orchestrator.pool import Pool
from registry.forms import EMBEDDER as ROLE
from registry.models import Registry

MOST_TEXTS: Final = 2048
FEWEST, MOST = 64, 2048
"""The dimensions that a lexical vector can have."""

router = APIRouter(prefix="/v1", tags=["openai"], responses=dict(DOCUMENTED))


class EmbeddingBody(Body, Lenient):
    """Texts to be embedded."""

    model: str
    input: str | Annotated[list[str], Field(min_length=1, max_length=MOST_TEXTS)]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Field(ge=1)] | None = None


class EmbeddingLine(BaseModel):
    """One vector: numbers, or base64 of little-endian 32-bit floats."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingUsage(BaseModel):
    """Tokens; for the lexical embedder words, since it has none."""

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
    """Embed texts. `model` is `lexical`, or `embedder`: the registry's role, and where it has none, `lexical` too."""
    model = find_embedder(body.model, service.orchestrator.registry)
    texts = [body.input] if isinstance(body.input, str) else body.input
    for number, text in enumerate(texts):
        if not text:
            raise InputError(Problem(f"input/{number}", "is empty", "text"))
    if model is None:
        dimensions = _lexical_size(body.dimensions)
        answer = await workplace(request).compute(lambda: _lexical(texts, dimensions, body))
    else:
        work = partial(_by_model, service.orchestrator.pool, model, texts, body)
        answer = await workplace(request).attend(request, work)
    return Response(answer, media_type="application/json")


def embedder_names(registry: Registry) -> list[str]:
    """Return the names under which texts can be embedded."""
    return [NAME, ROLE] if ROLE not in registry.roles or why_not(registry) is None else [NAME]


def find_embedder(name: str, registry: Registry) -> str | None:
    """Return the model that embeds under a name, None for the lexical embedder.

    Raises UnknownName for what is no embedder, and InputError for one that cannot be used.
    """
    if name == NAME or (name == ROLE and ROLE not in registry.roles):
        return None
    if name != ROLE:
        raise UnknownName(f"there is no embedder {name!r}; accepted: {', '.join(embedder_names(registry))}")
    model = registry.roles[ROLE].model
    if (reason := why_not(registry)) is not None:
        raise InputError(Problem("model", f"role {ROLE} is of model {model}, which cannot embed: {reason}", NAME))
    return model


def why_not(registry: Registry) -> str | None:
    """Return why the model of the registry's role cannot embed, or None if it can."""
    if registry.models[registry.roles[ROLE].model].remote is not None:
        return "another server runs it, and only models that are loaded here embed"
    return registry.why_not(ROLE)


def _lexical_size(asked: int | None) -> int:
    if asked is not None and not FEWEST <= asked <= MOST:
        raise InputError(Problem("dimensions", f"is {asked}", f"{FEWEST} to {MOST}"))
    return asked or DIMENSIONS


def _lexical(texts: list[str], dimensions: int, body: EmbeddingBody) -> bytes:
    words = sum(len(text.split()) for text in texts)
    return _answer(NAME, embed(texts, dimensions), words, body)


async def _by_model(pool: Pool, model: str, texts: list[str], body: EmbeddingBody) -> bytes:
    made = await pool.embed(model, texts)
    vectors = _shortened(made.vectors, body.dimensions)
    return await asyncio.to_thread(_answer, model, vectors, made.tokens, body)


def _shortened(vectors: Vectors, dimensions: int | None) -> Vectors:
    """Return the first numbers of each vector, at length 1 again (0, where they are all 0)."""
    size = vectors.shape[1]
    if dimensions is None or dimensions == size:
        return vectors
    if dimensions > size:
        raise InputError(Problem("dimensions", f"is {dimensions}, and the model's vectors have {size}", f"1 to {size}"))
    short = vectors[:, :dimensions]
    lengths = np.linalg.norm(short, axis=1, keepdims=True)
    units: Vectors = np.divide(short, lengths, out=np.zeros_like(short), where=lengths > 0)
    return units


def _answer(name: str, vectors: Vectors, tokens: int, body: EmbeddingBody) -> bytes:
    """Return the body of the answer, an `EmbeddingList`. It may have millions of numbers, so not the loop writes it."""
    as_text = body.encoding_format == "base64"
    lines = [
        {"object": "embedding", "index": number, "embedding": _told(vector, as_text)}
        for number, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    answer: dict[str, Any] = {"object": "list", "data": lines, "model": name, "usage": usage}
    return msgspec.json.encode(answer)


def _told(vector: Vectors, as_text: bool) -> list[float] | str:
    if as_text:
        return base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")
    return [float(number) for number in vector]
