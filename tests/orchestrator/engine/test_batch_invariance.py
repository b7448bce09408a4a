"""The same prompt gets the same answer: bit for bit with `batch_invariant`, as text at any width without it."""

import asyncio
import ctypes
from dataclasses import replace
from pathlib import Path

import pytest

import tests.orchestrator.engine.llama_reference as lib
from benchmarks.models import ModelShape, write_llama
from orchestrator.engine.client.engine import Completion, Engine
from orchestrator.engine.contract import EngineSpec, Generation

WEIGHTS = {"q4_k": 15, "q5_0": 8, "q6_k": 18, "q8_0": 7}
"""llama.cpp's numbers of file types (`llama_ftype`). On x86, q4_k is repacked for kernels that compute four rows."""
LONG = tuple(range(3, 163))
"""A prompt that takes several micro-batches."""
PROMPTS = [LONG, (*LONG[:100], 7, 9), (*LONG[:100], 8), (5, 6, 7), (11,) * 61, (*LONG, 12)]
"""Three of them share a beginning, so that of the later ones only a rest is computed."""


@pytest.fixture(scope="module")
def quantised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one model for each kind of `WEIGHTS`, quantised by llama.cpp from the same random numbers."""
    folder = tmp_path_factory.mktemp("quantised")
    shape = ModelShape(width=256, feed_forward=512, weights="f32", scale=1.5)
    source = write_llama(folder / "f32.gguf", shape)
    for name, kind in WEIGHTS.items():
        settings = lib.llama_model_quantize_default_params()
        settings.ftype, settings.pure, settings.nthread = kind, True, 1
        target = folder / f"{name}.gguf"
        assert lib.llama_model_quantize(str(source).encode(), str(target).encode(), ctypes.byref(settings)) == 0
    return folder


def ask(prompt: tuple[int, ...], *, cold: bool = False) -> Generation:
    """Ask for a greedy answer with the likelihoods of its tokens. `cold` computes all of the prompt."""
    shown = 1 if cold else None
    return Generation(prompt=prompt, max_tokens=6, ignore_end=True, logprobs=3, prompt_logprobs=shown)


@pytest.mark.parametrize("weights", WEIGHTS)
async def test_with_batch_invariance_an_answer_depends_on_its_prompt_alone(quantised: Path, weights: str) -> None:
    spec = EngineSpec(
        file=str(quantised / f"{weights}.gguf"), context=256, slots=5, threads=1, batch_invariant=True, hung_seconds=60
    )
    async with await Engine.start(spec) as engine:
        assert engine.info.batch_invariant
        cold = [answer(await engine.generate(ask(prompt, cold=True))) for prompt in PROMPTS]
        one_by_one = [answer(await engine.generate(ask(prompt))) for prompt in PROMPTS]
        together = await asyncio.gather(*(engine.generate(ask(prompt)) for prompt in PROMPTS * 2))
        assert (await engine.stats()).reused_tokens > len(LONG)
    assert one_by_one == cold
    assert [answer(done) for done in together] == cold * 2
    assert len({text for text, _ in cold}) > 3, "the prompts have different answers"


LAYOUTS = {
    "invariant": EngineSpec(file="quantised.gguf", batch_invariant=True),
    "streams": EngineSpec(file="float.gguf", kv_type_k="f32", kv_type_v="f32", split=True),
    "pool": EngineSpec(file="float.gguf", kv_type_k="f32", kv_type_v="f32", split=False),
}
"""The layouts of the KV cache. Without batch invariance all is F32, and sums differ in their last bits only."""


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_equal_prompts_have_one_answer_at_any_width(models: Path, layout: str) -> None:
    spec = LAYOUTS[layout]
    spec = replace(spec, file=str(models / spec.file), context=256, slots=7, threads=1, hung_seconds=60)
    async with await Engine.start(spec) as engine:
        texts = {(await engine.generate(ask(LONG))).text}
        for width in range(2, 8):
            texts |= {done.text for done in await asyncio.gather(*(engine.generate(ask(LONG)) for _ in range(width)))}
    assert len(texts) == 1


def answer(done: Completion) -> tuple[str, object]:
    return done.text, done.logprobs
