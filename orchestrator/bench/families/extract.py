"""Extract: a text and the keys to find → a JSON object, or one key of every record → a JSON list."""

import json
from random import Random
from typing import Any

from orchestrator.bench.families import texts
from orchestrator.bench.families.example import Example, pick_persona, step_example
from orchestrator.bench.families.texts import Record
from orchestrator.bench.families.words import Lexicon, Split, WordingPool, listing
from orchestrator.run.steps.role import StepInput
from orchestrator.task.taskir.json_text import compact_json

OBJECT_ACTIONS = WordingPool(
    (
        "Extract {k} from {f}.",
        "Extract {k} from {f}.",
        "Extract {k} from {f}.",
        "Extract {k} from {f}.",
        "Extract the {k} from {f}.",
        "Extract the {k} of {f} as JSON.",
        "Find {k} in {f}.",
        "Find the {k} in {f}, as JSON.",
        "Get {k} from {f}.",
        "Get the {k} out of {f}.",
        "Please extract {k} from {f}.",
        "Read {f} and extract {k}.",
        "From {f}, extract {k}.",
        "Give me {k} from {f} as JSON.",
        "Return {k} of {f} as JSON.",
        "I need {k} from {f}.",
        "What are {k} in {f}? Answer in JSON.",
        "Pull {k} out of {f}.",
        "Look up {k} in {f}.",
        "Could you extract {k} from {f}?",
        "Please get {k} from {f}.",
        "Please extract the {k} of {f}.",
        "Could you find {k} in {f}?",
        "Could you get the {k} of {f}?",
        "Read {f} and give me {k}.",
        "From {f}, get {k} as JSON.",
        "From {f}, find the {k}.",
        "Collect {k} from {f}.",
        "Take {k} from {f}.",
        "I need the {k} in {f}.",
        "Give me the {k} of {f}, as JSON.",
        "Find {k} in {f} and answer in JSON.",
    ),
    (
        "Please find {k} in {f}.",
        "Extract {k} from {f} as JSON.",
        "Read {f} and find {k}.",
        "From {f}, get the {k}.",
        "Could you get {k} from {f}?",
        "I need the {k} of {f} as JSON.",
        "Give me the {k} from {f}.",
    ),
)
LIST_ACTIONS = WordingPool(
    (
        "List each {k} in {f}.",
        "List each {k} in {f}.",
        "List each {k} in {f}.",
        "List every {k} in {f}.",
        "List each {k} from {f} as JSON.",
        "Make a list of each {k} in {f}.",
        "Give me a list of every {k} in {f}.",
        "Extract each {k} from {f} as a list.",
        "Find each {k} in {f}.",
        "Return every {k} of {f} as a JSON list.",
        "Please list each {k} in {f}.",
        "Read {f} and list each {k}.",
        "Could you list each {k} in {f}?",
        "Please make a list of every {k} in {f}.",
        "Give me a list of each {k} from {f}.",
        "Extract every {k} in {f}.",
        "Collect each {k} from {f}.",
        "Make a JSON list of each {k} from {f}.",
        "Write down every {k} in {f} as a list.",
        "Find every {k} in {f}.",
    ),
    (
        "Please list every {k} in {f}.",
        "Give me a list of each {k} in {f}.",
        "Extract every {k} from {f} as a list.",
        "Read {f} and list every {k}.",
        "Make a JSON list of every {k} in {f}.",
    ),
)


def as_json(value: str | None) -> str | int | None:
    """Return the JSON value of a fact: a number where it is written in digits."""
    return int(value) if value is not None and value.isdigit() else value


def record_object(record: Record, keys: list[str]) -> dict[str, str | int | None]:
    """Return the values of `keys` in `record`, null for those that it does not have."""
    return {key: as_json(record.value(key)) for key in keys}


def object_schema(keys: list[str]) -> dict[str, Any]:
    """Return the JSON Schema of an object with exactly `keys`."""
    value = {"type": ["string", "integer", "null"]}
    properties = dict.fromkeys(keys, value)
    return {"type": "object", "properties": properties, "required": keys, "additionalProperties": False}


FILE_LINES = ("{f}", "- {f}", "file: {f}", "See {f}.", "Read {f} first.", "The file {f} tells more.")
LIST_SCHEMA: dict[str, Any] = {"type": "array", "items": {"type": "string"}, "maxItems": 64}


class Extract:
    """The task of extracting values. Two of three examples ask for an object, the rest for a list.

    Some examples name an item of a list, whose values have to be looked up in a file.
    """

    name = "extract"

    def generate(self, rng: Random, split: Split, *, long: bool = False, among: int = 0) -> Example:
        """Return a new example. In training, `among` is from how many inputs the right one has to be chosen.

        With `long` so many sentences of filler are added that the prompt takes up to 2,000 tokens.
        """
        words = Lexicon(rng, split)
        # Training has more lists than tests have, because models learn them late.
        if not long and not among and rng.random() < (0.5 if split == "train" else 0.33):
            if rng.random() < 0.12:
                return self.files_of(words, split, short=False)
            return self.list_of(words, split, 0)
        record = texts.make_record(words, texts.make_keys(rng))
        keys = self._wanted(rng, record, 0.16 if split == "train" else 0.08)
        if among:
            inputs, target = texts.among(words, record, among)
        elif not long and rng.random() < 0.2:
            target, inputs = "the item", texts.item_inputs(words, record)
        else:
            target, inputs = self._source(words, record, keys, long)
        wording = OBJECT_ACTIONS.pick(rng, split)
        action = wording.format(k=listing(keys), f=target)
        answer = compact_json(record_object(record, keys))
        persona = pick_persona(rng, ())
        return step_example(self.name, rng, persona, inputs, action, answer, wording, schema=object_schema(keys))

    @staticmethod
    def _wanted(rng: Random, record: Record, absent_share: float) -> list[str]:
        """Return the keys to ask for, in random order. In a share of the cases the text lacks one of them."""
        all_keys = ["name", *(key for key, _ in record.facts)]
        keys = rng.sample(all_keys, rng.randint(1, min(4, len(all_keys))))
        if rng.random() < absent_share:
            absent = [key for key in texts.NUMERIC + texts.TEXTUAL if key not in all_keys]
            keys.insert(rng.randint(0, len(keys)), rng.choice(absent))
        return keys

    @staticmethod
    def _source(words: Lexicon, record: Record, keys: list[str], long: bool) -> tuple[str, list[StepInput]]:
        """Return how the action names its source, and a list with the one input, which has the record."""
        rng = words.rng
        name = texts.input_name(words)
        text = texts.source_text(words, record, texts.filler_count(rng, long))
        if name != "request":
            return name, [StepInput(name, text)]
        if rng.random() < 0.7:
            text = f"{rng.choice(('Extract', 'Get', 'Please extract'))} {listing(keys)} from this: {text}"
        return rng.choice(("the text", "the text", "the request")), [StepInput(name, text)]

    def list_of(self, words: Lexicon, split: Split, count: int) -> Example:
        """Return an example that asks for a list: one key of each of `count` records, or the records.

        If `count` is 0, there are up to 8 records.
        """
        rng = words.rng
        keys = texts.make_keys(rng, 1, 3)
        records = [texts.make_record(words, keys) for _ in range(count or rng.randint(1, 8))]
        lines = [texts.inline(record) for record in records]
        key = rng.choice(("name", "name", "record", *keys))
        items = lines if key == "record" else [str(record.value(key)) for record in records]
        return self._listed(words, split, key, items, lines)

    def files_of(self, words: Lexicon, split: Split, *, short: bool) -> Example:
        """Return an example that asks for the files that a text names; `short` names have one letter."""
        letters = words.rng.sample("abcdefgh", 8) if short else []
        files = [f"{letters[n]}.txt" if short else words.file() for n in range(words.rng.randint(1, 6))]
        line = words.rng.choice(FILE_LINES)
        return self._listed(words, split, "file", files, [line.format(f=file) for file in files])

    def _listed(self, words: Lexicon, split: Split, key: str, items: list[str], lines: list[str]) -> Example:
        """Return an example that asks for `items`: the value of `key` in each of `lines`."""
        rng = words.rng
        source = texts.input_name(words)
        target = "the text" if source == "request" else source
        text = "\n".join(texts.with_filler(words, lines, rng.choice((0, 0, 1, 3))))
        wording = LIST_ACTIONS.pick(rng, split)
        action = wording.format(k=key, f=target)
        persona = pick_persona(rng, ())
        inputs = [StepInput(source, text)]
        return step_example(self.name, rng, persona, inputs, action, compact_json(items), wording, schema=LIST_SCHEMA)

    def check(self, example: Example, answer: str) -> bool:
        """Return whether `answer` parses to the same JSON value as the reference."""
        try:
            return bool(json.loads(answer) == json.loads(example.answer))
        except json.JSONDecodeError:
            return False
