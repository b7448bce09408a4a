"""What an engine has computed of prompts is on disk when it ends, and the next engine restores it."""

import asyncio
import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from orchestrator.engine.client.engine import Completion, Engine
from orchestrator.engine.contract import EngineSpec, EngineStats, Generation, Message
from orchestrator.engine.errors import EngineDied
from orchestrator.engine.kv.prefix_value import LEAST_TOKENS
from orchestrator.engine.kv.streams import StreamSlots
from orchestrator.engine.llama import Llama
from orchestrator.engine.step_cost.model import StepCostModel
from orchestrator.engine.worker.stored_prefixes import StoredPrefixes

SYSTEM = "the quick brown fox jumps over the lazy dog and runs away " * 3
PERSONA = SYSTEM + "\nspeak like a sailor who has seen it all, and say so in every sentence "
ELSE = "some other text that no other begins with, and that is long enough to be kept as well " * 2
LAYOUTS = [
    {"batch_invariant": True},
    pytest.param({"batch_invariant": False}, marks=pytest.mark.slow),
    {"batch_invariant": False, "split": True, "kv_type_k": "f32"},
]


def spec_of(models: Path, folder: Path, **options: Any) -> EngineSpec:
    settings = {"context": 1024, "slots": 4, "threads": 1, "hung_seconds": 60, "batch_invariant": True, **options}
    return EngineSpec(
        **{
            "file": str(models / "quantised.gguf"),
            "step_costs": str(models / "curves"),
            "prefixes": str(folder / "prefixes"),
            "stores_all": True,  # such small models compute faster than a file is read
            "log_file": str(folder / "engine.log"),
            **settings,
        }
    )


def ask(system: str, *turns: str, max_tokens: int = 24) -> Generation:
    roles = ("user", "assistant")
    messages = [Message(roles[number % 2], turn) for number, turn in enumerate(turns or ("hello",))]
    return Generation(messages=(Message("system", system), *messages), max_tokens=max_tokens)


async def life(spec: EngineSpec, *requests: str | Generation) -> tuple[list[Completion], EngineStats]:
    async with await Engine.start(spec) as engine:
        asked = [ask(request) if isinstance(request, str) else request for request in requests]
        return [await engine.generate(request) for request in asked], await engine.stats()


async def until_stored(engine: Engine, count: int = 1) -> None:
    """Wait until the engine, which is idle, has written `count` prompts."""
    async with asyncio.timeout(100):
        while (await engine.stats()).stored_prefixes < count:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def kept(folder: Path) -> list[Path]:
    return sorted((folder / "prefixes").glob("*"))


def texts(completions: Sequence[Completion]) -> list[str]:
    return [completion.text for completion in completions]


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_the_next_engine_computes_none_of_it_and_says_the_same(
    models: Path, tmp_path: Path, layout: dict[str, object]
) -> None:
    spec = spec_of(models, tmp_path, **layout)
    first, before = await life(spec, PERSONA, ELSE, "short")
    assert before.restored_prefixes == 0
    assert before.reused_tokens < 64
    second, after = await life(spec, PERSONA, ELSE, "short")
    assert after.restored_prefixes >= 2
    assert after.restored_tokens <= after.reused_tokens
    for completion in second[:2]:
        assert completion.usage.cached_tokens == completion.usage.prompt_tokens - 1
    assert after.prompt_tokens == after.reused_tokens + after.prefill_tokens
    if layout["batch_invariant"]:
        assert texts(second) == texts(first)


async def test_nothing_is_read_before_a_request_needs_it(models: Path, tmp_path: Path) -> None:
    spec = spec_of(models, tmp_path)
    await life(spec, PERSONA)
    _, stats = await life(spec, ELSE)
    assert (stats.restored_prefixes, stats.retained) == (0, 1)
    _, stats = await life(spec)
    assert (stats.restored_prefixes, stats.retained) == (0, 0)


async def test_documents_and_turns_of_conversations_outlast_the_engine(models: Path, tmp_path: Path) -> None:
    spec = spec_of(models, tmp_path)
    (answer,), _ = await life(spec, ask(SYSTEM, ELSE))
    history = (ELSE, answer.text or "yes", "and then?")
    (second,), stats = await life(spec, ask(SYSTEM, *history))
    assert second.usage.cached_tokens >= answer.usage.prompt_tokens - 1
    assert stats.restored_prefixes == 1
    # Another question about the same document shares all but the last tokens of it.
    (other,), _ = await life(spec, ask(SYSTEM, ELSE + "and now for something else"))
    assert other.usage.cached_tokens > answer.usage.prompt_tokens - 2 * 64
    fresh = replace(spec, prefixes=None)
    assert texts((await life(fresh, ask(SYSTEM, *history)))[0]) == [second.text]
    assert texts((await life(fresh, ask(SYSTEM, ELSE + "and now for something else")))[0]) == [other.text]


async def test_after_a_kill_what_was_written_before_is_used(models: Path, tmp_path: Path) -> None:
    spec = spec_of(models, tmp_path)
    engine = await Engine.start(spec)
    async with engine:
        first = await engine.generate(ask(PERSONA))
        await until_stored(engine)
        running = asyncio.create_task(engine.generate(ask(ELSE, max_tokens=300)))
        await asyncio.sleep(0)
        os.kill(engine.info.pid, signal.SIGKILL)
        with pytest.raises(EngineDied):
            await running
    second, stats = await life(spec, PERSONA)
    assert stats.restored_prefixes == 1
    assert second[0].usage.cached_tokens == second[0].usage.prompt_tokens - 1
    assert second[0].text == first.text


async def test_what_is_running_when_the_engine_stops_is_stored_too(models: Path, tmp_path: Path) -> None:
    spec = spec_of(models, tmp_path)
    async with await Engine.start(spec) as engine:
        begun = asyncio.Event()
        request = replace(ask(PERSONA, max_tokens=250), ignore_end=True)
        running = asyncio.create_task(engine.generate(request, lambda _: begun.set()))
        await begun.wait()
        await engine.stop()
        with pytest.raises(EngineDied):
            await running
    second, _ = await life(spec, PERSONA)
    assert second[0].usage.cached_tokens == second[0].usage.prompt_tokens - 1


async def test_a_conversation_is_written_again_only_when_it_has_grown(models: Path, tmp_path: Path) -> None:
    spec = spec_of(models, tmp_path)
    async with await Engine.start(spec) as engine:
        await engine.generate(ask(SYSTEM, "hello"))
        await until_stored(engine)
        (first,) = kept(tmp_path)
        await engine.generate(ask(SYSTEM, "hello"))
        await engine.generate(ask(SYSTEM, "hello", "well", ELSE))
        await until_stored(engine, 2)
        (second,) = kept(tmp_path)
        assert second != first, "it starts with what the first one had"
        assert (await engine.stats()).stored_prefixes == 2


@pytest.mark.parametrize("how", ["changed", "cut", "empty"])
async def test_a_damaged_file_is_removed_and_the_prompt_computed_again(models: Path, tmp_path: Path, how: str) -> None:
    spec = spec_of(models, tmp_path)
    first, _ = await life(spec, PERSONA)
    (file,) = kept(tmp_path)
    whole = file.read_bytes()
    middle = len(whole) // 2
    damaged = {"cut": whole[:middle], "changed": whole[:middle] + b"?" + whole[middle + 1 :], "empty": b""}[how]
    file.write_bytes(damaged)
    again, stats = await life(spec, PERSONA)
    assert stats.restored_prefixes == 0
    assert again[0].text == first[0].text
    if how == "changed":
        assert f"the prompt in {file} is not used" in Path(spec.log_file or "").read_text()  # noqa: ASYNC240
    assert kept(tmp_path) == [file]
    assert file.read_bytes() not in (damaged, b"")
    assert (await life(spec, PERSONA))[1].restored_prefixes == 1


async def test_another_model_or_other_settings_do_not_take_it(models: Path, tmp_path: Path) -> None:
    await life(spec_of(models, tmp_path), PERSONA)
    others = ({"file": str(models / "float.gguf")}, {"kv_type_k": "f32"}, {"batch_invariant": False})
    for other in others:
        _, stats = await life(spec_of(models, tmp_path, **other), PERSONA)
        assert stats.restored_prefixes == 0
    assert len(kept(tmp_path)) == 4


def test_another_version_of_llama_cpp_does_not_take_it(models: Path, tmp_path: Path) -> None:
    spec = spec_of(models, tmp_path)
    llama = Llama(spec)
    version, tokens = llama.info.llama_cpp, np.arange(1, 101, dtype=np.int32)
    restored = []
    for number, each in enumerate((version, "0.0.1", version)):
        llama.info = replace(llama.info, llama_cpp=each)
        llama.clear()
        slots = StreamSlots(llama, spec.slots, lambda _, count: count)
        stored = StoredPrefixes(llama, spec, lambda: StepCostModel.assumed(0.01), lambda _: None)
        stored.restore(slots, tokens, ())
        restored.append(stored.restored)
        if number == 0:
            place = slots.admit(tokens, 1)
            assert place is not None
            llama.batch.clear()
            llama.batch.add(place[0], 0, tokens, 1)
            llama.decode()
            slots.mark_computed(place[0], tokens)
            slots.release(place[0], len(tokens))
            stored.save(slots, 100.0)
    assert restored == [0, 0, 1]


async def test_both_layouts_of_the_cache_take_it(models: Path, tmp_path: Path) -> None:
    exactly = {"kv_type_k": "f32", "kv_type_v": "f32", "flash_attention": "off", "batch_invariant": False}
    spec = spec_of(models, tmp_path, file=str(models / "float.gguf"), split=True, **exactly)
    first, _ = await life(spec, ELSE, PERSONA)
    for other in (replace(spec, split=False), replace(spec, slots=3), spec):
        second, stats = await life(other, PERSONA)
        assert stats.restored_prefixes == 1
        assert second[0].usage.cached_tokens == second[0].usage.prompt_tokens - 1
        assert second[0].text == first[1].text


@pytest.mark.parametrize("split", [True, False])
async def test_a_full_cache_makes_room_for_what_is_restored(models: Path, tmp_path: Path, split: bool) -> None:
    systems = [f"{number} {ELSE}" for number in range(6)]
    spec = spec_of(models, tmp_path, context=512, slots=2, split=split, batch_invariant=False)
    await life(spec, *systems[:2])
    await life(spec, *systems[2:4])
    done, stats = await life(spec, *systems, *systems[:2])
    assert all(one.usage.cached_tokens == one.usage.prompt_tokens - 1 for one in done[:4])
    assert stats.restored_prefixes >= 4


async def test_requests_that_come_together_share_what_is_restored(models: Path, tmp_path: Path) -> None:
    spec = spec_of(models, tmp_path, split=False, batch_invariant=False)
    await life(spec, ask(PERSONA, ELSE))
    async with await Engine.start(spec) as engine:
        done = await asyncio.gather(*(engine.generate(ask(PERSONA, ELSE + str(number))) for number in range(6)))
        stats = await engine.stats()
    assert stats.restored_prefixes == 1
    assert all(one.usage.cached_tokens > 64 for one in done)


async def test_what_others_decode_meanwhile_stays_the_same(models: Path, tmp_path: Path) -> None:
    spec = spec_of(models, tmp_path)
    long = replace(ask(ELSE, max_tokens=150), ignore_end=True)
    alone, _ = await life(spec, long, PERSONA)
    async with await Engine.start(spec) as engine:
        begun = asyncio.Event()
        running = asyncio.create_task(engine.generate(long, lambda _: begun.set()))
        await begun.wait()
        other = await engine.generate(ask(PERSONA))
        assert other.usage.cached_tokens == other.usage.prompt_tokens - 1
        assert texts([await running, other]) == texts(alone)


async def test_the_folder_stays_within_its_bytes(models: Path, tmp_path: Path) -> None:
    await life(spec_of(models, tmp_path), ELSE)
    (older,) = kept(tmp_path)
    await life(spec_of(models, tmp_path, prefix_bytes=older.stat().st_size * 3 // 2), PERSONA)
    assert len(kept(tmp_path)) == 1
    await life(spec_of(models, tmp_path, prefix_bytes=10), ELSE)
    assert kept(tmp_path) == []


async def test_short_prompts_are_not_stored(models: Path, tmp_path: Path) -> None:
    done, stats = await life(spec_of(models, tmp_path, stores_all=False), SYSTEM)
    assert done[0].usage.prompt_tokens < LEAST_TOKENS
    assert stats.stored_prefixes == 0
    assert kept(tmp_path) == []


async def test_without_a_folder_that_can_be_written_it_works_all_the_same(models: Path, tmp_path: Path) -> None:
    (tmp_path / "prefixes").write_text("a file")
    done, _ = await life(spec_of(models, tmp_path), PERSONA)
    assert done[0].usage.output_tokens > 0
    log = (tmp_path / "engine.log").read_text()
    assert "no stored prompts can be read" in log
    assert "a prompt cannot be stored" in log
