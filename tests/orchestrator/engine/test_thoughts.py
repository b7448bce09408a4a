"""Thoughts are kept out of the answer, end in time, and leave grammar and stop strings to the answer."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.engine.client.engine import Completion, Engine
from orchestrator.engine.contract import EngineSpec, Generation, Message
from orchestrator.engine.worker.loop import thinking_room
from registry.options import PromptLookupOptions
from tests.orchestrator.engine.thinking_models import (
    OPENED,
    TAGGED,
    brief,
    endless,
    giving_up,
    harmonic,
)

INTEGER = {"type": "integer"}


def started(file: Path, **options: Any) -> Any:
    return Engine.start(EngineSpec(**{"file": str(file), "context": 512, "slots": 2, "hung_seconds": 60, **options}))


async def ask(engine: Engine, **options: Any) -> Completion:
    return await engine.generate(Generation(messages=(Message("user", "hi"),), **{"max_tokens": 16, **options}))


@pytest.mark.parametrize("template", [TAGGED, OPENED])
async def test_thoughts_and_answer_come_apart(tmp_path: Path, template: str) -> None:
    thoughts: list[str] = []
    pieces: list[str] = []
    async with await started(brief(tmp_path / "m.gguf", template)) as engine:
        assert engine.info.thinks
        request = Generation(messages=(Message("user", "hi"),), max_tokens=16)
        done = await engine.generate(request, pieces.append, thoughts.append)
    assert (done.reasoning, done.text, done.finish) == ("hmah", "42", "stop")
    assert ("".join(thoughts), "".join(pieces)) == ("hmah", "42")
    assert done.usage.output_tokens - done.usage.reasoning_tokens == 2


async def test_the_grammar_begins_after_the_thoughts(tmp_path: Path) -> None:
    async with await started(brief(tmp_path / "m.gguf")) as engine:
        done = await ask(engine, schema=INTEGER)
        assert (done.reasoning, done.text, done.finish) == ("hmah", "42", "stop")
        done = await ask(engine, schema={"enum": ["yes"]})
        assert (done.reasoning, done.text) == ("hmah", '"yes"')


async def test_a_stop_string_ends_no_thought(tmp_path: Path) -> None:
    async with await started(brief(tmp_path / "m.gguf")) as engine:
        done = await ask(engine, stop=("ah", "2"))
    assert (done.reasoning, done.text, done.finish) == ("hmah", "4", "stop")


@pytest.mark.parametrize("thinking", ["off", 0])
@pytest.mark.parametrize("write", [lambda file: brief(file, TAGGED), lambda file: endless(file, OPENED)])
async def test_thinking_can_be_switched_off(tmp_path: Path, write: Callable[[Path], Path], thinking: Any) -> None:
    async with await started(write(tmp_path / "m.gguf")) as engine:
        done = await ask(engine, thinking=thinking)
        assert (done.reasoning, done.text) == ("", "42")
        assert (await ask(engine, thinking=thinking, schema=INTEGER)).text == "42"


@pytest.mark.parametrize("options", [{}, {"schema": INTEGER}])
async def test_a_thought_over_its_budget_is_closed_and_the_answer_follows(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    async with await started(endless(tmp_path / "m.gguf")) as engine:
        done = await ask(engine, thinking=5, **options)
    assert (done.reasoning, done.text, done.finish) == ("hm" * 5, "42", "stop")


async def test_a_thought_that_repeats_itself_is_closed(tmp_path: Path) -> None:
    async with await started(endless(tmp_path / "m.gguf")) as engine:
        done = await ask(engine)
    assert (done.text, done.finish) == ("42", "stop")
    assert 256 <= done.usage.reasoning_tokens < 320


async def test_thoughts_leave_room_for_the_answer(tmp_path: Path) -> None:
    async with await started(endless(tmp_path / "m.gguf"), context=64) as engine:
        done = await ask(engine, max_tokens=None)
        assert (done.text, done.finish) == ("42", "stop")
        done = await ask(engine, max_tokens=24, limits_thoughts=True)
    assert (done.text, done.finish) == ("42", "stop")
    assert done.usage.output_tokens <= 24


async def test_a_text_that_would_end_within_a_thought_gets_an_answer(tmp_path: Path) -> None:
    async with await started(giving_up(tmp_path / "m.gguf")) as engine:
        done = await ask(engine)
    assert (done.reasoning, done.text, done.finish) == ("hmah", "42", "stop")


async def test_drafts_change_neither_thoughts_nor_answer(tmp_path: Path) -> None:
    lookup = {"prompt_lookup": PromptLookupOptions(ngram=1, k=4), "always_draft": True}
    async with await started(endless(tmp_path / "m.gguf"), **lookup) as engine:
        done = await ask(engine, thinking=40, schema=INTEGER)
        assert (await engine.stats()).accepted > 0
    assert (done.reasoning, done.text, done.finish) == ("hm" * 40, "42", "stop")


async def test_channels_of_messages_are_taken_apart(tmp_path: Path) -> None:
    async with await started(harmonic(tmp_path / "m.gguf")) as engine:
        done = await ask(engine, thinking=3)
        assert done.reasoning == "hmahah"
        assert (await ask(engine, thinking="off")).reasoning == ""
        low, high = [
            await engine.count((Message("user", "hi"),)),
            (await ask(engine, thinking="high", max_tokens=1, schema=INTEGER)).usage.prompt_tokens,
        ]
    assert low != high, "the template is told the effort"


async def test_a_model_that_does_not_think_is_asked_as_before(models: Path) -> None:
    async with await started(models / "quantised.gguf") as engine:
        assert not engine.info.thinks
        done = await ask(engine, thinking=5, max_tokens=3)
    assert (done.usage.output_tokens, done.usage.reasoning_tokens, done.reasoning) == (3, 0, "")


def test_the_room_for_thoughts() -> None:
    assert thinking_room(1000, 100, None, 4) == 896, "all that the answer does not need"
    assert thinking_room(1000, 900, None, 4) == 746, "or three quarters"
    assert thinking_room(1000, 900, 50, 4) == 50
    assert thinking_room(3, 3, None, 4) == 0
