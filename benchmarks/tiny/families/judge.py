"""Judge: what was read, the task and an answer that may be wrong → a critique with score and verdict as JSON.

The critique comes before the score and the verdict. For each fact it states the right value and the answer's value.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from benchmarks.tiny.families.facts import Fact, corrupted_facts, facts_of, written
from orchestrator.bench.families import texts
from orchestrator.bench.families.code import Specification, make_specification, specify
from orchestrator.bench.families.compare import format_record
from orchestrator.bench.families.example import Example, pick_persona, step_example
from orchestrator.bench.families.extract import Extract
from orchestrator.bench.families.summarize import Summarize
from orchestrator.bench.families.words import Lexicon, Split, WordingPool
from orchestrator.run.gates.judge import SCHEMA
from orchestrator.run.steps.role import StepInput
from orchestrator.task.taskir.json_text import compact_json

ACTIONS = WordingPool(
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
VALUE = re.compile(r"\b(?:[A-Z][\w-]*|\d+)\b")  # Words and numbers of a text that a wrong answer may give as a value


@dataclass(frozen=True, slots=True)
class Claim:
    """What an answer says about one fact."""

    about: str  # what the fact is about: a key, or a place in a list
    value: str | None  # the true value, or None if there is no such fact
    told: str | None  # the value that the answer gives, or None if it gives none

    @property
    def score(self) -> int:
        """The score of an answer whose only fault, if any, is this claim."""
        if self.told == self.value:
            return PASS_SCORE
        return MISSING_SCORE if self.told is None else WRONG_SCORE

    def __str__(self) -> str:
        if self.told is None:
            return f"{self.about} {self.value}, missing"
        correctly = "right" if self.told == self.value else "wrong"
        return f"{self.about} {self.value or 'none'}, told {self.told}: {correctly}"


def critique(claims: Sequence[Claim]) -> str:
    """Return the critique of these claims, which is also the evidence that a retry reads."""
    return "; ".join(map(str, claims))


def verdict(claims: Sequence[Claim]) -> str:
    """Return a judge's answer as JSON. Its score is the lowest score of the claims."""
    score = min(fact.score for fact in claims)
    return compact_json(
        {"critique": critique(claims), "score": score, "verdict": "pass" if score == PASS_SCORE else "fail"}
    )


def claims_of(facts: Sequence[Fact], stated: Sequence[Fact]) -> list[Claim]:
    """Return the claims of an answer that states `stated`: one for each true fact in `facts`, then invented ones."""
    remaining = dict(stated)
    claims = [Claim(about, value, remaining.pop(about, None)) for about, value in facts]
    return [*claims, *(Claim(about, None, value) for about, value in remaining.items())]


def corrupt(words: Lexicon, right: str, sources: Sequence[StepInput] = ()) -> tuple[str, list[Claim]]:
    """Return a wrong answer and its claims, made from the right answer to a task that reads `sources`."""
    facts = facts_of(right)
    elsewhere = VALUE.findall(" ".join(source.text for source in sources))
    wrong = written(corrupted_facts(words, facts, elsewhere), like=right)
    return wrong, claims_of(facts, facts_of(wrong))


@dataclass(frozen=True, slots=True)
class Case:
    """An answer to judge, with what the judge reads."""

    noun: str  # what the action calls it, such as "answer"
    inputs: tuple[StepInput, ...]  # the inputs of the judge
    claims: Sequence[Claim]  # what the answer says about each fact


class Judge:
    """The task of judging an answer.

    Half of the answers are to tasks of other families; the inputs are those of the task, the task and the answer, as
    the gate shows them. A quarter are summaries or extractions of one text, judged as by a step of a plan. A quarter
    are functions that were written from a specification.
    """

    name = "judge"

    def generate(self, rng: Random, split: Split) -> Example:
        """Return a new example; half of the answers to judge are right."""
        words = Lexicon(rng, split)
        case = self._case(words, split)
        while len(critique(case.claims)) > LONGEST:
            case = self._case(words, split)
        wording = ACTIONS.pick(rng, split)
        action = wording.format(w=case.noun)
        persona = pick_persona(rng, ())
        answer = verdict(case.claims)
        return step_example(self.name, rng, persona, case.inputs, action, answer, wording, schema=SCHEMA, role="judge")

    def _case(self, words: Lexicon, split: Split) -> Case:
        roll = words.rng.random()
        if roll < 0.5:
            return self._answer_case(words, split)
        return self._record_case(words) if roll < 0.75 else self._code_case(words)

    @staticmethod
    def _answer_case(words: Lexicon, split: Split) -> Case:
        """Return a case with an answer to a task of another family that asks for facts."""
        family = words.rng.choice((Extract(), Extract(), Summarize()))
        asked = family.generate(words.rng, split)
        answer, claims = asked.answer, claims_of(facts_of(asked.answer), facts_of(asked.answer))
        if words.rng.random() < 0.5:
            answer, claims = corrupt(words, asked.answer, asked.inputs)
        return Case("answer", (*asked.inputs, StepInput("task", asked.action), StepInput("answer", answer)), claims)

    @staticmethod
    def _record_case(words: Lexicon) -> Case:
        """Return a case with a text and its facts: all of them in a summary, some of them in a JSON object."""
        rng = words.rng
        record = texts.make_record(words, texts.make_keys(rng))
        form = rng.choice(("inline", "inline", "bullets", "table", "json"))
        answer = format_record(record, form)
        claims = claims_of(facts_of(answer), facts_of(answer))
        if rng.random() < 0.5:
            answer, claims = corrupt(words, answer)
        if form == "json":
            claims = [fact for fact in claims if fact.told is not None]  # the judge does not see the keys asked for
        source = StepInput(texts.input_name(words), texts.source_text(words, record, rng.choice((0, 0, 1, 2))))
        noun = rng.choice(("answer", "record" if form == "json" else "summary"))
        return Case(noun, (source, StepInput(rng.choice(("answer", f"S{rng.randint(1, 9)}")), answer)), claims)

    @staticmethod
    def _code_case(words: Lexicon) -> Case:
        """Return a case with code for a specification."""
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
        body, made_body = (specification.fill(specification.operation.expression) for specification in (spec, made))
        claims = [Claim("name", spec.name, made.name), Claim("body", body, made_body)]
        code = made.source(rng.choice(("", "", "terse")))
        return Case(rng.choice(("answer", "code")), (StepInput("task", task), StepInput("answer", code)), claims)

    def check(self, example: Example, answer: str) -> bool:
        """Return whether `answer` parses to the same verdict, score and critique."""
        try:
            return bool(json.loads(answer) == json.loads(example.answer))
        except json.JSONDecodeError:
            return False
