"""Judge: what was read, the task and an answer that may be wrong → a critique with score and verdict as JSON.

The critique sets what is right beside what the answer says, fact by fact, before anything is concluded.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from benchmarks.tiny import texts
from benchmarks.tiny.example import Example, pick_persona, step_example
from benchmarks.tiny.families.code import Specification, make_specification, specify
from benchmarks.tiny.families.compare import told_record
from benchmarks.tiny.families.extract import Extract, compact
from benchmarks.tiny.families.facts import Fact, facts_of, spoilt, written
from benchmarks.tiny.families.summarize import Summarize
from benchmarks.tiny.words import Lexicon, Pool, Split
from orchestrator.gates.judge import SCHEMA
from orchestrator.steps.prompt import Input

ACTIONS = Pool(
    (
        "Judge the {w}.",
        "Judge the {w}.",
        "Judge the {w}.",
        "Check the {w}.",
        "Please judge the {w}.",
        "Is the {w} right?",
        "Read the {w} and judge it.",
        "Give a verdict on the {w}.",
        "Say whether the {w} is right.",
        "Could you judge the {w}?",
    ),
    (
        "Please check the {w}.",
        "Read the {w} and check it.",
        "Give me a verdict on the {w}.",
        "Could you check the {w}?",
    ),
)
PASS_SCORE, MISSING_SCORE, WRONG_SCORE = 9, 5, 3
LONGEST = int(SCHEMA["properties"]["critique"]["maxLength"])
VALUE = re.compile(r"\b(?:[A-Z][\w-]*|\d+)\b")
"""What may be mistaken for a value."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a fact is about, its value, and what was told; None for nothing."""

    about: str
    value: str | None
    told: str | None

    @property
    def score(self) -> int:
        """What an answer gets for it."""
        if self.told == self.value:
            return PASS_SCORE
        return MISSING_SCORE if self.told is None else WRONG_SCORE

    def __str__(self) -> str:
        if self.told is None:
            return f"{self.about} {self.value}, missing"
        rightly = "right" if self.told == self.value else "wrong"
        return f"{self.about} {self.value or 'none'}, told {self.told}: {rightly}"


def critique(said: Sequence[Said]) -> str:
    """Return what a judge finds, and what a retry is told of it."""
    return "; ".join(map(str, said))


def verdict(said: Sequence[Said]) -> str:
    """Return the answer of a judge on what was said."""
    score = min(fact.score for fact in said)
    return compact({"critique": critique(said), "score": score, "verdict": "pass" if score == PASS_SCORE else "fail"})


def compared(facts: Sequence[Fact], told: Sequence[Fact]) -> list[Said]:
    """Return each fact with what was told of it, and behind them what was told and is none."""
    left = dict(told)
    known = [Said(about, value, left.pop(about, None)) for about, value in facts]
    return [*known, *(Said(about, None, value) for about, value in left.items())]


def spoil(words: Lexicon, right: str, sources: Sequence[Input] = ()) -> tuple[str, list[Said]]:
    """Return a wrong answer where `right` is the right one to a task that reads `sources`, and what it says."""
    facts = facts_of(right)
    elsewhere = VALUE.findall(" ".join(source.text for source in sources))
    wrong = written(spoilt(words, facts, elsewhere), like=right)
    return wrong, compared(facts, facts_of(wrong))


@dataclass(frozen=True, slots=True)
class Case:
    """What is judged, as the action calls it, the inputs of the judge, and what there is to say."""

    noun: str
    inputs: tuple[Input, ...]
    said: Sequence[Said]


class Judge:
    """Half are answers to tasks of other families, as the gate shows them: what was read, the task, the answer.

    The rest, in equal parts: a record told from its text, as a step of a plan judges it; code to a specification.
    """

    name = "judge"

    def generate(self, rng: Random, split: Split) -> Example:
        """Return a new example; half of the answers to judge are right."""
        words = Lexicon(rng, split)
        case = self._case(words, split)
        while len(critique(case.said)) > LONGEST:
            case = self._case(words, split)
        wording = ACTIONS.pick(rng, split)
        action = wording.format(w=case.noun)
        persona = pick_persona(rng, ())
        answer = verdict(case.said)
        return step_example(self.name, rng, persona, case.inputs, action, answer, wording, schema=SCHEMA, role="judge")

    def _case(self, words: Lexicon, split: Split) -> Case:
        roll = words.rng.random()
        if roll < 0.5:
            return self._asked(words, split)
        return self._told(words) if roll < 0.75 else self._code(words)

    @staticmethod
    def _asked(words: Lexicon, split: Split) -> Case:
        """Return an answer to a task that asks for facts."""
        family = words.rng.choice((Extract(), Extract(), Summarize()))
        asked = family.generate(words.rng, split)
        answer, said = asked.answer, compared(facts_of(asked.answer), facts_of(asked.answer))
        if words.rng.random() < 0.5:
            answer, said = spoil(words, asked.answer, asked.inputs)
        return Case("answer", (*asked.inputs, Input("task", asked.action), Input("answer", answer)), said)

    @staticmethod
    def _told(words: Lexicon) -> Case:
        """Return a text and what was told of it: as a summary all of its facts, as an object any of them."""
        rng = words.rng
        record = texts.make_record(words, texts.make_keys(rng))
        form = rng.choice(("inline", "inline", "bullets", "table", "json"))
        answer = told_record(record, form)
        said = compared(facts_of(answer), facts_of(answer))
        if rng.random() < 0.5:
            answer, said = spoil(words, answer)
        if form == "json":
            said = [fact for fact in said if fact.told is not None]  # nobody says which were asked for
        source = Input(texts.input_name(words), texts.source_text(words, record, rng.choice((0, 0, 1, 2))))
        noun = rng.choice(("answer", "record" if form == "json" else "summary"))
        return Case(noun, (source, Input(rng.choice(("answer", f"S{rng.randint(1, 9)}")), answer)), said)

    @staticmethod
    def _code(words: Lexicon) -> Case:
        """Return code written to a specification."""
        rng = words.rng
        spec, task, _ = specify(words, "train")
        made = spec
        flaw = rng.random()
        if flaw < 0.25:
            made = Specification(words.identifier(), spec.parameters, spec.operation, spec.constant)
        elif flaw < 0.5:
            other = make_specification(words)
            if len(other.parameters) == len(spec.parameters):
                made = Specification(spec.name, spec.parameters, other.operation, other.constant)
        body, told = (one.fill(one.operation.expression) for one in (spec, made))
        said = [Said("name", spec.name, made.name), Said("body", body, told)]
        code = made.source(rng.choice(("", "", "terse")))
        return Case(rng.choice(("answer", "code")), (Input("task", task), Input("answer", code)), said)

    def check(self, example: Example, answer: str) -> bool:
        """Return whether `answer` parses to the same verdict, score and critique."""
        try:
            return bool(json.loads(answer) == json.loads(example.answer))
        except json.JSONDecodeError:
            return False
