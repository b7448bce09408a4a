"""The shipped models do through llama.cpp what their card says."""

import json
from collections.abc import AsyncIterator, Collection, Iterable
from typing import Any

import pytest
import pytest_asyncio

from benchmarks.results import with_states
from benchmarks.tiny import card, corpus
from benchmarks.tiny.chat import encode_prompt
from benchmarks.tiny.evaluate import (
    FIRST_PROMPTS,
    LONG_FAMILIES,
    STRUCTURED,
    answers,
    engine_spec,
    family_examples,
    is_right,
)
from benchmarks.tiny.families import FAMILIES
from benchmarks.tiny.sizes import CONTEXT, RESULTS_FILE, SEEDS_FILE, SIZES, TOKENIZER_FILE
from benchmarks.tiny.tokenizer import SPECIAL_TOKENS, Tokenizer
from orchestrator.bench.families.example import SYSTEM_PROMPTS
from orchestrator.bench.families.words import Split, seeded
from orchestrator.bench.goals import wilson
from orchestrator.engine.client.engine import Engine
from orchestrator.engine.contract import Generation, Message
from orchestrator.engine.errors import PromptTooLong
from orchestrator.run.steps.role import plan_messages

# What other processors may round differently, in answers of the FIRST_PROMPTS.
MARGIN = 2
IN_SUITE = ("plan", "extract")
"""The families that tell soonest whether the engine, the prompts or the grammars have changed. The others are slow."""
in_module = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(RESULTS_FILE.read_text(encoding="utf-8"))
    return loaded


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def large() -> AsyncIterator[Engine]:
    async with await Engine.start(engine_spec(SIZES["large"].shipped)) as engine:
        yield engine


async def right_answers(engine: Engine, family: str, split: Split, grammar: bool = False) -> int:
    examples = family_examples(family, split, FIRST_PROMPTS)
    completions = await answers(engine, examples, grammar)
    return sum(is_right(family, *pair) for pair in zip(examples, completions, strict=True))


def or_slow(families: Iterable[str], in_suite: Collection[str]) -> list[Any]:
    """Return parameters of which all families but those `in_suite` are marked as slow."""
    return [name if name in in_suite else pytest.param(name, marks=pytest.mark.slow) for name in families]


@in_module
@pytest.mark.parametrize("family", or_slow([*FAMILIES, *LONG_FAMILIES], IN_SUITE))
async def test_large_model_answers_as_published(large: Engine, results: dict[str, Any], family: str) -> None:
    published = card.share_of(results["rows"], size="large", family=family, split="wording", grammar=False)
    assert await right_answers(large, family, "wording") >= published["first_right"] - MARGIN


@in_module
@pytest.mark.parametrize("family", or_slow(STRUCTURED, ("extract",)))
async def test_large_model_answers_as_published_within_grammar(
    large: Engine, results: dict[str, Any], family: str
) -> None:
    published = card.share_of(results["rows"], size="large", family=family, split="entity", grammar=True)
    assert await right_answers(large, family, "entity", grammar=True) >= published["first_right"] - MARGIN


def test_long_prompts_take_most_of_the_context_and_joins_have_sixteen_inputs(results: dict[str, Any]) -> None:
    for family in ("long extract", "long summarize"):
        row = card.share_of(results["rows"], size="large", family=family, split="entity", grammar=False)
        assert row["longest_prompt"] > 0.6 * CONTEXT
    for family in ("compare 16", "merge 16"):
        listed = [e.messages[1].content.count("\n\n[") + 1 for e in family_examples(family, "entity", 50)]
        # The output of a `foreach` step is one input that holds all.
        assert set(listed) == {1, 16}


@in_module
async def test_large_model_plans_the_request_of_the_readme(large: Engine) -> None:
    files = [f"{letter}.txt" for letter in "abcd"]
    request = "Summarize a, b, c and d, then compare them"
    messages = plan_messages(SYSTEM_PROMPTS["frontdoor"], files, request)
    done = await large.generate(Generation(messages=tuple(Message(m.role, m.content) for m in messages)))
    summaries = {"role": "worker", "action": "Summarize {each}.", "each": ["a", "b", "c", "d"]}
    joined = {"role": "worker", "action": "Compare the summaries.", "inputs": ["P1"]}
    assert json.loads(done.text) == {"plan": [summaries, joined]}


@in_module
async def test_chat_template_gives_the_tokens_of_the_training(large: Engine) -> None:
    tokenizer = Tokenizer.load(TOKENIZER_FILE)
    for index in range(50):
        example = corpus.draw(seeded(f"template/{index}"), "entity")
        messages = tuple(Message(message.role, message.content) for message in example.messages)
        assert await large.count(messages) == len(encode_prompt(tokenizer, example.messages))


@in_module
async def test_prompt_beyond_the_context_is_refused(large: Engine) -> None:
    with pytest.raises(PromptTooLong):
        await large.generate(Generation(messages=(Message("user", "brimol dak " * CONTEXT),)))


def test_training_never_shows_a_special_token_inside_content() -> None:
    tokenizer = Tokenizer.load(TOKENIZER_FILE)
    ids, prompt = corpus.encode(tokenizer, corpus.draw(seeded("special"), "train"))
    shown = [SPECIAL_TOKENS[i] for i in ids if i < len(SPECIAL_TOKENS)]
    assert shown == ["<|begin|>", "<|system|>", "<|end|>", "<|user|>", "<|end|>", "<|assistant|>", "<|end|>"]
    assert SPECIAL_TOKENS[ids[prompt - 1]] == "<|assistant|>"


def test_published_goals_and_card_are_those_of_the_rows(results: dict[str, Any]) -> None:
    assert results["goals"] == with_states(card.goals(results["rows"], sum(results["bytes"].values())))
    assert results["bytes"] == {size.name: size.shipped.stat().st_size for size in SIZES.values()}
    assert card.CARD.read_text(encoding="utf-8") == card.render(results, card.read(SEEDS_FILE))


def test_all_models_together_are_small() -> None:
    assert sum(size.shipped.stat().st_size for size in SIZES.values()) <= card.MAX_BYTES


def test_wilson_interval_of_a_textbook_case() -> None:
    low, high = wilson(9, 10)
    assert (round(low, 3), round(high, 3)) == (0.596, 0.982)
