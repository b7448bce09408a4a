"""Penalties for repetition: the same as llama.cpp's own samplers, and the same text with and without drafts."""

import asyncio
import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tests.orchestrator.engine.llama_reference as lib
from orchestrator.engine.client.engine import Completion, Engine
from orchestrator.engine.contract import EngineSpec, EngineStats, Generation, Message
from orchestrator.engine.errors import BadRequest
from orchestrator.engine.llama import Llama, Logits, Vocabulary
from orchestrator.engine.worker.penalties import Penalties
from orchestrator.registry.options import PromptLookupOptions, SamplingOptions, SpeculationOptions

SIZE = 6
NONE = np.zeros(SIZE, np.bool_)
LOGITS = np.array([3.0, 2.0, 1.0, 0.0, -1.0, -2.0], np.float32)
tokens = st.lists(st.integers(0, SIZE - 1), max_size=300)


def after(options: SamplingOptions, generated: list[int], logits: Logits = LOGITS, breakers: Any = NONE) -> Logits:
    penalties = Penalties(options, breakers)
    for token in generated:
        penalties.append(token)
    return penalties.apply(logits)


def by_llama(sampler: Any, generated: list[int], logits: Logits) -> Logits:
    """Return what a sampler of llama.cpp makes of the logits."""
    data = (lib.llama_token_data * len(logits))(*((n, float(one), 0.0) for n, one in enumerate(logits)))
    candidates = lib.llama_token_data_array(data=data, size=len(logits), selected=-1, sorted=False)
    for token in generated:
        lib.llama_sampler_accept(sampler, token)
    lib.llama_sampler_apply(sampler, ctypes.byref(candidates))
    found = {candidates.data[n].id: candidates.data[n].logit for n in range(len(logits))}
    lib.llama_sampler_free(sampler)
    return np.array([found[n] for n in range(len(logits))], np.float32)


@given(tokens, st.floats(0.5, 2), st.floats(-2, 2), st.floats(-2, 2), st.integers(1, 80))
def test_penalties_for_tokens_are_llama_cpp_s(
    generated: list[int], repeat: float, frequency: float, presence: float, last: int
) -> None:
    options = SamplingOptions(
        repeat_penalty=repeat, frequency_penalty=frequency, presence_penalty=presence, repeat_last_n=last
    )
    sampler = lib.llama_sampler_init_penalties(SIZE, last, repeat, frequency, presence)
    np.testing.assert_allclose(after(options, generated), by_llama(sampler, generated, LOGITS), rtol=1e-4, atol=1e-4)


@pytest.fixture(scope="module")
def vocabulary(models: Path) -> Vocabulary:
    return Llama(EngineSpec(file=str(models / "quantised.gguf"), context=64, slots=1, threads=1)).vocab


@settings(deadline=None)
@given(generated=tokens, base=st.floats(1, 2), allowed=st.integers(1, 6), last=st.none() | st.integers(1, 80))
def test_penalties_for_repetitions_are_llama_cpp_s(
    vocabulary: Vocabulary, generated: list[int], base: float, allowed: int, last: int | None
) -> None:
    options = SamplingOptions(
        dry_multiplier=0.8, dry_base=base, dry_allowed_length=allowed, dry_penalty_last_n=last, dry_sequence_breakers=()
    )
    sampler = lib.llama_sampler_init_dry(vocabulary.handle, 0.8, base, allowed, last or 1000, None, 0)
    expected = np.maximum(by_llama(sampler, generated, LOGITS), -9e5)
    np.testing.assert_allclose(np.maximum(after(options, generated), -9e5), expected, rtol=1e-3, atol=1e-3)


def test_without_a_window_the_whole_answer_counts() -> None:
    options = SamplingOptions(presence_penalty=1.0)
    assert after(options, [0, *[1] * 500]).tolist() == [2.0, 1.0, 1.0, 0.0, -1.0, -2.0]


def test_no_repetition_goes_on_over_a_breaker_and_none_is_made_less_likely() -> None:
    options = SamplingOptions(dry_multiplier=1.0)
    breakers = NONE.copy()
    breakers[5] = True
    assert after(options, [0, 1, 2, 3, 0, 1])[2] < LOGITS[2]
    assert (after(options, [0, 5, 2, 3, 0, 5], breakers=breakers) == LOGITS).all()
    assert (after(options, [0, 1, 5, 3, 0, 1], breakers=breakers) == LOGITS).all()


def test_what_was_repeated_without_end_stays_possible() -> None:
    changed = after(SamplingOptions(dry_multiplier=10.0, dry_base=4.0), [1] * 5000)
    assert np.isfinite(changed).all()
    assert changed[1] < -1e5


@pytest.fixture
def ask() -> Callable[..., Generation]:
    def make(text: str, sampling: SamplingOptions, **options: Any) -> Generation:
        return Generation(messages=(Message("user", text),), **{"max_tokens": 60, "sampling": sampling, **options})

    return make


DRY = SamplingOptions(dry_multiplier=0.8, dry_sequence_breakers=())
TOKENS = SamplingOptions(repeat_penalty=1.3, frequency_penalty=0.5, presence_penalty=0.5)


async def told(spec: EngineSpec, requests: list[Generation]) -> tuple[list[Completion], EngineStats]:
    async with await Engine.start(spec) as engine:
        return await asyncio.gather(*map(engine.generate, requests)), await engine.stats()


def spec_of(models: Path, **options: Any) -> EngineSpec:
    settings = {"context": 256, "slots": 4, "threads": 1, "batch_invariant": True, "hung_seconds": 60, **options}
    return EngineSpec(file=str(models / "quantised.gguf"), **settings)


def repeats(text: str, length: int = 12) -> int:
    """Return how many pieces of a text stand in it before."""
    return sum(text[at : at + length] in text[: at + length - 1] for at in range(len(text) - length))


@pytest.mark.parametrize("drafts", ["lookup", pytest.param("model", marks=pytest.mark.slow)])
async def test_drafts_change_no_text_that_is_kept_from_repeating(
    models: Path, ask: Callable[..., Generation], drafts: str
) -> None:
    requests = [
        *(ask(f"{n} and again", sampling) for n in range(3) for sampling in (DRY, TOKENS)),
        *(ask(f"{n} by chance", DRY, temperature=0.8, seed=n) for n in range(2)),
        ask("under a grammar", DRY, grammar='root ::= ("over and " | "out, ")+'),
        ask("freely", SamplingOptions()),
    ]
    plain, _ = await told(spec_of(models), requests)
    options: dict[str, Any] = {"prompt_lookup": PromptLookupOptions(2, 6)}
    if drafts == "model":
        options = {"speculation": SpeculationOptions(str(models / "quantised.gguf"), 4)}
    drafted, stats = await told(spec_of(models, always_draft=True, **options), requests)
    assert stats.drafted > 0
    assert [(one.text, one.finish) for one in drafted] == [(one.text, one.finish) for one in plain]


async def test_penalties_keep_a_text_from_repeating_itself(models: Path, ask: Callable[..., Generation]) -> None:
    loose, dry = (
        await told(spec_of(models), [ask("say it", one, max_tokens=150) for one in (SamplingOptions(), DRY)])
    )[0]
    assert repeats(dry.text) < repeats(loose.text)


async def test_a_penalty_out_of_bounds_is_refused(models: Path, ask: Callable[..., Generation]) -> None:
    async with await Engine.start(spec_of(models)) as engine:
        with pytest.raises(BadRequest, match="frequency_penalty is 3; accepted: -2 to 2"):
            await engine.generate(ask("no", SamplingOptions(frequency_penalty=3)))
