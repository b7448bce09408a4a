"""Answer /v1/rerank in the form of Jina's and Cohere's APIs: order documents by their relevance to a query.

With the registry's role `reranker`, a cross-encoder reads the query with each document, and the scores are those of its
classifier. Without that role, or with an embedder as `model`, scores are cosines of vectors. Scores only compare the
documents of one request; they are not probabilities.
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
from orchestrator.pool.pool import Pool
from orchestrator.task.lexical import NAME as LEXICAL
from orchestrator.task.lexical import Vectors, embed

MAX_DOCUMENTS = 2047  # with the query, as many texts as a request for embeddings

router = APIRouter(prefix="/v1", tags=["openai"], responses=dict(DOCUMENTED))


class DocumentBody(LenientBody):
    """A document with fields, of which the text counts."""

    text: str


Documents = Annotated[list[str | DocumentBody], Field(min_length=1, max_length=MAX_DOCUMENTS, fail_fast=True)]


class RerankBody(LenientBody):
    """A query, and documents to order by it."""

    model: str | None = None  # `reranker` or the id of its model, or an embedder; None: `reranker` if there is one
    query: Annotated[str, Field(min_length=1)]
    documents: Documents | None = None
    # The documents in the form of Hugging Face's inference server, which the answer then has, too.
    texts: Documents | None = None
    top_n: Annotated[int, Field(ge=1)] | None = None  # None: all documents
    return_documents: bool | None = None
    return_text: bool | None = None  # `return_documents`, for `texts`


class DocumentLine(BaseModel):
    """The text of a document."""

    text: str


class RankedLine(BaseModel):
    """A document in the order of relevance."""

    index: int  # place in the request
    relevance_score: float  # output of a reranker's classifier, or a cosine from -1 to 1
    document: DocumentLine | None = None  # if `return_documents` is set


class ScoredLine(BaseModel):
    """A document in the order of relevance, in the form of Hugging Face's inference server."""

    index: int  # place in the request
    score: float  # as `RankedLine.relevance_score`
    text: str | None = None  # if `return_text` is set


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
    entries = body.documents if body.texts is None else body.texts
    if entries is None or None not in (body.documents, body.texts):
        raise InputError(Problem("documents", "is missing, or given together with texts", "exactly one of both"))
    contents = [entry if isinstance(entry, str) else entry.text for entry in entries]
    for index, text in enumerate(contents):
        if not text:
            raise InputError(
                Problem(f"{'texts' if body.documents is None else 'documents'}/{index}", "is empty", "text")
            )
    return contents


async def _ranked(pool: Pool, model: str, query: str, documents: list[str]) -> tuple[Vectors, int]:
    ranking = await pool.rank(model, query, documents)
    return np.array(ranking.scores, np.float32), ranking.tokens


async def _compared(pool: Pool, model: str, query: str, documents: list[str]) -> tuple[Vectors, int]:
    embeddings = await pool.embed(model, [query, *documents])
    return _cosines(embeddings.vectors), embeddings.tokens


def _cosines(vectors: Vectors) -> Vectors:
    # The first vector is the query's. All have the length 1.
    cosines: Vectors = vectors[1:] @ vectors[0]
    return cosines
