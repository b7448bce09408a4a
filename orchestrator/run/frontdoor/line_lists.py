"""Read by code how a request wants a list of short lines: in alphabetical order, each line once, in which case.

A model sorts and compares badly, and code does it without fault. Only what a request says plainly counts, of a list
with one thing a line, in English, German, French and Spanish.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

from orchestrator.run.frontdoor.request import instruction
from orchestrator.run.frontdoor.words import folded

LEAST_LINES: Final = 3
MOST_WORDS: Final = 6  # of a line; a longer one is a sentence

_PER_LINE = re.compile(
    r"\b(?:one|a|each|every|single)\b[^.;:!?\n]{0,20}\b(?:per|an?|on (?:an?|its|their)|on separate) (?:own )?lines?\b"
    r"|\bpro zeile\b|\b(?:je|jede[rs]?|eine?[rs]?) [^.;:!?\n]{0,30}\b(?:eigenen?|neuen?) zeile\b"
    r"|\bpar ligne\b|\bpor linea\b"
)
# an order by something else, or the other way round, is left to the model
_SORTED = re.compile(
    r"\b(?:alphabeti\w*|alfabetic\w*|from a to z|a-z|von a bis z|de a a z)\b"
    r"(?!(?: (?:order|reihenfolge|sortiert|sorted))? (?:by|nach|par|por)\b)"
)
_REVERSED = re.compile(
    r"\b(?:reverse\w*|descending|z to a|z-a|absteigend\w*|umgekehrt\w*|inverse\w*|decroissant\w*|descendente\w*)\b"
)
_ONCE = re.compile(
    r"\b(?:(?:without|no|remove|drop) (?:any |the |all )?(?:duplicates?|repetitions?|doubles)|only once|just once"
    r"|deduplicat\w*|ohne (?:duplikate|doppelte\w*|wiederholungen)|keine (?:duplikate|doppelten\w*)|nur einmal"
    r"|sans (?:doublons?|repetitions?)|seule fois|sin (?:duplicados|repetidos|repeticiones)|una sola vez)\b"
)
_CASES: Final[dict[Literal["lower", "upper"], re.Pattern[str]]] = {
    "lower": re.compile(r"\b(?:lower[- ]?case|kleingeschrieben|in kleinbuchstaben|en (?:minuscules?|minusculas?))\b"),
    "upper": re.compile(r"\b(?:upper[- ]?case|in capitals|in grossbuchstaben|en (?:majuscules?|mayusculas?))\b"),
}
_MARK = re.compile(r"^\s*[-*•\u2013+]\s+")
_NO_ITEM = re.compile(r"^\s*(?:\d+[.)]|#|```|\|)|:\s*$")  # numbers, headings, fences, tables


@dataclass(frozen=True, slots=True)
class ListForm:
    """What a request plainly says about a list of lines. False and None leave the choice to the model."""

    is_sorted: bool = False  # alphabetically, without regard to case and accents
    once: bool = False  # no line comes twice, whatever its case
    case: Literal["lower", "upper"] | None = None

    @classmethod
    def of(cls, request: str) -> "ListForm":
        text = folded(instruction(request))
        if _PER_LINE.search(text) is None:
            return cls()
        cases = [case for case, pattern in _CASES.items() if pattern.search(text)]
        return cls(
            _SORTED.search(text) is not None and _REVERSED.search(text) is None,
            _ONCE.search(text) is not None,
            cases[0] if len(cases) == 1 else None,
        )

    def problems(self, text: str) -> Iterator[str]:
        """Return what a text has that the form rules out; nothing if the text is no list of short lines."""
        lines = _lines(text)
        for line in lines:
            if line != _in_case(line, self.case):
                yield f"{self.case} case; the answer has {line!r}"
        for key, count in Counter(line.casefold() for line in lines).items():
            if self.once and count > 1:
                yield f"everything once; the answer has {key!r} {count} times"
        for line, following in pairwise(lines):
            if self.is_sorted and folded(line) > folded(following):
                yield f"alphabetical order; the answer has {line!r} before {following!r}"

    def corrected(self, text: str) -> str:
        """Return a list of short lines in this form. Of lines that differ in case only, the first one stays."""
        lines = [_in_case(line, self.case) for line in _lines(text)]
        if self.once:
            first = {line.casefold(): line for line in reversed(lines)}
            lines = [first[key] for key in dict.fromkeys(line.casefold() for line in lines)]
        if self.is_sorted:
            lines.sort(key=folded)
        mark = _MARK.match(text.lstrip("\n"))
        return "\n".join(f"{mark[0] if mark else ''}{line}" for line in lines)


def _lines(text: str) -> list[str]:
    # none for a text that is more than a list
    lines = [line for line in text.splitlines() if line.strip()]
    items = [_MARK.sub("", line).strip() for line in lines]
    marked = sum(_MARK.match(line) is not None for line in lines)
    if len(lines) < LEAST_LINES or marked not in (0, len(lines)) or any(map(_NO_ITEM.search, lines)):
        return []
    return items if max(len(item.split()) for item in items) <= MOST_WORDS else []


def _in_case(line: str, case: Literal["lower", "upper"] | None) -> str:
    return line.lower() if case == "lower" else line.upper() if case == "upper" else line
