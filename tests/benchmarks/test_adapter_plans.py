"""The data that the frontdoor's adapter is trained on: right by the product's own rules, repeatable, and various."""

import json
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest
import yaml

from benchmarks.adapter import variants
from benchmarks.adapter.base import MODEL, SYSTEM
from benchmarks.adapter.data import answer_text, is_allowed, question_text
from benchmarks.adapter.evaluate import BARE, SHIPPED, as_request, registry_form
from benchmarks.adapter.forms import FORMS
from benchmarks.adapter.operations import ON_A_TEXT
from benchmarks.adapter.plans import PlanExample, generate
from benchmarks.adapter.structure import ROLES, structure_of
from benchmarks.adapter.words import PEOPLE, SUBJECTS, held_out
from benchmarks.models import ModelShape, write_llama
from orchestrator.registry.load import load_registry
from orchestrator.registry.prompts import prompt_set
from orchestrator.run.frontdoor.builder import PlanBuilder
from orchestrator.run.frontdoor.compact import PlanStream

REAL = Path(__file__).parents[2] / "orchestrator" / "bench" / "real"
COUNT = 1500


@pytest.fixture(scope="module")
def examples() -> list[PlanExample]:
    return list(islice(generate(5), COUNT))


@pytest.mark.slow
@pytest.mark.parametrize("count", [COUNT // 5, pytest.param(COUNT, marks=pytest.mark.slow)])
def test_the_product_takes_every_plan_for_what_was_meant(examples: list[PlanExample], count: int) -> None:
    for example in (*examples[:count], *islice(generate(6, unseen=True), count // 5)):
        assert structure_of(example.files, example.parts) == example.meant, example
        assert PlanStream().feed(answer_text(example.parts)) == list(example.parts)


def test_the_grammar_of_the_product_allows_almost_every_plan(examples: list[PlanExample]) -> None:
    some = [
        one
        for form in FORMS | variants.FORMS
        for one in islice((one for one in examples if one.form == form.__name__), 6)
    ]
    allowed = [example for example in some if is_allowed(example)]
    assert len(allowed) > 0.97 * len(some)
    assert {example.form for example in allowed} == {form.__name__ for form in FORMS | variants.FORMS}


def test_a_part_says_what_it_reads_before_what_it_does(examples: list[PlanExample]) -> None:
    for example in examples:
        for said in json.loads(answer_text(example.parts))["plan"]:
            keys = [key for key in said if key in ("each", "inputs", "foreach")]
            assert [*said][: len(keys) + 2] == ["role", *keys, "action"], said


def test_the_rest_of_a_plan_is_asked_for_as_the_frontdoor_does(examples: list[PlanExample]) -> None:
    example = next(example for example in examples if example.form == "rest")
    lines = question_text(example).splitlines()
    assert lines[0] == example.request
    assert lines[1].startswith('Done: {"plan":[{"role":"worker","action":"List the files that ')
    assert lines[2] == "[P1]"
    assert lines[-1] == "Plan the rest."
    assert all(file in question_text(example) for part in example.parts for file in (*part.each, *part.inputs))


def test_the_repair_of_a_plan_is_asked_for_as_the_frontdoor_does(examples: list[PlanExample]) -> None:
    repairs = [example for example in examples if example.flaw]
    assert len(repairs) > 0.05 * len(examples)
    assert any(example.flaw.startswith("no part reads ") for example in repairs)
    assert any(example.flaw.startswith("no part has the output ") for example in repairs)
    for example in repairs:
        assert question_text(example) == f"{example.request}\nThe previous plan failed: {example.flaw}"


def test_generated_requests_are_judged_as_those_of_the_benchmark_are(examples: list[PlanExample]) -> None:
    for example in examples[:300]:
        builder = PlanBuilder(example.files, ROLES)
        for part in example.parts:
            builder.add(part)
        request = as_request(example)
        assert request.is_right(tuple(builder.steps), builder.goes_on_after), example
        assert not request.is_right(tuple(builder.steps[:-1]), builder.goes_on_after), example


def test_requests_and_actions_are_complete(examples: list[PlanExample]) -> None:
    for example in examples:
        assert "{" not in example.request, example
        assert "  " not in example.request, example
        assert all("{" not in part.action.replace("{each}", "") for part in example.parts), example
        assert all(("{each}" in part.action) == bool(part.each) for part in example.parts), example
        assert all(part.output is None or part.output in example.request for part in example.parts), example


def test_the_same_seed_makes_the_same_data(examples: list[PlanExample]) -> None:
    assert list(islice(generate(5), 50)) == examples[:50]
    assert [one.request for one in islice(generate(6), 50)] != [one.request for one in examples[:50]]


def test_no_request_of_the_benchmark_is_in_it(examples: list[PlanExample]) -> None:
    measured = {
        _plain(entry["request"])
        for file in REAL.glob("*.yaml")
        for entry in yaml.safe_load(file.read_text("utf-8"))
        if "request" in entry
    }
    assert len(measured) > 100
    assert measured.isdisjoint(_plain(example.request) for example in examples)


def test_the_data_are_various(examples: list[PlanExample]) -> None:
    words = {word for example in examples for word in _plain(example.request).split()}
    assert len(words) > 1800
    requests = [example.request for example in examples if not example.flaw]
    assert len(set(requests)) > 0.98 * len(requests)
    assert {example.form for example in examples} == {form.__name__ for form in FORMS | variants.FORMS}
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
    assert sum(bool(example.files) and example.parts[0].inputs == ("request",) for example in examples) > 10
    unsaid = [
        example
        for example in examples
        for part in example.parts
        if any(name in example.files and name not in example.request for name in (*part.inputs, *part.each))
    ]
    assert len(unsaid) > 200, "files that are named by description"


def test_words_that_are_held_out_are_not_trained_on(examples: list[PlanExample]) -> None:
    kept = {word for word in SUBJECTS if held_out(word)}
    assert 0.05 < len(kept) / len(SUBJECTS) < 0.2
    assert any(map(held_out, PEOPLE))
    stems = {name.split(".")[0] for example in examples for name in example.files}
    assert stems.isdisjoint(kept)
    unseen = {name.split(".")[0] for example in islice(generate(5, unseen=True), 300) for name in example.files}
    assert len(unseen & kept) > 20


def _plain(request: str) -> str:
    return " ".join("".join(letter if letter.isalnum() else " " for letter in request.lower()).split())


def test_the_bare_model_gets_one_sentence_and_the_other_the_prompt_that_ships(tmp_path: Path) -> None:
    file = write_llama(tmp_path / "model.gguf", ModelShape(context=4096))
    systems = {}
    for name, setup in (("bare", BARE), ("shipped", SHIPPED)):
        path = tmp_path / f"{name}.yaml"
        path.write_text(json.dumps(registry_form(file, setup)), "utf-8")
        loaded = load_registry(path)
        assert loaded.models[MODEL].slots == setup.at_once
        systems[name] = loaded.system("frontdoor", MODEL)
    assert systems["bare"] == SYSTEM
    assert prompt_set("general").examples[0].request in systems["shipped"]
