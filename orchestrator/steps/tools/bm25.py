"""Rank texts for a query by the words they share: Okapi BM25 (Robertson and Zaragoza, 2009, section 3.4). Pure."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

K1 = 1.2
B = 0.75

_WORD = re.compile(r"\w+")


def words(text: str) -> list[str]:
    """Return the words of a text, without regard to case."""
    return _WORD.findall(text.casefold())


class Bm25:
    """An index over texts. Scores are zero where no word of the query occurs."""

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
        """Return the score of every text that shares a word with the query, by its index."""
        found: defaultdict[int, float] = defaultdict(float)
        for word in set(words(query)):
            holders = self._postings.get(word, [])
            weight = math.log(1 + (len(self._lengths) - len(holders) + 0.5) / (len(holders) + 0.5))
            for index, count in holders:
                norm = K1 * (1 - B + B * self._lengths[index] / self._mean)
                found[index] += weight * count * (K1 + 1) / (count + norm)
        return dict(found)
