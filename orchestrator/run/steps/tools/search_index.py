"""Find the texts that match a query: by words (BM25), by n-grams, and both fused by reciprocal rank."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from orchestrator.task.lexical import DIMENSIONS, Vectors, embed

K1 = 1.2
B = 0.75

_WORD = re.compile(r"\w+")


def words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


class Bm25:
    """Okapi BM25 (Robertson and Zaragoza, 2009, section 3.4); a text without a word of the query scores 0."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._lengths: list[int] = []
        postings: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        for index, text in enumerate(texts):
            counts = Counter(words(text))
            self._lengths.append(counts.total())
            for word, count in counts.items():
                postings[word].append((index, count))
        self._postings: Mapping[str, list[tuple[int, int]]] = postings
        self._mean = sum(self._lengths) / len(self._lengths) if self._lengths else 0.0

    def scores(self, query: str) -> dict[int, float]:
        """Return the scores of texts that share a word with the query, by index."""
        totals: defaultdict[int, float] = defaultdict(float)
        for word in set(words(query)):
            holders = self._postings.get(word, [])
            weight = math.log(1 + (len(self._lengths) - len(holders) + 0.5) / (len(holders) + 0.5))
            for index, count in holders:
                norm = K1 * (1 - B + B * self._lengths[index] / self._mean)
                totals[index] += weight * count * (K1 + 1) / (count + norm)
        return dict(totals)


# Reciprocal rank fusion (Cormack, Clarke and Büttcher, 2009): a rank r is worth 1 / (FUSION + r).
FUSION = 60

# A cosine below this counts as chance: two standard deviations of what hash collisions of n-grams cause.
NOTHING = 2 / DIMENSIONS**0.5

PASSAGE = 300  # characters of a text that a hit shows

EmbedTexts = Callable[[Sequence[str]], Vectors]


@dataclass(frozen=True, slots=True)
class Hit:
    """A text that matches, and the part of it that shares most words with the query."""

    name: str
    score: float
    passage: str


class SearchIndex:
    def __init__(self, texts: Mapping[str, str], embedder: EmbedTexts = embed) -> None:
        self._names = tuple(texts)
        self._texts = tuple(texts.values())
        self._embed = embedder
        self._words = Bm25(self._texts)
        self._vectors = embedder(self._texts)

    def search(self, query: str, limit: int) -> list[Hit]:
        """Return at most `limit` texts, best first; of equal ones the first by position."""
        by_words = self._words.scores(query)
        (query_vector,) = self._embed([query])
        cosines = self._vectors @ query_vector
        near = {int(index): float(cosines[index]) for index in np.flatnonzero(cosines > NOTHING)}
        fused = fuse([_ranked(by_words), _ranked(near)])
        best = sorted(fused, key=lambda index: (-fused[index], index))[:limit]
        return [Hit(self._names[index], fused[index], passage(self._texts[index], query)) for index in best]


def fuse(rankings: Sequence[Sequence[int]]) -> dict[int, float]:
    """Return the fused score of everything that is ranked, the best first in each ranking."""
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, index in enumerate(ranking, start=1):
            scores[index] = scores.get(index, 0.0) + 1 / (FUSION + rank)
    return scores


def passage(text: str, query: str, length: int = PASSAGE) -> str:
    """Return the part of about `length` characters that holds the most different words of the query."""
    if len(text) <= length:
        return text.strip()
    query_words = set(words(query))
    starts = range(0, len(text), length // 2)
    best = max(starts, key=lambda start: len(query_words.intersection(words(text[start : start + length]))))
    return text[best : best + length].strip()


@lru_cache(maxsize=4)
def index_of(texts: tuple[tuple[str, str], ...]) -> SearchIndex:
    """Return the index of (name, text) pairs. The last four indexes are kept."""
    return SearchIndex(dict(texts))


def _ranked(scores: Mapping[int, float]) -> list[int]:
    return sorted(scores, key=lambda index: (-scores[index], index))
