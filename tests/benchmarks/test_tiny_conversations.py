"""The data of acting steps: accepted by their schemas and checkers, and short enough."""

import ast
import json
import re

import jsonschema
import pytest

from benchmarks.tiny import corpus
from benchmarks.tiny.evaluate import shipped_tokenizer
from benchmarks.tiny.families.condense import Condense
from benchmarks.tiny.families.prune import PruneFamily
from benchmarks.tiny.families.repl import Repl
from benchmarks.tiny.families.retry import RetryFamily
from benchmarks.tiny.families.tools import Tools
from benchmarks.tiny.sizes import CONTEXT
from orchestrator.bench.families.example import Example, Family
from orchestrator.bench.families.words import SPLITS, Split

FAMILIES: tuple[Family, ...] = (Tools(), Repl(), PruneFamily(), Condense(), RetryFamily())
BY_NAME = {family.name: family for family in FAMILIES}


def examples(family: Family, split: Split, count: int = 15) -> list[Example]:
    return [family.generate(corpus.example_rng(family.name, split, index), split) for index in range(count)]


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", BY_NAME)
def test_references_pass_their_checker_and_schema_and_others_fail(name: str, split: Split) -> None:
    family = BY_NAME[name]
    for example in examples(family, split):
        assert family.check(example, example.answer)
        assert not family.check(example, example.answer[: len(example.answer) // 2])
        if example.schema is not None:
            jsonschema.validate(json.loads(example.answer), example.schema)


@pytest.mark.parametrize("name", BY_NAME)
def test_conversations_end_with_a_question_and_fit_the_context(name: str) -> None:
    family = BY_NAME[name]
    for example in examples(family, "wording", 20):
        roles = [message.role for message in example.messages]
        assert roles == ["system", *["user", "assistant"] * ((len(roles) - 2) // 2), "user"]
        assert len(corpus.encode(shipped_tokenizer(), example)[0]) <= CONTEXT - 8


@pytest.mark.parametrize("family", [PruneFamily(), Condense()], ids=lambda family: family.name)
def test_long_conversations_fit_the_context(family: PruneFamily | Condense) -> None:
    for index in range(10):
        example = family.generate(corpus.example_rng(family.name, "train", index), "train", long=True)
        assert len(corpus.encode(shipped_tokenizer(), example)[0]) <= CONTEXT - 8


def test_what_the_task_names_is_not_pruned() -> None:
    for example in examples(PruneFamily(), "train"):
        pruned = json.loads(example.answer)["prune"]
        _, _, task = example.messages[1].content.partition("\n")[0].partition(": ")
        names = [name for name in re.findall(r"[A-Z][a-z]+", task[1:]) if len(name) > 2]
        results = {f"D{number}": message.content for number, message in enumerate(example.messages[3::2], 1)}
        kept = [text for document, text in results.items() if document not in pruned]
        assert kept
        assert len(kept) + len(pruned) == len(results)
        assert all(any(re.search(rf"\b{name}\b", text) for name in names) for text in kept)


def test_programs_copy_only_names_that_the_task_tells() -> None:
    for example in examples(Repl(), "train"):
        told = example.messages[1].content
        names = [
            node.value.value
            for node in ast.walk(ast.parse(example.answer))
            if isinstance(node, ast.keyword) and isinstance(node.value, ast.Constant)
        ]
        assert all(str(name) in told for name in names)
        assert "final(" in example.answer or "print(grep(" in example.answer


def test_a_retry_gets_what_a_gate_found() -> None:
    for example in examples(RetryFamily(), "train"):
        assert "\nThe previous answer failed: " in example.messages[-1].content
