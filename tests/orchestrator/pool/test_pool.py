"""Models on demand: who gets one, who makes room, who has to wait, and what is refused."""

import asyncio
import dataclasses
import random
from pathlib import Path

import psutil
import pytest

from orchestrator.engine.client.engine import Completion
from orchestrator.engine.contract import Generation, Message
from orchestrator.engine.errors import PromptTooLong
from orchestrator.pool.errors import (
    ModelPinned,
    ModelTooLarge,
    ModelUnavailable,
    UnknownModel,
)
from orchestrator.pool.policy import Rules
from orchestrator.pool.pool import Pool
from tests.orchestrator.forked_engines import children_of_tests
from tests.orchestrator.pool.conftest import LoadedRegistry
from tests.orchestrator.pool.pool_use import MESSAGES, SHORT, begin, bytes_of, cancel, pid_of, status_of, until, writes


async def test_a_model_is_loaded_once_for_all_who_ask_together(registry_of: LoadedRegistry, tmp_path: Path) -> None:
    async with Pool(registry_of(a="warm"), tmp_path / "logs") as pool:
        assert status_of(pool, "a").state == "unloaded"
        tokens, completions = await asyncio.gather(
            pool.count("a", MESSAGES), asyncio.gather(*(pool.generate("a", SHORT) for _ in range(5)))
        )
        assert tokens == completions[0].usage.prompt_tokens
        assert {completion.text for completion in completions} == {completions[0].text}
        assert all(completion.usage.queued_seconds > 0 for completion in completions)
        assert len(children_of_tests()) == 1
        status = status_of(pool, "a")
        assert (status.state, status.requests, status.active) == ("ready", 0, 0)
        assert status.bytes == pool.snapshot().used > 0
    assert (tmp_path / "logs" / "a.log").exists()


async def test_what_each_role_asks_of_a_model_is_counted(registry_of: LoadedRegistry, tmp_path: Path) -> None:
    async with Pool(registry_of(a="warm"), tmp_path) as pool:
        running = await begin(pool, "a", dataclasses.replace(writes(), role="worker"))
        uses = status_of(pool, "a").roles
        assert (uses["worker"].requests, uses["worker"].answers) == (1, 0)
        await cancel(running)
        done = await pool.generate("a", dataclasses.replace(SHORT, role="coder"))
        await pool.generate("a", SHORT)
        with pytest.raises(UnknownModel):
            await pool.generate("nobody", SHORT)
        uses = status_of(pool, "a").roles
        assert {role: (use.requests, use.answers) for role, use in uses.items()} == {
            "worker": (0, 0),
            "coder": (0, 1),
            "": (0, 1),
        }
        assert uses["coder"].prompt_tokens == done.usage.prompt_tokens
        assert uses["coder"].output_tokens == done.usage.output_tokens


async def test_hot_models_are_loaded_at_start_and_together(registry_of: LoadedRegistry, tmp_path: Path) -> None:
    async with Pool(registry_of(a="hot", b="hot", c="warm"), tmp_path) as pool:
        await asyncio.sleep(0)
        assert [status_of(pool, model).state for model in "abc"] == ["loading", "loading", "unloaded"]
        await asyncio.gather(pool.count("a", MESSAGES), pool.count("b", MESSAGES))
        assert [status_of(pool, model).state for model in "abc"] == ["ready", "ready", "unloaded"]


async def test_the_least_recently_used_idle_model_makes_room(registry_of: LoadedRegistry, tmp_path: Path) -> None:
    registry = registry_of(a="warm", b="warm", c="warm")
    async with Pool(registry, tmp_path, budget=bytes_of(registry) * 5 // 2) as pool:
        clock = asyncio.get_running_loop().time
        began = clock()
        for model in "aba":
            await pool.generate(model, SHORT)
        await asyncio.sleep(clock() - began)  # an engine stays for as long as loading it took
        pids = {model: pid_of(pool, model) for model in "ab"}
        await pool.generate("c", SHORT)
        assert [status_of(pool, model).state for model in "abc"] == ["ready", "unloaded", "ready"]
        assert pid_of(pool, "a") == pids["a"]
        assert not psutil.pid_exists(pids["b"])
        assert pool.snapshot().used <= pool.snapshot().budget


async def test_a_hot_model_is_never_evicted(registry_of: LoadedRegistry, tmp_path: Path) -> None:
    registry = registry_of(a="hot", b="warm", c="warm")
    async with Pool(registry, tmp_path, budget=bytes_of(registry) * 5 // 2) as pool:
        for model in "abc":
            await pool.generate(model, SHORT)
        assert status_of(pool, "a").state == "ready"


async def test_a_model_in_use_is_waited_for(registry_of: LoadedRegistry, tmp_path: Path) -> None:
    registry = registry_of(a="warm", b="warm")
    async with Pool(registry, tmp_path, budget=bytes_of(registry) * 3 // 2) as pool:
        first = await begin(pool, "a", writes(40))
        second = asyncio.create_task(pool.generate("b", SHORT))
        await asyncio.sleep(0)
        assert status_of(pool, "b").state == "waiting"
        assert (await first).usage.output_tokens == 40
        assert (await second).usage.output_tokens > 0
        assert status_of(pool, "a").state == "unloaded"


async def test_a_load_that_nobody_wants_any_more_is_given_up(registry_of: LoadedRegistry, tmp_path: Path) -> None:
    registry = registry_of(a="warm", b="warm")
    async with Pool(registry, tmp_path, budget=bytes_of(registry) * 3 // 2) as pool:
        first = await begin(pool, "a", writes(40))
        second = asyncio.create_task(pool.generate("b", SHORT))
        await asyncio.sleep(0)
        second.cancel()
        await first
        assert (await pool.generate("a", SHORT)).usage.output_tokens > 0
        assert [status_of(pool, model).state for model in "ab"] == ["ready", "unloaded"]


async def test_who_gives_up_a_load_leaves_it_to_the_others(registry_of: LoadedRegistry, tmp_path: Path) -> None:
    async with Pool(registry_of(a="warm"), tmp_path) as pool:
        first, second = (asyncio.create_task(pool.generate("a", SHORT)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).usage.output_tokens > 0
        assert first.cancelled()


async def test_what_can_never_fit_is_refused_with_the_arithmetic(registry_of: LoadedRegistry, tmp_path: Path) -> None:
    registry = registry_of(a="hot", b="warm")
    wanted = bytes_of(registry)
    async with Pool(registry, tmp_path, budget=wanted * 3 // 2) as pool:
        await pool.generate("a", SHORT)
        with pytest.raises(
            ModelTooLarge, match=r"model b needs .* weights \+ .* KV cache .*HOT and pinned models keep"
        ) as caught:
            await pool.generate("b", SHORT)
        assert (caught.value.wanted, caught.value.pinned, caught.value.budget) == (wanted, wanted, wanted * 3 // 2)
        assert (await pool.generate("a", SHORT)).usage.output_tokens > 0


async def test_what_the_registry_rules_out_is_refused(registry_of: LoadedRegistry, tmp_path: Path) -> None:
    async with Pool(registry_of(a="cold"), tmp_path) as pool:
        with pytest.raises(ModelUnavailable, match="model a is cold"):
            await pool.generate("a", SHORT)
        with pytest.raises(UnknownModel, match="there is no model 'z'; accepted: a"):
            await pool.count("z", MESSAGES)
    async with Pool(registry_of(file=tmp_path / "absent.gguf", a="hot"), tmp_path) as pool:
        with pytest.raises(ModelUnavailable, match=r"absent\.gguf: cannot be read: No such file"):
            await pool.generate("a", SHORT)
        assert status_of(pool, "a").state == "unavailable"


async def test_a_deadline_counts_from_the_call_loading_included(registry_of: LoadedRegistry, tmp_path: Path) -> None:
    async with Pool(registry_of(a="warm"), tmp_path) as pool:
        hurried = Generation(messages=MESSAGES, max_tokens=4, deadline_seconds=0.001)
        completion = await pool.generate("a", hurried)
        assert (completion.text, completion.finish) == ("", "deadline")
        assert completion.usage.queued_seconds >= 0.001
        patient = Generation(messages=MESSAGES, max_tokens=4, deadline_seconds=60)
        assert (await pool.generate("a", patient)).finish in ("stop", "length")


async def test_a_model_that_idles_is_unloaded_but_not_a_hot_one(registry_of: LoadedRegistry, tmp_path: Path) -> None:
    registry = registry_of(defaults="idle_unload_seconds: 0.3", a="hot", b="warm")
    async with Pool(registry, tmp_path) as pool:
        await asyncio.gather(pool.generate("a", SHORT), pool.generate("b", SHORT))
        await until(lambda: status_of(pool, "b").state == "unloaded")
        assert status_of(pool, "a").state == "ready"
        assert (await pool.generate("b", SHORT)).usage.output_tokens > 0


async def test_load_pin_and_unload(registry_of: LoadedRegistry, tmp_path: Path) -> None:
    registry = registry_of(a="warm", b="warm")
    async with Pool(registry, tmp_path, budget=bytes_of(registry) * 3 // 2) as pool:
        await pool.load("a")
        assert status_of(pool, "a").state == "ready"
        pool.pin("a")
        with pytest.raises(ModelTooLarge, match="pinned models keep"):
            await pool.load("b")
        with pytest.raises(ModelPinned, match="model a is pinned; accepted: unpin it first"):
            await pool.unload("a")
        pool.pin("a", pinned=False)
        await pool.load("b")
        assert [status_of(pool, model).state for model in "ab"] == ["unloaded", "ready"]
        await pool.unload("b")
        assert status_of(pool, "b").state == "unloaded"
        assert not children_of_tests()
        with pytest.raises(UnknownModel):
            await pool.load("z")


async def test_unloading_waits_for_what_is_running_and_what_comes_meanwhile_loads_anew(
    registry_of: LoadedRegistry, tmp_path: Path
) -> None:
    async with Pool(registry_of(a="warm"), tmp_path) as pool:
        running = await begin(pool, "a", writes(60))
        pid = status_of(pool, "a").pid
        unloading = asyncio.create_task(pool.unload("a"))
        await asyncio.sleep(0)
        late = asyncio.create_task(pool.generate("a", SHORT))
        assert (await running).usage.output_tokens == 60
        await unloading
        assert (await late).usage.output_tokens > 0
        assert status_of(pool, "a").pid != pid


async def test_a_hot_model_is_not_unloaded(registry_of: LoadedRegistry, tmp_path: Path) -> None:
    async with Pool(registry_of(a="hot"), tmp_path) as pool:
        await pool.load("a")
        with pytest.raises(ModelPinned, match="model a is HOT"):
            await pool.unload("a")


async def test_an_endless_stream_gives_way_to_who_has_waited_too_long(
    registry_of: LoadedRegistry, tmp_path: Path
) -> None:
    registry = registry_of(a="warm", b="warm")
    rules = Rules(patience=0.3)

    async def stream() -> None:
        while True:
            await pool.generate("a", writes(10))

    async with Pool(registry, tmp_path, budget=bytes_of(registry) * 3 // 2, rules=rules) as pool:
        await pool.load("a")
        streams = [asyncio.create_task(stream()) for _ in range(3)]
        await until(lambda: status_of(pool, "a").active == 3)
        assert (await pool.generate("b", SHORT)).usage.output_tokens > 0
        await until(lambda: status_of(pool, "a").active == 3)
        for task in streams:
            await cancel(task)


async def test_what_was_measured_counts_at_the_next_load(registry_of: LoadedRegistry, tmp_path: Path) -> None:
    registry, file = registry_of(a="warm"), tmp_path / "footprints.json"
    async with Pool(registry, tmp_path, footprints=file) as pool:
        await pool.load("a")
        assert status_of(pool, "a").bytes == bytes_of(registry)
    async with Pool(registry, tmp_path, footprints=file) as pool:
        await pool.load("a")
        measured = status_of(pool, "a").bytes
        taken = psutil.Process(pid_of(pool, "a")).memory_info()
        assert taken.rss - taken.shared <= measured < bytes_of(registry)


async def test_a_batch_is_one_call_and_one_failure_is_one_result(registry_of: LoadedRegistry, tmp_path: Path) -> None:
    async with Pool(registry_of(a="warm"), tmp_path) as pool:
        too_long = Generation(messages=(Message("user", "word " * 300),), max_tokens=4)
        requests = [writes(number) for number in range(1, 9)]
        results = await pool.generate_batch("a", [*requests[:3], too_long, *requests[3:]])
        assert isinstance(results.pop(3), PromptTooLong)
        written = [result.usage.output_tokens for result in results if isinstance(result, Completion)]
        assert written == [*range(1, 9)]
        assert await pool.generate_batch("a", []) == []
        unknown = await pool.generate_batch("z", requests[:2])
        assert [type(result) for result in unknown] == [UnknownModel] * 2


async def test_estimates_are_not_below_what_a_process_takes(registry_of: LoadedRegistry, tmp_path: Path) -> None:
    registry = registry_of(a="warm")
    async with Pool(registry, tmp_path) as pool:
        await pool.generate("a", SHORT)
        taken = psutil.Process(pid_of(pool, "a")).memory_info()
        assert taken.rss - taken.shared <= bytes_of(registry)


async def test_any_mix_of_callers_is_served_or_cancelled(registry_of: LoadedRegistry, tmp_path: Path) -> None:
    chance = random.Random(3)  # noqa: S311 (a repeatable test)
    registry = registry_of(a="hot", b="warm", c="warm", d="warm")

    async def ask(pool: Pool) -> Completion | None:
        await asyncio.sleep(chance.random())
        task = asyncio.create_task(pool.generate(chance.choice("abcd"), writes(chance.randint(1, 30))))
        if chance.random() < 0.3:
            await asyncio.sleep(2 * chance.random())
            task.cancel()
        outcome = (await asyncio.gather(task, return_exceptions=True))[0]
        snapshot = pool.snapshot()
        assert snapshot.used <= snapshot.budget
        assert isinstance(outcome, Completion | asyncio.CancelledError), outcome
        return None if isinstance(outcome, asyncio.CancelledError) else outcome

    async with Pool(registry, tmp_path, budget=bytes_of(registry) * 7 // 2) as pool:
        outcomes = await asyncio.gather(*(ask(pool) for _ in range(20)))
        served = [outcome for outcome in outcomes if outcome is not None]
        assert len(served) >= 8
        assert all(outcome.finish == "length" for outcome in served)
        assert all((status.requests, status.active) == (0, 0) for status in pool.snapshot().models)


async def test_engines_are_asked_what_they_counted_and_one_that_is_busy_is_not_waited_for(
    registry_of: LoadedRegistry, tmp_path: Path
) -> None:
    async with Pool(registry_of(a="warm", b="warm"), tmp_path) as pool:
        assert all(status.counters is None for status in (await pool.survey()).models)
        long = dataclasses.replace(SHORT, messages=(Message("user", "hello there " * 10),))
        for _ in range(2):
            await pool.generate("a", long)
        counted = {status.model: status.counters for status in (await pool.survey()).models}
        assert counted["b"] is None
        assert counted["a"] is not None
        assert counted["a"].output_tokens == 2 * 4
        assert 0 < counted["a"].reused_tokens < counted["a"].prompt_tokens
        assert counted["a"].speculation is None
        engine = psutil.Process(pid_of(pool, "a"))
        engine.suspend()
        try:
            for _ in range(3):
                async with asyncio.timeout(5):
                    told = await pool.survey()
                assert counted == {status.model: status.counters for status in told.models}, "as it told before"
        finally:
            engine.resume()


async def test_a_model_that_is_pinned_while_it_is_unloaded_goes_all_the_same(
    registry_of: LoadedRegistry, tmp_path: Path
) -> None:
    async with Pool(registry_of(a="warm"), tmp_path) as pool:
        running = await begin(pool, "a")
        unloading = asyncio.create_task(pool.unload("a"))
        await asyncio.sleep(0)
        pool.pin("a")
        await running
        async with asyncio.timeout(30):
            await unloading
        assert (status_of(pool, "a").state, status_of(pool, "a").pinned) == ("unloaded", True)
        await pool.generate("a", SHORT)
        assert status_of(pool, "a").state == "ready"
