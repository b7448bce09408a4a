"""Tokens that a model drafts with a head never change its text: an MTP head, and an EAGLE-3 head."""

import asyncio
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.tiny.sizes import SIZES
from orchestrator.engine.client.engine import Completion, Engine
from orchestrator.engine.client.library import probe_library
from orchestrator.engine.contract import EngineStats, Generation
from orchestrator.engine.llama import EagleHead, Head, Llama, MtpHead, binding
from orchestrator.engine.step_cost.calibration import store_step_costs
from orchestrator.registry.options import MtpOptions, PromptLookupOptions
from tests.orchestrator.engine.driven_loop import driven_loop
from tests.orchestrator.engine.headed_models import Headed, answered, asks, with_eagle_head, with_mtp_head
from tests.orchestrator.engine.llama_builds import without
from tests.orchestrator.engine.shared_texts import ask, check_alone
from tests.orchestrator.engine.test_layout import STREAMS


@pytest.fixture(scope="module", params=["mtp", "eagle"])
def headed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Headed:
    """A model with a trained head, which is often right, and a random one, which is always wrong."""
    made = {"mtp": with_mtp_head, "eagle": with_eagle_head}[request.param]
    return made(tmp_path_factory.mktemp("headed"))


@pytest.mark.parametrize("slots", [1, 4, 16])
async def test_a_head_changes_no_text_and_saves_steps(headed: Headed, slots: int) -> None:
    requests = asks(slots)
    plain, before = await answered(headed.spec({}, slots=slots), requests)
    drafted, after = await answered(headed.spec(headed.trained, slots=slots), requests)
    assert drafted == plain
    assert before.drafted == 0
    assert after.accepted > 0.3 * after.drafted
    assert after.decode_steps < 0.7 * before.decode_steps


def test_what_a_head_computes_for_tokens_does_not_depend_on_the_others_of_the_batch(headed: Headed) -> None:
    """Drafts continue from the states of the last tokens, also of sequences that read several tokens at once."""
    spec = headed.spec(headed.trained, slots=2)
    llama = Llama(spec)
    head: Head = MtpHead(llama, 8) if spec.eagle is None else EagleHead(spec, llama, 8)
    tokens = np.random.default_rng(1).integers(10, 400, (2, 4)).astype(np.int32)
    states = np.random.default_rng(2).normal(0, 1, (2, 4, head.width)).astype(np.float32)
    alone: list[list[Any]] = [[], []]
    for seq in range(2):
        for at in range(4):
            head.batch.clear()
            head.batch.add_one(seq, 100 + at, int(tokens[seq, at]))
            head.batch.states[0] = states[seq, at]
            alone[seq].append([rows[0].copy() for rows in head.decode()])
        head.truncate(seq, 0)
    head.batch.clear()
    for seq, count in ((0, 4), (1, 3)):
        head.batch.add(seq, 100, tokens[seq, :count], count)
    head.batch.states[:7] = np.concatenate((states[0], states[1, :3]))
    for row, together in enumerate(zip(*head.decode(), strict=True)):
        for these, those in zip(together, alone[row // 4][row % 4], strict=True):
            said = np.isfinite(these)
            assert np.array_equal(said, np.isfinite(those))
            assert np.corrcoef(these[said], those[said])[0, 1] > 0.999


@pytest.mark.parametrize("layout", [{}, {"batch_invariant": False, "split": False}, {"batch_invariant": False}])
async def test_a_head_that_is_always_wrong_changes_no_text(headed: Headed, layout: dict[str, bool]) -> None:
    requests = [*asks(4), *asks(4, temperature=0.8, seed=3)]
    plain, _ = await answered(headed.spec({}, slots=4, **layout), requests)
    drafted, stats = await answered(headed.spec(headed.random, slots=4, **layout), requests)
    assert drafted == plain
    assert stats.drafted > 8 * stats.accepted
    assert stats.accepted < stats.refused_drafts <= stats.drafted


async def test_a_head_that_has_not_read_for_long_starts_again(headed: Headed) -> None:
    """Drafts that do not pay pause for more tokens than the head keeps unread."""
    requests = asks(1, max_tokens=400, ignore_end=True)
    plain, _ = await answered(headed.spec({}, slots=1), requests)
    drafted, stats = await answered(headed.spec(headed.random, slots=1, always_draft=False), requests)
    assert drafted == plain
    assert stats.drafted > 0


async def test_a_head_drafts_where_nothing_can_be_looked_up(headed: Headed) -> None:
    requests = asks(4)
    plain, _ = await answered(headed.spec({}, slots=4), requests)
    drafted, stats = await answered(headed.spec(headed.trained, prompt_lookup=PromptLookupOptions()), requests)
    assert drafted == plain
    assert stats.accepted > 0


async def test_preempted_sequences_are_drafted_again(headed: Headed) -> None:
    requests = asks(6, max_tokens=120, ignore_end=True)
    options: dict[str, Any] = {"slots": 6, "context": 512, "cells": 1024, "batch_invariant": False, "split": False}
    drafted, stats = await answered(headed.spec(headed.trained, **options), requests)
    assert stats.preempted > 0
    assert stats.accepted > 0
    assert len(drafted) == 6


def test_a_head_drafts_after_the_cache_has_changed_its_layout(
    headed: Headed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pool has more sequences than streams, and running texts have any of them."""
    monkeypatch.setattr("orchestrator.engine.worker.contention.CpuUse.disturbed", lambda self, threads: False)
    # The engine is told that cells are expensive, and learns nothing else.
    monkeypatch.setattr("orchestrator.engine.kv.layout.CacheLayout._learn", lambda *given: None)
    options: dict[str, Any] = {"batch_invariant": False, "flash_attention": "on", "step_costs": str(tmp_path)}
    spec = headed.spec(headed.trained, slots=5, context=2048, **options)
    llama, alone = Llama(spec), Llama(headed.spec({}, slots=1, batch_invariant=False))
    store_step_costs(llama, spec, 1, replace(STREAMS, per_cell=1e-3))
    shared = "the quick brown fox jumps over the lazy dog and runs away " * 5
    with driven_loop(llama, spec) as parent:

        def answer_siblings(number: int) -> EngineStats:
            """More of them than slots: later ones get other sequences than finished ones, which are kept."""
            prompts = [tokens_of(alone, f"{number} {shared}", request) for request in asks(8)]
            accepted = parent.stats().stats.accepted
            asked = {parent.submit(ask(prompt, max_tokens=32, ignore_end=False)): prompt for prompt in prompts}
            for done in [parent.finished() for _ in prompts]:
                check_alone(alone, asked[done.seq], done, tolerance=0.05)  # flash attention rounds to half precision
            stats = parent.stats().stats
            assert stats.accepted > accepted
            return stats

        assert llama.split
        in_streams = takewhile(lambda number: answer_siblings(number).split_cache, range(10))
        assert len(list(in_streams)) < 10
        assert answer_siblings(10).layout_changes


def tokens_of(llama: Llama, start: str, request: Generation) -> tuple[int, ...]:
    """Return the prompt of a request for the large model, after a start."""
    chat = "".join(f"<|{message.role}|>{message.content}<|end|>" for message in request.messages)
    return tuple(llama.vocab.tokenize(f"{start}{chat}<|assistant|>", special=True))


async def test_drafts_end_with_their_sequences(headed: Headed) -> None:
    async with await Engine.start(headed.spec(headed.trained, slots=4)) as engine:
        for _ in range(3):
            begun = asyncio.Event()

            def listen(_: str, begun: asyncio.Event = begun) -> None:
                begun.set()

            requests = asks(8, max_tokens=90, ignore_end=True)
            tasks = [asyncio.create_task(engine.generate(request, listen)) for request in requests]
            await begun.wait()
            for task in tasks[::2]:
                task.cancel()
            done = await asyncio.gather(*tasks, return_exceptions=True)
            assert sum(isinstance(one, Completion) for one in done) >= 4
        stats = await engine.stats()
    assert (stats.running, stats.prefilling, stats.queued) == (0, 0, 0)


@pytest.mark.parametrize(
    ("kind", "function"), [("MTP", "llama_set_embeddings_nextn"), ("EAGLE-3", "llama_get_embeddings_layer_inp")]
)
async def test_without_a_function_the_model_answers_and_says_why(tmp_path: Path, kind: str, function: str) -> None:
    headed = {"MTP": with_mtp_head, "EAGLE-3": with_eagle_head}[kind](tmp_path)
    library = without(tmp_path / "lacking", [binding.symbol(function)])
    plain, _ = await answered(headed.spec({}, slots=2), asks(2))
    said, stats = await answered(headed.spec(headed.trained, slots=2, llama_library=str(library)), asks(2))
    assert said == plain
    assert stats.drafted == 0
    assert f"off: the {kind} head" in stats.speculation
    assert function in stats.speculation
    assert any(f"needed for {kind} heads" in problem for problem in probe_library(str(library)).lacking)


async def test_the_trunk_of_an_mtp_head_says_what_the_shipped_model_says(tmp_path: Path) -> None:
    headed = with_mtp_head(tmp_path)
    shipped, _ = await answered(headed.spec({}, file=str(SIZES["large"].shipped), slots=4), asks(8))
    assert (await answered(headed.spec(headed.trained, slots=4), asks(8)))[0] == shipped


async def test_without_an_mtp_head_the_model_answers_and_says_why(models: Path, tmp_path: Path) -> None:
    spec = with_mtp_head(tmp_path).spec({"mtp": MtpOptions()}, file=str(models / "quantised.gguf"), slots=2)
    _, stats = await answered(spec, asks(1, max_tokens=4))
    assert stats.speculation == "off: the MTP head cannot be used: the file has no MTP head"
