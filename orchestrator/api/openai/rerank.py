"""Answer /v1/rerank, in the form of Jina's and Cohere's APIs: order documents by how relevant they are to a query.

With the registry's role `reranker`, a model reads the query together with each document (a cross-encoder), and the
scores are what its classifier gives. Without that role, or with an embedder as `model`, they are the cosines of the
vectors of query and documents. Scores order the documents of one request, and are no probabilities.
"""

import secrets
from functools import partial
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from orchestrator.api.dependencies import LenientBody, LimiterDep, ServiceDep
from orchestrator.api.errors import DOCUMENTED
from orchestrator.api.openai.names import (
    default_reranker,
    find_embedder,
    find_reranker,
    is_reranker,
    known_name,
)
from orchestrator.errors import InputError, Problem
from orchestrator.pool import Pool
from orchestrator.task.lexical import NAME as LEXICAL
from orchestrator.task.lexical import Vectors, embed

MAX_DOCUMENTS = 2047
"""How many documents a request may have: with the query, as many texts as a request for embeddings."""

router = APIRouter(prefix="/v1", tags=["openai"], responses=dict(DOCUMENTED))


class DocumentBody(LenientBody):
    """A document with fields, of which the text counts."""

    text: str


Documents = Annotated[list[str | DocumentBody], Field(min_length=1, max_length=MAX_DOCUMENTS, fail_fast=True)]


class RerankBody(LenientBody):
    """A query, and documents to order by it."""

    model: str | None = None
    """`reranker` or the id of its model, or an embedder as for /v1/embeddings; without one, `reranker` where there
    is one."""
    query: Annotated[str, Field(min_length=1)]
    documents: Documents | None = None
    texts: Documents | None = None
    """The documents, as Hugging Face's inference server calls them; the answer is then in the form of that server."""
    top_n: Annotated[int, Field(ge=1)] | None = None
    """How many documents are returned, the most relevant ones; all if nothing is said."""
    return_documents: bool | None = None
    return_text: bool | None = None
    """The same, for `texts`."""


class DocumentLine(BaseModel):
    """The text of a document."""

    text: str


class RankedLine(BaseModel):
    """A document in the order of relevance."""

    index: int
    """Its place in the request."""
    relevance_score: float
    """Larger for what is more relevant: what the classifier of a reranker gives, or a cosine, from -1 to 1."""
    document: DocumentLine | None = None
    """Its text, where `return_documents` asks for it."""


class ScoredLine(BaseModel):
    """A document in the order of relevance, in the form of Hugging Face's inference server."""

    index: int
    """Its place in the request."""
    score: float
    """As the `relevance_score` of `RankedLine`."""
    text: str | None = None
    """Its text, where `return_text` asks for it."""


class RerankUsage(BaseModel):
    """How many tokens query and documents have; with the lexical embedder, which has no tokens, how many words."""

    prompt_tokens: int
    total_tokens: int


class RerankAnswer(BaseModel):
    """The documents, the most relevant one first."""

    id: str
    object: str = "list"
    model: str
    results: list[RankedLine]
    usage: RerankUsage


@router.post("/rerank", response_model_exclude_none=True)
async def rerank(
    body: RerankBody, request: Request, service: ServiceDep, limiter: LimiterDep
) -> RerankAnswer | list[ScoredLine]:
    """Order documents by relevance: by the role `reranker`, or else by the cosines of an embedder's vectors."""
    registry, pool = service.orchestrator.registry, service.orchestrator.pool
    name = known_name(body.model or default_reranker(registry), service)
    ranks = is_reranker(name, registry)
    model = find_reranker(registry) if ranks else find_embedder(name, registry)
    documents = _documents(body)
    if model is None:
        texts = [body.query, *documents]
        scores = await limiter.run_in_thread(lambda: _cosines(embed(texts)))
        tokens = sum(len(text.split()) for text in texts)
    else:
        work = partial(_ranked if ranks else _compared, pool, model, body.query, documents)
        scores, tokens = await limiter.run_while_connected(request, work)
    order = np.argsort(-scores, kind="stable")[: body.top_n]
    if body.texts is not None:
        return [
            ScoredLine(index=index, score=float(scores[index]), text=documents[index] if body.return_text else None)
            for index in order.tolist()
        ]
    return RerankAnswer(
        id=f"rerank-{secrets.token_hex(12)}",
        model=model or LEXICAL,
        results=[
            RankedLine(
                index=index,
                relevance_score=float(scores[index]),
                document=DocumentLine(text=documents[index]) if body.return_documents else None,
            )
            for index in order.tolist()
        ],
        usage=RerankUsage(prompt_tokens=tokens, total_tokens=tokens),
    )


def _documents(body: RerankBody) -> list[str]:
    """Return the texts of the documents, under whichever name they are given. Raises InputError."""
    given = body.documents if body.texts is None else body.texts
    if given is None or None not in (body.documents, body.texts):
        raise InputError(Problem("documents", "is missing, or there beside texts", "exactly one of both"))
    found = [one if isinstance(one, str) else one.text for one in given]
    for index, text in enumerate(found):
        if not text:
            raise InputError(
                Problem(f"{'texts' if body.documents is None else 'documents'}/{index}", "is empty", "text")
            )
    return found


async def _ranked(pool: Pool, model: str, query: str, documents: list[str]) -> tuple[Vectors, int]:
    found = await pool.rank(model, query, documents)
    return np.array(found.scores, np.float32), found.tokens


async def _compared(pool: Pool, model: str, query: str, documents: list[str]) -> tuple[Vectors, int]:
    found = await pool.embed(model, [query, *documents])
    return _cosines(found.vectors), found.tokens


def _cosines(vectors: Vectors) -> Vectors:
    """Return the cosines of the first vector with each of the others. All have the length 1."""
    cosines: Vectors = vectors[1:] @ vectors[0]
    return cosines
