"""Read the words of a request that something is done for: languages, audiences, places, aspects."""

import re
from collections.abc import Collection, Iterator
from pathlib import PurePosixPath
from typing import Final

from orchestrator.run.frontdoor.words import folded

EACH: Final = "{each}"  # stands for the step's own item in the action and the output of a part

MAX_WORDS: Final = 4  # words of one item of a list
MAX_ITEMS: Final = 60  # a request with more items is a text that contains lists
_LEAST_STEM: Final = 4  # first letters that two forms of a word share at least

_AND: Final = r"(?:and|or|und|oder|sowie|et|ou|y|e|o|u|&)"
_WORD: Final = r"(?:[^\s,;:.!?()\"&]|\.(?=\w))+"  # a word, or the name of a file
_ITEM: Final = rf"{_WORD}(?:[ \t]+{_WORD}){{0,11}}"
_BETWEEN: Final = re.compile(rf"\s*,\s*(?:{_AND}\s+)?|\s+{_AND}\s+", re.IGNORECASE)
_LIST: Final = re.compile(rf"{_ITEM}(?:(?:{_BETWEEN.pattern}){_ITEM})+", re.IGNORECASE)
_LINE: Final = re.compile(r"^\s*(?:[-*+•]|\d{1,3}[.)])\s+(\S.*?)\s*[;,.]?$", re.MULTILINE)


def items_in(request: str, files: Collection[str]) -> tuple[str, ...]:
    """Return possible items of the lists in a request, in order, without names of files.

    Where the first and the last item of a list start and end is open, so all possibilities are returned: "translate it
    into German, French and Spanish please" gives "Spanish" and "Spanish please".
    """
    stems = {name for file in files for name in (file, PurePosixPath(file).name, PurePosixPath(file).stem)}
    items = dict.fromkeys(item for item in _items(request) if not _names_file(item, stems))
    return tuple(items) if len(items) <= MAX_ITEMS else ()


def is_said(request: str, item: str) -> bool:
    """Return whether a request contains an item, in any form of its words. Models invent other items."""
    if item in request:
        return True
    request_words = folded(re.sub(r"[,;:&]", " ", request)).split()
    return all(any(_alike(word, spoken) for spoken in request_words) for word in folded(item).split())


def name_for(item: str) -> str:
    """Return the item as a part of the name of a file."""
    return re.sub(r"[^\w.-]+", "-", item.casefold()).strip("-.")[:40]


def _items(request: str) -> Iterator[str]:
    yield from (match[1] for match in _LINE.finditer(request) if len(match[1].split()) <= MAX_WORDS)
    for listed in _LIST.finditer(request):
        first, *inner, last = _BETWEEN.split(listed[0])
        yield from _endings(first)
        for item in inner:  # a second list may start within an item
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


def _alike(word: str, spoken: str) -> bool:
    bare, against = (re.sub(r"^\W+|\W+$", "", text) for text in (word, spoken))
    if bare == against:
        return True
    common = next((at for at, pair in enumerate(zip(bare, against, strict=False)) if len(set(pair)) > 1), None)
    shared = min(len(bare), len(against)) if common is None else common
    return shared >= max(_LEAST_STEM, min(len(bare), len(against)) * 2 // 3)
