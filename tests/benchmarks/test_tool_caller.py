"""What the tool caller learns from: prompts as its chat templates make them, and answers that its own history shows."""

import json
from pathlib import Path

import pytest

from benchmarks.tiny.evaluate import engine_spec
from benchmarks.tiny.tokenizer import END, SPECIAL_TOKENS
from benchmarks.tool_caller.card import CARD, RESULTS_FILE, render
from benchmarks.tool_caller.data import written
from benchmarks.tool_caller.evaluate import examples, generation, measure
from benchmarks.tool_caller.recipe import SHIPPED
from benchmarks.tool_caller.syntax import (
    ADDED,
    SYNTAXES,
    ModelAnswer,
    Syntax,
    TaughtCall,
    answer_text,
    prompt_text,
    tokenizer,
)
from benchmarks.tool_caller.tasks import FINISHERS, example
from benchmarks.tool_caller.variants import with_template
from orchestrator.bench.families.words import seeded
from orchestrator.engine.client.engine import Engine

FIRST, MARGIN = 16, 2
"""How many answers are generated again, and how many of them may differ on another processor."""
TURNS = (
    ModelAnswer("", "Hello! How can I help?"),
    ModelAnswer("", calls=(TaughtCall("get_price", {"item": 'Zoë "1"'}),)),
    ModelAnswer("", calls=(TaughtCall("price", {"of": "a"}), TaughtCall("price", {"of": "b"}))),
)


@pytest.mark.parametrize("syntax", SYNTAXES)
@pytest.mark.parametrize("answer", TURNS)
def test_an_answer_looks_the_same_in_the_conversation_that_follows(syntax: Syntax, answer: ModelAnswer) -> None:
    if syntax == "llama3" and len(answer.calls) > 1:
        pytest.skip("one call at a time")
    calls = [{"id": str(n), "function": {"name": c.name, "arguments": c.arguments}} for n, c in enumerate(answer.calls)]
    said = {"role": "assistant", "content": f"<think>\nHm.\n</think>\n\n{answer.text}", "tool_calls": calls}
    asked = {"role": "user", "content": "x"}
    before = prompt_text(syntax, [asked], [], thinking=True)
    after = prompt_text(syntax, [asked, said], [], thinking=True)
    assert after == f"{before}{answer_text(syntax, answer)}<|end|><|assistant|>"


@pytest.mark.parametrize("syntax", SYNTAXES)
def test_an_empty_thought_stands_in_the_prompt_where_none_is_wanted(syntax: Syntax) -> None:
    asked = [{"role": "user", "content": "x"}]
    on, off = (prompt_text(syntax, asked, [], thinking=thinking) for thinking in (True, False))
    assert off == f"{on}<think>\n\n</think>\n\n"


def test_every_task_can_be_done_with_what_its_conversation_holds() -> None:
    rng = seeded("tasks")
    for _ in range(300):
        made = example(rng, "train", several=True)
        names = {tool["function"]["name"]: tool["function"]["parameters"] for tool in made.tools}
        assert len(names) == len(made.tools), "no two tools have the same name"
        for call in made.answer.calls:
            assert set(call.arguments) == set(names[call.name]["required"])
        told = json.dumps(made.messages, ensure_ascii=False)
        calls = [call for call in made.answer.calls if call.name not in {name for name, _, _ in FINISHERS}]
        words = [word for call in calls for value in call.arguments.values() for word in str(value).split()]
        assert all(word in told or word in "+-*of" for word in words), words


def test_answers_end_and_use_the_tokens_of_marks() -> None:
    rng, seen = seeded("marks"), set[str]()
    for _ in range(200):
        ids, prompt = written(rng, "train").ids
        assert ids[-1] == END
        assert ids[0] == 0
        assert tokenizer().decode(ids[prompt:-1]), "there is always an answer"
        seen |= {tokenizer().tokens[one] for one in ids if one >= len(tokenizer().tokens) - len(ADDED) or one < 5}
    assert seen == {*ADDED, *SPECIAL_TOKENS}


@pytest.mark.slow
@pytest.mark.parametrize(
    "syntax", [pytest.param(one, marks=[pytest.mark.slow] if one == "llama3" else []) for one in SYNTAXES]
)
async def test_the_model_is_asked_as_it_was_trained_and_answers_as_published(syntax: Syntax, tmp_path: Path) -> None:
    file = with_template(SHIPPED, tmp_path / "m.gguf", syntax)
    asked = examples(syntax, "wording", FIRST)
    async with await Engine.start(engine_spec(file)) as engine:
        for one in asked:
            prompt = prompt_text(syntax, one.messages, one.tools, thinking=True)
            request = generation(one, thinks=True)
            assert await engine.count(request.messages, request.tools) == len(tokenizer().encode_marked(prompt))
        row = await measure(engine, syntax, "wording", thinks=True, count=FIRST)
    (published,) = [
        one
        for one in json.loads(RESULTS_FILE.read_text())["rows"]
        if (one["syntax"], one["split"], one["thinks"]) == (syntax, "wording", True)
    ]
    assert row.right >= published["low"] * FIRST - MARGIN


def test_the_card_and_the_goals_are_those_of_the_results() -> None:
    found = json.loads(RESULTS_FILE.read_text())
    assert render(found) == CARD.read_text()
    assert found["bytes"] == SHIPPED.stat().st_size
