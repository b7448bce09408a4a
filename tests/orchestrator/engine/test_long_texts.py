"""Long texts are tokenized in a thread of the engine, so that streams go on meanwhile."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from orchestrator.engine.client.engine import Engine
from orchestrator.engine.contract import EngineSpec, Generation, Message
from orchestrator.engine.errors import BadRequest, PromptTooLong
from orchestrator.engine.worker.prompts import LONG

STREAM = Generation(prompt="hello", max_tokens=1900, ignore_end=True)
WORDS = "the ship sails at dawn; "
LONG_TEXT = WORDS * (2 * LONG // len(WORDS))


@pytest.fixture
async def engine(models: Path) -> AsyncIterator[Engine]:
    spec = EngineSpec(file=str(models / "quantised.gguf"), context=2048, slots=2, threads=1, hung_seconds=60)
    async with await Engine.start(spec) as started:
        yield started


async def test_a_stream_goes_on_while_a_long_text_is_tokenized(engine: Engine) -> None:
    pieces: list[str] = []
    begun = asyncio.Event()

    def take(piece: str) -> None:
        pieces.append(piece)
        begun.set()

    async with asyncio.TaskGroup() as tasks:
        stream = tasks.create_task(engine.generate(STREAM, take))
        await begun.wait()
        before = len(pieces)
        found = await engine.tokenize(WORDS * 100_000)
        assert len(pieces) > before + 3
        assert b"".join(found.pieces).decode() == WORDS * 100_000
        stream.cancel()


async def test_long_texts_come_to_the_same_as_short_ones(engine: Engine) -> None:
    long, short = (await engine.tokenize(LONG_TEXT), await engine.tokenize(WORDS))
    assert long.tokens[: len(short.tokens) - 2] == short.tokens[:-2]
    assert await engine.detokenize(long.tokens) == LONG_TEXT
    empty, said = (Message("user", ""),), (Message("user", LONG_TEXT),)
    assert await engine.count(said) > await engine.count(empty)
    assert LONG_TEXT.strip() in await engine.render(said)
    ids = tuple(long.tokens[:50]) * 30
    done = await engine.generate(Generation(prompt=ids, max_tokens=1))
    assert done.usage.prompt_tokens == len(ids)


async def test_a_prompt_that_cannot_fit_is_refused(engine: Engine) -> None:
    for request in (
        Generation(prompt=LONG_TEXT, max_tokens=1),
        Generation(prompt=WORDS * 500_000, max_tokens=1),
        Generation(messages=(Message("user", LONG_TEXT),), max_tokens=1),
    ):
        with pytest.raises(PromptTooLong):
            await engine.generate(request)
    with pytest.raises(BadRequest, match="is no token of the model"):
        await engine.detokenize([1 << 30] * 100_000)
    assert (await engine.generate(Generation(prompt="a", max_tokens=1))).usage.prompt_tokens


async def test_a_request_that_is_cancelled_before_its_prompt_is_there_leaves_nothing(engine: Engine) -> None:
    first = asyncio.ensure_future(engine.tokenize(WORDS * 50_000))
    second = asyncio.ensure_future(engine.generate(Generation(prompt=LONG_TEXT, max_tokens=1)))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    assert (await first).tokens
    stats = await engine.stats()
    assert (stats.queued, stats.running, stats.cancelled) == (0, 0, 1)
