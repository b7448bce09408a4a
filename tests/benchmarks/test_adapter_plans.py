"""The data that the frontdoor's adapter is trained on: right by the product's own rules, repeatable, and various."""

from collections import Counter
from itertools import islice
from pathlib import Path

import pytest
import yaml

from benchmarks.adapter.evaluate import TUNING, Question, is_right, read_plan, read_questions
from benchmarks.adapter.forms import FORMS
from benchmarks.adapter.operations import ON_A_TEXT
from benchmarks.adapter.plans import Example, generate
from benchmarks.adapter.structure import structure_of
from benchmarks.adapter.words import PEOPLE, SUBJECTS, held_out
from orchestrator.frontdoor.compact import PlanFlaw, plan_text

REAL = Path(__file__).parents[2] / "benchmarks" / "real"
COUNT = 1500


@pytest.fixture(scope="module")
def examples() -> list[Example]:
    return list(islice(generate(5), COUNT))


def test_the_product_takes_every_plan_for_what_was_meant(examples: list[Example]) -> None:
    for example in (*examples, *islice(generate(6, unseen=True), 300)):
        assert structure_of(example.files, example.parts) == example.meant, example
        assert structure_of(example.files, read_plan(plan_text(example.parts))) == example.meant


def test_requests_and_actions_are_complete(examples: list[Example]) -> None:
    for example in examples:
        assert "{" not in example.request, example
        assert "  " not in example.request, example
        assert all("{" not in part.action.replace("{each}", "") for part in example.parts), example
        assert all(("{each}" in part.action) == bool(part.each) for part in example.parts), example
        assert all(part.output is None or part.output in example.request for part in example.parts), example


def test_the_same_seed_makes_the_same_data(examples: list[Example]) -> None:
    assert list(islice(generate(5), 50)) == examples[:50]
    assert [one.request for one in islice(generate(6), 50)] != [one.request for one in examples[:50]]


def test_no_request_of_the_benchmark_is_in_it(examples: list[Example]) -> None:
    measured = {
        _plain(entry["request"])
        for file in REAL.glob("*.yaml")
        for entry in yaml.safe_load(file.read_text("utf-8"))
        if "request" in entry
    }
    assert measured.isdisjoint(_plain(example.request) for example in examples)


def test_the_data_are_various(examples: list[Example]) -> None:
    words = {word for example in examples for word in _plain(example.request).split()}
    assert len(words) > 1800
    assert len({example.request for example in examples}) > 0.98 * COUNT
    assert {example.form for example in examples} == {form.__name__ for form in FORMS}
    assert len(FORMS) >= 20
    assert len(ON_A_TEXT) >= 40
    assert all(len(operation.wordings) >= 2 for operation in ON_A_TEXT)
    assert len({word for example in examples for word in _plain(example.request).split()[:1]}) > 100, "beginnings"
    parts = Counter(len(example.parts) for example in examples)
    assert {1, 2, 3, 4} <= set(parts)
    several = [part.each for example in examples for part in example.parts if part.each]
    assert sum(names == ("*",) for names in several) > 50
    assert sum(names[0].startswith("*.") for names in several) > 50
    assert sum(len(names) > 1 for names in several) > 200
    assert sum(bool(example.files) and not any(p.inputs or p.each for p in example.parts) for example in examples) > 10
    unsaid = [
        example
        for example in examples
        for part in example.parts
        if any(name in example.files and name not in example.request for name in (*part.inputs, *part.each))
    ]
    assert len(unsaid) > 200, "files that are named by description"


def test_words_that_are_held_out_are_not_trained_on(examples: list[Example]) -> None:
    kept = {word for word in SUBJECTS if held_out(word)}
    assert 0.05 < len(kept) / len(SUBJECTS) < 0.2
    assert any(map(held_out, PEOPLE))
    stems = {name.split(".")[0] for example in examples for name in example.files}
    assert stems.isdisjoint(kept)
    unseen = {name.split(".")[0] for example in islice(generate(5, unseen=True), 300) for name in example.files}
    assert len(unseen & kept) > 20


@pytest.mark.skipif(not TUNING.exists(), reason="benchmarks/real has no tuning.yaml")
def test_the_requests_of_the_benchmark_can_be_judged() -> None:
    questions = read_questions()
    assert len(questions) >= 50
    for question in questions:
        assert question.right


def test_a_plan_is_judged_by_its_structure() -> None:
    files = ("a.txt", "b.txt", "c.md")
    asked = '{"plan":[{"role":"worker","action":"Summarize {each}.","each":["*.txt"]},'
    asked += '{"role":"worker","action":"Compare.","inputs":["P1"],"output":"all.md"}]}'
    right = structure_of(files, read_plan(asked))
    question = Question("", files, (right,))
    assert is_right(question, read_plan(asked.replace('["*.txt"]', '["b","a.txt"]').replace("Compare", "Join")))
    assert not is_right(question, read_plan(asked.replace("*.txt", "*")))
    assert not is_right(question, read_plan(asked.replace(',"output":"all.md"', "")))
    unnamed = Question(
        "", files, (structure_of(files, read_plan(asked.replace(',"output":"all.md"', ""))),), strict=False
    )
    assert is_right(unnamed, read_plan(asked)), "an output that nobody asked for is no fault"
    with pytest.raises(PlanFlaw):
        is_right(question, read_plan(asked.replace("P1", "P3")))


def _plain(request: str) -> str:
    return " ".join("".join(letter if letter.isalnum() else " " for letter in request.lower()).split())
