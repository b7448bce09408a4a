"""Write records (a name and its facts) as lines, prose or summaries, with filler sentences without facts."""

from dataclasses import dataclass
from random import Random

from orchestrator.bench.families.words import Lexicon
from orchestrator.run.steps.role import StepInput

NUMERIC = tuple("price weight count length age score speed size cost height stock depth".split())
TEXTUAL = tuple("city owner color status maker team phase code region model author room".split())
OPENINGS = (
    "Record of {n}.",
    "Notes on {n}.",
    "These are the facts on {n}.",
    "This file describes {n}.",
    "Report about {n}.",
    "We looked at {n}.",
    "The subject is {n}.",
    "Everything here concerns {n}.",
)
FACTS = (
    "The {k} is {v}.",
    "Its {k} is {v}.",
    "The {k} of {n} is {v}.",
    "{n} has {k} {v}.",
    "It has {k} {v}.",
    "The {k}: {v}.",
    "The {k} was set to {v}.",
    "We noted {k} {v}.",
)
FILLERS = (
    "{w} called twice about the {o}.",
    "Nobody opened the {o} before {d}.",
    "The {o} came back from {w} on {d}.",
    "Please keep the {o} near the {p}.",
    "On {d} the {o} looked {a} again.",
    "{w} and {x} moved the {a} {o} away.",
    "There were {a} talks with {w} on {d}.",
    "A {a} {o} stood by the {p} all day.",
    "Later {w} asked for a {a} {o}.",
    "They left the {p} behind in {w}.",
    "No one from {w} answered on {d}.",
    "The {p} and the {o} arrived on {d}.",
    "Some {a} notes about the {o} went to {w}.",
    "After {d} the {p} seemed {a}.",
)
OBJECTS = tuple(
    "door lamp box chair letter key cart parcel ladder barrel coat rope map clock window bench boat wheel".split()
)
ADJECTIVES = tuple("quiet small dusty empty heavy broken late green plain warm narrow early odd brief".split())
DAYS = tuple("Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split())


@dataclass(frozen=True, slots=True)
class Record:
    """A name and its facts (key, value), in the order in which a text gives them."""

    name: str
    facts: tuple[tuple[str, str], ...]

    def value(self, key: str) -> str | None:
        """Return the value of `key`, or None. The key `name` stands for the name."""
        return self.name if key == "name" else dict(self.facts).get(key)


def make_value(words: Lexicon, key: str) -> str:
    """Return a value that fits `key`: digits for a numeric one, else a name or a code."""
    if key in NUMERIC:
        return str(words.number())
    if key == "code":
        return f"{words.word()[:3].upper()}-{words.rng.randrange(10, 1000)}"
    return words.name() if words.rng.random() < 0.6 else words.word()


def make_keys(rng: Random, low: int = 2, high: int = 4) -> list[str]:
    """Return different keys, at least one of them numeric."""
    count = rng.randint(low, high)
    numeric = rng.randint(1, max(1, count - 1))
    keys = rng.sample(NUMERIC, numeric) + rng.sample(TEXTUAL, count - numeric)
    rng.shuffle(keys)
    return keys


def make_record(words: Lexicon, keys: list[str]) -> Record:
    """Return a record with a new name and new values for `keys`."""
    return Record(words.name(), tuple((key, make_value(words, key)) for key in keys))


def filler(words: Lexicon) -> str:
    """Return a sentence without a fact."""
    rng = words.rng
    return rng.choice(FILLERS).format(
        w=words.word().capitalize(),
        x=words.word().capitalize(),
        o=rng.choice(OBJECTS),
        p=rng.choice(OBJECTS),
        a=rng.choice(ADJECTIVES),
        d=rng.choice(DAYS),
    )


def with_filler(words: Lexicon, lines: list[str], count: int) -> list[str]:
    """Return `lines` in their order, with `count` filler sentences at random places."""
    mixed = list(lines)
    for _ in range(count):
        mixed.insert(words.rng.randint(0, len(mixed)), filler(words))
    return mixed


def inline(record: Record) -> str:
    """Return the record in one sentence, the form of a default summary: `Brimol: city Dak, price 4.`"""
    return f"{record.name}: {', '.join(f'{key} {value}' for key, value in record.facts)}."


def bullets(record: Record) -> str:
    """Return the record as bullet points, the name first."""
    return "\n".join(f"- {key}: {value}" for key, value in (("name", record.name), *record.facts))


def table(record: Record) -> str:
    """Return the record as a Markdown table of facts, the name first."""
    rows = (("fact", "value"), ("---", "---"), ("name", record.name), *record.facts)
    return "\n".join(f"| {key} | {value} |" for key, value in rows)


def lines(record: Record, sign: str = ": ") -> list[str]:
    """Return the record as `key: value` lines."""
    return [f"{key}{sign}{value}" for key, value in (("name", record.name), *record.facts)]


def prose(record: Record, rng: Random) -> list[str]:
    """Return the record as sentences, an opening with the name first."""
    facts = [rng.choice(FACTS).format(k=key, v=value, n=record.name) for key, value in record.facts]
    return [rng.choice(OPENINGS).format(n=record.name), *facts]


def source_text(words: Lexicon, record: Record, fillers: int) -> str:
    """Return a text with the facts of the record, in lines or prose, and `fillers` filler sentences."""
    rng = words.rng
    if rng.random() < 0.35:
        body = lines(record, rng.choice((": ", ": ", " = ")))
        return "\n".join(with_filler(words, body, fillers))
    joint = " " if rng.random() < 0.7 else "\n"
    return joint.join(with_filler(words, prose(record, rng), fillers))


def filler_count(rng: Random, long: bool) -> int:
    """Return a random number of filler sentences; if `long`, enough to fill most of a context of 2,048 tokens."""
    return rng.randint(15, 110) if long else rng.choice((0, 0, 1, 1, 2, 3, 4, 6))


def input_name(words: Lexicon) -> str:
    """Return a name of an input: of a file, an artifact, an item or the request."""
    roll = words.rng.random()
    if roll < 0.7:
        return words.file() if words.rng.random() < 0.9 else f"{words.rng.choice('abcdefgh')}.txt"
    return f"S{words.rng.randint(1, 12)}" if roll < 0.9 else "request"


def item_inputs(words: Lexicon, record: Record) -> list[StepInput]:
    """Return the inputs of a `foreach` child: an item with all facts, or a name that is to be looked up in a file."""
    rng = words.rng
    index = rng.randint(0, 12)
    item = rng.choice(("item", "item", f"S{rng.randint(1, 9)}[{index}]", f"{words.file()}[{index}]", words.file()))
    if rng.random() < 0.5:
        return [StepInput(item, inline(record))]
    keys = [key for key, _ in record.facts]
    records = [record, *(make_record(words, keys) for _ in range(rng.randint(1, 6)))]
    rng.shuffle(records)
    inputs = [StepInput(words.file(), "\n".join(map(inline, records))), StepInput(item, record.name)]
    return inputs if rng.random() < 0.8 else inputs[::-1]


def among(words: Lexicon, record: Record, count: int) -> tuple[list[StepInput], str]:
    """Return (`count` inputs with a record each, the name of the input that has `record`)."""
    rng = words.rng
    others = [make_record(words, make_keys(rng)) for _ in range(count - 1)]
    named = [
        StepInput(words.file(), source_text(words, written_record, rng.randint(0, 2)))
        for written_record in (record, *others)
    ]
    right_name = named[0].name
    rng.shuffle(named)
    return named, right_name
