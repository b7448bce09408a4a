"""Models with recurrent layers: no token can be removed from a sequence, so they verify no drafts."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from benchmarks.models import ModelShape, write_jamba, write_llama, write_mamba
from orchestrator.engine.client.engine import Engine
from orchestrator.engine.contract import EngineSpec, Generation, Message
from orchestrator.engine.errors import ModelLoadFailed
from orchestrator.engine.llama import Llama, Logits
from orchestrator.registry.load import load_registry
from orchestrator.registry.options import PromptLookupOptions, SpeculationOptions

pytestmark = pytest.mark.asyncio(loop_scope="module")

LOREM = "the quick brown fox jumps over the lazy dog and runs away "


def ask(text: str, **options: Any) -> Generation:
    return Generation(messages=(Message("system", "Be brief."), Message("user", text)), **{"max_tokens": 24, **options})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("mamba")
    write_mamba(made / "mamba.gguf", ModelShape(weights="f32", context=1024))
    write_jamba(made / "jamba.gguf", ModelShape(weights="f32", context=1024))
    write_jamba(made / "moe.gguf", ModelShape(weights="f32", context=1024), experts=4)
    write_mamba(made / "quantised.gguf", ModelShape(weights="q4_0", context=1024))
    write_llama(made / "llama.gguf", ModelShape(weights="f32", context=1024))
    return made


def spec_of(folder: Path, **options: Any) -> EngineSpec:
    exactly = {"kv_type_k": "f32", "kv_type_v": "f32", "flash_attention": "off"}
    settings = {"context": 512, "slots": 4, "threads": 1, "hung_seconds": 60, "step_costs": str(folder / "curves")}
    return EngineSpec(**{"file": str(folder / "mamba.gguf"), **exactly, **settings, **options})


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["mamba", "jamba", "moe"])
async def engine(folder: Path, request: pytest.FixtureRequest) -> AsyncIterator[Engine]:
    async with await Engine.start(spec_of(folder, file=str(folder / f"{request.param}.gguf"))) as started:
        yield started


async def test_it_says_what_it_is(engine: Engine) -> None:
    assert engine.info.architecture in ("mamba", "jamba")
    assert (engine.info.shares_prefixes, engine.info.split_cache) == (True, False)


async def test_the_batch_changes_no_text(engine: Engine) -> None:
    """With F32 weights the logits differ in their last bits with the batch, which changes none of these texts."""
    requests = [ask(f"{n} " + LOREM * (n % 4), max_tokens=20 + n) for n in range(10)]
    alone = [await engine.generate(request) for request in requests]
    together = await asyncio.gather(*map(engine.generate, requests))
    assert [done.text for done in together] == [done.text for done in alone]
    assert len({done.text for done in alone}) > 6


@pytest.mark.parametrize("batch_invariant", [False, True])
async def test_sequences_in_one_step_keep_their_own_states(folder: Path, batch_invariant: bool) -> None:
    """With `batch_invariant` and quantised weights, nothing else in a step changes a bit of the logits."""
    llama = Llama(
        EngineSpec(
            file=str(folder / "quantised.gguf"), context=256, slots=4, threads=1, batch_invariant=batch_invariant
        )
    )
    texts = [np.random.default_rng(seed).integers(1, 500, 30).astype(np.int32) for seed in range(4)]

    def logits(seqs: list[int], prompts_together: bool) -> Logits:
        """Compute prompts one after the other or together, decode a token of each in one step, and return its rows."""
        llama.clear()
        llama.batch.clear()
        for seq in seqs:
            llama.batch.add(seq, 0, texts[seq][:-1], 0)
            if not prompts_together:
                llama.decode()
                llama.batch.clear()
        if prompts_together:
            llama.decode()
            llama.batch.clear()
        for seq in seqs:
            llama.batch.add_one(seq, len(texts[seq]) - 1, int(texts[seq][-1]))
        return llama.decode().copy()

    alone = np.concatenate([logits([seq], False) for seq in range(4)])
    assert len(np.unique(alone.argmax(axis=1))) > 1
    for seqs, prompts_together in (([0, 1, 2, 3], False), ([0, 1, 2, 3], True), ([1, 3], True)):
        together = logits(seqs, prompts_together)
        assert np.abs(together - alone[seqs]).max() <= (0.0 if batch_invariant else 1e-4)


async def test_equal_prompts_are_computed_once(engine: Engine) -> None:
    before = await engine.stats()
    done = await asyncio.gather(*(engine.generate(ask("equal " + LOREM * 5)) for _ in range(10)))
    after = await engine.stats()
    assert len({one.text for one in done}) == 1
    # Each computes at least the last token, whose logits it needs, and none waits for less than 16 tokens.
    assert after.prefill_tokens - before.prefill_tokens <= done[0].usage.prompt_tokens + 9 * 16


@pytest.mark.parametrize("model", ["mamba", "jamba"])
async def test_without_sharing_for_batch_invariance_equal_beginnings_are_computed_for_each(
    folder: Path, model: str
) -> None:
    spec = spec_of(folder, file=str(folder / f"{model}.gguf"), flash_attention="auto", batch_invariant=True)
    async with await Engine.start(spec) as engine:
        assert not engine.info.shares_prefixes
        done = await asyncio.gather(*(engine.generate(ask(LOREM * 5)) for _ in range(3)))
        stats = await engine.stats()
    assert len({one.text for one in done}) == 1
    assert stats.reused_tokens == stats.retained == 0
    assert stats.prefill_tokens == sum(one.usage.prompt_tokens for one in done)


async def test_a_long_prompt_comes_in_chunks_beside_others(engine: Engine) -> None:
    long, short = ask(LOREM * 8), ask("short", max_tokens=60)
    alone = [(await engine.generate(one)).text for one in (long, short)]
    running = asyncio.create_task(engine.generate(short))
    assert [(await engine.generate(long)).text, (await running).text] == alone


async def test_batch_invariance_is_possible_too(folder: Path) -> None:
    requests = [ask(f"{n} " + LOREM * (n % 3)) for n in range(6)]
    spec = spec_of(folder, file=str(folder / "quantised.gguf"), batch_invariant=True)
    async with await Engine.start(spec) as engine:
        alone = [(await engine.generate(request)).text for request in requests]
        assert [done.text for done in await asyncio.gather(*map(engine.generate, requests))] == alone


@pytest.mark.parametrize("drafter", ["prompt_lookup", "speculation"])
async def test_drafts_change_none_of_its_texts(folder: Path, drafter: str) -> None:
    drafting: dict[str, dict[str, object]] = {
        "prompt_lookup": {"prompt_lookup": PromptLookupOptions(1, 4)},
        "speculation": {"speculation": SpeculationOptions(str(folder / "llama.gguf"))},
    }
    requests = [ask(f"{n} " + LOREM * (n % 3)) for n in range(6)]
    texts = []
    for options in ({}, {**drafting[drafter], "always_draft": True}):
        async with await Engine.start(spec_of(folder, **options)) as engine:
            texts.append([done.text for done in await asyncio.gather(*map(engine.generate, requests))])
            drafted = (await engine.stats()).drafted
    assert texts[0] == texts[1]
    assert drafted


@pytest.mark.parametrize("drafter", ["prompt_lookup", "speculation"])
async def test_a_batch_invariant_engine_drafts_nothing_for_it(folder: Path, drafter: str) -> None:
    options = (
        PromptLookupOptions(2, 4) if drafter == "prompt_lookup" else SpeculationOptions(str(folder / "llama.gguf"))
    )
    with pytest.raises(ModelLoadFailed, match="mamba models cannot take back tokens, so nothing is drafted"):
        await Engine.start(spec_of(folder, batch_invariant=True, **{drafter: options}))


@pytest.mark.parametrize("option", ["prompt_lookup: {ngram: 2}", "speculation: {draft: guess}"])
async def test_the_registry_accepts_drafts_for_it(folder: Path, option: str) -> None:
    path = folder / "registry.yaml"
    path.write_text(
        f"models:\n  m: {{file: mamba.gguf, context: 512, {option}}}\n  d: {{file: llama.gguf, context: 512}}\n"
        "roles: {w: {model: m, tier: C}, guess: {model: d, tier: D}}\n"
    )
    assert load_registry(path).models["m"].why_not is None
