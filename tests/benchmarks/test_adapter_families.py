"""The generated tasks of extraction and judging: right by the rules of the product, repeatable and held out."""

import json
from itertools import islice
from pathlib import Path

import pytest

from benchmarks.adapter.families import (
    RIGHT,
    WRONG,
    extractions,
    held_out_cases,
    held_out_tasks,
    judgements,
    natural_judgements,
    scenes,
    summaries,
)
from benchmarks.adapter.family_measure import is_about, registry_form
from benchmarks.adapter.family_training import judge_messages, worker_messages
from benchmarks.models import ModelShape, write_llama
from orchestrator.bench.real.tasks import real_tasks
from orchestrator.registry.load import load_registry
from orchestrator.run.gates.judge import SCHEMA
from orchestrator.task.taskir.validation import OutputSchema

COUNT = 300


@pytest.mark.parametrize("unseen", [False, True])
def test_every_right_answer_is_right_by_the_rules_of_the_benchmark(unseen: bool) -> None:
    for example in islice(extractions(3, unseen=unseen), COUNT):
        assert example.task.is_right(example.answer), example
        assert "{" not in example.task.text + example.task.ask
        if example.task.schema is not None:
            OutputSchema(example.task.schema).read(example.answer)


@pytest.mark.parametrize("unseen", [False, True])
def test_an_opinion_has_the_form_of_the_gate_and_the_verdict_that_the_answer_deserves(unseen: bool) -> None:
    cases = list(islice(judgements(4, unseen=unseen), COUNT))
    for case in cases:
        opinion = json.loads(case.opinion)
        OutputSchema(SCHEMA).read(case.opinion)
        assert case.task.is_right(case.answer) == case.right == (opinion["verdict"] == "pass"), case
        assert (opinion["score"] == 9) == case.right
    assert 0.4 < sum(case.right for case in cases) / COUNT < 0.6


def test_the_same_seed_gives_the_same_tasks() -> None:
    assert list(islice(extractions(5), 20)) == list(islice(extractions(5), 20))
    assert list(islice(judgements(5), 20)) == list(islice(judgements(5), 20))
    assert list(islice(summaries(5), 5)) == list(islice(summaries(5), 5))
    assert held_out_cases(5) == held_out_cases(5)


def test_what_is_held_out_is_of_other_scenes_and_wordings() -> None:
    trained = {example.task.ask.split()[0] for example in islice(extractions(6), COUNT)}
    held_out = {task.ask.split()[0] for task in held_out_tasks(COUNT)}
    assert {"Please", "Read", "Name"} <= held_out
    assert not trained & {"Please", "Read", "Name"}
    texts = [scene.text for scene in scenes()]
    assert len(set(texts)) == len(texts)
    assert sum(scene.unseen for scene in scenes()) >= 8


def test_a_scene_names_only_slots_that_its_text_has() -> None:
    for scene in scenes():
        for slot, _ in scene.fields.values():
            for one in (slot,) if isinstance(slot, str) else slot:
                assert f"{{{one}}}" in scene.text or f"{{a_{one}}}" in scene.text, (scene.text, one)


def test_natural_answers_to_judge_are_right_and_wrong_as_they_say() -> None:
    cases = natural_judgements()
    assert {case.task.name for case in cases} == {task.name for task in real_tasks() if task.kind == "extract"}
    assert len(cases) == 2 * len(WRONG)
    for case in cases:
        assert case.task.is_right(case.answer) == case.right, case
    assert all(task.schema is None for task in real_tasks() if task.name in RIGHT)


def test_worker_and_judge_are_asked_as_the_product_asks_them(tmp_path: Path) -> None:
    model = write_llama(tmp_path / "model.gguf", ModelShape())
    path = tmp_path / "registry.yaml"
    path.write_text(json.dumps(registry_form(model, None)), "utf-8")
    registry = load_registry(path).with_shipped_prompts()
    case = held_out_cases(1)[0]
    name = next(iter(registry.models))
    system, said = judge_messages(case)
    assert system.content == registry.system("judge", name)
    assert said.content.index("[text.txt]") < said.content.index("[task]") < said.content.index("[answer]")
    assert said.content.endswith("Task: Judge the answer.")
    system, said = worker_messages(case.task)
    assert system.content == registry.system("worker", name)
    assert said.content.endswith(f"Task: {case.task.ask}")


def test_a_summary_is_about_its_text_if_most_of_its_words_are_from_there() -> None:
    text = "The ferry to the island leaves at seven. Its captain repairs engines at night. " * 5
    summary = "A ferry leaves to the island at seven, and the captain of it repairs the engines of the ferry at night."
    assert is_about(summary, text)
    assert not is_about("A ferry.", text)
    assert not is_about(text, text)
    assert not is_about("Bananas ripen quickly where people store apples beside other tropical fruit " * 2, text)
    assert not is_about("", text)
