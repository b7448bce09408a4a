"""Engines that die, files that break, pools that are left in the middle."""

import asyncio
import gc
import os
import resource
import signal
from pathlib import Path

import psutil
import pytest
import structlog.testing

from orchestrator.engine.client.engine import Completion
from orchestrator.engine.contract import Generation, Message
from orchestrator.engine.errors import (
    BadGrammar,
    EngineDied,
    EngineError,
    EngineStopped,
    ModelLoadFailed,
    NotStarted,
    PromptTooLong,
)
from orchestrator.pool.errors import ModelBroken, PoolClosed
from orchestrator.pool.pool import Pool
from tests.orchestrator.pool.conftest import LoadedRegistry
from tests.orchestrator.pool.pool_use import MESSAGES, SHORT, begin, copy_file, pid_of, status_of, until, writes


async def test_a_killed_engine_is_reported_and_replaced(registry_of: LoadedRegistry, tmp_path: Path) -> None:
    async with Pool(registry_of(a="warm", b="warm"), tmp_path) as pool:
        bystander = await begin(pool, "b", writes(60))
        pending = [await begin(pool, "a") for _ in range(2)]
        pid = pid_of(pool, "a")
        os.kill(pid, signal.SIGKILL)
        for task in pending:
            with pytest.raises(EngineDied, match="SIGKILL"):
                await task
        assert (await pool.generate("a", SHORT)).usage.output_tokens > 0
        assert pid_of(pool, "a") != pid
        assert (await bystander).usage.output_tokens == 60


async def test_what_a_killed_engine_has_queued_moves_on_to_the_next_one(
    registry_of: LoadedRegistry, tmp_path: Path
) -> None:
    async with Pool(registry_of(options="slots: 1", a="warm"), tmp_path) as pool:
        running = await begin(pool, "a")
        queued = [asyncio.create_task(pool.generate("a", SHORT)) for _ in range(3)]
        async with asyncio.timeout(100):
            while not any(one.counters and one.counters.queued == 3 for one in (await pool.survey()).models):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        os.kill(pid_of(pool, "a"), signal.SIGKILL)
        with pytest.raises(EngineDied, match="SIGKILL") as caught:
            await running
        assert not isinstance(caught.value, NotStarted)
        assert all(answer.usage.output_tokens for answer in await asyncio.gather(*queued))


async def test_an_engine_that_dies_idle_is_replaced(registry_of: LoadedRegistry, tmp_path: Path) -> None:
    async with Pool(registry_of(a="warm"), tmp_path) as pool:
        await pool.generate("a", SHORT)
        os.kill(pid_of(pool, "a"), signal.SIGABRT)
        async with asyncio.timeout(100):
            while status_of(pool, "a").state == "ready":  # noqa: ASYNC110 (nobody asks, so nobody is told)
                await asyncio.sleep(0.02)
        assert status_of(pool, "a").bytes == 0
        assert "SIGABRT" in (status_of(pool, "a").reason or "")
        assert (await pool.generate("a", SHORT)).usage.output_tokens > 0


async def test_an_engine_that_keeps_dying_is_reported_broken(registry_of: LoadedRegistry, tmp_path: Path) -> None:
    async with Pool(registry_of(a="warm", b="warm"), tmp_path) as pool:
        for _ in range(3):
            pending = await begin(pool, "a")
            os.kill(pid_of(pool, "a"), signal.SIGKILL)
            with pytest.raises(EngineDied):
                await pending
        with pytest.raises(ModelBroken, match=r"failed 3 times within 60 s; next try in .*SIGKILL") as caught:
            await pool.generate("a", SHORT)
        assert len(str(caught.value).splitlines()) == 1
        assert 0 < caught.value.retry_seconds <= 60
        assert status_of(pool, "a").state == "broken"
        assert (await pool.generate("b", SHORT)).usage.output_tokens > 0


async def test_nothing_is_left_of_engines_that_were_killed(registry_of: LoadedRegistry, tmp_path: Path) -> None:
    own = psutil.Process()
    async with Pool(registry_of(a="warm"), tmp_path) as pool:
        await pool.generate("a", SHORT)
        gc.collect()  # what earlier tests have left would be closed at any moment
        before = own.num_fds(), own.num_threads(), len(own.children())
        for _ in range(2):
            pending = await begin(pool, "a")
            os.kill(pid_of(pool, "a"), signal.SIGKILL)
            with pytest.raises(EngineDied):
                await pending
            await pool.generate("a", SHORT)
        assert (own.num_fds(), own.num_threads(), len(own.children())) == before


async def test_a_request_that_memory_does_not_suffice_for_fails_alone(
    registry_of: LoadedRegistry, tmp_path: Path
) -> None:
    async with Pool(registry_of(a="warm", b="warm"), tmp_path) as pool:
        await pool.generate("a", SHORT)
        bystander = await begin(pool, "b", writes(60))
        pid = pid_of(pool, "a")
        most = psutil.Process(pid).memory_info().vms
        resource.prlimit(pid, resource.RLIMIT_AS, (most, most))
        with pytest.raises(EngineError, match=r"MemoryError|engine process"):
            await pool.generate("a", Generation(messages=(Message("user", "word " * 12_000_000),), max_tokens=4))
        assert (await pool.generate("a", SHORT)).usage.output_tokens > 0
        assert (await bystander).usage.output_tokens == 60


async def test_a_file_that_breaks_after_the_registry_was_read(
    registry_of: LoadedRegistry, model_file: Path, tmp_path: Path
) -> None:
    file = tmp_path / "own.gguf"
    copy_file(model_file, file)
    registry = registry_of(file=file, a="hot")
    copy_file(model_file, file, 5000)
    async with Pool(registry, tmp_path) as pool:
        with structlog.testing.capture_logs() as logged, pytest.raises(ModelLoadFailed, match=r"own\.gguf") as caught:
            await pool.generate("a", SHORT)
        assert (status_of(pool, "a").bytes, status_of(pool, "a").reason) == (0, str(caught.value))
        assert len(str(caught.value).splitlines()) == 1
        assert all("llama_" in line["engine_log"] for line in logged if line["event"] == "a model could not be loaded")
        copy_file(model_file, file)
        assert (await pool.generate("a", SHORT)).usage.output_tokens > 0


async def test_a_refused_request_leaves_the_engine_as_it_was(registry_of: LoadedRegistry, tmp_path: Path) -> None:
    async with Pool(registry_of(a="warm"), tmp_path) as pool:
        await pool.generate("a", SHORT)
        pid = pid_of(pool, "a")
        with pytest.raises(PromptTooLong):
            await pool.generate("a", Generation(messages=(Message("user", "word " * 300),), max_tokens=4))
        with pytest.raises(BadGrammar):
            await pool.generate("a", Generation(messages=MESSAGES, max_tokens=4, grammar="root ::= ("))
        assert (await pool.generate("a", SHORT)).usage.output_tokens > 0
        status = status_of(pool, "a")
        assert (status.pid, status.requests, status.active) == (pid, 0, 0)


async def test_a_hot_model_that_dies_is_there_again(registry_of: LoadedRegistry, tmp_path: Path) -> None:
    async with Pool(registry_of(a="hot"), tmp_path) as pool:
        await pool.load("a")
        os.kill(pid_of(pool, "a"), signal.SIGKILL)
        await until(lambda: status_of(pool, "a").state != "ready")
        await until(lambda: status_of(pool, "a").state == "ready")


async def test_leaving_the_pool_stops_what_is_running(registry_of: LoadedRegistry, tmp_path: Path) -> None:
    async with Pool(registry_of(a="warm"), tmp_path) as pool:
        task = await begin(pool, "a")
    with pytest.raises(EngineStopped):
        await task
    with pytest.raises(PoolClosed):
        await pool.generate("a", SHORT)


@pytest.mark.parametrize("delay", [0, 0.05, 0.4])
async def test_leaving_while_models_are_loading_leaves_no_process(
    registry_of: LoadedRegistry, tmp_path: Path, delay: float
) -> None:
    async with Pool(registry_of(a="hot", b="warm"), tmp_path) as pool:
        task = asyncio.create_task(pool.generate("b", SHORT))
        await asyncio.sleep(delay)
    outcome = (await asyncio.gather(task, return_exceptions=True))[0]
    assert isinstance(outcome, Completion | PoolClosed | EngineStopped)


async def test_a_cancellation_inside_stops_all_processes(registry_of: LoadedRegistry, tmp_path: Path) -> None:
    async def use() -> None:
        async with Pool(registry_of(a="hot"), tmp_path) as pool:
            await pool.generate("a", SHORT)
            ready.set()
            await asyncio.Event().wait()

    ready = asyncio.Event()
    task = asyncio.create_task(use())
    await ready.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_error_inside_stops_all_processes(registry_of: LoadedRegistry, tmp_path: Path) -> None:
    async def use() -> None:
        async with Pool(registry_of(a="hot"), tmp_path) as pool:
            await pool.generate("a", SHORT)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await use()
