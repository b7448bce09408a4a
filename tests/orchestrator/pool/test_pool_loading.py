"""What loading a model has to do with those that are at work, and with what was left behind by the last time."""

import asyncio
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.engine.client.engine import Engine
from orchestrator.engine.contract import EngineSpec, Generation, Message, SystemPrompt
from orchestrator.engine.errors import EngineDied, ModelLoadFailed
from orchestrator.pool.machine import Topology
from orchestrator.pool.pool import Pool
from tests.orchestrator.pool.conftest import LoadedRegistry, write_random_model
from tests.orchestrator.pool.pool_use import SHORT, status_of, until, writes

SYSTEM = "a system prompt that many requests begin with " * 4
REQUEST = Generation(messages=(Message("system", SYSTEM), Message("user", "hello")), max_tokens=4)


async def test_an_engine_that_is_loaded_takes_its_share_of_the_cores_from_one_that_decodes(
    registry_of: LoadedRegistry, tmp_path: Path
) -> None:
    topology = Topology.flat(2, 1 << 40)
    async with Pool(registry_of(threads=None, a="warm", b="warm"), tmp_path, topology=topology) as pool:
        begun = asyncio.Event()

        async def stream() -> None:
            while True:
                await pool.generate("a", writes(), lambda _: begun.set())

        streaming = asyncio.create_task(stream())
        await begun.wait()
        assert status_of(pool, "a").threads == 2
        loading = asyncio.create_task(pool.load("b"))
        await until(lambda: status_of(pool, "b").state == "loading" and status_of(pool, "a").threads == 1)
        await loading
        await until(lambda: status_of(pool, "a").threads == 2)
        streaming.cancel()
        await asyncio.wait([streaming])


async def start_that_stores_all(spec: EngineSpec) -> Engine:
    """Start an engine that stores prompts even of a model that computes them faster than a file is read."""
    return await Engine.start(replace(spec, stores_all=True))


async def test_prompts_outlast_the_pool(registry_of: LoadedRegistry, tmp_path: Path) -> None:
    registry, asked = registry_of(a="warm"), list[str]()

    def system_prompts(model: str) -> tuple[SystemPrompt, ...]:
        asked.append(model)
        return (SystemPrompt(SYSTEM),)

    cached = []
    for _ in range(2):
        async with Pool(
            registry,
            tmp_path,
            prefixes=tmp_path / "prefixes",
            system_prompts=system_prompts,
            start_engine=start_that_stores_all,
        ) as pool:
            cached.append((await pool.generate("a", REQUEST)).usage.cached_tokens)
    assert cached[0] == 0
    assert cached[1] > 100
    assert asked == ["a", "a"]


async def test_models_that_take_turns_in_memory_continue_their_conversations(
    registry_of: LoadedRegistry, tmp_path: Path
) -> None:
    write_random_model(tmp_path / "b.gguf", layers=1)
    registry = registry_of(a="warm", b="warm")
    usage, texts = [], []
    async with Pool(registry, tmp_path, prefixes=tmp_path / "prefixes", start_engine=start_that_stores_all) as pool:
        for model in "abab":
            done = await pool.generate(model, REQUEST)
            usage.append(done.usage)
            texts.append(done.text)
            await pool.unload(model)
    assert [each.cached_tokens for each in usage[:2]] == [0, 0]
    assert [each.cached_tokens for each in usage[2:]] == [each.prompt_tokens - 1 for each in usage[:2]]
    assert texts[2:] == texts[:2]


async def test_a_registry_may_keep_prompts_off_the_disk(registry_of: LoadedRegistry, tmp_path: Path) -> None:
    registry = registry_of(defaults="prompt_cache: 0", a="warm")
    async with Pool(registry, tmp_path, prefixes=tmp_path / "prefixes", start_engine=start_that_stores_all) as pool:
        await pool.generate("a", REQUEST)
    assert not (tmp_path / "prefixes").exists()


@pytest.mark.parametrize(("residency", "ahead"), [("hot", True), ("warm", False)])
async def test_a_model_that_stays_loaded_has_computed_what_requests_begin_with(
    registry_of: LoadedRegistry, tmp_path: Path, residency: str, ahead: bool
) -> None:
    prompts = (SystemPrompt(SYSTEM, ahead=True), SystemPrompt("nobody asks for this first " * 8))
    written = 0
    async with Pool(registry_of(a=residency), tmp_path, system_prompts=lambda model: prompts) as pool:
        await until(lambda: status_of(pool, "a").state == "ready" or not ahead)
        while ahead and not written:
            counters = (await pool.survey()).models[0].counters
            written = 0 if counters is None else counters.output_tokens
        request = Generation(messages=(Message("system", SYSTEM), Message("user", "hello")), max_tokens=4)
        usage = (await pool.generate("a", request)).usage
    assert written <= 1
    assert (usage.cached_tokens > 100) == ahead


async def test_a_file_that_shrinks_while_it_is_mapped_costs_one_engine(
    registry_of: LoadedRegistry, model_file: Path, tmp_path: Path
) -> None:
    own = tmp_path / "a.gguf"
    shutil.copyfile(model_file, own)
    async with Pool(registry_of(a="warm", b="warm"), tmp_path) as pool:
        bystander = asyncio.create_task(pool.generate("b", writes()))
        await pool.generate("a", SHORT)
        os.truncate(own, 4096)
        with pytest.raises(EngineDied, match="SIGBUS"):
            await pool.generate("a", SHORT)
        with pytest.raises(ModelLoadFailed, match=r"a\.gguf"):
            await pool.generate("a", SHORT)
        shutil.copyfile(model_file, own)
        assert (await pool.generate("a", SHORT)).usage.output_tokens > 0
        assert (await bystander).usage.output_tokens == 200
