"""An engine that embeds: the vectors of real models, encoders and decoders, alone and in a batch."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from benchmarks.models import ModelShape, write_bert, write_llama
from orchestrator.engine.client.engine import Engine
from orchestrator.engine.contract import EngineSpec, Generation, Message
from orchestrator.engine.errors import BadRequest, ModelLoadFailed, TextTooLong

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXTS = ["a", "the ship sails at dawn", "tax", "a b c d e f g", "quarterly figures", "z" * 40, "the ship sails at dusk"]
KINDS = {"bert": ("mean", "cls", "rank"), "llama": (None, "mean", "cls", "last", "rank")}
Opened = Callable[..., Awaitable[Engine]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("embedders")
    for pooling in KINDS["bert"]:
        write_bert(made / f"bert-{pooling}.gguf", ModelShape(context=64, pooling=pooling))
    for pooling in KINDS["llama"]:
        write_llama(made / f"llama-{pooling}.gguf", ModelShape(context=64, pooling=pooling, weights="f32"))
    return made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def opened(folder: Path) -> AsyncIterator[Opened]:
    """Return an engine on one of the models, which is started once for all tests that want the same options."""
    engines: dict[str, Engine] = {}
    async with AsyncExitStack() as stack:

        async def open_engine(name: str, **options: Any) -> Engine:
            key = f"{name} {options}"
            if key not in engines:
                settings = {"embeds": True, "slots": 3, "threads": 1, "hung_seconds": 60, **options}
                spec = EngineSpec(file=str(folder / f"{name}.gguf"), **settings)
                engines[key] = await stack.enter_async_context(await Engine.start(spec))
            return engines[key]

        yield open_engine


@pytest.mark.parametrize("name", ["bert-mean", "bert-cls", "llama-None", "llama-last"])
async def test_company_changes_no_vector(opened: Opened, name: str) -> None:
    engine = await opened(name)
    assert (engine.info.embedding, engine.info.context) == (64, 64)
    alone = [await engine.embed([text]) for text in TEXTS]
    before = await engine.stats()
    together = await engine.embed(TEXTS)
    after = await engine.stats()
    vectors = np.concatenate([one.vectors for one in alone])
    assert together.vectors.shape == (len(TEXTS), 64)
    np.testing.assert_allclose(together.vectors, vectors, atol=1e-4)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert together.tokens == sum(one.tokens for one in alone)
    assert (vectors @ vectors.T)[~np.eye(len(TEXTS), dtype=bool)].max() < 0.999, "or all texts are one"
    assert after.steps - before.steps < len(TEXTS)


async def test_requests_that_come_together_share_batches(opened: Opened) -> None:
    engine = await opened("bert-mean")
    before = (await engine.stats()).steps
    await asyncio.gather(*(engine.embed([text]) for text in TEXTS[:3]))
    assert (await engine.stats()).steps == before + 1


async def test_a_small_request_does_not_wait_for_a_large_one(opened: Opened) -> None:
    ended = []

    async def ask(engine: Engine, texts: list[str]) -> None:
        await engine.embed(texts)
        ended.append(len(texts))

    engine = await opened("bert-mean")
    await asyncio.gather(ask(engine, TEXTS * 8), ask(engine, ["a"]))
    assert ended == [1, 8 * len(TEXTS)]


async def test_tokens_are_joined_as_the_header_says(opened: Opened) -> None:
    found = {}
    for pooling in ("None", "mean", "cls", "last"):
        engine = await opened(f"llama-{pooling}")
        found[pooling] = (await engine.embed(["a!b", "a!c", "a"])).vectors
    np.testing.assert_array_equal(found["None"], found["mean"])
    np.testing.assert_allclose(found["cls"][0], found["cls"][1], atol=1e-5)
    assert found["last"][0] @ found["last"][1] < 0.999, "the end counts"
    np.testing.assert_allclose(found["last"][2], found["mean"][2], atol=1e-5)
    assert found["last"][0] @ found["mean"][0] < 0.999


async def test_a_text_that_is_too_long_is_named_and_concerns_nobody_else(opened: Opened) -> None:
    engine = await opened("bert-mean")
    long, fine = await asyncio.gather(
        engine.embed(["short", "z" * 62, "z" * 63]), engine.embed(["z" * 62]), return_exceptions=True
    )
    assert isinstance(long, TextTooLong)
    assert (long.index, long.tokens, long.limit) == (2, 65, 64)
    assert "text 2 has 65 tokens; one text of this model may have 1 to 64" in str(long)
    assert not isinstance(fine, BaseException)
    assert fine.tokens == 64
    engine = await opened("llama-None")
    with pytest.raises(TextTooLong, match="text 0 has 0 tokens"):
        await engine.embed([""])


LONG = f"a{' ' * 3_000_000}b"
"""A text that takes long to tokenize and has few tokens, since this vocabulary leaves out spaces."""


async def test_a_long_text_is_tokenized_while_others_are_answered(opened: Opened) -> None:
    engine = await opened("bert-mean")
    ended = []

    async def ask(text: str) -> int:
        tokens = (await engine.embed([text])).tokens
        ended.append(text)
        return tokens

    assert await asyncio.gather(ask(LONG), ask("a b")) == [4, 4]
    assert ended == ["a b", LONG]
    np.testing.assert_array_equal((await engine.embed([LONG])).vectors, (await engine.embed(["a b"])).vectors)
    with pytest.raises(TextTooLong, match="text 1 has 20002 tokens"):
        await engine.embed(["a", "z" * 20_000])
    assert len((await engine.tokenize(LONG, whole=True)).tokens) == 4


async def test_a_long_text_that_is_given_up_is_forgotten(opened: Opened) -> None:
    engine = await opened("bert-mean")
    before = await engine.stats()
    given_up = asyncio.create_task(engine.embed([LONG]))
    await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.wait([given_up])
    await engine.embed(["a"])
    after = await engine.stats()
    assert (after.cancelled - before.cancelled, after.finished - before.finished, after.queued) == (1, 1, 0)


async def test_a_text_that_cannot_fit_is_refused_by_its_length(opened: Opened) -> None:
    engine = await opened("llama-None")
    with pytest.raises(TextTooLong) as refused:
        await engine.embed(["a", "z" * 5_000_000])
    assert refused.value.index == 1
    assert refused.value.limit < refused.value.tokens <= 5_000_000


async def test_what_is_given_up_is_not_computed(opened: Opened) -> None:
    engine = await opened("bert-mean")
    before = await engine.stats()
    await engine.set_threads(0)
    given_up = asyncio.create_task(engine.embed(TEXTS))
    await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.wait([given_up])
    await engine.set_threads(1)
    await engine.embed(["a"])
    after = await engine.stats()
    counts = (after.steps - before.steps, after.cancelled - before.cancelled, after.finished - before.finished)
    assert (counts, after.queued) == ((1, 1, 1), 0)


async def test_an_engine_embeds_or_writes(opened: Opened) -> None:
    hello = Generation(messages=(Message("user", "hello"),), max_tokens=2)
    engine = await opened("llama-None")
    with pytest.raises(BadRequest, match="loaded to embed texts, and was asked to write"):
        await engine.generate(hello)
    with pytest.raises(BadRequest, match="asked to write"):
        await engine.count(hello.messages)
    with pytest.raises(BadRequest, match="no texts"):
        await engine.embed([])
    engine = await opened("llama-None", embeds=False)
    assert engine.info.embedding is None
    with pytest.raises(BadRequest, match="loaded to write, and was asked to embed"):
        await engine.embed(["hello"])
    assert (await engine.generate(hello)).usage.output_tokens > 0


async def test_texts_are_ranked_by_a_model_with_a_classifier(opened: Opened) -> None:
    query = "the ship"
    engine = await opened("bert-rank", ranks=True)
    assert engine.info.embedding is None
    alone = [await engine.rank(query, [text]) for text in TEXTS]
    together = await engine.rank(query, TEXTS)
    assert together.scores == pytest.approx([one.scores[0] for one in alone], abs=1e-4)
    assert len({round(score, 4) for score in together.scores}) > 1
    around = 3  # tokens that begin, divide and end the pair
    assert together.tokens == sum(len((query + text).replace(" ", "")) + around for text in TEXTS)
    assert (await engine.rank("tax", TEXTS)).scores != pytest.approx(together.scores)
    with pytest.raises(TextTooLong, match="text 1 has 71 tokens"):
        await engine.rank("a" * 28, ["b", "c" * 40])
    with pytest.raises(BadRequest, match="loaded to rank texts, and was asked to embed texts"):
        await engine.embed(["a"])
    engine = await opened("bert-mean")
    with pytest.raises(BadRequest, match="loaded to embed texts, and was asked to rank texts"):
        await engine.rank(query, ["a"])
    with pytest.raises(ModelLoadFailed, match="no classifier that ranks texts"):
        await opened("bert-mean", ranks=True)


async def test_what_cannot_embed_is_not_loaded(opened: Opened, folder: Path) -> None:
    def nothing(_: str, rows: int, columns: int) -> np.ndarray:
        return np.zeros((rows, columns), dtype=np.float32)

    write_llama(folder / "zero.gguf", ModelShape(context=64, weights="f32"), draw=nothing)
    refused = {"llama-rank": ({}, "it ranks texts"), "bert-mean": ({"context": 65}, "on 64"), "zero": ({}, "is zero")}
    for name, (options, reason) in refused.items():
        with pytest.raises(ModelLoadFailed, match=reason):
            await opened(name, **options)
