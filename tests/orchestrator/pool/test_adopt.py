"""A registry that changes while its models are loaded, in use or waited for."""

import asyncio
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from orchestrator.engine.client.engine import Completion
from orchestrator.engine.contract import Generation, Message
from orchestrator.pool.errors import ModelUnavailable, UnknownModel
from orchestrator.pool.pool import Pool
from orchestrator.registry.models import Registry
from orchestrator.registry.options import LoadOptions
from tests.orchestrator.pool.conftest import LoadedRegistry
from tests.orchestrator.pool.pool_use import SHORT, begin, pid_of, status_of, until, writes

LONG = writes(120)
CONTEXT = 128


@pytest.fixture(autouse=True)
def _no_process_is_left() -> Iterator[None]:
    before = set(psutil.Process().children(recursive=True))
    yield
    assert set(psutil.Process().children(recursive=True)) == before


def _with(registry: Registry, model: str, **changes: Any) -> Registry:
    """Return a registry with other values for fields of a model's entry, or for options that it is loaded with."""
    entry, loading = registry.models[model], {field.name for field in fields(LoadOptions)}
    options = replace(entry.options, **{name: value for name, value in changes.items() if name in loading})
    others = {name: value for name, value in changes.items() if name not in loading}
    return replace(registry, models={**registry.models, model: replace(entry, options=options, **others)})


def _without(registry: Registry, model: str) -> Registry:
    return replace(registry, models={name: entry for name, entry in registry.models.items() if name != model})


def _has(pool: Pool, model: str) -> bool:
    return any(status.model == model for status in pool.snapshot().models)


async def test_what_runs_ends_as_it_began_and_what_comes_is_served_as_the_registry_now_says(
    registry_of: LoadedRegistry, tmp_path: Path
) -> None:
    registry = registry_of(a="warm", b="warm")
    async with Pool(registry, tmp_path) as pool:
        running, bystander = await begin(pool, "a", LONG), await begin(pool, "b", LONG)
        before = {model: pid_of(pool, model) for model in "ab"}
        pool.adopt(_with(registry, "a", context=CONTEXT))
        assert pid_of(pool, "a") == before["a"]
        assert "the registry has changed" in (status_of(pool, "a").reason or "")
        later = await asyncio.gather(*(pool.generate("a", SHORT) for _ in range(3)))
        assert running.done(), "the next engine comes when the last one has gone"
        assert (await running).usage.output_tokens == 120
        assert all(completion.usage.output_tokens > 0 for completion in later)
        assert pid_of(pool, "a") != before["a"]
        assert not psutil.pid_exists(before["a"])
        assert (await bystander).usage.output_tokens == 120
        assert pid_of(pool, "b") == before["b"]
        too_long = Generation(messages=(Message("user", "word " * 100),), max_tokens=4)
        with pytest.raises(Exception, match=str(CONTEXT)):
            await pool.generate("a", too_long)
        assert status_of(pool, "a").reason is None


async def test_an_idle_engine_that_is_loaded_in_another_way_goes_at_once(
    registry_of: LoadedRegistry, tmp_path: Path
) -> None:
    registry = registry_of(a="warm")
    async with Pool(registry, tmp_path) as pool:
        await pool.generate("a", SHORT)
        pool.adopt(_with(registry, "a", slots=2))
        await until(lambda: status_of(pool, "a").state == "unloaded")
        assert pool.snapshot().used == 0
        assert (await pool.generate("a", SHORT)).usage.output_tokens > 0


async def test_an_engine_whose_file_was_rewritten_goes(registry_of: LoadedRegistry, tmp_path: Path) -> None:
    registry = registry_of(a="warm", b="warm")
    async with Pool(registry, tmp_path) as pool:
        await asyncio.gather(pool.generate("a", SHORT), pool.generate("b", SHORT))
        pid, file = pid_of(pool, "b"), registry.models["a"].file
        assert file is not None
        pool.adopt(registry, {file})
        await until(lambda: status_of(pool, "a").state == "unloaded")
        assert pid_of(pool, "b") == pid


async def test_words_about_a_model_touch_no_engine(registry_of: LoadedRegistry, tmp_path: Path) -> None:
    registry = registry_of(a="warm")
    async with Pool(registry, tmp_path) as pool:
        await pool.generate("a", SHORT)
        pid = pid_of(pool, "a")
        described = _with(registry, "a", description="other words")
        pool.adopt(described)
        pool.adopt(described)
        assert (await pool.generate("a", SHORT)).usage.output_tokens > 0
        assert pid_of(pool, "a") == pid


async def test_a_removed_model_ends_when_its_leases_do(registry_of: LoadedRegistry, tmp_path: Path) -> None:
    registry = registry_of(a="warm", b="warm")
    smaller = _without(registry, "a")
    async with Pool(registry, tmp_path) as pool:
        running = await begin(pool, "a", LONG)
        pid = pid_of(pool, "a")
        pool.adopt(smaller)
        with pytest.raises(UnknownModel, match="there is no model 'a'; accepted: b"):
            await pool.generate("a", SHORT)
        assert (await running).usage.output_tokens == 120
        await until(lambda: not _has(pool, "a"))
        assert not psutil.pid_exists(pid)
        pool.adopt(registry)
        assert (await pool.generate("a", SHORT)).usage.output_tokens > 0


async def test_a_model_that_comes_back_before_it_has_gone_is_served(
    registry_of: LoadedRegistry, tmp_path: Path
) -> None:
    registry = registry_of(a="warm", b="warm")
    async with Pool(registry, tmp_path) as pool:
        running = await begin(pool, "a", LONG)
        pid = pid_of(pool, "a")
        pool.adopt(_without(registry, "a"))
        pool.adopt(registry)
        assert (await pool.generate("a", SHORT)).usage.output_tokens > 0
        assert (await running).usage.output_tokens == 120
        assert pid_of(pool, "a") != pid


async def test_requests_that_wait_for_a_model_that_is_removed_get_an_error(
    registry_of: LoadedRegistry, tmp_path: Path
) -> None:
    registry = registry_of(a="warm", b="warm")
    async with Pool(registry, tmp_path) as pool:
        waiting = asyncio.create_task(pool.generate("a", SHORT))
        await until(lambda: status_of(pool, "a").state == "loading")
        pool.adopt(_without(registry, "a"))
        with pytest.raises(UnknownModel, match="no longer in the registry"):
            await waiting
        await until(lambda: not _has(pool, "a"))
        assert pool.snapshot().used == 0


async def test_added_and_newly_hot_models_are_there(registry_of: LoadedRegistry, tmp_path: Path) -> None:
    whole = registry_of(a="warm", b="warm", c="warm")
    registry = _without(whole, "c")
    async with Pool(registry, tmp_path) as pool:
        larger = _with(_with(whole, "b", residency="hot"), "c", residency="hot")
        pool.adopt(larger)
        await until(lambda: [status_of(pool, model).state for model in "abc"] == ["unloaded", "ready", "ready"])
        pids = [pid_of(pool, model) for model in "bc"]
        pool.adopt(_with(larger, "b", residency="warm"))
        assert [status_of(pool, model).pinned for model in "abc"] == [False, False, True]
        assert [pid_of(pool, model) for model in "bc"] == pids


async def test_a_hot_model_is_loaded_anew_by_itself(registry_of: LoadedRegistry, tmp_path: Path) -> None:
    registry = registry_of(a="hot")
    async with Pool(registry, tmp_path) as pool:
        await pool.generate("a", SHORT)
        pid = pid_of(pool, "a")
        pool.adopt(_with(registry, "a", context=CONTEXT))
        await until(lambda: status_of(pool, "a").pid not in (None, pid))


async def test_a_model_that_becomes_cold_is_refused(registry_of: LoadedRegistry, tmp_path: Path) -> None:
    registry = registry_of(a="warm")
    async with Pool(registry, tmp_path) as pool:
        running = await begin(pool, "a", LONG)
        pool.adopt(_with(registry, "a", residency="cold"))
        with pytest.raises(ModelUnavailable, match="model a is cold"):
            await pool.generate("a", SHORT)
        assert running.done()
        assert (await running).usage.output_tokens == 120
        assert status_of(pool, "a").state == "unavailable"


async def test_what_models_may_take_together_is_taken_up(registry_of: LoadedRegistry, tmp_path: Path) -> None:
    registry = registry_of(a="warm")
    async with Pool(registry, tmp_path) as pool:
        pool.adopt(replace(registry, defaults=replace(registry.defaults, memory=5 << 20)))
        assert pool.snapshot().budget == 5 << 20
        with pytest.raises(Exception, match=r"the budget is 5.0 MiB"):
            await pool.generate("a", SHORT)
        pool.adopt(registry)
        assert (await pool.generate("a", SHORT)).usage.output_tokens > 0
    async with Pool(registry, tmp_path, budget=1 << 30) as pool:
        pool.adopt(replace(registry, defaults=replace(registry.defaults, memory=5 << 20)))
        assert pool.snapshot().budget == 1 << 30


async def test_a_hot_model_that_takes_the_place_of_a_busy_one_waits_for_it(
    registry_of: LoadedRegistry, tmp_path: Path
) -> None:
    whole = registry_of(a="hot", b="hot")
    assert whole.models["a"].memory is not None
    async with Pool(_without(whole, "b"), tmp_path, budget=int(1.5 * whole.models["a"].memory.total)) as pool:
        running = await begin(pool, "a", LONG)
        pool.adopt(_without(whole, "a"))
        assert (await pool.generate("b", SHORT)).usage.output_tokens > 0
        assert (await running).usage.output_tokens == 120


async def test_a_hot_model_that_did_not_fit_is_loaded_when_there_may_be_more(
    registry_of: LoadedRegistry, tmp_path: Path
) -> None:
    registry = registry_of(a="hot", defaults="memory: 1 MiB")
    async with Pool(registry, tmp_path) as pool:
        await until(lambda: "the budget is 1.0 MiB" in (status_of(pool, "a").reason or ""))
        pool.adopt(replace(registry, defaults=replace(registry.defaults, memory=1 << 30)))
        await until(lambda: status_of(pool, "a").state == "ready")
        assert status_of(pool, "a").reason is None


async def test_a_pinned_model_that_nobody_has_asked_for_is_not_loaded_for_other_words(
    registry_of: LoadedRegistry, tmp_path: Path
) -> None:
    registry = registry_of(a="warm")
    async with Pool(registry, tmp_path) as pool:
        pool.pin("a")
        pool.adopt(_with(registry, "a", description="other words"))
        assert status_of(pool, "a").state == "unloaded"
        assert status_of(pool, "a").pinned


async def test_what_is_mapped_is_not_counted_twice_when_defaults_change(
    registry_of: LoadedRegistry, tmp_path: Path
) -> None:
    registry = registry_of(a="warm")
    async with Pool(registry, tmp_path) as pool:
        before = pool.snapshot().budget
        await pool.generate("a", SHORT)
        pool.adopt(replace(registry, defaults=replace(registry.defaults, max_replans=1)))
        assert pool.snapshot().budget == before


async def test_those_who_wait_for_a_model_that_is_corrected_while_it_loads_get_the_correct_one(
    registry_of: LoadedRegistry, tmp_path: Path
) -> None:
    good = registry_of(a="warm")
    no_model = tmp_path / "b.gguf"
    no_model.write_bytes(b"GGUF" + bytes(60))
    async with Pool(_with(good, "a", file=no_model), tmp_path) as pool:
        waiting = asyncio.create_task(pool.generate("a", SHORT))
        while status_of(pool, "a").state != "loading":  # noqa: ASYNC110 - each turn of the loop: loading may be over in a moment
            await asyncio.sleep(0)
        pool.adopt(good)
        assert (await waiting).usage.output_tokens > 0


async def test_any_order_of_changes_leaves_what_the_last_registry_says(
    registry_of: LoadedRegistry, tmp_path: Path
) -> None:
    whole = registry_of(a="warm", b="hot")
    versions = [
        whole,
        _with(whole, "a", context=CONTEXT),
        _without(whole, "a"),
        _with(whole, "b", slots=2),
        _with(_with(whole, "a", slots=3), "b", residency="warm"),
        whole,
    ]
    async with Pool(whole, tmp_path) as pool:
        asked = [asyncio.create_task(pool.generate(model, SHORT)) for model in "abab"]
        for version in versions[1:]:
            await asyncio.sleep(0.03)
            pool.adopt(version)
            asked += [asyncio.create_task(pool.generate(model, SHORT)) for model in "ab"]
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        assert all(isinstance(outcome, Completion | UnknownModel) for outcome in outcomes), outcomes
        assert sum(isinstance(outcome, Completion) for outcome in outcomes) >= 7
        await until(lambda: status_of(pool, "b").state == "ready")
        assert all((status.requests, status.waiting) == (0, 0) for status in pool.snapshot().models)
        assert pool.snapshot().used <= pool.snapshot().budget
