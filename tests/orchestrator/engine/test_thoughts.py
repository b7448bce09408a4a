"""Thoughts are kept out of the answer, end in time, and leave grammar and stop strings to the answer."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from orchestrator.engine.client.engine import Completion, Engine
from orchestrator.engine.contract import EngineSpec, Generation, Message
from orchestrator.registry.options import PromptLookupOptions
from tests.orchestrator.engine.thinking_models import (
    OPENED,
    TAGGED,
    brief,
    endless,
    giving_up,
    harmonic,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

INTEGER = {"type": "integer"}
Started = Callable[..., Awaitable[Engine]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def started(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Started]:
    """Return an engine with the model that a function writes, which is started once for all tests that want the same.

    The function is given the file and the `template`, if there is one; further options are those of EngineSpec.
    """
    folder = tmp_path_factory.mktemp("thoughts")
    engines: dict[str, Engine] = {}
    async with AsyncExitStack() as stack:

        async def start(write: Callable[..., Path], template: str | None = None, **options: Any) -> Engine:
            name = f"{write.__name__} {template} {options}"
            if name not in engines:
                file = write(folder / f"{len(engines)}.gguf", *filter(None, [template]))
                settings = {"context": 512, "slots": 2, "threads": 1, "hung_seconds": 60, **options}
                spec = EngineSpec(file=str(file), **settings)
                engines[name] = await stack.enter_async_context(await Engine.start(spec))
            return engines[name]

        yield start


async def ask(engine: Engine, **options: Any) -> Completion:
    return await engine.generate(Generation(messages=(Message("user", "hi"),), **{"max_tokens": 16, **options}))


@pytest.mark.parametrize("template", [TAGGED, OPENED])
async def test_thoughts_and_answer_come_apart(started: Started, template: str) -> None:
    thoughts: list[str] = []
    pieces: list[str] = []
    engine = await started(brief, template)
    assert engine.info.thinks
    request = Generation(messages=(Message("user", "hi"),), max_tokens=16)
    done = await engine.generate(request, pieces.append, thoughts.append)
    assert (done.reasoning, done.text, done.finish) == ("hmah", "42", "stop")
    assert ("".join(thoughts), "".join(pieces)) == ("hmah", "42")
    assert done.usage.output_tokens - done.usage.reasoning_tokens == 2


async def test_the_grammar_begins_after_the_thoughts(started: Started) -> None:
    engine = await started(brief)
    done = await ask(engine, schema=INTEGER)
    assert (done.reasoning, done.text, done.finish) == ("hmah", "42", "stop")
    done = await ask(engine, schema={"enum": ["yes"]})
    assert (done.reasoning, done.text) == ("hmah", '"yes"')


async def test_a_stop_string_ends_no_thought(started: Started) -> None:
    engine = await started(brief)
    done = await ask(engine, stop=("ah", "2"))
    assert (done.reasoning, done.text, done.finish) == ("hmah", "4", "stop")


@pytest.mark.parametrize("thinking", ["off", 0])
@pytest.mark.parametrize(("write", "template"), [(brief, TAGGED), (endless, OPENED)])
async def test_thinking_can_be_switched_off(
    started: Started, write: Callable[..., Path], template: str, thinking: Any
) -> None:
    engine = await started(write, template)
    done = await ask(engine, thinking=thinking)
    assert (done.reasoning, done.text) == ("", "42")
    assert (await ask(engine, thinking=thinking, schema=INTEGER)).text == "42"


@pytest.mark.parametrize("options", [{}, {"schema": INTEGER}])
async def test_a_thought_over_its_budget_is_closed_and_the_answer_follows(
    started: Started, options: dict[str, Any]
) -> None:
    engine = await started(endless)
    done = await ask(engine, thinking=5, **options)
    assert (done.reasoning, done.text, done.finish) == ("hm" * 5, "42", "stop")


async def test_a_thought_that_repeats_itself_is_closed(started: Started) -> None:
    engine = await started(endless)
    done = await ask(engine)
    assert (done.text, done.finish) == ("42", "stop")
    assert 256 <= done.usage.reasoning_tokens < 320


async def test_thoughts_leave_room_for_the_answer(started: Started) -> None:
    engine = await started(endless, context=64)
    done = await ask(engine, max_tokens=None)
    assert (done.text, done.finish) == ("42", "stop")
    done = await ask(engine, max_tokens=24, limits_thoughts=True)
    assert (done.text, done.finish) == ("42", "stop")
    assert done.usage.output_tokens <= 24


async def test_a_text_that_would_end_within_a_thought_gets_an_answer(started: Started) -> None:
    engine = await started(giving_up)
    done = await ask(engine)
    assert (done.reasoning, done.text, done.finish) == ("hmah", "42", "stop")


async def test_drafts_change_neither_thoughts_nor_answer(started: Started) -> None:
    lookup = {"prompt_lookup": PromptLookupOptions(ngram=1, k=4), "always_draft": True}
    engine = await started(endless, **lookup)
    done = await ask(engine, thinking=40, schema=INTEGER)
    assert (await engine.stats()).accepted > 0
    assert (done.reasoning, done.text, done.finish) == ("hm" * 40, "42", "stop")


async def test_channels_of_messages_are_taken_apart(started: Started) -> None:
    engine = await started(harmonic)
    done = await ask(engine, thinking=3)
    assert done.reasoning == "hmahah"
    assert (await ask(engine, thinking="off")).reasoning == ""
    low, high = [
        await engine.count((Message("user", "hi"),)),
        (await ask(engine, thinking="high", max_tokens=1, schema=INTEGER)).usage.prompt_tokens,
    ]
    assert low != high, "the template is told the effort"


async def test_a_model_that_does_not_think_is_asked_as_before(models: Path, started: Started) -> None:
    engine = await started(lambda _: models / "quantised.gguf")
    assert not engine.info.thinks
    done = await ask(engine, thinking=5, max_tokens=3)
    assert (done.usage.output_tokens, done.usage.reasoning_tokens, done.reasoning) == (3, 0, "")
