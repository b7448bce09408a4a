"""Prompts that are no chats: a text or tokens to go on with, a place to fill; and texts to tokens and back."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.models import SPECIAL, ModelShape, write_bert, write_chain
from orchestrator.engine.client.engine import Engine
from orchestrator.engine.contract import EngineSpec, Generation, Infill, Message
from orchestrator.engine.errors import BadPrompt, BadRequest, PromptTooLong

pytestmark = pytest.mark.asyncio(loop_scope="module")

FIM = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|file_sep|>")
FOLLOWS = {"1": "2", "2": "3", "3": "4", "4": "<|endoftext|>", "<|fim_middle|>": "7", "7": "8", "8": "<|endoftext|>"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Engine]:
    """A model that counts up to 4, and fills each place with 78."""
    file = tmp_path_factory.mktemp("chain") / "chain.gguf"
    write_chain(file, FOLLOWS, ModelShape(marks=FIM, control_marks=True, vocabulary=512))
    spec = EngineSpec(file=str(file), context=256, slots=2, threads=1, hung_seconds=60)
    async with await Engine.start(spec) as started:
        yield started


async def test_a_text_and_its_tokens_are_gone_on_with_alike(engine: Engine) -> None:
    pieces: list[str] = []
    done = await engine.generate(Generation(prompt="count: 1", max_tokens=9), pieces.append)
    assert (done.text, done.finish) == ("234", "stop")
    assert "".join(pieces) == done.text
    tokens = await engine.tokenize("count: 1")
    assert done.usage.prompt_tokens == len(tokens.tokens), "this model has no token before a text"
    assert (await engine.generate(Generation(prompt=tokens.tokens, max_tokens=9))).text == "234"
    assert (await engine.generate(Generation(prompt="1", max_tokens=9, stop=("3",)))).text == "2"


async def test_control_tokens_in_a_text_are_meant(engine: Engine) -> None:
    asked = "<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>"
    assert (await engine.generate(Generation(prompt=asked, max_tokens=9))).text == "78"


async def test_a_place_is_filled(engine: Engine) -> None:
    place = Infill("def one(", "): pass", files=(("a.py", "import os"),))
    assert (await engine.generate(Generation(infill=place, max_tokens=9))).text == "78"
    begun = Infill("", "", begun="7")
    assert (await engine.generate(Generation(infill=begun, max_tokens=9))).text == "8"
    quoted = Infill("<|fim_middle|>1", "<|endoftext|>")
    done = await engine.generate(Generation(infill=quoted, max_tokens=9))
    marks, texts = 3, await engine.tokenize("<|fim_middle|>1<|endoftext|>", special=False)
    assert done.usage.prompt_tokens == marks + len(texts.tokens), "names of control tokens in the user's text are text"


async def test_a_prompt_as_the_template_renders_it_is_the_prompt_of_the_chat(engine: Engine) -> None:
    messages = (Message("system", "Count."), Message("user", "1"))
    rendered = await engine.render(messages)
    assert rendered.startswith("<|im_start|>system\nCount.<|im_end|>")
    assert rendered.endswith("<|im_start|>assistant\n")
    chat = await engine.generate(Generation(messages=messages, max_tokens=4, seed=1))
    raw = await engine.generate(Generation(prompt=rendered, max_tokens=4, seed=1))
    assert (raw.text, raw.usage.prompt_tokens) == (chat.text, chat.usage.prompt_tokens)


async def test_texts_become_tokens_and_come_back(engine: Engine) -> None:
    for text in ("", "hello", "für 猫 🐈", "a<|im_end|>b"):
        found = await engine.tokenize(text)
        assert b"".join(found.pieces).decode() == text
        assert await engine.detokenize(found.tokens) == text
    special, plain = await engine.tokenize("<|im_end|>"), await engine.tokenize("<|im_end|>", special=False)
    assert len(special.tokens) == 1 < len(plain.tokens)


@given(st.text(max_size=40))
async def test_any_text_comes_back(engine: Engine, text: str) -> None:
    assert await engine.detokenize((await engine.tokenize(text)).tokens) == text


async def test_what_cannot_be_a_prompt_is_refused(engine: Engine) -> None:
    size = engine.info.vocabulary
    for tokens in ((size,), (-1,)):
        with pytest.raises(BadPrompt, match=f"accepted: ids from 0 to {size - 1}"):
            await engine.generate(Generation(prompt=tokens, max_tokens=1))
        with pytest.raises(BadPrompt, match="is no token of the model"):
            await engine.detokenize(tokens)
    with pytest.raises(BadPrompt, match="the prompt is empty"):
        await engine.generate(Generation(prompt="", max_tokens=1))
    with pytest.raises(PromptTooLong):
        await engine.generate(Generation(prompt="1 " * 1000, max_tokens=1))
    for both in (Generation(), Generation(messages=(Message("user", "x"),), prompt="x")):
        with pytest.raises(BadRequest, match="no messages and there is no prompt, or there are several"):
            await engine.generate(both)


async def test_a_model_without_fim_tokens_refuses_to_fill_a_place(models: Path) -> None:
    async with await Engine.start(EngineSpec(file=str(models / "float.gguf"), context=256, threads=1)) as engine:
        with pytest.raises(BadPrompt, match="its vocabulary has no FIM tokens"):
            await engine.generate(Generation(infill=Infill("a", "b"), max_tokens=1))
        assert (await engine.generate(Generation(prompt=SPECIAL[1], max_tokens=1))).usage.prompt_tokens == 1


async def test_a_model_that_embeds_has_a_vocabulary_too(tmp_path: Path) -> None:
    write_bert(tmp_path / "bert.gguf", ModelShape(context=64, pooling="mean"))
    spec = EngineSpec(file=str(tmp_path / "bert.gguf"), context=64, threads=1, embeds=True)
    async with await Engine.start(spec) as engine:
        found = await engine.tokenize("ab", whole=True)
        assert found.pieces == (b"[CLS]", b" a", b"b", b"[SEP]") or len(found.tokens) == 4
        assert await engine.detokenize(found.tokens[1:3])
        with pytest.raises(BadRequest, match="loaded to embed texts, and was asked to write"):
            await engine.render((Message("user", "x"),))
