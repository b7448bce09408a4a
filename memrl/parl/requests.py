"""Generate requests whose best plan is known, in families that differ in what splitting brings.

`independent`: the same work on each of several files. `chained`: each step needs the one before. `mixed`: work on each
file, then one step that joins the results. `traps`: one step is right at once, since the files already have the form
that it needs, and a step for each file only takes longer. `gathered`: one step and a step for each file are both right,
and the machine decides: each step has a prompt of its own to compute, and answers written together need the weights
once. `listed` is held out: the number of parts is only known when a list was made. `own` are a user's requests
(`history.py`).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, Literal

from orchestrator.bench.families import texts
from orchestrator.bench.families.compare import comparison
from orchestrator.bench.families.extract import record_object
from orchestrator.bench.families.texts import Record
from orchestrator.bench.families.words import Lexicon, Split, listing, seeded
from orchestrator.run.frontdoor.compact import Part, plan_text

FamilyName = Literal["independent", "chained", "mixed", "traps", "gathered", "listed", "own"]
TRAINED: Final[tuple[FamilyName, ...]] = ("independent", "chained", "mixed", "traps", "gathered")
HELD_OUT: Final[FamilyName] = "listed"
SHARES: Final = (0.15, 0.15, 0.15, 0.15, 0.4)  # of the trained families; the last one is the hardest
TRAINED_WIDTHS: Final = (2, 3, 4, 6, 8)
HELD_OUT_WIDTH: Final = 16
WORKER: Final = "worker"

Check = Callable[[Sequence[str]], float]
"""Returns how right the texts of an answer are, from 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRequest:
    """A request with its files, its check, and plans of which one is the best on each machine."""

    name: str
    family: FamilyName
    text: str
    files: Mapping[str, str]
    plans: tuple[str, ...]  # as the frontdoor would write them
    check: Check


def training_request(seed: str) -> PlannedRequest:
    """Return a request to learn from. Equal seeds give equal requests."""
    rng = seeded(seed)
    (family,) = rng.choices(TRAINED, SHARES)
    return make_request(family, rng.choice(TRAINED_WIDTHS), seed)


def held_out_requests(count: int, seed: str) -> list[PlannedRequest]:
    """Return requests with names that training never sees: its families, wider ones, and a family of their own."""
    wider: list[tuple[FamilyName, int]] = [(family, HELD_OUT_WIDTH) for family in ("independent", "mixed", "gathered")]
    # nine kinds, so that workers that take turns get each of them
    kinds = [*((family, 0) for family in TRAINED), *wider, (HELD_OUT, 0)]
    made = []
    for number in range(count):
        family, width = kinds[number % len(kinds)]
        name = f"{seed}/held-out/{number}"
        made.append(make_request(family, width or seeded(name).choice(TRAINED_WIDTHS), name, split="entity"))
    return made


def make_request(family: FamilyName, width: int, seed: str, split: Split = "train") -> PlannedRequest:
    """Return a request of a family that names or lists `width` things. Its best plan may be narrower."""
    name = f"{seed}/{family}/{width}"
    rng = seeded(name)
    return _FAMILIES[family](Lexicon(rng, split), rng, width, name)


def _independent(words: Lexicon, rng: Random, width: int, name: str) -> PlannedRequest:
    records = _records(words, rng, width)
    files = _files(words, [texts.source_text(words, record, rng.choice((0, 1, 2))) for record in records])
    part = Part(role=WORKER, action="Summarize {each}.", each=tuple(files))
    return PlannedRequest(
        name=name,
        family="independent",
        text=f"{rng.choice(('Summarize', 'Sum up', 'Please summarize'))} {listing([*files])}.",
        files=files,
        plans=(plan_text([part]),),
        check=_has_all([texts.inline(record) for record in records]),
    )


def _chained(words: Lexicon, rng: Random, width: int, name: str) -> PlannedRequest:
    (record,) = _records(words, rng, 1)
    files = _files(words, [texts.source_text(words, record, rng.choice((0, 1, 2)))])
    keys = ["name", *rng.sample([key for key, _ in record.facts], min(width, 2))]
    (file,) = files
    parts = [
        Part(role=WORKER, action="Summarize {each}.", each=(file,)),
        Part(role=WORKER, action=f"Extract {listing(keys)} from {{each}}.", each=("P1",)),
    ]
    expected = record_object(record, keys)
    return PlannedRequest(
        name=name,
        family="chained",
        text=f"Summarize {file}, then extract {listing(keys)} from the summary.",
        files=files,
        plans=(plan_text(parts),),
        check=lambda answers: float(any(_parsed(answer) == expected for answer in answers)),
    )


def _mixed(words: Lexicon, rng: Random, width: int, name: str) -> PlannedRequest:
    records = _records(words, rng, width)
    files = _files(words, [texts.source_text(words, record, rng.choice((0, 1, 2))) for record in records])
    key = _numeric(rng, records)
    parts = [
        Part(role=WORKER, action="Summarize {each}.", each=tuple(files)),
        Part(role=WORKER, action=f"Compare the summaries by {key}.", inputs=("P1",)),
    ]
    return PlannedRequest(
        name=name,
        family="mixed",
        text=f"Summarize {listing([*files])}, then compare the summaries by {key}.",
        files=files,
        plans=(plan_text(parts),),
        check=_is_among(comparison(records, key, "")),
    )


def _traps(words: Lexicon, rng: Random, width: int, name: str) -> PlannedRequest:
    records = _records(words, rng, width)
    files = _files(words, [texts.inline(record) for record in records])
    key = _numeric(rng, records)
    step = Part(role=WORKER, action=f"Compare the records by {key}.", inputs=tuple(files))
    return PlannedRequest(
        name=name,
        family="traps",
        text=f"Compare the records in {listing([*files])} by {key}.",
        files=files,
        plans=(plan_text([step]),),
        check=_is_among(comparison(records, key, "")),
    )


def _gathered(words: Lexicon, rng: Random, width: int, name: str) -> PlannedRequest:
    # short records, so that the prompt of a step weighs about as much as its answer
    records = _records(words, rng, width, most=2)
    files = _files(words, [texts.inline(record) for record in records])
    one_step = Part(role=WORKER, action="Merge the records.", inputs=tuple(files))
    step_each = Part(role=WORKER, action="Summarize {each}.", each=tuple(files))
    return PlannedRequest(
        name=name,
        family="gathered",
        text=f"{rng.choice(('Merge', 'Gather', 'Collect'))} the records in {listing([*files])}.",
        files=files,
        plans=(plan_text([one_step]), plan_text([step_each])),
        check=_has_all([texts.inline(record) for record in records]),
    )


def _listed(words: Lexicon, rng: Random, width: int, name: str) -> PlannedRequest:
    records = _records(words, rng, width)
    files = _files(words, ["\n".join(map(texts.inline, records))])
    (file,) = files
    parts = [
        Part(role=WORKER, action="List each name in {each}.", each=(file,)),
        Part(role=WORKER, action="Summarize the item.", inputs=(file,), foreach="P1"),
    ]
    return PlannedRequest(
        name=name,
        family="listed",
        text=f"List each name in {file}, then summarize each.",
        files=files,
        plans=(plan_text(parts),),
        check=_has_all([texts.inline(record) for record in records]),
    )


_FAMILIES: Final[Mapping[FamilyName, Callable[[Lexicon, Random, int, str], PlannedRequest]]] = {
    "independent": _independent,
    "chained": _chained,
    "mixed": _mixed,
    "traps": _traps,
    "gathered": _gathered,
    "listed": _listed,
}


def _records(words: Lexicon, rng: Random, count: int, most: int = 3) -> list[Record]:
    # all with the same keys; no two have the same value of a key, so that a comparison has one right answer
    keys = texts.make_keys(rng, most - 1, most)
    columns: list[list[str]] = []
    for key in keys:
        values: dict[str, None] = {}
        while len(values) < count:
            values[texts.make_value(words, key)] = None
        columns.append([*values])
    return [
        Record(words.name(), tuple((key, column[row]) for key, column in zip(keys, columns, strict=True)))
        for row in range(count)
    ]


def _files(words: Lexicon, contents: Sequence[str]) -> dict[str, str]:
    files: dict[str, str] = {}
    for content in contents:
        files[f"{words.word()}.txt"] = content
    return files


def _numeric(rng: Random, records: Sequence[Record]) -> str:
    return rng.choice([key for key, _ in records[0].facts if key in texts.NUMERIC])


def _has_all(expected: Sequence[str]) -> Check:
    # the share of the expected texts that are lines, or items of a list, in the answer
    def check(answers: Sequence[str]) -> float:
        lines = {line.strip() for answer in answers for line in _lines(answer)}
        return sum(text in lines for text in expected) / len(expected)

    return check


def _lines(answer: str) -> list[str]:
    items = _parsed(answer)
    return [str(item) for item in items] if isinstance(items, list) else answer.splitlines()


def _is_among(expected: str) -> Check:
    return lambda answers: float(any(answer.strip() == expected for answer in answers))


def _parsed(answer: str) -> object:
    try:
        value: object = json.loads(answer)
    except ValueError:
        return None
    return value
