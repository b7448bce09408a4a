"""Tokens that a model drafts with its own MTP head never change its text, on real processes."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.heads.compose import compose, head_file, random_head, read_head
from benchmarks.tiny import corpus
from benchmarks.tiny.sizes import SIZES
from orchestrator.bench.families.words import seeded
from orchestrator.engine.client.engine import Completion, Engine
from orchestrator.engine.client.library import probe_library
from orchestrator.engine.contract import EngineSpec, EngineStats, Generation, Message
from orchestrator.engine.llama import Llama, MtpHead, binding
from orchestrator.registry.options import MtpOptions, PromptLookupOptions
from tests.orchestrator.engine.llama_builds import without

FAMILIES = ("plan", "extract", "code", "summarize")


@pytest.fixture(scope="module")
def headed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `trained.gguf`, whose head is often right, and `random.gguf`, whose head is always wrong."""
    folder, size = tmp_path_factory.mktemp("headed"), SIZES["large"]
    compose(size.shipped, read_head(head_file(size.name)), folder / "trained.gguf")
    compose(size.shipped, random_head(size.width, size.hidden), folder / "random.gguf")
    return folder


def asks(count: int, **options: Any) -> list[Generation]:
    examples = [corpus.example(seeded(f"mtp/{n}"), "entity", FAMILIES[n % len(FAMILIES)]) for n in range(count)]
    return [
        Generation(
            messages=tuple(Message(message.role, message.content) for message in example.messages),
            **{"max_tokens": 64, **options},
        )
        for example in examples
    ]


def spec_of(file: Path, **options: Any) -> EngineSpec:
    settings = {"context": 512, "threads": 1, "batch_invariant": True, "hung_seconds": 60, "always_draft": True}
    return EngineSpec(file=str(file), **{**settings, "mtp": MtpOptions(), **options})


async def answered(spec: EngineSpec, requests: list[Generation]) -> tuple[list[str], EngineStats]:
    async with await Engine.start(spec) as engine:
        done = await asyncio.gather(*map(engine.generate, requests))
        return [one.text for one in done], await engine.stats()


@pytest.mark.parametrize("slots", [1, 4, 16])
async def test_a_head_changes_no_text_and_saves_steps(headed: Path, slots: int) -> None:
    requests = asks(slots)
    plain, before = await answered(spec_of(headed / "trained.gguf", slots=slots, mtp=None), requests)
    drafted, after = await answered(spec_of(headed / "trained.gguf", slots=slots), requests)
    assert drafted == plain
    assert before.drafted == 0
    assert after.accepted > 0.3 * after.drafted
    assert after.decode_steps < 0.7 * before.decode_steps


def test_what_a_head_computes_for_tokens_does_not_depend_on_the_others_of_the_batch(headed: Path) -> None:
    """Drafts continue from the states of the last tokens, also of sequences that read several tokens at once."""
    llama = Llama(spec_of(headed / "trained.gguf", slots=2))
    head = MtpHead(llama, 8)
    tokens = np.random.default_rng(1).integers(10, 400, (2, 4)).astype(np.int32)
    states = np.random.default_rng(2).normal(0, 1, (2, 4, SIZES["large"].width)).astype(np.float32)
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
            assert np.corrcoef(these, those)[0, 1] > 0.999


async def test_the_trunk_says_what_the_shipped_model_says(headed: Path) -> None:
    shipped, _ = await answered(spec_of(SIZES["large"].shipped, slots=4, mtp=None), asks(8))
    assert (await answered(spec_of(headed / "trained.gguf", slots=4), asks(8)))[0] == shipped


@pytest.mark.parametrize("layout", [{}, {"batch_invariant": False, "split": False}, {"batch_invariant": False}])
async def test_a_head_that_is_always_wrong_changes_no_text(headed: Path, layout: dict[str, bool]) -> None:
    requests = [*asks(4), *asks(4, temperature=0.8, seed=3)]
    plain, _ = await answered(spec_of(headed / "random.gguf", slots=4, mtp=None, **layout), requests)
    drafted, stats = await answered(spec_of(headed / "random.gguf", slots=4, **layout), requests)
    assert drafted == plain
    assert stats.drafted > 8 * stats.accepted
    assert stats.accepted < stats.refused_drafts <= stats.drafted


async def test_a_head_that_has_not_read_for_long_starts_again(headed: Path) -> None:
    """Drafts that do not pay pause for more tokens than the head keeps unread."""
    requests = asks(1, max_tokens=400, ignore_end=True)
    plain, _ = await answered(spec_of(headed / "random.gguf", slots=1, mtp=None), requests)
    drafted, stats = await answered(spec_of(headed / "random.gguf", slots=1, always_draft=False), requests)
    assert drafted == plain
    assert stats.drafted > 0


async def test_a_head_drafts_where_nothing_can_be_looked_up(headed: Path) -> None:
    requests = asks(4)
    plain, _ = await answered(spec_of(headed / "trained.gguf", slots=4, mtp=None), requests)
    drafted, stats = await answered(spec_of(headed / "trained.gguf", prompt_lookup=PromptLookupOptions()), requests)
    assert drafted == plain
    assert stats.accepted > 0


async def test_preempted_sequences_are_drafted_again(headed: Path) -> None:
    requests = asks(6, max_tokens=120, ignore_end=True)
    options: dict[str, Any] = {"slots": 6, "context": 512, "cells": 1024, "batch_invariant": False, "split": False}
    drafted, stats = await answered(spec_of(headed / "trained.gguf", **options), requests)
    assert stats.preempted > 0
    assert stats.accepted > 0
    assert len(drafted) == 6


async def test_drafts_end_with_their_sequences(headed: Path) -> None:
    async with await Engine.start(spec_of(headed / "trained.gguf", slots=4)) as engine:
        for _ in range(3):
            begun = asyncio.Event()

            def listen(_: str, begun: asyncio.Event = begun) -> None:
                begun.set()

            requests = asks(8, max_tokens=200, ignore_end=True)
            tasks = [asyncio.create_task(engine.generate(request, listen)) for request in requests]
            await begun.wait()
            for task in tasks[::2]:
                task.cancel()
            done = await asyncio.gather(*tasks, return_exceptions=True)
            assert sum(isinstance(one, Completion) for one in done) >= 4
        stats = await engine.stats()
    assert (stats.running, stats.prefilling, stats.queued) == (0, 0, 0)


async def test_without_a_head_the_model_answers_and_says_why(headed: Path, models: Path, tmp_path: Path) -> None:
    name = binding.symbol("llama_set_embeddings_nextn")
    library = without(tmp_path / "lacking", [name])
    plain, _ = await answered(spec_of(headed / "trained.gguf", slots=2, mtp=None), asks(2))
    said, stats = await answered(spec_of(headed / "trained.gguf", slots=2, llama_library=str(library)), asks(2))
    assert said == plain
    assert stats.drafted == 0
    assert "off: the MTP head cannot be used" in stats.speculation
    assert "llama_set_embeddings_nextn" in stats.speculation
    assert any("needed for MTP heads" in problem for problem in probe_library(str(library)).lacking)
    _, stats = await answered(spec_of(models / "quantised.gguf", slots=2), asks(1, max_tokens=4))
    assert stats.speculation == "off: the MTP head cannot be used: the file has no MTP head"
