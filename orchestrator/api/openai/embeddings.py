"""Answer /v1/embeddings with the built-in lexical embedder: hashed n-grams of characters and words, of unit length.

It knows how texts are written, not what they mean. The same text has the same vector on every machine.
"""

import asyncio
import base64
from functools import lru_cache
from typing import Annotated, Final, Literal, cast

import numpy as np
from fastapi import APIRouter
from numpy.typing import NDArray
from pydantic import BaseModel, Field
from sklearn.feature_extraction.text import HashingVectorizer

from orchestrator.api.errors import DOCUMENTED
from orchestrator.api.openai.names import UnknownName
from orchestrator.api.openai.sampling import Lenient
from orchestrator.errors import InputError, Problem

LEXICAL: Final = "lexical"
NAMES: Final = frozenset({LEXICAL, "embedder"})
DIMENSIONS: Final = 512
MOST_TEXTS: Final = 2048

Vectors = NDArray[np.float32]
Dimensions = Annotated[int, Field(ge=64, le=8192, multiple_of=2)]

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


@router.post("/embeddings")
async def embed(body: EmbeddingBody) -> EmbeddingList:
    """Embed texts. `model` is `lexical`, or `embedder`, which is the same here."""
    if body.model not in NAMES:
        raise UnknownName(f"there is no embedder {body.model!r}; accepted: {', '.join(sorted(NAMES))}")
    texts = [body.input] if isinstance(body.input, str) else body.input
    for number, text in enumerate(texts):
        if not text:
            raise InputError(Problem(f"input/{number}", "is empty", "text"))
    vectors = await asyncio.to_thread(lexical_vectors, texts, body.dimensions or DIMENSIONS)
    words = sum(len(text.split()) for text in texts)
    as_text = body.encoding_format == "base64"
    return EmbeddingList(
        data=[EmbeddingLine(index=n, embedding=_told(vector, as_text)) for n, vector in enumerate(vectors)],
        model=LEXICAL,
        usage=EmbeddingUsage(prompt_tokens=words, total_tokens=words),
    )


def lexical_vectors(texts: list[str], dimensions: int = DIMENSIONS) -> Vectors:
    """Return a vector of unit length for each text (a zero one where it has no letter or digit): float32, (texts, n).

    Half of the `dimensions` are for words and pairs of them, half for three to five characters within words.
    """
    parts = [vectorizer.transform(texts).toarray() for vectorizer in _vectorizers(dimensions // 2)]
    joined = np.hstack(parts)
    lengths = np.linalg.norm(joined, axis=1, keepdims=True)
    return cast(Vectors, np.divide(joined, lengths, where=lengths > 0, out=joined).astype(np.float32))


@lru_cache(maxsize=8)
def _vectorizers(features: int) -> tuple[HashingVectorizer, HashingVectorizer]:
    return (
        HashingVectorizer(n_features=features, ngram_range=(1, 2), norm="l2", strip_accents="unicode"),
        HashingVectorizer(
            n_features=features, ngram_range=(3, 5), analyzer="char_wb", norm="l2", strip_accents="unicode"
        ),
    )


def _told(vector: Vectors, as_text: bool) -> list[float] | str:
    if as_text:
        return base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")
    return [float(number) for number in vector]
