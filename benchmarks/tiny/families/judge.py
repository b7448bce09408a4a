"""Judge: a source and an answer that may be wrong → a verdict with score and critique as JSON."""

import json
from random import Random
from typing import Any

from benchmarks.tiny import texts
from benchmarks.tiny.example import Example, pick_persona, step_example
from benchmarks.tiny.families.code import Specification, make_specification, specify
from benchmarks.tiny.families.compare import told_record
from benchmarks.tiny.families.extract import compact
from benchmarks.tiny.texts import Record
from benchmarks.tiny.words import Lexicon, Pool, Split
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
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "verdict": {"enum": ["pass", "fail"]},
        "score": {"type": "integer", "minimum": 0, "maximum": 9},
        "critique": {"type": "string", "maxLength": 300},
    },
    "required": ["verdict", "score", "critique"],
    "additionalProperties": False,
}
PASS_SCORE, MISSING_SCORE, WRONG_SCORE = 9, 5, 3


def verdict(score: int, critique: str) -> str:
    """Return the answer of a judge; only the full score passes."""
    return compact({"verdict": "pass" if score == PASS_SCORE else "fail", "score": score, "critique": critique})


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
        told, answer = record, verdict(PASS_SCORE, "All facts match.")
        index = rng.randrange(len(record.facts))
        key, value = record.facts[index]
        flaw = rng.random()
        if flaw < 0.35:
            wrong = texts.make_value(words, key)
            told = Record(record.name, (*record.facts[:index], (key, wrong), *record.facts[index + 1 :]))
            if wrong != value:
                answer = verdict(WRONG_SCORE, f"The {key} should be {value}.")
        elif flaw < 0.55 and len(record.facts) > 1:
            told = Record(record.name, record.facts[:index] + record.facts[index + 1 :])
            # A JSON object holds the keys that were asked for; a summary has to tell all facts.
            if form != "json":
                answer = verdict(MISSING_SCORE, f"The {key} is missing.")
        source = Input(texts.input_name(words), texts.source_text(words, record, rng.choice((0, 0, 1, 2))))
        noun = rng.choice(("answer", "record")) if form == "json" else rng.choice(("answer", "summary"))
        judged = Input(rng.choice(("answer", f"S{rng.randint(1, 9)}")), told_record(told, form))
        return noun, [source, judged], answer

    @staticmethod
    def _code(words: Lexicon) -> tuple[str, list[Input], str]:
        """Return what is judged, the inputs and the verdict on code written to a specification."""
        rng = words.rng
        spec, task, _ = specify(words, "train")
        written, answer = spec, verdict(PASS_SCORE, "The code is right.")
        flaw = rng.random()
        if flaw < 0.25:
            written = Specification(words.identifier(), spec.parameters, spec.operation, spec.constant)
            answer = verdict(WRONG_SCORE, f"The name should be {spec.name}.")
        elif flaw < 0.5:
            other = make_specification(words)
            body = spec.fill(spec.operation.expression)
            if len(other.parameters) == len(spec.parameters):
                written = Specification(spec.name, spec.parameters, other.operation, other.constant)
            if written.fill(written.operation.expression) != body:
                answer = verdict(WRONG_SCORE, f"The body should be {body}.")
        code = written.source(rng.choice(("", "", "terse")))
        return rng.choice(("answer", "code")), [Input("task", task), Input("answer", code)], answer

    def check(self, example: Example, answer: str) -> bool:
        """Return whether `answer` parses to the same verdict, score and critique."""
        try:
            return bool(json.loads(answer) == json.loads(example.answer))
        except json.JSONDecodeError:
            return False
