"""Generate tasks of extraction and of judging with their right answers, as the product asks the worker and the judge.

The texts are those of scenes.yaml with drawn values. A task is one of `orchestrator.bench.real`, so that both are asked
and checked in the same way. A judge gets such a task with an answer that is right or wrong.
"""

import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count, islice
from pathlib import Path
from typing import Any, Final

from pydantic import ConfigDict, TypeAdapter
from pydantic.dataclasses import dataclass as pydantic_dataclass

from benchmarks.adapter.words import MONTHS, NUMBERS, ORDINALS, PEOPLE, PLACES, SUBJECTS, WEEKDAYS, WordSampler
from orchestrator.bench.real.tasks import RealTask, real_tasks
from orchestrator.registry.strict_yaml import parse_file
from orchestrator.task.taskir.json_text import compact_json

SEED: Final = 47
UNSEEN_SEED: Final = 1_000_033
FIRST_NAMES: Final = [word.capitalize() for word in PEOPLE if word.islower()]
LAST_NAMES: Final = [word for word in PEOPLE if not word.islower()]
TRADES: Final = "Roofing|Printers|and Sons|Transport|Stores|Brothers|Motors|Travel|Tools|Foods|Paper|Glass".split("|")
COLOURS: Final = "red|green|blue|yellow|black|white|brown|grey|purple|dark green|light blue|pale yellow".split("|")
PARTS: Final = "left knee|right knee|back|neck|left hand|right elbow|foot|hip|shoulder|jaw|ankle|wrist".split("|")
REASONS: Final = (
    "the roof has to be repaired|a pump is broken|nobody has paid the bill|the bridge was flooded|a pipe has burst|"
    "the driver is ill|the floor is wet|mice were seen there|the lights do not work|a tree has fallen onto the fence|"
    "the key was lost|the heating has failed|too few people came|the wall is being painted|a permit is missing|"
    "the lock was changed|the engine makes a noise|the owner is abroad|the licence has run out|a window was left open"
).split("|")
# The kinds of slots that hold several values, and of what kind each of these is.
LISTS: Final = {"people": "person", "things": "thing", "places": "place"}
EXTRACT: Final = ["Extract {}.", "Extract {} from the text.", "Find {}.", "Give {}.", "Look up {}.", "Get {}."]
UNSEEN_EXTRACT: Final = ["Read the text and note {}.", "Please extract {}."]
LIST: Final = ["List {}.", "Make a list of {}.", "List {}, in the order of the text.", "Extract {}, as a list."]
UNSEEN_LIST: Final = ["Name {}.", "Please list {} in their order."]
SUMMARIES: Final = ("Summarize text.txt.", "Summarize the text in two sentences.", "Write a short news item from it.")
WRONG: Final[Mapping[str, Any]] = {
    "extract-meeting": {"place": "the library", "speaker": "Joan Petrie", "pounds": 3},
    "extract-invoice": {"number": 2291, "company": "Brandt Roofing", "total": 180.0, "days": 14},
    "extract-emails": ["box@oldmill.example", "schools@oldmill.example"],
    "extract-ingredients": ["butter", "flour", "sugar", "water"],
    "extract-train": "It arrives at 8.05. The other one is cancelled because a signal has failed.",
    "extract-winner": {"name": "Tomas", "seconds": 31},
    "extract-allergy": "Metformin.",
    "extract-log": {"time": "09:02:06", "worker": 7, "database": "db-west"},
    "extract-rent": "It has 58 square metres and is on the second floor.",
    "extract-people": ["Nadia Ferro", "Ole Brandt", "Karim Said"],
    "extract-colour": "Green.",
    "extract-reason": "Because of the weather.",
}  # a wrong answer to each of the natural tasks of extraction
RIGHT: Final[Mapping[str, str]] = {
    "extract-train": "It arrives at 9.31. The other one is cancelled because a signal has failed.",
    "extract-allergy": "Penicillin and latex.",
    "extract-rent": "It has 58 square metres and is on the third floor.",
    "extract-colour": "Dark blue.",
    "extract-reason": "Because the slipway has to be rebuilt.",
}  # a right answer to each of those that ask for text; those that ask for JSON have one
_SLOT: Final = re.compile(r"\{(\w+)\}")


@pydantic_dataclass(config=ConfigDict(extra="forbid"), frozen=True, kw_only=True)
class Scene:
    """A text with slots, and what can be asked about them. The file scenes.yaml explains the fields."""

    text: str
    fields: dict[str, tuple[str | tuple[str, ...], str]]
    unseen: bool = False


@dataclass(frozen=True, slots=True)
class SlotValue:
    """A value of a slot."""

    said: str  # how the text says it
    value: Any  # the JSON value


@dataclass(frozen=True, slots=True)
class ExtractExample:
    """A task of extraction with its right answer, and what an answer can be mistaken about."""

    task: RealTask
    answer: str
    # For each value of the right answer the value itself, and a wrong one of the same kind.
    facts: tuple[tuple[SlotValue, SlotValue], ...]


@dataclass(frozen=True, slots=True)
class JudgeCase:
    """An answer to judge."""

    task: RealTask
    answer: str
    right: bool
    # What the judge should answer, as JSON; empty for a natural task, of which only the verdict is known.
    opinion: str = ""


@cache
def scenes() -> tuple[Scene, ...]:
    """Return all scenes."""
    return TypeAdapter(tuple[Scene, ...]).validate_python(parse_file(Path(__file__).with_name("scenes.yaml")).data)


def extractions(seed: int, *, unseen: bool = False) -> Iterator[ExtractExample]:
    """Yield tasks of extraction without end; with `unseen`, of scenes, wordings and words that are held out."""
    draw = random.Random(seed)  # noqa: S311 (data to learn from, no secrets)
    mine = [scene for scene in scenes() if scene.unseen == unseen]
    while True:
        scene = draw.choice(mine)
        yield _SceneDraft(scene, WordSampler(random.Random(draw.getrandbits(64)), unseen)).example()  # noqa: S311


def judgements(seed: int, *, unseen: bool = False) -> Iterator[JudgeCase]:
    """Yield answers to judge without end. Each is right or wrong with the same probability."""
    draw = random.Random(seed)  # noqa: S311 (as above)
    for example in extractions(draw.getrandbits(32), unseen=unseen):
        wrong = draw.randrange(len(example.facts)) if draw.random() < 0.5 else None
        stated = [other if index == wrong else right for index, (right, other) in enumerate(example.facts)]
        answer = _written(example.task, stated)
        said = " ".join(
            f"The text says {right.said}, the answer says {_plain(value.value)}."
            for (right, _), value in zip(example.facts, stated, strict=True)
        )
        ending = "Nothing is wrong." if wrong is None else f"{_plain(stated[wrong].value)} is wrong."
        opinion = {
            "critique": f"{said} {ending}",
            "score": 9 if wrong is None else 2,
            "verdict": "pass" if wrong is None else "fail",
        }
        yield JudgeCase(example.task, answer, wrong is None, compact_json(opinion))


def natural_judgements() -> list[JudgeCase]:
    """Return a right and a wrong answer to each natural task of extraction."""
    cases = []
    for task in real_tasks():
        if task.kind == "extract":
            for given, right in ((RIGHT.get(task.name, task.expect), True), (WRONG[task.name], False)):
                answer = given if isinstance(given, str) else json.dumps(given)
                cases.append(JudgeCase(task, answer, right))
    return cases


def summaries(seed: int) -> Iterator[RealTask]:
    """Yield summaries of generated texts to ask for, without end; they have no right answers."""
    draw = random.Random(seed)  # noqa: S311 (as above)
    for number, (first, second) in enumerate(zip(extractions(seed + 1), extractions(seed + 2), strict=True)):
        text = f"{first.task.text}\n\n{second.task.text}"
        yield RealTask(name=f"summary-{number}", kind="extract", text=text, ask=draw.choice(SUMMARIES), expect=[])


def held_out_tasks(most: int) -> list[RealTask]:
    """Return at most `most` held-out tasks of extraction."""
    return [example.task for example in islice(extractions(UNSEEN_SEED, unseen=True), most)]


def held_out_cases(most: int) -> list[JudgeCase]:
    """Return at most `most` held-out answers to judge."""
    return list(islice(judgements(UNSEEN_SEED, unseen=True), most))


class _SceneDraft:
    """A scene while values are drawn for it."""

    def __init__(self, scene: Scene, words: WordSampler) -> None:
        self._scene, self._words, self._draw = scene, words, words.random
        self._used: set[str] = set()
        self._values: dict[str, SlotValue] = {}
        for slot in dict.fromkeys(_SLOT.findall(scene.text)):
            kind = slot.removeprefix("a_").rstrip("0123456789")
            self._values[slot.removeprefix("a_")] = self._several(kind) if kind in LISTS else self._new(kind)

    def example(self) -> ExtractExample:
        lists = [key for key, (slot, _) in self._scene.fields.items() if self._is_list(slot)]
        single = [key for key in self._scene.fields if key not in lists]
        chance = self._draw.random()
        if lists and chance < 0.5:
            return self._list(self._draw.choice(lists))
        if chance < 0.7:
            return self._object(self._draw.sample(single, min(len(single), self._draw.choice((2, 2, 3, 3, 4)))))
        return self._question(self._draw.choice(single))

    def _list(self, key: str) -> ExtractExample:
        slot, phrase = self._scene.fields[key]
        wording = self._words.random.choice(UNSEEN_LIST if self._words.unseen else LIST)
        if isinstance(slot, tuple):
            items = [self._values[name] for name in slot]
            kind = slot[0].rstrip("0123456789")
        else:
            kind = LISTS[slot.rstrip("0123456789")]
            items = [SlotValue(text, text) for text in self._values[slot].value]
        schema = {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 10}
        return self._finished(
            wording.format(phrase), schema, [item.value for item in items], items, [kind] * len(items)
        )

    def _object(self, keys: Sequence[str]) -> ExtractExample:
        slots = [str(self._scene.fields[key][0]) for key in keys]
        phrases = [self._scene.fields[key][1] for key in keys]
        wording = self._words.random.choice(UNSEEN_EXTRACT if self._words.unseen else EXTRACT)
        items = [self._values[slot] for slot in slots]
        types = {int: "integer", float: "number", str: "string"}
        schema = {
            "type": "object",
            "properties": {key: {"type": types[type(item.value)]} for key, item in zip(keys, items, strict=True)},
            "required": [*keys],
            "additionalProperties": False,
        }
        kinds = [slot.rstrip("0123456789") for slot in slots]
        expect = {key: item.value for key, item in zip(keys, items, strict=True)}
        return self._finished(wording.format(_listing(phrases)), schema, expect, items, kinds)

    def _question(self, key: str) -> ExtractExample:
        slot, phrase = self._scene.fields[key]
        question = f"Say {phrase}."
        if phrase.startswith(("the ", "who ")):
            question = f"What is {phrase}?" if phrase.startswith("the ") else f"W{phrase[1:]}?"
        item = self._values[str(slot)]
        return self._finished(question, None, [item.said], [item], [str(slot).rstrip("0123456789")])

    def _finished(
        self, ask: str, schema: dict[str, Any] | None, expect: Any, items: Sequence[SlotValue], kinds: Sequence[str]
    ) -> ExtractExample:
        said = {slot: value.said for slot, value in self._values.items()}
        articles = {f"a_{slot}": f"{'an' if text[0] in 'aeiou' else 'a'} {text}" for slot, text in said.items()}
        text = self._scene.text.format_map(said | articles)
        task = RealTask(name=ask, kind="extract", text=text, ask=ask, schema=schema, expect=expect)
        facts = tuple((item, self._wrong(item, kind)) for item, kind in zip(items, kinds, strict=True))
        return ExtractExample(task, _written(task, items), facts)

    def _wrong(self, right: SlotValue, kind: str) -> SlotValue:
        """Return another value of a kind: one that the text has elsewhere, if there is any and as often a new one."""
        others = [
            value
            for slot, value in self._values.items()
            if slot.rstrip("0123456789") == kind and value.value != right.value
        ]
        chosen = self._draw.choice(others) if others and self._draw.random() < 0.6 else self._new(kind)
        while right.said in chosen.said:
            chosen = self._new(kind)
        return chosen

    @staticmethod
    def _is_list(slot: str | tuple[str, ...]) -> bool:
        return isinstance(slot, tuple) or slot.rstrip("0123456789") in LISTS

    def _several(self, kind: str) -> SlotValue:
        values = [self._new(LISTS[kind]).said for _ in range(self._draw.choice((2, 3, 3, 4)))]
        return SlotValue(_listing(values), values)

    def _new(self, kind: str) -> SlotValue:
        """Return a value of a kind that the text does not have yet: of any words where few are held out."""
        for tried in count():
            value = self._drawn(kind, self._words if tried < 8 else WordSampler(self._draw))
            if value.said not in self._used:
                self._used.add(value.said)
                return value
        raise AssertionError

    def _drawn(self, kind: str, words: WordSampler) -> SlotValue:  # noqa: C901 (a list of kinds)
        draw = self._draw
        made_up = words.made_up().capitalize()
        match kind:
            case "n" if draw.random() < 0.3:
                number = draw.randrange(2, 11)
                return SlotValue(NUMBERS[number], number)
            case "n" | "id":
                number = draw.randrange(2, 99) if kind == "n" else draw.randrange(1000, 9999)
                return SlotValue(str(number), number)
            case "price":
                price = f"{draw.randrange(2, 400)}.{draw.choice(('00', '50', '20', '75', '95'))}"
                return SlotValue(price, float(price))
            case "person":
                said = f"{words.pick(FIRST_NAMES)} {words.pick(LAST_NAMES) if draw.random() < 0.5 else made_up}"
            case "last":
                said = words.pick(LAST_NAMES) if draw.random() < 0.5 else made_up
            case "place":
                said = words.pick(PLACES[:-4]).capitalize() if draw.random() < 0.5 else made_up
            case "thing":
                said = words.pick(SUBJECTS)
            case "day":
                said = draw.choice(WEEKDAYS).capitalize()
            case "month":
                said = draw.choice(MONTHS).capitalize()
            case "date":
                said = f"{draw.randrange(1, 29)} {draw.choice(MONTHS).capitalize()}"
            case "time":
                said = f"{draw.randrange(6, 23)}{draw.choice('.:')}{draw.choice(('00', '15', '30', '45', '05', '40'))}"
            case "company":
                said = f"{made_up} {words.pick(TRADES)}"
            case "email":
                said = f"{words.pick(FIRST_NAMES).lower()}@{made_up.lower()}.example"
            case "phone":
                said = f"0{draw.randrange(100, 999)} {draw.randrange(1000, 99999)}"
            case "code":
                said = f"{draw.choice('ABCDEFGHKLMNPRST')}-{draw.randrange(2, 999)}"
            case "name":
                said = f"{made_up.lower()}-{draw.randrange(2, 40)}"
            case "floor":
                said = draw.choice(ORDINALS)
            case _:
                said = words.pick({"colour": COLOURS, "part": PARTS, "reason": REASONS}[kind])
        return SlotValue(said, said)


def _written(task: RealTask, items: Sequence[SlotValue]) -> str:
    """Return an answer with these values, in the form that the task asks for."""
    if task.schema is None:
        return items[0].said
    values = [item.value for item in items]
    return compact_json(values if task.schema["type"] == "array" else dict(zip(task.expect, values, strict=True)))


def _listing(texts: Sequence[str]) -> str:
    return " and ".join((", ".join(texts[:-1]), texts[-1])) if len(texts) > 1 else texts[0]


def _plain(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)
