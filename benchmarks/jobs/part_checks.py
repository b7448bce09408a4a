"""Check answers that have several parts: each part by itself, the end, what was chosen, and lists in any order."""

import json
import re
from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise
from typing import Final

from benchmarks.jobs.checks import every, holds, plain, reworded
from benchmarks.jobs.job import Check, JobAnswer

TABLE_ROW: Final = re.compile(r"^[^\n]*\|[^\n]*\|[^\n]*$", re.MULTILINE)  # a row of a Markdown table


def each_part(parts: Mapping[str, tuple[str, Check]], file: str = "") -> Check:
    """Return a check that applies to what a text says about each part the check of that part.

    `parts` has the pattern of a part's names and its check, by the part's name. What is said about a part are the
    passages from a mention of it up to a mention of another one; in a table, its rows or its column.
    """
    patterns = {name: pattern for name, (pattern, _) in parts.items()}

    def check(answer: JobAnswer) -> list[str]:
        passages = passages_about(patterns, answer.file(file) if file else answer.text)
        return [
            f"{name}: {fault}"
            for name, (_, judge) in parts.items()
            for fault in judge(JobAnswer(passages.get(name, "")))
        ]

    return check


def each_section(parts: Mapping[str, tuple[str, Check]], file: str = "") -> Check:
    """Return a check that applies to each section of a text the check of that section.

    `parts` has the pattern of a section's heading and its check, by the section's name. What follows the pattern, in
    its line and up to the next heading, is the section.
    """
    headings = {name: pattern for name, (pattern, _) in parts.items()}

    def check(answer: JobAnswer) -> list[str]:
        contents = sections(headings, answer.file(file) if file else answer.text)
        missing = [f"there is no section {name}" for name in parts if not contents.get(name, "").strip()]
        return missing or [
            f"{name}: {fault}" for name, (_, judge) in parts.items() for fault in judge(JobAnswer(contents[name]))
        ]

    return check


def unlike(patterns: Mapping[str, str], most: float = 0.8) -> Check:
    """Return a check that a text does not say the same of two parts: that no likeness (0 to 1) is above `most`.

    `patterns` are those of the parts' names, by the part's name.
    """

    def check(answer: JobAnswer) -> list[str]:
        passages = passages_about(patterns, answer.text)
        said = {name: re.sub(pattern, "", plain(passages.get(name, ""))) for name, pattern in patterns.items()}
        same = [(a, b) for a, b in combinations(patterns, 2) if said[b] and reworded(said[a], most)(JobAnswer(said[b]))]
        return [f"it says the same of {a} and {b}" for a, b in same]

    return check


def ending(size: int, *checks: Check) -> Check:
    """Return a check that the last words of the answer pass these checks."""

    def check(answer: JobAnswer) -> list[str]:
        tail = "".join(re.findall(r"\S+\s*", answer.text)[-size:])
        return [f"at the end: {fault}" for fault in every(*checks)(JobAnswer(tail))]

    return check


def only(right: Sequence[str], among: Sequence[str]) -> Check:
    """Return a check that the answer mentions exactly these names."""

    def check(answer: JobAnswer) -> list[str]:
        mentioned = {name for name in among if name in plain(answer.text)}
        missing = [f"{name} is missing" for name in right if name not in mentioned]
        return missing + [f"{name} is wrong" for name in sorted(mentioned.difference(right))]

    return check


def attributes(quality: str, right: str, among: Sequence[str]) -> Check:
    """Return a check that the prose of an answer says of this one alone that it has a quality.

    `quality`, `right` and those in `among` are patterns. A clause decides if it has a name, else its line does.
    """

    def attributed(text: str) -> set[str]:
        owners: set[str] = set()
        for line in (line for line in text.splitlines() if re.search(quality, plain(line))):
            clauses = re.split(r"[.;!?](?:\s|$)|,\s| and | but | while | et | mais ", plain(line))
            in_clause = {name for c in clauses if re.search(quality, c) for name in among if re.search(name, c)}
            owners |= in_clause or {name for name in among if re.search(name, plain(line))}
        return owners

    return holds(
        lambda text: attributed(TABLE_ROW.sub("", text)) == {right},
        f"it does not say of {right.split('|')[0]!r} alone: {quality.split('|')[0]}",
    )


def json_list(*expected: Mapping[str, object], key: str, file: str) -> Check:
    """Return a check that a file is a JSON list of objects, one for each of these, in any order.

    The value of `key` has to contain the expected one. Other values are equal, numbers also as text with a unit; a
    list of words: all of them are in the value.
    """

    def faults(text: str) -> list[str]:
        try:
            rows = json.loads(text)
        except ValueError:
            return ["it is no JSON"]
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            return ["it is no list of objects"]
        wrong = [] if len(rows) == len(expected) else [f"it has {len(rows)} objects, not {len(expected)}"]
        for wanted in expected:
            row: dict[str, object] = next((row for row in rows if str(wanted[key]) in plain(str(row.get(key, "")))), {})
            wrong += [
                f"{wanted[key]}: {name} is {row.get(name)!r}, not {value!r}"
                for name, value in wanted.items()
                if name != key and not _same(value, row.get(name))
            ]
        return wrong

    return lambda answer: [f"{file}: {fault}" for fault in faults(answer.file(file))]


def passages_about(patterns: Mapping[str, str], text: str) -> dict[str, str]:
    """Return what a text says about each name that it mentions."""
    passages = _columns(patterns, text)
    if passages:
        text = TABLE_ROW.sub("", text)
    mentions = sorted(
        (match.start(), name)
        for name, pattern in patterns.items()
        for match in re.finditer(pattern, text, re.IGNORECASE)
    )
    for (start, name), (end, _) in pairwise([*mentions, (len(text), "")]):
        passages[name] = passages.get(name, "") + text[start:end]
    return passages


def sections(headings: Mapping[str, str], text: str) -> dict[str, str]:
    """Return the sections of a text in their order. A heading starts a line; marks and a number may precede it."""
    starts = sorted(
        (match.start(), match.end(), name)
        for name, pattern in headings.items()
        for match in re.finditer(rf"^[^\w\n]*(?:\d+[.)][^\w\n]*)?(?:{pattern})", text, re.IGNORECASE | re.MULTILINE)
    )
    contents: dict[str, str] = {}
    for (_, start, name), (end, _, _) in pairwise([*starts, (len(text), 0, "")]):
        contents[name] = contents.get(name, "") + text[start:end]
    return contents


def _columns(patterns: Mapping[str, str], text: str) -> dict[str, str]:
    """Return the columns of a Markdown table that are headed by names."""
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in text.splitlines() if "|" in line]
    header = rows[0] if rows else []
    places = {
        name: place
        for name, pattern in patterns.items()
        for place, cell in enumerate(header)
        if re.search(pattern, cell, re.IGNORECASE)
    }
    if len(places) < 2:
        return {}
    return {
        name: "\n".join(row[place] for row in rows if len(row) == len(header)) + "\n" for name, place in places.items()
    }


def _same(expected: object, value: object) -> bool:
    if isinstance(expected, list):
        return all(word in plain(str(value)) for word in expected)
    if isinstance(expected, bool):
        return value is expected
    return re.findall(r"\d+", str(value)) == [str(expected)]
