"""Compare: 2 to 16 records in any form → the values of one numeric key, and which is highest and lowest.

The answer notes each new high and low as it goes, so that no more than two numbers have to be compared at a time.
"""

import json
from random import Random

from orchestrator.bench.families import texts
from orchestrator.bench.families.example import Example, pick_persona, step_example
from orchestrator.bench.families.extract import record_object
from orchestrator.bench.families.texts import Record
from orchestrator.bench.families.words import Lexicon, Split, WordingPool
from orchestrator.run.steps.role import StepInput
from orchestrator.task.taskir.json_text import compact_json

ACTIONS = WordingPool(
    (
        "Compare the {w}{by}.",
        "Compare the {w}{by}.",
        "Compare the {w}{by}.",
        "Compare the {w}{by}.",
        "Please compare the {w}{by}.",
        "Compare these {w}{by}.",
        "Compare all {w}{by}.",
        "How do the {w} compare{by}?",
        "Write a comparison of the {w}{by}.",
        "Make a comparison of all {w}{by}.",
        "Give me a comparison of the {w}{by}.",
        "Read the {w} and compare them{by}.",
        "Could you compare the {w}{by}?",
    ),
    (
        "Please compare all {w}{by}.",
        "Give me a comparison of these {w}{by}.",
        "Could you compare these {w}{by}?",
        "Write a comparison of all {w}{by}.",
        "How do these {w} compare{by}?",
    ),
)
NOUNS = ("summaries", "summaries", "records", "results", "files", "inputs", "texts")
PERSONAS = ("bullets", "table")
FORMS = ("inline", "inline", "inline", "bullets", "table", "json", "lines")


def comparison(records: list[Record], key: str, persona: str) -> str:
    """Return the reference comparison of `records` by the numeric `key` in the form that `persona` asks for."""
    rows = list[tuple[str, str]]()
    high = low = records[0]
    for record in records:
        shown = str(record.value(key))
        if number(record, key) > number(high, key):
            high, shown = record, f"{shown} (new high)"
        elif number(record, key) < number(low, key):
            low, shown = record, f"{shown} (new low)"
        rows.append((record.name, shown))
    ends = (("highest", high.name), ("lowest", low.name))
    if persona == "bullets":
        return "\n".join(f"- {name}: {value}" for name, value in (*rows, *ends))
    if persona == "table":
        return "\n".join(f"| {name} | {value} |" for name, value in (("name", key), ("---", "---"), *rows, *ends))
    values = ", ".join(f"{name} {value}" for name, value in rows)
    return f"{key}: {values}; highest {ends[0][1]}, lowest {ends[1][1]}."


def number(record: Record, key: str) -> int:
    """Return the value of a numeric key."""
    return int(str(record.value(key)))


def format_record(record: Record, form: str) -> str:
    """Return `record` in `form`: a summary under some persona, a JSON object, or lines."""
    keys = ["name", *(key for key, _ in record.facts)]
    forms = {
        "inline": texts.inline(record),
        "bullets": texts.bullets(record),
        "table": texts.table(record),
        "json": compact_json(record_object(record, keys)),
        "lines": "\n".join(texts.lines(record)),
    }
    return forms[form]


def listed_input(words: Lexicon, items: list[str]) -> StepInput:
    """Return the output of a `foreach` step: one list of what its children wrote."""
    rng = words.rng
    text = compact_json(items) if rng.random() < 0.6 else json.dumps(items, ensure_ascii=False)
    return StepInput(f"S{rng.randint(1, 9)}" if rng.random() < 0.7 else words.file(), text)


class Compare:
    """The task of comparing records by a numeric key.

    It is the key that the action names, or else the first numeric key of the first record.
    """

    name = "compare"

    def generate(self, rng: Random, split: Split, *, join: int = 0) -> Example:
        """Return a new example of `join` inputs, or of a random number of them."""
        words = Lexicon(rng, split)
        keys = texts.make_keys(rng, 1, 3)
        count = join or rng.choice((2, 2, 2, 3, 3, 4, 4, 4, 5, 6, 8))
        records = self._records(words, keys, count)
        named_steps = count > 12 or rng.random() < 0.67
        # Usually all inputs have the same form. They differ where summaries were written under different personas.
        forms = rng.sample(FORMS, 3) if rng.random() < 0.15 else [rng.choice(FORMS)]
        inputs = [
            StepInput(f"S{index}" if named_steps else words.file(), format_record(record, rng.choice(forms)))
            for index, record in enumerate(records, rng.choice((1, 1, 2, 5)))
        ]
        if forms == ["inline"] and rng.random() < 0.25:
            inputs = [listed_input(words, list(map(texts.inline, records)))]
        numeric = [key for key, _ in records[0].facts if key in texts.NUMERIC]
        named = rng.random() < 0.35
        key = rng.choice(numeric) if named else numeric[0]
        wording = ACTIONS.pick(rng, split)
        action = wording.format(w=rng.choice(NOUNS), by=f" by {key}" if named else "")
        persona = pick_persona(rng, PERSONAS)
        return step_example(self.name, rng, persona, inputs, action, comparison(records, key, persona), wording)

    @staticmethod
    def _records(words: Lexicon, keys: list[str], count: int) -> list[Record]:
        """Return records whose numeric values all differ; in one case of four, each
        record has its keys in a different order.
        """
        columns = []
        for key in keys:
            values: list[str] = []
            while len(values) < count:
                value = texts.make_value(words, key)
                if value not in values:
                    values.append(value)
            columns.append(values)
        shuffled = words.rng.random() < 0.25
        records = []
        for row in range(count):
            facts = [(key, column[row]) for key, column in zip(keys, columns, strict=True)]
            if shuffled:
                words.rng.shuffle(facts)
            records.append(Record(words.name(), tuple(facts)))
        return records

    def check(self, example: Example, answer: str) -> bool:
        """Return whether `answer` is the reference, white space at its ends aside."""
        return answer.strip() == example.answer
