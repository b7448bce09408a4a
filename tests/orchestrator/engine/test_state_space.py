"""A state-space model: it cannot take tokens back, so it shares no prefixes and drafts nothing."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from benchmarks.models import Shape, write_llama, write_mamba
from orchestrator.engine.client import Engine
from orchestrator.engine.contract import EngineSpec, Generation
from orchestrator.engine.errors import ModelLoadFailed
from registry import RegistryError, load_registry

pytestmark = pytest.mark.asyncio(loop_scope="module")

LOREM = "the quick brown fox jumps over the lazy dog and runs away "


def ask(text: str, **options: object) -> Generation:
    return Generation(messages=(("system", "Be brief."), ("user", text)), **{"max_tokens": 24, **options})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("mamba")
    write_mamba(made / "mamba.gguf", Shape(weights="f32", context=1024))
    write_llama(made / "llama.gguf", Shape(weights="f32", context=1024))
    return made


def spec_of(folder: Path, **options: object) -> EngineSpec:
    settings = {"context": 512, "slots": 4, "threads": 1, "hung_seconds": 60, "curves": str(folder / "curves")}
    return EngineSpec(file=str(folder / "mamba.gguf"), **{**settings, **options})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(folder: Path) -> AsyncIterator[Engine]:
    async with await Engine.start(spec_of(folder)) as started:
        yield started


async def test_it_says_what_it_is(engine: Engine) -> None:
    assert (engine.info.architecture, engine.info.shares_prefixes, engine.info.split_cache) == ("mamba", False, False)


async def test_company_changes_no_text(engine: Engine) -> None:
    requests = [ask(f"{n} " + LOREM * (n % 4), max_tokens=20 + n) for n in range(10)]
    alone = [await engine.generate(request) for request in requests]
    before = await engine.stats()
    together = await asyncio.gather(*map(engine.generate, requests))
    after = await engine.stats()
    assert [done.text for done in together] == [done.text for done in alone]
    assert len({done.text for done in alone}) > 6
    assert after.decode_steps - before.decode_steps < sum(done.usage.output_tokens for done in together) / 2


async def test_equal_beginnings_are_computed_for_each(engine: Engine) -> None:
    before = await engine.stats()
    done = await asyncio.gather(*(engine.generate(ask(LOREM * 5)) for _ in range(3)))
    after = await engine.stats()
    assert len({one.text for one in done}) == 1
    assert after.reused_tokens == after.retained == 0
    assert after.prefill_tokens - before.prefill_tokens == sum(one.usage.prompt_tokens for one in done)


async def test_a_long_prompt_comes_in_chunks_beside_others(engine: Engine) -> None:
    long, short = ask(LOREM * 8), ask("short", max_tokens=60)
    alone = [(await engine.generate(one)).text for one in (long, short)]
    running = asyncio.create_task(engine.generate(short))
    assert [(await engine.generate(long)).text, (await running).text] == alone


async def test_exactly_is_possible_too(folder: Path) -> None:
    requests = [ask(f"{n} " + LOREM * (n % 3)) for n in range(6)]
    async with await Engine.start(spec_of(folder, exact=True)) as exact:
        alone = [(await exact.generate(request)).text for request in requests]
        assert [done.text for done in await asyncio.gather(*map(exact.generate, requests))] == alone


@pytest.mark.parametrize("options", [{"prompt_lookup": (2, 4)}, {"draft": "llama.gguf"}])
async def test_the_engine_drafts_nothing_for_it(folder: Path, options: dict[str, object]) -> None:
    if "draft" in options:
        options = {"draft": str(folder / "llama.gguf")}
    with pytest.raises(ModelLoadFailed, match="mamba models cannot take back tokens, so nothing is drafted"):
        await Engine.start(spec_of(folder, **options))


@pytest.mark.parametrize("option", ["prompt_lookup: {ngram: 2}", "speculation: {draft: guess}"])
async def test_the_registry_refuses_to_draft_for_it_and_says_why(folder: Path, option: str) -> None:
    path = folder / "registry.yaml"
    path.write_text(
        f"models:\n  m: {{file: mamba.gguf, context: 512, {option}}}\n  d: {{file: llama.gguf, context: 512}}\n"
        "roles: {w: {model: m, tier: C}, guess: {model: d, tier: D}}\n"
    )
    with pytest.raises(RegistryError, match="mamba is a state-space model: it keeps one running state and cannot roll"):
        load_registry(path)
    path.write_text("models: {m: {file: mamba.gguf, context: 512}}\nroles: {w: {model: m, tier: C}}\n")
    assert load_registry(path).models["m"].why_not is None
