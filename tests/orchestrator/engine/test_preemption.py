"""A pool with too few cells: sequences are preempted and resumed, and their texts are those that they have alone."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.engine.client.engine import Completion, Engine
from orchestrator.engine.contract import EngineSpec, EngineStats, Generation, Message
from orchestrator.engine.errors import ModelLoadFailed, PromptTooLong
from orchestrator.registry.options import PromptLookupOptions, SpeculationOptions

LOREM = "the quick brown fox jumps over the lazy dog and runs away "
COPY = 'root ::= "round and round it goes, " root'


def ask(text: str, **options: Any) -> Generation:
    return Generation(messages=(Message("user", text),), **{"max_tokens": 180, **options})


def spec_of(models: Path, **options: Any) -> EngineSpec:
    """F32 throughout: without `batch_invariant`, sums in another order then differ far less than the logits of two
    tokens. Flash attention would go over to F16 for 64 tokens in a step."""
    exactly = {"kv_type_k": "f32", "kv_type_v": "f32", "flash_attention": "off"}
    settings = {"context": 256, "cells": 256, "slots": 6, "threads": 1, "hung_seconds": 60, **exactly, **options}
    settings["step_costs"] = str(models / "curves")
    return EngineSpec(file=str(models / "float.gguf"), **settings)


async def generate_all(spec: EngineSpec, requests: list[Generation]) -> tuple[list[Completion], EngineStats]:
    async with await Engine.start(spec) as engine:
        return await asyncio.gather(*map(engine.generate, requests)), await engine.stats()


REQUESTS = [
    *(ask(f"{n}", max_tokens=150 + n) for n in range(3)),
    *(ask(f"warm {n}", temperature=0.9, top_p=0.95, seed=n, slack=float("inf")) for n in range(2)),
    ask("by grammar", grammar=COPY, slack=60.0),
    ask("grammar and chance", grammar='root ::= ("over and " | "out, ")+', temperature=1.0, seed=5, slack=90.0),
    ask("stops", stop=("xy",)),
]


@pytest.fixture(scope="module")
def alone(models: Path) -> tuple[list[Completion], EngineStats]:
    """The texts of the requests one after the other, and the statistics of the engine that wrote them."""
    return asyncio.run(generate_all(spec_of(models, cells=None, slots=1), REQUESTS))


@pytest.mark.parametrize(
    "drafts",
    [
        {},
        pytest.param({"prompt_lookup": PromptLookupOptions(3, 6)}, marks=pytest.mark.slow),
        {"speculation": SpeculationOptions("quantised.gguf", 4)},
    ],
)
async def test_with_too_few_cells_all_texts_are_those_of_sequences_alone(
    models: Path, alone: tuple[list[Completion], EngineStats], drafts: dict[str, object]
) -> None:
    expected, before = alone
    assert before.preempted == before.recomputed_tokens == 0
    if "speculation" in drafts:
        drafts = {"speculation": SpeculationOptions(str(models / "quantised.gguf"), 4)}
    crowd, stats = await generate_all(spec_of(models, always_draft=bool(drafts), **drafts), REQUESTS)
    assert bool(stats.drafted) == bool(drafts)
    assert [(one.text, one.finish) for one in crowd] == [(one.text, one.finish) for one in expected]
    assert [one.usage.output_tokens for one in crowd] == [one.usage.output_tokens for one in expected]
    assert stats.preempted > 0
    assert stats.recomputed_tokens > 0
    assert stats.prompt_tokens == stats.reused_tokens + stats.prefill_tokens == before.prompt_tokens
    assert stats.finished == len(REQUESTS)
    assert (stats.running, stats.prefilling, stats.queued) == (0, 0, 0)
    assert stats.used_cells <= stats.cells == 256


@pytest.mark.parametrize("cells", [None, 256])
async def test_texts_of_a_batch_and_of_interactive_requests_beside_it_are_those_of_sequences_alone(
    models: Path, alone: tuple[list[Completion], EngineStats], cells: int | None
) -> None:
    """The classes differ in which steps compute them, with a stream for each sequence as with a pool of cells."""
    mixed = [replace(one, priority="batch" if at % 3 else "interactive") for at, one in enumerate(REQUESTS)]
    done, stats = await generate_all(spec_of(models, cells=cells), mixed)
    assert [(one.text, one.finish) for one in done] == [(one.text, one.finish) for one in alone[0]]
    assert stats.finished == len(REQUESTS)


@pytest.mark.parametrize("cells", [None, 2048])
async def test_an_interactive_request_gets_a_slot_of_a_batch_that_loses_each_only_once(
    models: Path, cells: int | None
) -> None:
    batch = [ask(f"{n}", grammar=COPY, max_tokens=600, priority="batch", slack=20.0) for n in range(2)]
    async with await Engine.start(spec_of(models, slots=2, context=1024, cells=cells)) as engine:
        begun = asyncio.Event()
        started = [asyncio.create_task(engine.generate(one, lambda text: begun.set())) for one in batch]
        await begun.wait()
        urgent = await asyncio.gather(*(engine.generate(ask(f"hurry {n}", max_tokens=5)) for n in range(4)))
        done = await asyncio.gather(*started)
        stats = await engine.stats()
    assert all(one.usage.output_tokens for one in urgent)
    assert 1 <= stats.preempted <= 2
    assert [one.usage.output_tokens for one in done] == [600] * 2


async def test_text_streams_on_after_a_preemption(models: Path) -> None:
    async with await Engine.start(spec_of(models)) as engine:
        pieces: list[list[str]] = [[] for _ in REQUESTS]
        calls = [engine.generate(one, heard.append) for one, heard in zip(REQUESTS, pieces, strict=True)]
        done = await asyncio.gather(*calls)
        assert (await engine.stats()).preempted > 0
    assert ["".join(heard) for heard in pieces] == [one.text for one in done]


async def test_the_sequence_of_highest_priority_runs_to_its_end(models: Path) -> None:
    async with await Engine.start(spec_of(models)) as engine:
        patient = [asyncio.create_task(engine.generate(ask(f"{n}", slack=1e6, grammar=COPY))) for n in range(4)]
        urgent = await engine.generate(ask("hurry", slack=-1e6, grammar=COPY))
        others = await asyncio.gather(*patient)
        assert (await engine.stats()).preempted > 0
    assert urgent.usage.output_tokens == 180
    assert all(_seconds(urgent) < _seconds(other) for other in others), "they came first and ended later"


def _seconds(done: Completion) -> float:
    """The seconds from its arrival to its end, by the engine's clock."""
    return done.usage.queued_seconds + done.usage.prefill_seconds + done.usage.decode_seconds


async def test_what_was_computed_for_others_is_not_computed_again(models: Path) -> None:
    """Both have a prefix in common. The one that is preempted finds it in the cache when it resumes."""
    requests = [ask(LOREM * 2 + str(n), slack=float(n), grammar=COPY, max_tokens=90) for n in range(2)]
    done, stats = await generate_all(spec_of(models, slots=2), requests)
    alike = done[0].usage.prompt_tokens - 10
    assert alike > 80
    assert stats.preempted == 1
    assert 0 < stats.recomputed_tokens < alike


async def test_preempted_sequences_can_be_cancelled_and_keep_deadlines(models: Path) -> None:
    async with await Engine.start(spec_of(models)) as engine:
        tasks = [asyncio.create_task(engine.generate(ask(f"{n}", grammar=COPY, slack=float(n)))) for n in range(24)]
        async with asyncio.timeout(60):
            while not (await engine.stats()).preempted:  # noqa: ASYNC110 (the engine tells nobody)
                await asyncio.sleep(0)
        cancelled = [task for task in tasks[3:] if task.cancel()]
        assert all(one.usage.output_tokens == 180 for one in await asyncio.gather(*tasks[:3]))
        late = await asyncio.gather(*(engine.generate(ask("x", grammar=COPY, deadline_seconds=0.01)) for _ in range(4)))
        assert {one.finish for one in late} == {"deadline"}
        stats = await engine.stats()
        assert (stats.running, stats.prefilling, stats.queued) == (0, 0, 0)
        assert 0 < stats.cancelled <= len(cancelled), "some may have ended while their cancellation was on its way"
        assert stats.finished + stats.cancelled == len(tasks) + len(late), "none is lost or counted twice"


async def test_a_request_that_does_not_fit_even_alone_is_refused_at_once(models: Path) -> None:
    async with await Engine.start(spec_of(models)) as engine:
        running = [asyncio.create_task(engine.generate(ask(f"{n}", max_tokens=60))) for n in range(6)]
        with pytest.raises(PromptTooLong, match="one sequence of this model may have 256 tokens in all") as caught:
            await engine.generate(ask("hello", max_tokens=250))
        assert caught.value.tokens + caught.value.max_tokens > caught.value.limit == 256
        await asyncio.gather(*running)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cells": 128}, "cells is 128, and one sequence may take 256; accepted: at least 256"),
        (
            {"batch_invariant": True},
            "cells is for a common pool, but batch_invariant or split gives each",
        ),
        ({"split": True}, "cells is for a common pool"),
    ],
)
async def test_impossible_pools_are_refused(models: Path, options: dict[str, object], words: str) -> None:
    with pytest.raises(ModelLoadFailed, match=words):
        await Engine.start(spec_of(models, **options))
