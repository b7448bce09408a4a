"""Judge: a source and an answer that may be wrong → a critique with score and verdict as JSON.

The critique sets what the source says beside what the answer says, fact by fact, before anything is concluded.
"""

import json
from collections.abc import Sequence
from random import Random

from benchmarks.tiny import texts
from benchmarks.tiny.example import Example, pick_persona, step_example
from benchmarks.tiny.families.code import Specification, make_specification, specify
from benchmarks.tiny.families.compare import told_record
from benchmarks.tiny.families.extract import compact
from benchmarks.tiny.texts import Record
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


def verdict(facts: Sequence[tuple[str, str, str | None]]) -> str:
    """Return the answer of a judge on facts: what each is about, its value, and what was told, None for nothing."""
    said, score = [], PASS_SCORE
    for about, value, told in facts:
        if told is None:
            said.append(f"{about} {value}, missing")
            score = min(score, MISSING_SCORE)
        else:
            said.append(f"{about} {value}, told {told}: {'right' if told == value else 'wrong'}")
            score = min(score, PASS_SCORE if told == value else WRONG_SCORE)
    critique = "; ".join(said)
    return compact({"critique": critique, "score": score, "verdict": "pass" if score == PASS_SCORE else "fail"})


class Judge:
    """Three of four judge facts (a summary or JSON) against their text, the rest code against its specification."""

    name = "judge"

    def generate(self, rng: Random, split: Split) -> Example:
        """Return a new example; half of the answers to judge are right."""
        words = Lexicon(rng, split)
        noun, inputs, answer = self._facts(words) if rng.random() < 0.75 else self._code(words)
        wording = ACTIONS.pick(rng, split)
        action = wording.format(w=noun)
        persona = pick_persona(rng, ())
        return step_example(self.name, rng, persona, inputs, action, answer, wording, schema=SCHEMA, role="judge")

    @staticmethod
    def _facts(words: Lexicon) -> tuple[str, list[Input], str]:
        """Return what is judged, the inputs and the verdict on facts told from a text."""
        rng = words.rng
        record = texts.make_record(words, texts.make_keys(rng))
        form = rng.choice(("inline", "inline", "bullets", "table", "json"))
        told = record
        index = rng.randrange(len(record.facts))
        key, _ = record.facts[index]
        flaw = rng.random()
        if flaw < 0.35:
            wrong = texts.make_value(words, key)
            told = Record(record.name, (*record.facts[:index], (key, wrong), *record.facts[index + 1 :]))
        elif flaw < 0.55 and len(record.facts) > 1:
            told = Record(record.name, record.facts[:index] + record.facts[index + 1 :])
        # A JSON object holds the keys that were asked for; a summary has to tell all facts.
        judged = told.facts if form == "json" else record.facts
        answer = verdict([(key, str(record.value(key)), told.value(key)) for key, _ in judged])
        source = Input(texts.input_name(words), texts.source_text(words, record, rng.choice((0, 0, 1, 2))))
        noun = rng.choice(("answer", "record")) if form == "json" else rng.choice(("answer", "summary"))
        return noun, [source, Input(rng.choice(("answer", f"S{rng.randint(1, 9)}")), told_record(told, form))], answer

    @staticmethod
    def _code(words: Lexicon) -> tuple[str, list[Input], str]:
        """Return what is judged, the inputs and the verdict on code written to a specification."""
        rng = words.rng
        spec, task, _ = specify(words, "train")
        written = spec
        flaw = rng.random()
        if flaw < 0.25:
            written = Specification(words.identifier(), spec.parameters, spec.operation, spec.constant)
        elif flaw < 0.5:
            other = make_specification(words)
            if len(other.parameters) == len(spec.parameters):
                written = Specification(spec.name, spec.parameters, other.operation, other.constant)
        body, told = (one.fill(one.operation.expression) for one in (spec, written))
        answer = verdict([("name", spec.name, written.name), ("body", body, told)])
        code = written.source(rng.choice(("", "", "terse")))
        return rng.choice(("answer", "code")), [Input("task", task), Input("answer", code)], answer

    def check(self, example: Example, answer: str) -> bool:
        """Return whether `answer` parses to the same verdict, score and critique."""
        try:
            return bool(json.loads(answer) == json.loads(example.answer))
        except json.JSONDecodeError:
            return False
