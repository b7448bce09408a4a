"""Train and apply a byte-level BPE that llama.cpp reads as `gpt2` with the pre-tokenizer `gpt-2`.

A word has the same tokens wherever it stands, so that a model copies it by repeating tokens. Therefore no merge joins a
space to a part of a word. Only frequent whole words also have a token with a leading space; these are merged last.
Digits are never merged.
"""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

SPECIAL_TOKENS = ("<|begin|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>")
BEGIN, END = 0, 1
VOCABULARY_SIZE = 1024
SPACED_WORDS = 170
CONTRACTIONS = ("'s", "'t", "'m", "'d", "'re", "'ve", "'ll")
WHITE_SPACE = frozenset("\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000") | {
    chr(c) for c in range(0x2000, 0x200B)
}


def byte_characters() -> list[str]:
    """Return the printable character that stands for each byte, as GPT-2 maps them."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = iter(range(256))
    return [chr(b) if b in printable else chr(256 + next(rest)) for b in range(256)]


BYTE_CHARACTERS = byte_characters()
SPACE = BYTE_CHARACTERS[ord(" ")]


def _kind(character: str) -> str:
    if character in WHITE_SPACE:
        return "space"
    category = unicodedata.category(character)[0]
    return {"L": "letter", "N": "number"}.get(category, "other")


def split_words(text: str) -> Iterator[str]:
    r"""Split `text` as the pre-tokenizer of GPT-2 does.

    The expression is `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`.
    """
    start, size = 0, len(text)
    while start < size:
        contraction = next((c for c in CONTRACTIONS if text.startswith(c, start)), None)
        if contraction:
            yield contraction
            start += len(contraction)
            continue
        first = start + 1 if text[start] == " " and start + 1 < size else start
        kind = _kind(text[first])
        if kind == "space":
            first, kind = start, _kind(text[start])
        end = first + 1
        while end < size and _kind(text[end]) == kind:
            end += 1
        # The last white space character before a word belongs to the word.
        if kind == "space" and end < size and end - start > 1:
            end -= 1
        yield text[start:end]
        start = end


def to_characters(word: str) -> tuple[str, ...]:
    """Return the bytes of `word` as the characters that the merges are written in."""
    return tuple(BYTE_CHARACTERS[byte] for byte in word.encode())


class Tokenizer:
    """Byte-level BPE with `merges` in order of rank. Ids: special tokens, bytes, merges, then the `added` tokens."""

    def __init__(self, merges: list[tuple[str, str]], added: Sequence[str] = ()) -> None:
        self.merges = merges
        self.tokens = [*SPECIAL_TOKENS, *BYTE_CHARACTERS, *("".join(pair) for pair in merges), *added]
        self._marks = re.compile("|".join(map(re.escape, (*SPECIAL_TOKENS, *added))))
        self._ids = {token: i for i, token in enumerate(self.tokens)}
        self._ranks = {pair: rank for rank, pair in enumerate(merges)}
        self._cache: dict[str, list[int]] = {}

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`, never those of special tokens."""
        ids: list[int] = []
        for word in split_words(text):
            word_ids = self._cache.get(word)
            if word_ids is None:
                word_ids = [self._ids[token] for token in self._merge(list(to_characters(word)))]
                if len(self._cache) < 200_000:
                    self._cache[word] = word_ids
            ids += word_ids
        return ids

    def encode_marked(self, text: str) -> list[int]:
        """Return the ids of `text`, in which each spelling of a special or an added token is that token."""
        ids, end = [], 0
        for mark in self._marks.finditer(text):
            ids += [*self.encode(text[end : mark.start()]), self._ids[mark[0]]]
            end = mark.end()
        return ids + self.encode(text[end:])

    def _merge(self, parts: list[str]) -> list[str]:
        while len(parts) > 1:
            pairs = list(pairwise(parts))
            best = min(pairs, key=lambda pair: self._ranks.get(pair, len(self._ranks)))
            if best not in self._ranks:
                break
            parts = merge_pair(parts, best)
        return parts

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of `ids`. Special tokens are left out, and invalid UTF-8 is replaced."""
        values = {character: byte for byte, character in enumerate(BYTE_CHARACTERS)}
        characters = "".join(self.tokens[i] for i in ids if i >= len(SPECIAL_TOKENS))
        return bytes(values[c] for c in characters).decode(errors="replace")

    def save(self, path: Path) -> None:
        """Write the merges to `path` as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [" ".join(pair) for pair in self.merges]
        path.write_text(json.dumps(lines, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path, added: Sequence[str] = ()) -> "Tokenizer":
        """Read what `save` wrote. `added` are further tokens, which only `encode_marked` knows."""
        pairs = [line.split(" ") for line in json.loads(path.read_text(encoding="utf-8"))]
        return cls([(left, right) for left, right in pairs], added)


def merge_pair(parts: list[str], pair: tuple[str, str]) -> list[str]:
    """Return `parts` with every occurrence of `pair` joined, left to right."""
    merged: list[str] = []
    index = 0
    while index < len(parts):
        if index + 1 < len(parts) and (parts[index], parts[index + 1]) == pair:
            merged.append(parts[index] + parts[index + 1])
            index += 2
        else:
            merged.append(parts[index])
            index += 1
    return merged


def train(corpus: Iterable[str]) -> Tokenizer:
    """Learn a tokenizer of `VOCABULARY_SIZE` tokens from `corpus`; ties go to the lexically greater pair."""
    spaced: Counter[str] = Counter()
    words: Counter[str] = Counter()
    for text in corpus:
        for word in split_words(text):
            bare = word[1:] if len(word) > 1 and word[0] == " " and not word.isspace() else word
            if not bare.isdigit():
                words[bare] += 1
                spaced[word] += bare != word
    count = VOCABULARY_SIZE - len(SPECIAL_TOKENS) - len(BYTE_CHARACTERS)
    merges = learn_merges(words, count - SPACED_WORDS)
    whole = {"".join(pair) for pair in merges}
    for word, _ in sorted(spaced.items(), key=lambda item: (-item[1], item[0])):
        bare = word[1:]
        # Names begin with consonants. Merges for short words that do so, too, would split off beginnings of names.
        if len(merges) < count and bare in whole and (len(bare) > 2 or bare[0] in "aeiou"):
            merges.append((SPACE, bare))
    return Tokenizer(merges)


def learn_merges(words: Counter[str], count: int) -> list[tuple[str, str]]:
    """Return the `count` merges that plain BPE learns from `words` (Sennrich et al. 2016, algorithm 1)."""
    parts = [(list(to_characters(word)), number) for word, number in sorted(words.items())]
    pairs: Counter[tuple[str, str]] = Counter()
    places: dict[tuple[str, str], set[int]] = {}
    for index, (word, number) in enumerate(parts):
        for pair in pairwise(word):
            pairs[pair] += number
            places.setdefault(pair, set()).add(index)
    merges: list[tuple[str, str]] = []
    while len(merges) < count:
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        for index in sorted(places.pop(best)):
            word, number = parts[index]
            merged = merge_pair(word, best)
            for pair in pairwise(word):
                pairs[pair] -= number
            for pair in pairwise(merged):
                pairs[pair] += number
                places.setdefault(pair, set()).add(index)
            parts[index] = (merged, number)
        del pairs[best]
    return merges
