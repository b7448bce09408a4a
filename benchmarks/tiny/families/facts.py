"""Parse the facts of an answer in any form, write facts in another answer's form, and corrupt them as models do."""

import json
from collections.abc import Sequence
from random import Random

from orchestrator.bench.families import texts
from orchestrator.bench.families.extract import as_json
from orchestrator.bench.families.texts import Record
from orchestrator.bench.families.words import Lexicon
from orchestrator.task.taskir.json_text import compact_json

Fact = tuple[str, str]  # (what the fact is about: a key, or its place in a list; its value)

NOTHING = "null"
_LETTERS, _DIGITS = "abcdefghiklmnoprstu", "0123456789"


def facts_of(answer: str) -> list[Fact]:
    """Return the facts of a JSON object, a JSON list or a summary in any form."""
    if answer.startswith("{"):
        return [(key, _format_value(value)) for key, value in json.loads(answer).items()]
    if answer.startswith("["):
        return [(str(place), _format_value(value)) for place, value in enumerate(json.loads(answer), 1)]
    if answer.startswith("- "):
        return [_pair(line.removeprefix("- "), ": ") for line in answer.splitlines()]
    if answer.startswith("| "):
        return [_pair(line.strip("| "), " | ") for line in answer.splitlines()[2:]]
    name, _, listed = answer.removesuffix(".").partition(": ")
    return [("name", name), *(_pair(fact, " ") for fact in listed.split(", "))]


def written(facts: Sequence[Fact], like: str) -> str:
    """Return facts in the form of the answer `like`. If that is a sentence, the first fact has to be the name."""
    if like.startswith("{"):
        return compact_json({key: None if value == NOTHING else as_json(value) for key, value in facts})
    if like.startswith("["):
        return compact_json([value for _, value in facts])
    if like.startswith("- "):
        return "\n".join(f"- {key}: {value}" for key, value in facts)
    if like.startswith("| "):
        return "\n".join([*like.splitlines()[:2], *(f"| {key} | {value} |" for key, value in facts)])
    (_, name), *others = facts
    return texts.inline(Record(name, tuple(others)))


def corrupted_facts(words: Lexicon, facts: Sequence[Fact], elsewhere: Sequence[str] = ()) -> list[Fact]:
    """Return the facts with one of them changed, one missing, or one added.

    A wrong value is a miscopied one, that of another fact, one of `elsewhere`, or a made-up one.
    """
    rng = words.rng
    at = rng.randrange(len(facts))
    about, value = facts[at]
    others = [other for _, other in facts if other != value]
    roll = rng.random()
    if roll < 0.22 and len(facts) > 1 and about != "name":
        return [*facts[:at], *facts[at + 1 :]]
    if roll < 0.27 and about.isdigit():
        return [*facts, (str(len(facts) + 1), _made_up(words, about))]
    if roll < 0.5 and value != NOTHING:
        wrong = miscopy(rng, value)
    elif roll < 0.6 and others:
        wrong = rng.choice(others)
    elif roll < 0.72 and (strange := [text for text in elsewhere if text != value]):
        wrong = rng.choice(strange)
    else:
        wrong = _made_up(words, about)
    return [*facts[:at], (about, wrong), *facts[at + 1 :]]


def miscopy(rng: Random, value: str) -> str:
    """Return the value with one letter or digit changed, lost or added."""
    while True:
        at = rng.randrange(len(value))
        sign = rng.choice(_DIGITS if value[at].isdigit() else _LETTERS)
        wrong = value[:at] + rng.choice((sign, "", sign + value[at])) + value[at + 1 :]
        if wrong.strip() not in ("", value) and not (wrong.isdigit() and wrong.startswith("0")):
            return wrong.strip()


def _made_up(words: Lexicon, about: str) -> str:
    return words.name() if about == "name" or about.isdigit() else texts.make_value(words, about)


def _format_value(value: object) -> str:
    return NOTHING if value is None else str(value)


def _pair(text: str, sign: str) -> Fact:
    key, _, value = text.partition(sign)
    return key, value
