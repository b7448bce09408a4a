"""The generated data: deterministic, split without overlap, and accepted by its own checkers."""

import json
import re
from collections.abc import Iterator

import jsonschema
import pytest

from benchmarks.tiny import corpus
from benchmarks.tiny.families import FAMILIES
from benchmarks.tiny.families.plan import files_in, steps_of
from benchmarks.tiny.sizes import RESULTS_FILE
from orchestrator.bench.families.example import Example
from orchestrator.bench.families.words import SPLITS, Lexicon, Split, is_held_out, seeded

COUNT = 60
CORRUPTIONS = (
    lambda text: text[: len(text) // 2],
    lambda text: text.replace("e", "o", 1) if "e" in text else text + "x",
    lambda text: re.sub(r"\w+", lambda word: word[0] + "q", text, count=1),
)


def examples(family: str, split: Split, count: int = COUNT) -> Iterator[Example]:
    for index in range(count):
        yield FAMILIES[family].generate(corpus.example_rng(family, split, index), split)


@pytest.mark.slow
def test_same_seeds_give_the_data_of_the_published_results() -> None:
    published = json.loads(RESULTS_FILE.read_text(encoding="utf-8"))
    assert corpus.data_hash() == published["data_hash"]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("split", SPLITS)
def test_reference_passes_its_checker_and_corrupted_answers_fail(family: str, split: Split) -> None:
    checker = FAMILIES[family]
    for example in examples(family, split):
        assert checker.check(example, example.answer)
        for corrupt in CORRUPTIONS:
            assert not checker.check(example, corrupt(example.answer)), corrupt(example.answer)


@pytest.mark.parametrize("family", ["plan", "extract", "judge"])
def test_schema_accepts_reference(family: str) -> None:
    for example in examples(family, "entity"):
        assert example.schema is not None
        jsonschema.validate(json.loads(example.answer), example.schema)
        if family != "extract":
            assert "\n" not in example.answer


@pytest.mark.parametrize("family", FAMILIES)
def test_held_out_wordings_are_never_trained_on(family: str) -> None:
    trained = {example.wording for example in examples(family, "train", 150)}
    held_out = {example.wording for example in examples(family, "wording", 100)}
    assert not trained & held_out


@pytest.mark.parametrize(("split", "held_out"), [("train", False), ("entity", True), ("wording", True)])
def test_words_belong_to_their_split(split: Split, held_out: bool) -> None:
    words = Lexicon(seeded("words"), split)
    for _ in range(COUNT):
        drawn = [words.word(), *words.name().split(), *re.findall(r"[a-z]+", words.stem()), words.word().capitalize()]
        assert all(is_held_out(word) == held_out for word in drawn)


@pytest.mark.parametrize("split", SPLITS)
def test_plans_can_be_carried_out(split: Split) -> None:
    for example in examples("plan", split, 150):
        assert steps_of(example, example.answer) or "Done: " in example.messages[1].content


def test_a_plan_is_right_when_it_stands_for_the_same_steps() -> None:
    (example,) = (one for one in examples("plan", "entity", 400) if '"each":["*.md"]' in one.answer)
    every = [f'"{file}"' for file in files_in(example) if file.endswith(".md")]
    assert FAMILIES["plan"].check(example, example.answer.replace('"*.md"', ",".join(every)))
    assert not FAMILIES["plan"].check(example, example.answer.replace('"*.md"', '"*"'))


def test_every_role_that_does_steps_meets_every_family() -> None:
    for family in set(FAMILIES) - {"plan", "judge"}:
        assert {example.role for example in examples(family, "train")} == {"worker", "coder", "architect"}
