"""Compare the form of an answer with the form that its request wants: numbers of items, lengths, format, order."""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Final, Literal

from orchestrator.run.frontdoor.doubt import Doubt, WrittenAnswer
from orchestrator.run.frontdoor.request import instruction
from orchestrator.run.frontdoor.sources import PROSE
from orchestrator.run.frontdoor.wishes import Amount, Wishes
from orchestrator.run.frontdoor.words import folded, related

READ_BYTES: Final = 200_000  # longer outputs are not read
SLACK: Final = 1.1  # how much too long a text may be, because words are counted in different ways
LEAST_LINES: Final = 3  # of a list of short lines
MOST_WORDS: Final = 6  # of a short line; a longer one is a sentence
FENCED: Final = re.compile(r"```[\w+-]*\n(.*?)(?:```|\Z)", re.DOTALL)


def about_form(wishes: Wishes, wanted: Sequence[str], answer: WrittenAnswer) -> Iterator[Doubt]:
    """Yield what speaks against the form of an answer. `wanted` are the files that the request certainly wants."""
    texts = {name: text.strip() for name, text in answer.outputs.items() if len(text) <= READ_BYTES}
    if wishes.format and texts and not any(_has_format(wishes.format, text) for text in texts.values()):
        only = next(iter(texts)) if len(texts) == 1 else None
        demand = f"Write it as {wishes.format}."
        yield Doubt(f"You asked for {wishes.format}; the answer is something else.", only, demand=demand)
    prose = [name for name in wanted if PurePosixPath(name).suffix in PROSE]
    if (length := wishes.length_of_each) and len(prose) > 1:
        for name in filter(texts.__contains__, prose):
            measured = _measure(length.of, texts[name])
            if not _fits(length, measured, 1.0):
                yield Doubt(f"You asked for {length} each; {name} has {measured}.", name, demand=f"Use {length} each.")
    if len(texts) != 1 or (len(answer.written) > 1 and wishes.several):
        return
    ((name, text),) = texts.items()
    yield from _about_items(wishes, name, text)
    yield from _about_items_for_each(wishes, name, text, answer.inputs)
    if wishes.format or PurePosixPath(name).suffix not in PROSE or "```" in text:
        return
    for length in wishes.lengths:
        measured = _measure(length.of, text)
        if not _fits(length, measured, 1.0 if wishes.one_text else 2.0):
            demand = f"Use {_tighter(length, measured)}."
            yield Doubt(f"You asked for {length}; the answer has {measured}.", name, demand=demand)


def _tighter(length: Amount, measured: int) -> Amount:
    # models write longer texts than they are asked for, so one that was too long is asked for less, at the least half
    if length.of == "sentences" or measured <= length.number:
        return length
    return replace(length, bound="at most", number=max(1, length.number // 2, length.number**2 // measured))


def _about_items(wishes: Wishes, name: str, text: str) -> Iterator[Doubt]:
    if (items := wishes.items) and (problem := _miscounted(items, text, only=not wishes.several)):
        corrected = _first_items(text, items.number) if items.bound in ("exactly", "at most") else None
        yield Doubt(f"You asked for {items}; the answer has {problem}.", name, corrected, demand=f"Give {items}.")
    if (items := wishes.items_in_all) and (most := _most_items(items.of, text)) < items.number:
        doubt = f"You asked for {items} in all; the answer has at most {most}."
        yield Doubt(doubt, name, demand=f"Give {items} in all.")


def _about_items_for_each(wishes: Wishes, name: str, text: str, inputs: Collection[str]) -> Iterator[Doubt]:
    if wishes.items_for_each is None:
        return
    each, whole = wishes.items_for_each
    files = [file for file in inputs if related(_kind(file), whole)]
    if len(files) < 2 or len(files) < len(inputs):
        return
    items = replace(each, number=each.number * len(files))
    most, least = _most_items(items.of, text), text.count("?") if items.of in _QUESTIONS else 0
    if most < items.number or least > items.number:
        measured = f"at most {most}" if most < items.number else f"{least}"
        doubt = f"You asked for {each} for each {whole}, so {items.number} in all; the answer has {measured}."
        corrected = _first_of_each(text, each, len(files))
        yield Doubt(doubt, name, corrected, demand=f"Give exactly {each} for each {whole}, and no more.")


def _first_of_each(text: str, each: Amount, lists: int) -> str | None:
    # None if the text is not as many numbered lists, each of which has enough items
    lines = text.splitlines()
    numbers = [(at, int(match[1])) for at, line in enumerate(lines) if (match := _NUMBER.match(line))]
    runs = [number for _, number in numbers].count(1)
    if runs != lists or [number for _, number in numbers].count(each.number) != lists:
        return None
    dropped: set[int] = set()
    for at, number in numbers:
        if number > each.number:
            end = next((after for after in range(at + 1, len(lines)) if lines[after][:1].strip()), len(lines))
            dropped.update(range(at, end))
    remaining = "\n".join(line for at, line in enumerate(lines) if at not in dropped).strip()
    return remaining if each.of not in _QUESTIONS or remaining.count("?") == each.number * lists else None


def _kind(file: str) -> str:
    # "chapter" of chapter1.txt and of chapter_2.txt
    return re.split(r"[\W\d_]+", PurePosixPath(file).stem.casefold())[0]


def _has_format(format_name: str, text: str) -> bool:
    candidates = [text, *(match[1] for match in FENCED.finditer(text))]
    if format_name == "JSON":
        return any(is_json(candidate) for candidate in candidates)
    if format_name == "CSV":
        return any(_is_csv(candidate) for candidate in candidates)
    if format_name == "a Markdown table":
        return re.search(r"(?m)^.*\|.*\n[ \t|:-]*-[ \t|:-]*\|?[ \t|:-]*$", text) is not None
    return bool(_LISTED.search(text)) or len(text.split()) < 8


def only_list(text: str) -> str | None:
    # the list in an object that has nothing else
    members = list(json.loads(text).values())
    if len(members) != 1 or not isinstance(members[0], list):
        return None
    return json.dumps(members[0], ensure_ascii=False, indent=2)


def is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict | list)
    except (ValueError, RecursionError):
        return False


def _is_csv(text: str) -> bool:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return bool(lines) and sum(any(mark in line for mark in ",;\t") for line in lines) >= max(1, len(lines) - 2)


_LISTED = re.compile(r"(?m)^\s*(?:[-*•\u2013]\s+\S|\d{1,3}[.)]\s+\S)")
_NUMBERED = re.compile(r"^ {0,3}(?:#+ *|[*_]{1,2}|[A-Z][a-z]+ )?(\d{1,3})[.):]")
_NUMBER = re.compile(r"^ {0,3}(\d{1,3})[.)]\s")
_BULLET = re.compile(r"^(\s*)[-*•\u2013+]\s+\S")


def _miscounted(amount: Amount, text: str, *, only: bool) -> str:
    # too few items or, if they are the `only` content, too many
    least, most = _items_in(text)
    fewest = amount.number / (2 if amount.bound == "about" else 1)
    if most is not None and most < fewest and amount.bound != "at most":
        return str(most) if least == most else f"at most {most}"
    if only and least > amount.number * (1.5 if amount.bound == "about" else 1) and amount.bound != "at least":
        return str(least)
    return ""


_QUESTIONS: Final = ("questions", "fragen", "preguntas")


def _first_items(text: str, number: int) -> str | None:
    # None if there are no more, or if it is not plain where an item starts and ends
    if is_json(text):
        value = json.loads(text)
        return json.dumps(value[:number], ensure_ascii=False, indent=2) if isinstance(value, list) else None
    least, most = _items_in(text)
    if most is None or most <= number or least != most:
        return None
    lines = text.splitlines()
    marks = [(at, _BULLET.match(line)) for at, line in enumerate(lines)]
    bullets = [(at, len(mark[1].expandtabs(4))) for at, mark in marks if mark is not None]
    outermost = min((indent for _, indent in bullets), default=0)
    numbered = [at for at, line in enumerate(lines) if _NUMBERED.match(line)]
    starts = numbered if len(numbered) == most else [at for at, indent in bullets if indent == outermost]
    if len(starts) != most:
        return None
    end = next((at for at in range(starts[-1] + 1, len(lines)) if lines[at][:1].strip()), len(lines))
    while not lines[end - 1].strip():  # a blank line between the list and what follows stays
        end -= 1
    return "\n".join((*lines[: starts[number]], *lines[end:])).strip()


def _items_in(text: str) -> tuple[int, int | None]:
    # at least and at most; None if there may be any number
    if is_json(text):
        return _items_in_json(json.loads(text))
    if "```" in text or "|" in text:
        return 0, None
    lines = [line for line in text.splitlines() if line.strip()]
    numbers = [int(match[1]) for line in lines if (match := _NUMBERED.match(line))]
    if len(numbers) >= 2:
        return (len(numbers), len(numbers)) if numbers == [*range(1, len(numbers) + 1)] else (0, None)
    bullets = [at for at, line in enumerate(lines) if _BULLET.match(line)]
    if bullets:
        return _items_in_bullets(lines, bullets)
    return 0, max(len(lines), _parts(text))


def _parts(text: str) -> int:
    # at most: what signs and words can separate
    parts = len(re.findall(r"[,;:/&]|\b(?:and|or|und|oder|et|ou|y|o|e|then|dann|puis|luego)\b", folded(text))) + 1
    return max(len(re.findall(r"[.!?]+(?:\s|$)", text)), parts)


def _most_items(of: str, text: str) -> int:
    lines = sum(bool(line.strip()) for line in text.splitlines())
    if of == "lines":
        return lines
    return text.count("?") if of in _QUESTIONS else max(lines, _parts(text))


def _items_in_json(value: object) -> tuple[int, int | None]:
    if isinstance(value, list):
        return len(value), len(value)
    lists = [member for member in value.values() if isinstance(member, list)] if isinstance(value, dict) else []
    return (len(lists[0]), len(lists[0])) if len(lists) == 1 else (0, None)


def _items_in_bullets(lines: list[str], bullets: list[int]) -> tuple[int, int | None]:
    # bullets of the outermost level; other lines between them make the number uncertain
    if any(_BULLET.match(line) is None and line[:1].strip() for line in lines[bullets[0] : bullets[-1]]):
        return 0, None
    indents = [len(match[1].expandtabs(4)) for at in bullets if (match := _BULLET.match(lines[at]))]
    outer = sum(indent == min(indents) for indent in indents)
    return (outer, outer) if len(bullets) > 1 else (0, None)


def _measure(unit: str, text: str) -> int:
    if unit == "characters":
        return len(text)
    if unit == "words":
        return len(re.findall(r"[^\W_]+(?:['\u2019.,-][^\W_]+)*", text))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    body = [line for line in lines if line[-1] in ".!?…\"'»”)" or len(line.split()) > 10] or lines
    return sum(max(1, _sentences(line)) for line in body)


_ABBREVIATED = re.compile(
    r"\b(?:[A-Za-zÄÖÜ]|\d+|e\.g|i\.e|z\.\s?B|d\.\s?h|Dr|Mr|Mrs|Ms|Prof|St|No|Nr|vs|etc|ca|bzw|usw|approx|M|Mme|Sr|Sra|"
    r"Inc|Ltd|Co|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec|p\.\s?ej|p\.\s?m|a\.\s?m|U\.\s?S)\.$"
)


def _sentences(line: str) -> int:
    ends = list(re.finditer(r"[.!?…]+[\"'»”)*_]*(?=\s+[\"'«„“(*_¿¡]*[A-ZÄÖÜÉÈÀÇÁÍÓÚÑ])", line))
    return 1 + sum(not _ABBREVIATED.search(line[: end.end()]) for end in ends)


def _fits(amount: Amount, measured: int, slack: float) -> bool:
    most = amount.number * slack * (SLACK if amount.of != "sentences" else 1) + (2 if amount.of == "words" else 0)
    if amount.bound == "at least":
        return measured >= amount.number / SLACK
    if amount.bound == "about":
        return amount.number / 2.5 <= measured <= 2 * most
    return measured <= most


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
    """What a request plainly says about a list of short lines: its order, each line once, in which case.

    A model sorts and compares badly, and code does it without fault. It is read in English, German, French and Spanish.
    False and None leave the choice to the model.
    """

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
