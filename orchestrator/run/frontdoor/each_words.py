"""Read the words of a request that something is done for: languages, audiences, places, aspects."""

import re
from collections.abc import Collection, Iterator
from pathlib import PurePosixPath
from typing import Final

from orchestrator.run.frontdoor.words import folded

EACH: Final = "{each}"
"""Stands in the action and the output of a part for the name of the thing that a step of it is about."""

MAX_WORDS: Final = 4
"""The most words of one item of a list in a request."""
MAX_ITEMS: Final = 60
"""A request with more items than this is a text that has lists in it."""
_LEAST_STEM: Final = 4
"""Two words are the same if they have this many letters in common at their beginning, and most of the shorter one."""

_AND: Final = r"(?:and|or|und|oder|sowie|et|ou|y|e|o|u|&)"
_WORD: Final = r"(?:[^\s,;:.!?()\"&]|\.(?=\w))+"
"""A word, or the name of a file."""
_ITEM: Final = rf"{_WORD}(?:[ \t]+{_WORD}){{0,11}}"
_BETWEEN: Final = re.compile(rf"\s*,\s*(?:{_AND}\s+)?|\s+{_AND}\s+", re.IGNORECASE)
_LIST: Final = re.compile(rf"{_ITEM}(?:(?:{_BETWEEN.pattern}){_ITEM})+", re.IGNORECASE)
_LINE: Final = re.compile(r"^\s*(?:[-*+•]|\d{1,3}[.)])\s+(\S.*?)\s*[;,.]?$", re.MULTILINE)


def items_in(request: str, files: Collection[str]) -> tuple[str, ...]:
    """Return what may be items of the lists in a request, in its order, without names of files.

    Where an item begins and ends at the edges of a list is open, so every possible beginning and end is there: of
    "translate it into German, French and Spanish please" the last item may be "Spanish" or "Spanish please".
    """
    stems = {name for file in files for name in (file, PurePosixPath(file).name, PurePosixPath(file).stem)}
    found = dict.fromkeys(item for item in _items(request) if not _names_file(item, stems))
    return tuple(found) if len(found) <= MAX_ITEMS else ()


def is_said(request: str, item: str) -> bool:
    """Return whether a request says an item, in whatever form of its words: a model invents others."""
    if item in request:
        return True
    said = folded(re.sub(r"[,;:&]", " ", request)).split()
    return all(any(_alike(word, other) for other in said) for word in folded(item).split())


def name_for(item: str) -> str:
    """Return the item as a part of a file's name."""
    return re.sub(r"[^\w.-]+", "-", item.casefold()).strip("-.")[:40]


def _items(request: str) -> Iterator[str]:
    yield from (match[1] for match in _LINE.finditer(request) if len(match[1].split()) <= MAX_WORDS)
    for listed in _LIST.finditer(request):
        first, *inner, last = _BETWEEN.split(listed[0])
        yield from _endings(first)
        for item in inner:  # of two lists with a comma between them, the second one begins within an item
            yield from _beginnings(item)
            yield from _endings(item)
        yield from _beginnings(last)


def _beginnings(item: str) -> Iterator[str]:
    parts = item.split()
    yield from (" ".join(parts[:count]) for count in range(1, min(MAX_WORDS, len(parts)) + 1))


def _endings(item: str) -> Iterator[str]:
    parts = item.split()
    yield from (" ".join(parts[-count:]) for count in range(1, min(MAX_WORDS, len(parts)) + 1))


def _names_file(item: str, stems: Collection[str]) -> bool:
    return any(word in stems or re.fullmatch(r"[\w./-]+\.[A-Za-z]\w{0,7}", word) for word in item.split())


def _alike(word: str, other: str) -> bool:
    bare, against = (re.sub(r"^\W+|\W+$", "", text) for text in (word, other))
    if bare == against:
        return True
    common = next((at for at, pair in enumerate(zip(bare, against, strict=False)) if len(set(pair)) > 1), None)
    shared = min(len(bare), len(against)) if common is None else common
    return shared >= max(_LEAST_STEM, min(len(bare), len(against)) * 2 // 3)
