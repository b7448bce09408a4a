"""When the cache changes its layout: by arithmetic, and in an engine with a real model."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.client.engine import Completion, Engine
from orchestrator.engine.contract import EngineSpec, EngineStats, Generation, Message
from orchestrator.engine.kv.layout import AttentionReads, CacheLayout, begins_as_pool, layout_may_change
from orchestrator.engine.llama import CannotLoad, Llama, loading, model
from orchestrator.engine.step_cost.calibration import store_step_costs
from orchestrator.engine.step_cost.model import Points, StepCostModel
from orchestrator.registry.options import PromptLookupOptions, SpeculationOptions
from tests.orchestrator.engine.driven_loop import Parent, driven_loop

BASE, CELL = 0.01, 1e-6
STREAMS = StepCostModel(Points((1, 64), (BASE, BASE)), Points((1,), (BASE,)), prefill=0.001, per_cell=CELL)
SIBLINGS = AttentionReads(width=16, stream_cells=16 * 1060, pool_cells=1024 + 16 * 36)
STRANGERS = AttentionReads(width=16, stream_cells=16 * 1060, pool_cells=16 * 1060)
PRICE = 0.5


def seconds(reads: AttentionReads, *, split: bool, dearer: float = 1.0) -> float:
    """Return what a step takes where reading a pool costs `dearer` times what is assumed."""
    return BASE + CELL * (reads.stream_cells if split else dearer * reads.pool_read_cells)


def run(layout: CacheLayout, reads: AttentionReads, steps: int, dearer: float = 1.0, price: float = PRICE) -> int:
    """Do steps, idle after each, and return how often the layout changed."""
    changes = 0
    for _ in range(steps):
        layout.record(reads, seconds(reads, split=layout.split, dearer=dearer), STREAMS)
        if layout.change_is_due(price):
            layout.change()
            changes += 1
    return changes


def test_siblings_get_a_pool_when_it_would_have_paid_and_strangers_streams_again() -> None:
    layout = CacheLayout(split=True)
    saved = seconds(SIBLINGS, split=True) - seconds(SIBLINGS, split=False)
    assert run(layout, SIBLINGS, round(0.9 * PRICE / saved)) == 0
    assert run(layout, SIBLINGS, round(PRICE / saved)) == 1
    assert not layout.split
    assert run(layout, SIBLINGS, 10_000) == 0
    assert run(layout, STRANGERS, 1000) == 1
    assert layout.split
    assert run(layout, STRANGERS, 10_000) == 0


def test_a_pool_that_is_dearer_than_assumed_is_left_and_not_tried_again() -> None:
    layout = CacheLayout(split=True)
    assert run(layout, SIBLINGS, 5000, dearer=7.0) == 2
    assert layout.split
    assert run(layout, SIBLINGS, 20_000, dearer=7.0) == 0


@pytest.mark.parametrize("split", [True, False])
@pytest.mark.parametrize("reads", [AttentionReads(1, 2000, 2000), AttentionReads(4, 4 * 500, 500 * 2 + 40)])
def test_what_is_as_good_in_both_stays_as_it_is(split: bool, reads: AttentionReads) -> None:
    assert run(CacheLayout(split=split), reads, 20_000) == 0


def test_nothing_is_concluded_from_a_model_whose_cells_cost_nothing() -> None:
    layout = CacheLayout(split=True)
    layout.record(SIBLINGS, 1.0, replace(STREAMS, per_cell=0.0), count=1000)
    assert layout.regret == 0.0


def test_padding_that_costs_much_leads_to_a_pool_which_stays() -> None:
    compute = replace(STREAMS, decode=Points((1, 64), (BASE, 64 * BASE)))
    layout, reads = CacheLayout(split=True), AttentionReads(4, 4 * 60, 4 * 60)
    step = compute.seconds(6, 6)
    layout.record(reads, step, compute, padded=2)
    assert layout.regret == pytest.approx(2 * BASE - 0.05 * step, rel=0.05)
    layout.record(reads, step, compute, count=100, padded=2)
    assert layout.change_is_due(1.0)
    layout.change()
    layout.record(reads, compute.seconds(4, 4), compute, count=10_000)
    assert layout.regret == 0.0, "what streams would save in attention is less than their padding"


def test_padding_that_makes_a_step_faster_is_no_loss() -> None:
    tiled = replace(STREAMS, decode=Points((1, 3, 4, 64), (BASE, 5 * BASE, 3 * BASE, 64 * BASE)), pads=True)
    assert tiled.padding_seconds(3, 1) == 0.0
    assert tiled.padding_seconds(3, 0) == 0.0
    assert tiled.padding_seconds(3, 3) > 0.0


any_reads = st.builds(
    lambda width, shared, own: AttentionReads(width, width * (shared + own), shared + width * own),
    st.integers(1, 64),
    st.integers(0, 4000),
    st.integers(1, 500),
)


@given(st.lists(st.tuples(any_reads, st.integers(1, 100)), min_size=1, max_size=6), st.floats(0.01, 1.0))
def test_waiting_costs_no_more_than_the_change(loads: list[tuple[AttentionReads, int]], price: float) -> None:
    """Between two changes, what the other layout would have saved since any moment is at most the price."""
    layout = CacheLayout(split=True)
    lost = 0.0
    for reads, steps in loads:
        for _ in range(steps):
            mine, other = seconds(reads, split=layout.split), seconds(reads, split=not layout.split)
            lost = max(0.0, lost + mine - other - 0.05 * mine)
            layout.record(reads, mine, STREAMS)
            if layout.change_is_due(price):
                layout.change()
                lost = 0.0
            assert lost <= price * (1 + 1e-9), "but for rounding, as it is summed up otherwise here"


@pytest.mark.parametrize(
    "settled",
    [
        {"batch_invariant": True},
        {"cells": 4096},
        {"split": True},
        {"split": False},
        {"speculation": SpeculationOptions("d.gguf")},
        {"slots": 1},
    ],
)
def test_a_layout_that_is_settled_does_not_change(settled: dict[str, object]) -> None:
    spec = EngineSpec(file="m.gguf", context=512, slots=4, prompt_lookup=PromptLookupOptions(3, 6))
    assert layout_may_change(spec, "auto")
    assert not layout_may_change(spec, "off")
    assert not layout_may_change(replace(spec, **settled), "auto")  # type: ignore[arg-type]


def test_a_small_cache_begins_as_a_pool_and_a_large_or_settled_one_does_not() -> None:
    spec = EngineSpec(file="m.gguf", slots=4)
    assert begins_as_pool(spec, "auto", 2048)
    assert not begins_as_pool(spec, "auto", 2049)
    assert not begins_as_pool(spec, "off", 512)
    assert not begins_as_pool(replace(spec, split=True), "auto", 512)


# With a real model. It has one thread and is told what steps cost, because the test machine may be busy.

SYSTEM = "every answer begins with this, "
LONG = "the quick brown fox jumps over the lazy dog and runs away " * 20
SLOTS = 8


def spec_of(models: Path, folder: Path, **options: Any) -> EngineSpec:
    settings = {"context": 1536, "slots": SLOTS, "threads": 1, "hung_seconds": 60, "flash_attention": "on", **options}
    return EngineSpec(file=str(models / "quantised.gguf"), step_costs=str(folder), **settings)


@pytest.fixture
def spec(models: Path, tmp_path: Path) -> EngineSpec:
    """An engine for which cells are so expensive that it changes its layout as soon as the other one reads fewer."""
    spec = spec_of(models, tmp_path)
    store_step_costs(Llama(spec), spec, 1, replace(STREAMS, per_cell=1e-3))
    return spec


def siblings(number: int) -> list[Generation]:
    """Requests that have nearly all in common."""
    text = f"{number} {LONG}"
    return [
        Generation(messages=(Message("system", SYSTEM), Message("user", f"{text} {n}")), max_tokens=60)
        for n in range(SLOTS)
    ]


def strangers(number: int) -> list[Generation]:
    """As long ones that have only the system message in common."""
    return [
        Generation(messages=(Message("system", SYSTEM), Message("user", f"{number} {n} {LONG}")), max_tokens=60)
        for n in range(SLOTS)
    ]


async def until_changed(engine: Engine, load: Callable[[int], list[Generation]], changes: int) -> EngineStats:
    for number in range(40):
        await ask(engine, load(number))
        if (stats := await engine.stats()).layout_changes >= changes:
            break
    return stats


async def ask(engine: Engine, requests: list[Generation]) -> list[Completion]:
    return await asyncio.gather(*map(engine.generate, requests))


async def test_the_engine_follows_its_load_and_loses_nothing(
    spec: EngineSpec, sabotage: Callable[[str, str], None]
) -> None:
    undisturbed = "def replaced(self, threads):\n    return False"
    sabotage("orchestrator.engine.worker.contention:CpuUse.disturbed", undisturbed)
    # What it would learn from the time of real steps contradicts the costs that this engine was given.
    sabotage(
        "orchestrator.engine.kv.layout:CacheLayout._learn", "def replaced(self, reads, seconds, streams):\n    pass"
    )
    async with await Engine.start(spec) as engine:
        assert (await engine.stats()).split_cache
        pooled = await until_changed(engine, siblings, 1)
        assert (pooled.layout_changes, pooled.split_cache) == (1, False)
        reused = (await engine.stats()).reused_tokens
        answers = await ask(engine, siblings(100))
        assert {one.finish for one in answers} == {"length"}
        stats = await engine.stats()
        assert stats.reused_tokens - reused >= (SLOTS - 1) * answers[0].usage.prompt_tokens * 0.9
        assert stats.prompt_tokens == stats.reused_tokens + stats.prefill_tokens
        split = await until_changed(engine, strangers, 2)
        assert (split.layout_changes, split.split_cache) == (2, True)
        assert (split.threads, split.cells) == (1, SLOTS * 1536)
        # What was finished before the change; on a busy machine, that is before the first strangers are.
        again = [*await ask(engine, siblings(100)), *await ask(engine, strangers(0))]
        lost = [completion.usage.reuse.lost_tokens for completion in again]
        assert any(causes.get("layout changed", 0) > len(LONG) / 2 for causes in lost)


def test_where_there_is_no_memory_for_another_layout_the_old_one_stays(
    spec: EngineSpec, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    llama = Llama(spec)
    failures = iter([CannotLoad("memory", "no room for a pool")])

    def fail_once(*given: Any) -> object:
        for error in failures:
            raise error
        return loading.new_context(*given)

    monkeypatch.setattr(model, "new_context", fail_once)
    monkeypatch.setattr("orchestrator.engine.worker.contention.CpuUse.disturbed", lambda self, threads: False)
    with driven_loop(llama, spec) as parent:
        for requests in (siblings(1), siblings(2), strangers(3), strangers(4)):
            ask_all(parent, requests)
        stats = parent.stats().stats
    assert "the layout of the KV cache stays as it was: no room for a pool" in capfd.readouterr().err
    assert (stats.split_cache, stats.running) == (True, 0)
    assert stats.layout_changes == 1, "it is not tried again"


def ask_all(parent: Parent, requests: list[Generation]) -> None:
    """Send requests together, and wait until all of them were answered in full."""
    for request in requests:
        parent.submit(request)
    assert [parent.finished().finish for _ in requests] == ["length"] * len(requests)


def test_threads_that_were_set_stay(models: Path, tmp_path: Path) -> None:
    spec = spec_of(models, tmp_path, slots=2, threads=2)
    llama = Llama(spec)
    llama.set_threads(1)
    llama.set_layout(spec, split=False)
    assert (llama.threads, llama.split, llama.sequences) == (1, False, 64)
