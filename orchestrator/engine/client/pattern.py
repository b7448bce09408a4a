"""Turn simple regular expressions into GBNF: `pattern` of a JSON Schema, and patterns of whole answers.

Supported are characters, classes, `.`, groups, alternatives, quantifiers, and Unicode's general categories, as in
`\\p{L}`. Anchors and flags inside of a pattern are not, nor nested quantifiers, as in `(a+)*`. Look-around and
back-references of a schema's pattern are removed first, see `LinearPattern`. An unsupported pattern is left to the
validator of the whole answer, and refused if there is none.
"""

import re
import sys
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import Final

from orchestrator.task.taskir.patterns import BadPattern, read_pattern

MAX_REPEATED: Final = 256  # repetitions in a JSON string if the pattern sets no limit
# The same for a whole answer whose pattern has only one such place: with two, a text can be parsed in many ways.
MAX_REPEATED_ALONE: Final = 8192
MAX_COUNT: Final = 1024  # the largest number of repetitions
MAX_PATTERN: Final = 1000  # characters of a pattern
_LAST: Final = 0x10FFFF
_DIGITS: Final = ((0x30, 0x39),)
_WORD: Final = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_SPACE: Final = ((0x09, 0x0D), (0x20, 0x20))
_CLASSES: Final = {"d": _DIGITS, "w": _WORD, "s": _SPACE}
_CONTROLS: Final = {"n": 0x0A, "r": 0x0D, "t": 0x09, "f": 0x0C}
# The characters that a JSON string must escape, and what follows the backslash.
_ESCAPED: Final = {0x22: '"', 0x5C: "\\", 0x08: "b", 0x0C: "f", 0x0A: "n", 0x0D: "r", 0x09: "t"}
# Not in a JSON string, unless escaped.
_UNWRITABLE: Final = ((0x00, 0x1F), (0x22, 0x22), (0x5C, 0x5C), (0x7F, 0x7F), (0xD800, 0xDFFF))
_NO_TEXT: Final = ((0x00, 0x00), (0xD800, 0xDFFF))  # the zero byte, which no grammar has, and surrogates
_COUNT: Final = re.compile(r"\{(\d+)(,(\d*))?\}")
_PROPERTY: Final = re.compile(r"\{([A-Za-z_]+)\}|([A-Z])")  # after `\p`: a general category
_NAME: Final = re.compile(r"\?(?:P?<[^>]*>|:)")  # after the parenthesis of a group
_CATEGORIES: Final = {
    **{"Letter": "L", "Uppercase_Letter": "Lu", "Lowercase_Letter": "Ll", "Titlecase_Letter": "Lt"},
    **{"Mark": "M", "Number": "N", "Decimal_Number": "Nd", "Punctuation": "P", "Symbol": "S", "Separator": "Z"},
}
_UNLIMITED: Final = re.compile(r"[*+]|\{\d+,\}")

Ranges = tuple[tuple[int, int], ...]
# Returns an expression for a symbol with its least and most repetitions.
Repeat = Callable[[str, int, int], str]
# Returns the symbol of a rule with this body.
Rule = Callable[[str], str]


class NotSimple(Exception):
    """The pattern contains something unsupported. The message says what."""


def pattern_rule(pattern: str, rule: Rule, repeat: Repeat, any_character: str) -> str | None:
    """Return the symbol of the text between the quotes of a JSON string that matches a pattern; None if unsupported.

    `any_character` is the symbol of any character of a JSON string. A pattern matches anywhere in a text, unless it
    starts with `^` and ends with `$`. Look-around is ignored.
    """
    try:
        matched = read_pattern(pattern).body
    except BadPattern:
        return None
    if matched is None or len(pattern) > MAX_PATTERN:
        return None
    pattern = matched
    from_start = pattern.startswith("^")
    to_end = pattern.endswith("$") and not re.search(r"(^|[^\\])(\\\\)*\\\$$", pattern)
    body = pattern[from_start : len(pattern) - to_end]
    parser = _Parser(body, rule, repeat)
    try:
        expression = parser.alternatives()
        if parser.at < len(body) or ((from_start or to_end) and parser.top_level_choice):
            return None
    except (NotSimple, IndexError):
        return None
    around = repeat(any_character, 0, MAX_REPEATED)
    parts = [*([] if from_start else [around]), expression, *([] if to_end else [around])]
    return rule(" ".join(parts))


def text_rule(pattern: str, rule: Rule, repeat: Repeat) -> str:
    """Return the symbol of a text that matches a pattern as a whole. `^` and `$` at its ends change nothing.

    Raises NotSimple.
    """
    if len(pattern) > MAX_PATTERN:
        raise NotSimple(f"it has {len(pattern)} characters, and may have {MAX_PATTERN}")
    to_end = pattern.endswith("$") and not re.search(r"(^|[^\\])(\\\\)*\\\$$", pattern)
    body = pattern[pattern.startswith("^") : len(pattern) - to_end]
    most = MAX_REPEATED_ALONE if len(_UNLIMITED.findall(body)) < 2 else MAX_REPEATED
    parser = _Parser(body, rule, repeat, in_json=False, most=most)
    try:
        expression = parser.alternatives()
    except IndexError:
        raise NotSimple("it ends within a class or behind a backslash") from None
    except NotSimple as error:
        raise NotSimple(f"{error} at character {parser.at}" if str(error) else f"at character {parser.at}") from None
    if parser.at < len(body):
        raise NotSimple(f"a closing parenthesis has no opening one, at character {parser.at}")
    return rule(expression)


@dataclass(slots=True)
class _Parser:
    text: str
    rule: Rule
    repeat: Repeat
    in_json: bool = True  # the text is in a JSON string, which escapes some characters
    most: int = MAX_REPEATED  # repetitions if the pattern sets no limit
    at: int = 0
    depth: int = 0
    top_level_choice: bool = False
    counts: int = 0  # quantifiers so far that allow several numbers of repetitions

    def alternatives(self) -> str:
        sequences = [self._sequence()]
        while self.at < len(self.text) and self.text[self.at] == "|":
            self.top_level_choice |= self.depth == 0
            self.at += 1
            sequences.append(self._sequence())
        return sequences[0] if len(sequences) == 1 else self.rule(" | ".join(sequences))

    def _sequence(self) -> str:
        parts: list[str] = []
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            parts.append(self._quantified())
        return " ".join(parts) or '""'

    def _quantified(self) -> str:
        counts = self.counts
        symbol = self._atom()
        low, high = self._quantifier()
        if (low, high) == (1, 1):
            return symbol
        if high > max(MAX_COUNT, self.most):
            raise NotSimple(f"more than {MAX_COUNT} repetitions")
        # llama.cpp follows all ways to parse a text at once, and there are tens of thousands after some characters.
        if high > 1 and self.counts > counts:
            raise NotSimple("a quantifier inside of what is repeated")
        self.counts += low < high
        return self.repeat(self.rule(symbol), low, high)

    def _quantifier(self) -> tuple[int, int]:
        sign = self.text[self.at : self.at + 1]
        low = high = 1
        if sign and sign in "?*+":
            self.at += 1
            low, high = {"?": (0, 1), "*": (0, self.most), "+": (1, self.most)}[sign]
        elif sign == "{" and (count := _COUNT.match(self.text, self.at)):
            self.at = count.end()
            low = int(count[1])
            high = low if count[2] is None else int(count[3]) if count[3] else max(low, self.most)
            if high < low:
                raise NotSimple("a quantifier whose second number is the smaller one")
        else:
            return 1, 1
        following = self.text[self.at : self.at + 1]
        if following == "?":  # a lazy quantifier matches the same texts
            self.at += 1
        elif following and following in "+*{":
            raise NotSimple("a quantifier behind a quantifier")
        return low, high

    def _atom(self) -> str:
        sign = self.text[self.at]
        self.at += 1
        if sign == "(":
            return self._group()
        if sign == "[":
            return self._characters(self._class())
        if sign == ".":
            return self._characters(_complement(((0x0A, 0x0A),)))
        if sign == "\\":
            return self._characters(self._escape())
        if sign in "^$*+?{}":
            raise NotSimple("an anchor, or a quantifier of nothing,")
        return self._characters(((ord(sign), ord(sign)),))

    def _group(self) -> str:
        if name := _NAME.match(self.text, self.at):
            self.at = name.end()
        elif self.text.startswith("?", self.at):
            raise NotSimple("look-around or flags in a group")
        self.depth += 1
        inner = self.alternatives()
        self.depth -= 1
        if self.text[self.at : self.at + 1] != ")":
            raise NotSimple("a group without its end")
        self.at += 1
        return self.rule(inner)

    def _class(self) -> Ranges:
        negated = self.text[self.at] == "^"
        self.at += negated
        ranges: list[tuple[int, int]] = []
        first = True
        while first or self.text[self.at] != "]":
            first = False
            low = self._member()
            if self.text[self.at] == "-" and self.text[self.at + 1] != "]":
                self.at += 1
                high = self._member()
                if len(low) != 1 or len(high) != 1 or low[0][0] != low[0][1] or high[0][1] < low[0][0]:
                    raise NotSimple("a range of no characters in a class")
                ranges.append((low[0][0], high[0][1]))
            else:
                ranges += low
        self.at += 1
        return _complement(ranges) if negated else tuple(ranges)

    def _member(self) -> Ranges:
        sign = self.text[self.at]
        self.at += 1
        if sign == "\\":
            return self._escape()
        if sign == "[" or (sign in "&-~" and self.text[self.at] == sign):  # nested classes and operations on classes
            raise NotSimple("a class inside of a class")
        return ((ord(sign), ord(sign)),)

    def _escape(self) -> Ranges:
        sign = self.text[self.at]
        self.at += 1
        if sign in _CLASSES:
            return _CLASSES[sign]
        if sign.lower() in _CLASSES:
            return _complement(_CLASSES[sign.lower()])
        if sign in "pP" and (name := _PROPERTY.match(self.text, self.at)):
            self.at = name.end()
            members = _category(name[1] or name[2])
            return members if sign == "p" else _complement(members)
        if sign in _CONTROLS:
            return ((_CONTROLS[sign], _CONTROLS[sign]),)
        if sign.isalnum():
            raise NotSimple(f"the escape \\{sign}")
        return ((ord(sign), ord(sign)),)

    def _characters(self, ranges: Iterable[tuple[int, int]]) -> str:
        members = tuple(ranges)
        if not self.in_json:
            shown = _without(members, _NO_TEXT)
            if not shown:
                raise NotSimple("a class without any character of a text")
            return f"[{''.join(_range(*bounds) for bounds in shown)}]"
        plain = _without(members, _UNWRITABLE)
        choices = [f"[{''.join(_range(*bounds) for bounds in plain)}]"] if plain else []
        for code, letter in _ESCAPED.items():
            if any(low <= code <= high for low, high in members):
                choices.append(f'"\\\\" [{_code(ord(letter))}]')
        if not choices:
            raise NotSimple("a class without any character of a text")
        return choices[0] if len(choices) == 1 else self.rule(" | ".join(choices))


@cache
def _category(name: str) -> Ranges:
    short = _CATEGORIES.get(name, name)
    # Neighbouring categories with this prefix form one range.
    rows = groupby(_rows_of_categories(), key=lambda row: row[2].startswith(short))
    members = [list(row) for is_member, row in rows if is_member]
    if not members:
        raise NotSimple(f"the property {name}")
    return tuple((row[0][0], row[-1][1]) for row in members)


@cache
def _rows_of_categories() -> tuple[tuple[int, int, str], ...]:
    codes = groupby(range(sys.maxunicode + 1), key=lambda code: unicodedata.category(chr(code)))
    rows = [(category, list(row)) for category, row in codes]
    return tuple((row[0], row[-1], category) for category, row in rows)


def _complement(ranges: Iterable[tuple[int, int]]) -> Ranges:
    return _without(((0, _LAST),), ranges)


def _without(ranges: Iterable[tuple[int, int]], excluded: Iterable[tuple[int, int]]) -> Ranges:
    remaining = sorted(ranges)
    for low, high in sorted(excluded):
        outside: list[tuple[int, int]] = []
        for first, last in remaining:
            if first < low:
                outside.append((first, min(last, low - 1)))
            if last > high:
                outside.append((max(first, high + 1), last))
        remaining = outside
    return tuple(remaining)


def _range(low: int, high: int) -> str:
    return _code(low) if low == high else f"{_code(low)}-{_code(high)}"


def _code(code: int) -> str:
    return chr(code) if chr(code).isascii() and chr(code).isalnum() else f"\\U{code:08X}"
