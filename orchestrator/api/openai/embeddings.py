"""Answer /v1/embeddings with the built-in lexical embedder (`orchestrator.task.lexical`) or the registry's own model.

Neither replaces the other, because their vectors cannot be compared.
"""

import asyncio
import base64
from functools import partial
from typing import Annotated, Any, Final, Literal

import msgspec
import numpy as np
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from orchestrator.api.dependencies import LenientBody, LimiterDep, ServiceDep
from orchestrator.api.errors import DOCUMENTED
from orchestrator.api.openai.names import find_embedder, known_name
from orchestrator.api.openai.protocol import TokenIds
from orchestrator.errors import InputError, Problem
from orchestrator.pool.pool import Pool
from orchestrator.task.lexical import DIMENSIONS, NAME, Vectors, embed

MAX_TEXTS: Final = 2048
# Of lexical vectors.
MIN_DIMENSIONS: Final = 64
MAX_DIMENSIONS: Final = 2048

router = APIRouter(prefix="/v1", tags=["openai"], responses=dict(DOCUMENTED))


class EmbeddingBody(LenientBody):
    """A request to embed texts."""

    model: str
    # One or several texts, or lists of token ids of the model's own vocabulary.
    input: str | Annotated[list[str | int | TokenIds], Field(min_length=1, fail_fast=True)]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Field(ge=1)] | None = None


class EmbeddingLine(BaseModel):
    """One vector, as numbers or as the base64 encoding of little-endian 32-bit floats."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingUsage(BaseModel):
    """How many tokens the texts have; of the lexical embedder, which has no tokens, how many words."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingList(BaseModel):
    """The vectors of all texts, in the order of the texts."""

    object: Literal["list"] = "list"
    data: list[EmbeddingLine]
    model: str
    usage: EmbeddingUsage


@router.post("/embeddings", response_model=EmbeddingList)
async def create(body: EmbeddingBody, request: Request, service: ServiceDep, limiter: LimiterDep) -> Response:
    """Embed texts. `model` is `lexical`, or `embedder` for the registry's role (`lexical`, if there is none).

    It may be the id of the role's model, too.
    """
    model = find_embedder(known_name(body.model, service), service.orchestrator.registry)
    texts = await _texts(body.input, model, service.orchestrator.pool)
    if model is None:
        dimensions = _lexical_dimensions(body.dimensions)
        answer = await limiter.run_in_thread(lambda: _lexical_answer(texts, dimensions, body))
    else:
        work = partial(_model_answer, service.orchestrator.pool, model, texts, body)
        answer = await limiter.run_while_connected(request, work)
    return Response(answer, media_type="application/json")


async def _texts(inputs: str | list[str | int | list[int]], model: str | None, pool: Pool) -> list[str]:
    if isinstance(inputs, list) and all(isinstance(token, int) for token in inputs):
        inputs = [[token for token in inputs if isinstance(token, int)]]  # a list of ids is one text
    if isinstance(inputs, list) and len(inputs) > MAX_TEXTS:
        raise InputError(Problem("input", f"has {len(inputs)} texts", f"at most {MAX_TEXTS}"))
    texts: list[str] = []
    for number, text in enumerate([inputs] if isinstance(inputs, str) else inputs):
        if isinstance(text, int):
            raise InputError(Problem(f"input/{number}", "is a token id among texts", "texts alone, or ids alone"))
        if isinstance(text, list):
            if model is None:
                raise InputError(Problem(f"input/{number}", f"is a list of token ids, and {NAME} has none", "text"))
            text = await pool.detokenize(model, text)
        if not text:
            raise InputError(Problem(f"input/{number}", "is empty", "text"))
        texts.append(text)
    return texts


def _lexical_dimensions(dimensions: int | None) -> int:
    if dimensions is not None and not MIN_DIMENSIONS <= dimensions <= MAX_DIMENSIONS:
        raise InputError(Problem("dimensions", f"is {dimensions}", f"{MIN_DIMENSIONS} to {MAX_DIMENSIONS}"))
    return dimensions or DIMENSIONS


def _lexical_answer(texts: list[str], dimensions: int, body: EmbeddingBody) -> bytes:
    words = sum(len(text.split()) for text in texts)
    return _answer(NAME, embed(texts, dimensions), words, body)


async def _model_answer(pool: Pool, model: str, texts: list[str], body: EmbeddingBody) -> bytes:
    embeddings = await pool.embed(model, texts)
    vectors = _shortened(embeddings.vectors, body.dimensions)
    return await asyncio.to_thread(_answer, model, vectors, embeddings.tokens, body)


def _shortened(vectors: Vectors, dimensions: int | None) -> Vectors:
    size = vectors.shape[1]
    if dimensions is None or dimensions == size:
        return vectors
    if dimensions > size:
        raise InputError(Problem("dimensions", f"is {dimensions}, and the model's vectors have {size}", f"1 to {size}"))
    short = vectors[:, :dimensions]
    # The length becomes 1 again; a vector of zeros stays one.
    lengths = np.linalg.norm(short, axis=1, keepdims=True)
    units: Vectors = np.divide(short, lengths, out=np.zeros_like(short), where=lengths > 0)
    return units


def _answer(name: str, vectors: Vectors, tokens: int, body: EmbeddingBody) -> bytes:
    # There may be millions of numbers: this runs in a thread, not in the event loop.
    as_base64 = body.encoding_format == "base64"
    lines = [
        {"object": "embedding", "index": number, "embedding": _encoded(vector, as_base64)}
        for number, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    answer: dict[str, Any] = {"object": "list", "data": lines, "model": name, "usage": usage}
    return msgspec.json.encode(answer)


def _encoded(vector: Vectors, as_base64: bool) -> list[float] | str:
    if as_base64:
        return base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")
    return [float(number) for number in vector]
