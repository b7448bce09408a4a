"""LoRA adapters change what a model says, by their scale, for all requests or for those that ask for them."""

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import orchestrator.engine.llama.binding as lib
from benchmarks.models import write_adapter
from orchestrator.engine.client.engine import Engine
from orchestrator.engine.contract import EngineSpec, Generation, Message
from orchestrator.engine.errors import AdapterNotLoaded, ModelLoadFailed
from orchestrator.engine.llama import Llama
from orchestrator.registry.options import Adapters, Lora

WIDTH = 64


async def said(models: Path, *lora: Lora) -> str:
    spec = EngineSpec(
        file=str(models / "quantised.gguf"), context=256, slots=2, threads=1, batch_invariant=True, lora=lora
    )
    async with await Engine.start(spec) as engine:
        return (await engine.generate(Generation(messages=(Message("user", "hello"),), max_tokens=40))).text


async def test_an_adapter_counts_by_its_scale(models: Path, tmp_path: Path) -> None:
    adapter = str(write_adapter(tmp_path / "adapter.gguf", WIDTH))
    plain = await said(models)
    assert await said(models, Lora(adapter, 0.0)) == plain
    whole = await said(models, Lora(adapter, 1.0))
    assert whole != plain
    assert await said(models, Lora(adapter, 0.5), Lora(adapter, 0.5)) == whole


async def test_an_adapter_of_other_measures_is_refused(models: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelLoadFailed, match=r"wide\.gguf does not fit"):
        await said(models, Lora(str(write_adapter(tmp_path / "wide.gguf", 2 * WIDTH))))


async def test_a_missing_adapter_is_reported(models: Path) -> None:
    with pytest.raises(ModelLoadFailed, match="no such file"):
        await said(models, Lora("/nowhere/adapter.gguf"))


def test_an_adapter_is_loaded_once_whatever_the_layout(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[bytes] = []
    load = lib.llama_adapter_lora_init

    def counted(model: Any, file: bytes) -> Any:
        loaded.append(file)
        return load(model, file)

    monkeypatch.setattr(lib, "llama_adapter_lora_init", counted)
    adapter = str(write_adapter(tmp_path / "adapter.gguf", WIDTH))
    spec = EngineSpec(file=str(models / "quantised.gguf"), context=256, slots=2, threads=1, lora=(Lora(adapter),))
    llama = Llama(spec)
    llama.set_layout(spec, split=not llama.split)
    llama.set_layout(spec, split=not llama.split)
    assert loaded == [adapter.encode()]


LONG = "the quick brown fox jumps over the lazy dog and runs away "


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The files of two adapters with different weights."""
    folder = tmp_path_factory.mktemp("adapters")
    return tuple(str(write_adapter(folder / f"{seed}.gguf", WIDTH, seed=seed)) for seed in (1, 2))  # type: ignore[return-value]


def spec_of(models: Path, adapters: tuple[str, ...], **options: Any) -> EngineSpec:
    settings = {"context": 256, "slots": 8, "threads": 1, "adapters": adapters, **options}
    return EngineSpec(file=str(models / "quantised.gguf"), **settings)


def ask(text: str, *lora: Lora, system: str = "") -> Generation:
    messages = (Message("system", system), Message("user", text)) if system else (Message("user", text),)
    return Generation(messages=messages, max_tokens=40, lora=lora)


@pytest.mark.parametrize(
    "options",
    [{"batch_invariant": True}, pytest.param({"split": True}, marks=pytest.mark.slow), {"split": False}],
    ids=["invariant", "streams", "pool"],
)
async def test_requests_with_different_adapters_get_each_their_own_text_alone_and_together(
    models: Path, adapters: tuple[str, str], options: dict[str, Any]
) -> None:
    first, second = (Lora(file) for file in adapters)
    sets: list[Adapters] = [(), (first,), (second,), (first, second), (Lora(first.file, 0.5),)]
    requests = [ask(text, *lora) for text in ("hello", "and now") for lora in sets]
    async with await Engine.start(spec_of(models, adapters, **options)) as engine:
        alone = [(await engine.generate(request)).text for request in requests]
        again = [(await engine.generate(request)).text for request in reversed(requests)]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(engine.generate(request)) for request in requests]
    certain = None if options.get("batch_invariant") else 6
    """Without batch invariance a text may differ after some tokens, by the last bits of its logits."""
    assert len({text[:certain] for text in alone}) == len(requests), "every adapter says something else"
    assert [text[:certain] for text in again] == [text[:certain] for text in alone[::-1]]
    assert [task.result().text[:certain] for task in tasks] == [text[:certain] for text in alone]


async def test_an_adapter_of_a_request_adds_to_those_of_the_model(models: Path, adapters: tuple[str, str]) -> None:
    first, second = (Lora(file) for file in adapters)
    both = await said(models, first, second)
    spec = spec_of(models, (second.file,), lora=(first,), batch_invariant=True, slots=2)
    async with await Engine.start(spec) as engine:
        assert (await engine.generate(ask("hello", second))).text == both
        assert (await engine.generate(ask("hello"))).text == await said(models, first)


@pytest.mark.parametrize("split", [True, False], ids=["streams", "pool"])
async def test_a_prefix_is_shared_only_where_the_adapters_are_the_same(
    models: Path, adapters: tuple[str, str], split: bool
) -> None:
    first, second = (Lora(file) for file in adapters)
    async with await Engine.start(spec_of(models, adapters, split=split)) as engine:
        cached = [
            (await engine.generate(ask(text, *lora, system=LONG))).usage.cached_tokens
            for text, lora in [("a", (first,)), ("b", (second,)), ("c", ()), ("d", (first,)), ("e", (second,))]
        ]
    assert cached[:3] == [0, 0, 0]
    assert min(cached[3:]) > 40


async def test_prefixes_that_were_stored_come_back_for_their_adapter(
    models: Path, adapters: tuple[str, str], tmp_path: Path
) -> None:
    first, second = (Lora(file) for file in adapters)
    spec = spec_of(models, adapters, prefixes=str(tmp_path), stores_all=True, batch_invariant=True)
    texts, cached = [], []
    for _ in range(2):
        async with await Engine.start(spec) as engine:
            done = [await engine.generate(ask("a", *lora, system=LONG)) for lora in [(first,), (second,), ()]]
        texts.append([one.text for one in done])
        cached.append([one.usage.cached_tokens > 40 for one in done])
    assert cached == [[False, False, False], [True, True, True]]
    assert texts[0] == texts[1]
    async with await Engine.start(replace(spec, adapters=(second.file,))) as engine:
        assert (await engine.generate(ask("a", second, system=LONG))).text == texts[0][1]
        assert (await engine.stats()).restored_prefixes == 1
    os.utime(first.file)  # as if another adapter had taken its place
    async with await Engine.start(spec) as engine:
        assert (await engine.generate(ask("a", first, system=LONG))).usage.cached_tokens == 0


async def test_an_adapter_that_is_not_loaded_fails_only_its_own_request(
    models: Path, adapters: tuple[str, str]
) -> None:
    first, second = (Lora(file) for file in adapters)
    async with await Engine.start(spec_of(models, (first.file,))) as engine:
        with pytest.raises(AdapterNotLoaded, match=rf"{second.file} is not loaded.*accepted: {first.file}"):
            await engine.generate(ask("hello", first, second))
        assert (await engine.generate(ask("hello", first))).text


async def test_prompts_that_wait_for_their_adapters_are_cancelled_and_time_out_like_others(
    models: Path, adapters: tuple[str, str]
) -> None:
    first, second = (Lora(file) for file in adapters)
    async with await Engine.start(spec_of(models, adapters)) as engine:
        writes = asyncio.create_task(engine.generate(ask("hello", first)))
        late = await engine.generate(replace(ask(LONG, second), deadline_seconds=0.0))
        assert late.finish == "deadline"
        assert (await writes).usage.output_tokens == 40
