"""Check answers by code: small checks that compose, each of which returns sentences of what is wrong.

Checks of a text judge the answer's text, or one of its files if `file` names it. Case, markup of single words, kinds of
dashes and quotes, and line breaks make no difference. A fact is a spelling, or a tuple of spellings that are equally
good; a spelling that ends in `*` is the beginning of a word.
"""

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, Final

from benchmarks.jobs.hidden_tests import failures_of
from benchmarks.jobs.job import Check, JobAnswer

Fact = str | tuple[str, ...]
Language = str  # `de`, `en`, `es` or `fr`

_FENCED: Final = re.compile(r"^[ \t]*(`{3,}|~{3,})[^\n]*\n(.*?)(?:^[ \t]*\1[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_NUMBER: Final = re.compile(
    r"(?<![\w.,])([-\u2212]?)[$€£]?(\d+(?:[.,' \u00a0\u202f]\d{3})*(?:[.,]\d+)?|\.\d+)(?!\w*\d)"
)
_COUNTS: Final = "zero one two three four five six seven eight nine ten eleven twelve".split()
_CHATTER: Final = re.compile(
    r"^(here (is|are|'s)|here you go|sure\b|certainly\b|of course\b|below (is|are)|i have\b|i've\b|as an ai\b|"
    r"hier (ist|sind)|gerne\b|natürlich\b|voici\b|bien sûr\b|aquí (está|tienes)|claro\b)",
    re.IGNORECASE,
)
_STOP_WORDS: Final[Mapping[Language, frozenset[str]]] = {
    "en": frozenset(
        "the and of to is are was were that this it its with for from your you not have has be been we our they will "
        "can at by an or on in as but if which there please would should all any".split()
    ),
    "de": frozenset(
        "der die das und ist sind war nicht ein eine einen einem einer mit von für auf dem den des zu zum zur sich wir "
        "ihr sie ich es auch wird werden oder aber bei im am vom bitte haben hat kann können als wenn nach ihre ihren "
        "unser unsere sehr aus über".split()
    ),
    "fr": frozenset(
        "le la les des et est sont une un du de dans pour que qui sur avec pas ne nous vous il elle au aux ce cette "
        "ces votre vos notre nos à été avez ont sera par plus ou mais si être ou où d l s'il y en".split()
    ),
    "es": frozenset(
        "el la los las y es son una un del de en para que con no por su sus se lo al como más pero esta este estos "
        "está están fue ha han será o si nuestro nuestra usted le les muy también hay a e".split()
    ),
}


def every(*checks: Check) -> Check:
    """Return a check that accepts what all of these accept."""
    return lambda answer: [*dict.fromkeys(fault for check in checks for fault in check(answer))]


def in_turn(*checks: Check) -> Check:
    """Return a check that accepts what all of these accept, and stops at the first one that does not."""
    return lambda answer: next((faults for check in checks if (faults := check(answer))), [])


def either(*checks: Check) -> Check:
    """Return a check that accepts what one of these accepts. The faults are those of the check that comes nearest."""

    def check(answer: JobAnswer) -> list[str]:
        return min((single(answer) for single in checks), key=len)

    return check


def holds(accepts: Callable[[str], bool], fault: str, file: str = "") -> Check:
    """Return a check that a text is as `accepts` wants it. `fault` says what is wrong otherwise."""
    return _of_text(file, lambda text: [] if accepts(text) else [fault])


def has_file(name: str, accepts: Callable[[str], bool] | None = None, fault: str = "") -> Check:
    """Return a check that the answer has a file with content, and that it is as `accepts` wants it."""
    return holds(accepts or bool, fault or f"{name} is not as it should be", name)


def mentions(*facts: Fact, file: str = "") -> Check:
    """Return a check that all of these facts are in a text, each in one of its spellings."""
    return _of_text(file, lambda text: [f"{_name(fact)} is missing" for fact in facts if _place_of(fact, text) is None])


def mentions_some(least: int, *facts: Fact, file: str = "") -> Check:
    """Return a check that at least this many of the facts are in a text."""

    def faults(text: str) -> list[str]:
        count = sum(_place_of(fact, text) is not None for fact in facts)
        return [] if count >= least else [f"{count} of {', '.join(map(_name, facts))} are there, not {least}"]

    return _of_text(file, faults)


def lacks(*facts: Fact, file: str = "") -> Check:
    """Return a check that none of these facts is in a text."""
    return _of_text(
        file,
        lambda text: [f"{_name(fact)} should not be there" for fact in facts if _place_of(fact, text) is not None],
    )


def number(value: float, tolerance: float = 0.005, near: Fact | None = None, file: str = "") -> Check:
    """Return a check that a number is in a text, within a tolerance; `near`: in a line that has this fact.

    Decimal and thousands separators may be those of English, German or French. English words count for 0 to 12.
    """

    def faults(text: str) -> list[str]:
        lines = [line for line in text.splitlines() if near is None or _place_of(near, line) is not None]
        if any(abs(reading - value) <= tolerance for line in lines for reading in _numbers(line)):
            return []
        return [f"the number {value:g} is missing" + (f" near {_name(near)}" if near else "")]

    return _of_text(file, faults)


def json_with(expected: object, file: str = "") -> Check:
    """Return a check that a text is JSON, or has a JSON value, with these values.

    An object may have further keys. A tuple is a choice; a callable is a predicate; numbers may be written as strings,
    and strings need the same words only.
    """

    def faults(text: str) -> list[str]:
        values = list(_json_values(text, whole=bool(file)))
        if not values:
            return ["there is no valid JSON"]
        return min((list(_differences(expected, value, "")) for value in values), key=len)

    return _of_text(file, faults)


def table(
    *rows: Sequence[object],
    count: int | None = None,
    header: Sequence[Fact] = (),
    columns: int | None = None,
    file: str = "",
) -> Check:
    """Return a check that a text is CSV, or has a Markdown table, with these rows; `count`: the number of all rows.

    A row has these cells, in this order, and may have others between them, unless `columns` says how many it has.
    `header`: the names of columns, in order.
    """

    def faults(text: str) -> Iterator[str]:
        lines = _rows_of(text, is_csv=file.endswith(".csv"))
        if not lines:
            yield "there is no table"
            return
        body = lines[1:] if header or count is not None else lines
        if header and not _has_cells(header, lines[0]):
            yield f"the header is {lines[0]}, not {list(map(_name, header))}"
        if count is not None and len(body) != count:
            yield f"there are {len(body)} rows, not {count}"
        if columns is not None and any(len(line) != columns for line in lines):
            yield f"there are rows that do not have {columns} columns"
        yield from (f"the row {list(row)} is missing" for row in rows if not any(_has_cells(row, it) for it in body))

    return _of_text(file, lambda text: list(faults(text)))


def rows_in_order(*keys: Fact, file: str = "") -> Check:
    """Return a check that the rows of a table that have these facts come in this order."""

    def faults(text: str) -> list[str]:
        lines = [" | ".join(row) for row in _rows_of(text, is_csv=file.endswith(".csv"))]
        return _disorder([_first(line for line, row in enumerate(lines) if _place_of(key, row)) for key in keys], keys)

    return _of_text(file, faults)


def in_order(*facts: Fact, file: str = "") -> Check:
    """Return a check that these facts are in a text, in this order by their first mention."""
    return _of_text(file, lambda text: _disorder([_place_of(fact, text) for fact in facts], facts))


def items(least: int, most: int | None = None, file: str = "") -> Check:
    """Return a check that a text has `least` to `most` list items, or lines if it has no list.

    Without `most` they are exactly `least`.
    """
    return _count("items", least, most, lambda text: len(list_items(text)), file)


def lines(least: int, most: int | None = None, file: str = "") -> Check:
    """Return a check that a text has `least` to `most` lines that are not empty; exactly `least` without `most`."""
    return _count("lines", least, most, lambda text: sum(bool(line.strip()) for line in text.splitlines()), file)


def words(least: int, most: int, file: str = "") -> Check:
    """Return a check of the number of words of a text."""
    return _count("words", least, most, lambda text: len(re.findall(r"\w[\w'\u2019-]*", text)), file)


def language(name: Language, file: str = "") -> Check:
    """Return a check that a text is in this language."""

    def faults(text: str) -> list[str]:
        spoken = language_of(text)
        return [] if spoken == name else [f"the language is {spoken or 'unclear'}, not {name}"]

    return _of_text(file, faults)


def languages(*names: Language, file: str = "") -> Check:
    """Return a check that a text has a paragraph or a line in each of these languages."""

    def faults(text: str) -> list[str]:
        parts = [*re.split(r"\n\s*\n", text), *text.splitlines()]
        spoken = {language_of(part) for part in parts}
        return [f"no paragraph is in {name}" for name in names if name not in spoken]

    return _of_text(file, faults)


def no_chatter(file: str = "") -> Check:
    """Return a check that a text is the thing itself: without an introduction, a code fence or a blank to fill in."""

    def faults(text: str) -> Iterator[str]:
        if _CHATTER.match(text.strip()):
            yield f"it starts with an introduction: {text.strip().splitlines()[0]}"
        if re.search(r"^\s*(```|~~~)", text, re.MULTILINE):
            yield "it has a code fence"
        if re.search(r"\[(your|insert|name|ihr|votre)\b[^\]]*\](?!\()", text, re.IGNORECASE):
            yield "it has a blank to fill in"

    return _of_text(file, lambda text: list(faults(text)))


def reworded(source: str, most: float = 0.9, file: str = "") -> Check:
    """Return a check that a text does more than repeat this source: that its likeness (0 to 1) is `most` at most."""

    def faults(text: str) -> list[str]:
        before, after = (re.findall(r"\w+", plain(it)) for it in (source, text))
        likeness = SequenceMatcher(None, before, after, autojunk=False).ratio()
        return [] if likeness <= most else ["it only repeats what was given"]

    return _of_text(file, faults)


def passes(tests: str, *files: str, given: Mapping[str, str] | None = None) -> Check:
    """Return a check that hidden tests pass, in the sandbox, next to these files of the answer.

    `tests` are Python functions whose names start with `test_`. `given` are further files; those of the answer win. An
    answer that has only one block of code in its text may do without a name for it if one file is wanted.
    """

    def check(answer: JobAnswer) -> list[str]:
        code = {name: _code(answer, name, lone=len(files) == 1) for name in files}
        missing = [f"there is no {name}" for name, content in code.items() if not content.strip()]
        return missing or failures_of(tests, {**(given or {}), **code})

    return check


def refuses(tests: str, broken: Mapping[str, str]) -> Check:
    """Return a check that the tests in the file `tests` of the answer fail for a broken module.

    It judges tests that an answer wrote. Whether they pass for a right module is a matter of `passes_own`.
    """

    def check(answer: JobAnswer) -> list[str]:
        if not (content := answer.file(tests)).strip():
            return [f"there is no {tests}"]
        failing = failures_of(content, dict(broken), framework="pytest", name=tests)
        return [] if failing else [f"{tests} passes for a module that is wrong"]

    return check


def passes_own(tests: str, given: Mapping[str, str]) -> Check:
    """Return a check that the tests in the file `tests` of the answer pass for a right module."""

    def check(answer: JobAnswer) -> list[str]:
        if not (content := answer.file(tests)).strip():
            return [f"there is no {tests}"]
        return failures_of(content, dict(given), framework="pytest", name=tests)

    return check


def code_blocks(text: str) -> list[str]:
    """Return the contents of the fenced blocks of a text."""
    return [match.group(2) for match in _FENCED.finditer(text)]


def list_items(text: str) -> list[str]:
    """Return the items of the lists in a text; without a list, its lines that are neither empty nor a heading."""
    marked = re.findall(r"^\s*(?:[-*+•]|\d+[.)]|\[[ x]\])\s+(\S.*)$", text, re.MULTILINE)
    rest = (line.strip() for line in text.splitlines())
    return marked or [line for line in rest if line and not line.startswith(("#", "```")) and not line.endswith(":")]


def language_of(text: str) -> Language | None:
    """Return the language whose commonest words a text has most of; None if it has too few, or of two as many."""
    words = re.findall(r"[^\W\d_]+", text.casefold())
    counts = sorted(((sum(word in stop for word in words), name) for name, stop in _STOP_WORDS.items()), reverse=True)
    (most, name), (second, _) = counts[:2]
    return name if most >= 2 and most > second else None


def plain(text: str) -> str:
    """Return a text in lower case without marks of Markdown, with plain dashes and quotes and single spaces."""
    text = re.sub(r"[*`]|(?<!\w)_+|_+(?!\w)", "", text.casefold())
    text = re.sub(r"[\u2010-\u2014\u2212]", "-", text)
    text = re.sub(r"[\u2018-\u201b\u2032]", "'", re.sub(r"[\u201c-\u201e\u00ab\u00bb\u2033]", '"', text))
    return " ".join(text.split())


def _of_text(file: str, faults: Callable[[str], list[str]]) -> Check:
    def check(answer: JobAnswer) -> list[str]:
        text = answer.file(file) if file else answer.text
        if not text.strip():
            return [f"there is no {file}" if file else "the answer is empty"]
        return [f"{file}: {fault}" for fault in faults(text)] if file else faults(text)

    return check


def _count(unit: str, least: int, most: int | None, count: Callable[[str], int], file: str) -> Check:
    last = least if most is None else most
    accepted = f"{least}" if last == least else f"{least} to {last}"

    def faults(text: str) -> list[str]:
        size = count(text)
        return [] if least <= size <= last else [f"there are {size} {unit}, not {accepted}"]

    return _of_text(file, faults)


def _name(fact: object) -> str:
    return repr(fact[0] if isinstance(fact, tuple) else fact)


def _place_of(fact: Fact, text: str) -> int | None:
    """Return the offset in the plain text at which a spelling of the fact is first found."""
    text = plain(text)
    places = (re.search(_pattern(spelling), text) for spelling in ((fact,) if isinstance(fact, str) else fact))
    return min((place.start() + 1 for place in places if place), default=None)


def _pattern(spelling: str) -> str:
    bare = plain(spelling.removesuffix("*"))
    begin = r"(?<!\w)(?<!\d[.,])" if bare[:1].isalnum() else ""
    end = r"(?!\w)(?![.,]\d)" if bare[-1:].isalnum() and not spelling.endswith("*") else ""
    return begin + re.escape(bare).replace(r"\ ", r"[ -]") + end


def _numbers(text: str) -> Iterator[float]:
    """Yield the numbers in a text, in each reading of their separators."""
    for sign, digits in _NUMBER.findall(text):
        for reading in _readings(digits):
            yield -reading if sign else reading
    yield from (float(_COUNTS.index(word)) for word in re.findall(r"[a-z]+", text.casefold()) if word in _COUNTS)


def _readings(digits: str) -> set[float]:
    bare = re.sub(r"[' \u00a0\u202f]", "", digits)
    spellings = {bare.replace(",", ""), bare.replace(".", "").replace(",", ".")}
    return {float(spelling) for spelling in spellings if spelling.count(".") <= 1}


def _json_values(text: str, *, whole: bool) -> Iterator[object]:
    """Yield the JSON values of a text: all of it, or else those of its blocks and those that start in it."""
    candidates = [text] if whole else [text, *code_blocks(text)]
    for candidate in candidates:
        try:
            yield json.loads(candidate)
        except ValueError:
            continue
    if not whole:
        decoder = json.JSONDecoder()
        for start in re.finditer(r"[{\[]", text):
            try:
                yield decoder.raw_decode(text, start.start())[0]
            except ValueError:
                continue


def _differences(expected: object, value: object, path: str) -> Iterator[str]:
    at = path or "the JSON value"
    if isinstance(expected, Mapping):
        if not isinstance(value, dict):
            yield f"{at} is not an object"
            return
        for key, wanted in expected.items():
            if key in value:
                yield from _differences(wanted, value[key], f"{path}/{key}")
            else:
                yield f"{path}/{key} is missing"
    elif isinstance(expected, list):
        if not isinstance(value, list) or len(value) != len(expected):
            yield f"{at} is not a list of {len(expected)}"
            return
        for index, wanted in enumerate(expected):
            yield from _differences(wanted, value[index], f"{path}/{index}")
    elif not _equal(expected, value):
        yield f"{at} is {json.dumps(value, ensure_ascii=False)}, not {_wanted(expected)}"


def _wanted(expected: object) -> str:
    return "as it should be" if callable(expected) else _name(expected)


def _equal(expected: Any, value: Any) -> bool:
    """Return whether a value of JSON or a cell of a table is the expected one."""
    if callable(expected):
        return bool(expected(value))
    if isinstance(expected, tuple):
        return any(_equal(choice, value) for choice in expected)
    if isinstance(expected, bool) or expected is None or isinstance(value, bool):
        return expected is value or (isinstance(value, str) and plain(value) == plain(json.dumps(expected)))
    if isinstance(expected, int | float):
        readings = [float(value)] if isinstance(value, int | float) else _numbers(str(value))
        return any(abs(reading - expected) < 0.005 for reading in readings)
    return plain(str(expected)) == plain(str(value)).strip('"')


def _rows_of(text: str, *, is_csv: bool) -> list[list[str]]:
    """Return the rows of CSV or of the Markdown tables in a text, the header first."""
    if is_csv:
        dialect = ";" if text.split("\n", 1)[0].count(";") > text.split("\n", 1)[0].count(",") else ","
        rows = csv.reader(io.StringIO(text.strip()), delimiter=dialect, skipinitialspace=True)
        return [[cell.strip() for cell in row] for row in rows if any(cell.strip() for cell in row)]
    marked = [line.strip().strip("|").split("|") for line in text.splitlines() if "|" in line]
    return [[plain(cell) for cell in row] for row in marked if not all(re.fullmatch(r"\s*:?-*:?\s*", c) for c in row)]


def _has_cells(wanted: Sequence[object], row: Sequence[str]) -> bool:
    """Return whether the wanted cells are in the row, in this order."""
    rest = iter(row)
    return all(any(_equal(cell, value) for value in rest) for cell in wanted)


def _first(places: Iterator[int]) -> int | None:
    return next(places, None)


def _disorder(places: Sequence[int | None], facts: Sequence[Fact]) -> list[str]:
    missing = [f"{_name(fact)} is missing" for fact, place in zip(facts, places, strict=True) if place is None]
    if missing:
        return missing
    there = [place for place in places if place is not None]
    return [] if there == sorted(there) else [f"the order is not {', '.join(map(_name, facts))}"]


def _code(answer: JobAnswer, name: str, *, lone: bool) -> str:
    if answer.file(name) or not lone:
        return answer.file(name)
    blocks = code_blocks(answer.text)
    return blocks[0] if len(blocks) == 1 else ""
