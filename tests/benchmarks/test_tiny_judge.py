"""What the judge learns from: answers spoilt as a model would spoil them, and what is right about the rest."""

import json
from collections.abc import Iterator

import pytest

from benchmarks.tiny import corpus
from benchmarks.tiny.families import FAMILIES
from benchmarks.tiny.families.facts import facts_of, written
from benchmarks.tiny.families.judge import LONGEST, corrupt, critique
from orchestrator.bench.families.example import Example
from orchestrator.bench.families.words import SPLITS, Lexicon, Split, seeded

ASKED = ("extract", "summarize")


def examples(family: str, split: Split, count: int = 150) -> Iterator[Example]:
    for index in range(count):
        yield FAMILIES[family].generate(corpus.example_rng(family, split, index), split)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("family", ASKED)
def test_facts_are_read_off_any_answer_and_written_in_its_form(family: str, split: Split) -> None:
    for example in examples(family, split):
        assert FAMILIES[family].check(example, written(facts_of(example.answer), like=example.answer))


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("family", ASKED)
def test_a_spoilt_answer_is_wrong_and_the_critique_says_where(family: str, split: Split) -> None:
    for index, example in enumerate(examples(family, split)):
        words = Lexicon(seeded(f"spoil/{index}"), split)
        wrong, after_code = corrupt(words, example.answer, example.inputs)
        assert not FAMILIES[family].check(example, wrong)
        assert any(fact.told != fact.value for fact in after_code)
        assert {fact.told for fact in after_code if fact.told} == {value for _, value in facts_of(wrong)}
        assert critique(after_code).count(": wrong") + critique(after_code).count(", missing") >= 1


def test_a_verdict_follows_from_its_critique() -> None:
    for example in examples("judge", "train", 400):
        answer = json.loads(example.answer)
        flawed = ": wrong" in answer["critique"] or ", missing" in answer["critique"]
        assert (answer["verdict"], answer["score"] == 9) == (("fail", False) if flawed else ("pass", True))
        assert len(answer["critique"]) <= LONGEST


def test_half_of_what_is_judged_is_shown_as_the_gate_shows_it() -> None:
    shown = [[read.name for read in example.inputs] for example in examples("judge", "train", 400)]
    gated = [names for names in shown if names[-2:] == ["task", "answer"] and len(names) > 2]
    assert 140 < len(gated) < 260
