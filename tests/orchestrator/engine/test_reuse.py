"""What engines report about tokens that prompts share, with real models: that all were reused, or why not."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from orchestrator.engine.client.engine import Engine
from orchestrator.engine.contract import EngineSpec, Generation, Message
from orchestrator.engine.llama import Llama
from orchestrator.task.reuse import BLOCK, LEAST, LossCause, Reuse
from tests.orchestrator.engine.driven_loop import Parent, driven_loop
from tests.orchestrator.engine.shared_texts import ask as exactly
from tests.orchestrator.engine.shared_texts import text

DOCUMENT = "".join(f"Line {number}: the quick brown fox jumps over it. " for number in range(8))
OTHER = DOCUMENT[::-1]
SHARING = ["quantised.gguf", "mamba.gguf", "jamba.gguf"]


@pytest.fixture(scope="module")
def folder(models: Path, recurrent_models: Path) -> Path:
    for name in SHARING[1:]:
        (models / name).symlink_to(recurrent_models / name)
    return models


def spec_of(folder: Path, model: str = "quantised.gguf", **options: Any) -> EngineSpec:
    settings = {"context": 512, "slots": 4, "threads": 1, "hung_seconds": 60, "step_costs": str(folder / "curves")}
    return EngineSpec(file=str(folder / model), **{**settings, **options})


def ask(question: str, document: str = DOCUMENT, system: str = "Be brief.", **options: Any) -> Generation:
    messages = (Message("system", system), Message("user", f"{document}\n\nTask: {question}"))
    return Generation(messages=messages, **{"max_tokens": 4, **options})


async def reuses(spec: EngineSpec, *requests: Generation) -> list[Reuse]:
    """Return the reuse of requests that are made one after the other, after checking it against the cached tokens."""
    async with await Engine.start(spec) as engine:
        usages = [(await engine.generate(request)).usage for request in requests]
    for usage in usages:
        assert abs(usage.reuse.reused_tokens - usage.cached_tokens) < BLOCK
    return [usage.reuse for usage in usages]


@pytest.mark.parametrize("model", SHARING)
@pytest.mark.parametrize("split", [True, False])
async def test_a_fan_out_over_a_document_reuses_all_that_was_expected(folder: Path, model: str, split: bool) -> None:
    async with await Engine.start(spec_of(folder, model, split=split)) as engine:
        done = await asyncio.gather(*(engine.generate(ask(f"{number} of these")) for number in range(7)))
        again = await engine.generate(ask("7 of these"))
    usages = [completion.usage for completion in (*done, again)]
    assert [usage.reuse for usage in usages] == [Reuse(usage.cached_tokens) for usage in usages]
    assert sorted(usage.cached_tokens > len(DOCUMENT) / 2 for usage in usages) == [False, *[True] * 7]


def test_prompts_of_a_whole_task_are_found_again_in_a_pool(folder: Path) -> None:
    spec = spec_of(folder, slots=4, context=256, split=False)
    prompts = [text(7 * number, 60) for number in range(14)]
    assert 256 < sum(map(len, prompts)) < 4 * 256
    llama, arriving = Llama(spec), list[tuple[int, ...]]()

    def submit_all(parent: Parent) -> None:  # between two steps, so that they come together on a busy machine, too
        while arriving:
            parent.submit(exactly(arriving.pop(), max_tokens=3))

    with driven_loop(llama, spec, submit_all) as parent:
        for _ in range(2):
            before = parent.stats().stats
            arriving += prompts
            parent.submit(exactly(text(3, 5), max_tokens=3))
            for _ in range(1 + len(prompts)):
                parent.finished()
        after = parent.stats().stats
    assert after.prefill_tokens - before.prefill_tokens == 1 + len(prompts), "the last token of each"


@pytest.mark.parametrize("cache", [{"split": True, "slots": 1}, {"cells": 512}])
async def test_what_a_full_cache_has_dropped_was_evicted(folder: Path, cache: dict[str, Any]) -> None:
    first, _, last = await reuses(spec_of(folder, **cache), ask("1"), ask("2", OTHER), ask("3"))
    assert first == Reuse()
    assert set(last.lost_tokens) == {"evicted"}
    assert last.lost_tokens["evicted"] > len(DOCUMENT) / 2


@pytest.mark.parametrize("model", SHARING[1:])
async def test_a_model_that_shares_nothing_says_so(folder: Path, model: str) -> None:
    _, second = await reuses(spec_of(folder, model, batch_invariant=True), ask("1"), ask("2"))
    assert second.lost_tokens == {"model cannot share": second.expected_tokens}
    assert second.expected_tokens > len(DOCUMENT) / 2


@pytest.mark.parametrize("model", SHARING[1:])
async def test_a_model_with_states_reuses_a_document_for_another_task(folder: Path, model: str) -> None:
    _, second = await reuses(spec_of(folder, model), ask("1"), ask("2"))
    assert second.lost_tokens == {}
    assert second.expected_tokens > len(DOCUMENT) / 2


@pytest.mark.parametrize("model", SHARING[1:])
async def test_a_model_cannot_share_where_it_has_no_state(folder: Path, model: str) -> None:
    requests = (ask(f"{number}", document=f"{DOCUMENT} {number}") for number in range(3))
    _, second, third = await reuses(spec_of(folder, model), *requests)
    assert second.lost_tokens == {"model cannot share": second.expected_tokens}
    assert third.lost_tokens == {}, "a state is kept where two prompts parted"
    assert third.expected_tokens >= second.expected_tokens > len(DOCUMENT) / 2


async def test_a_document_behind_another_system_prompt_is_computed_again(folder: Path) -> None:
    requests = ask("1", system="Be brief."), ask("2", system="Answer as a pirate.")
    _, second = await reuses(spec_of(folder), *requests)
    assert set(second.lost_tokens) == {"prompt differs"}
    assert second.lost_tokens["prompt differs"] > len(DOCUMENT) / 2


async def test_a_start_that_is_too_short_to_be_copied_is_computed_again(folder: Path) -> None:
    long = spec_of(folder, context=4096, split=True, beyond_training=True)
    system = "This is shared by both, but short."
    _, second = await reuses(long, ask("1", DOCUMENT, system), ask("2", OTHER, system))
    assert second.lost_tokens == {"too short": second.expected_tokens}
    assert LEAST <= second.expected_tokens < 64


async def test_a_prompt_whose_likelihoods_are_asked_for_is_not_expected_to_share(folder: Path) -> None:
    tokens = tuple(range(10, 210))
    requests = Generation(prompt=tokens, max_tokens=1), Generation(prompt=tokens, max_tokens=1, prompt_logprobs=0)
    assert await reuses(spec_of(folder), *requests) == [Reuse(), Reuse()]


def test_what_a_cancelled_request_did_not_compute_is_computed_by_another(folder: Path) -> None:
    spec = spec_of(folder, context=1024)
    shared = tuple(range(10, 410)) * 2
    waiting = [Generation(prompt=(*shared, 5), max_tokens=1)]
    llama = Llama(spec)

    def cancel_first(parent: Parent) -> None:
        if waiting and llama.batch.size > LEAST:  # a step that computes a part of the first prompt
            parent.submit(waiting.pop())
            parent.cancel(1)

    with driven_loop(llama, spec, cancel_first) as parent:
        parent.submit(Generation(prompt=(*shared, 6), max_tokens=1))
        first, second = sorted((parent.finished(), parent.finished()), key=lambda finished: finished.seq)
    assert first.finish == "cancelled"
    lost: dict[LossCause, int] = {"cancelled": second.reuse.expected_tokens - second.cached_tokens}
    assert second.reuse == Reuse(len(shared), lost)
    assert 0 < second.cached_tokens < len(shared)
