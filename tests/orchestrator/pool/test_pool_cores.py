"""Engines of one pool on the cores and nodes of one machine."""

import asyncio
import dataclasses
import os
from pathlib import Path

import psutil

from orchestrator.pool.machine import Node, Topology
from orchestrator.pool.pool import Pool
from tests.orchestrator.pool.conftest import LoadedRegistry
from tests.orchestrator.pool.pool_use import SHORT, begin, cancel, flat, status_of, until, writes

CPUS = sorted(os.sched_getaffinity(0))
TWO_NODES = Topology((Node(0, ((CPUS[0],),), 1 << 40), Node(1, ((CPUS[-1],),), 1 << 40)))


async def test_decoding_engines_share_the_cores(registry_of: LoadedRegistry, tmp_path: Path) -> None:
    async with Pool(registry_of(threads=None, a="warm", b="warm"), tmp_path, topology=flat(2)) as pool:
        await pool.load("b")
        first = await begin(pool, "a")
        assert status_of(pool, "a").threads == 2
        second = await begin(pool, "b")
        assert [status_of(pool, model).threads for model in "ab"] == [1, 1]
        await cancel(first)
        assert status_of(pool, "b").threads == 2
        await cancel(second)


async def test_threads_in_the_registry_are_a_ceiling(registry_of: LoadedRegistry, tmp_path: Path) -> None:
    async with Pool(registry_of(threads=1, a="warm"), tmp_path, topology=flat(2)) as pool:
        task = await begin(pool, "a")
        assert status_of(pool, "a").threads == 1
        await cancel(task)


async def test_with_fewer_cores_than_engines_they_take_turns(registry_of: LoadedRegistry, tmp_path: Path) -> None:
    async with Pool(registry_of(threads=None, a="warm", b="warm", c="warm"), tmp_path, topology=flat(2)) as pool:
        await asyncio.gather(*(pool.load(model) for model in "abc"))
        tasks = [asyncio.create_task(pool.generate(model, writes(100))) for model in "abc"]
        ran: set[tuple[str, ...]] = set()
        while not any(task.done() for task in tasks):
            running = [model for model in "abc" if status_of(pool, model).threads and status_of(pool, model).active]
            assert len(running) <= 2
            ran.add(tuple(running))
            await asyncio.sleep(0.01)
        completions = await asyncio.gather(*tasks)
        assert [completion.usage.output_tokens for completion in completions] == [100] * 3
        assert all(status_of(pool, model).threads for model in "abc")
        assert any(len(running) == 2 for running in ran)


async def test_an_engine_without_a_turn_can_be_cancelled_and_used_again(
    registry_of: LoadedRegistry, tmp_path: Path
) -> None:
    async with Pool(registry_of(threads=None, a="warm", b="warm"), tmp_path, topology=flat(1)) as pool:
        await pool.load("b")
        first = await begin(pool, "a", dataclasses.replace(writes(), slack=-100.0))
        second = asyncio.create_task(pool.generate("b", writes()))
        await until(lambda: status_of(pool, "b").active == 1)
        assert [status_of(pool, model).threads for model in "ab"] == [1, 0]
        await cancel(second)
        assert status_of(pool, "b").threads == 1
        await cancel(first)
        assert (await pool.generate("b", SHORT)).usage.output_tokens > 0


async def test_instances_are_bound_to_their_nodes_and_share_the_work(
    registry_of: LoadedRegistry, tmp_path: Path
) -> None:
    registry = registry_of(threads=None, options="instances: 2", a="hot")
    async with Pool(registry, tmp_path / "logs", topology=TWO_NODES) as pool:
        await until(lambda: all(one.state == "ready" for one in status_of(pool, "a").instances))
        instances = status_of(pool, "a").instances
        for replica, node in zip(instances, TWO_NODES.nodes, strict=True):
            process = psutil.Process(replica.pid)
            assert tuple(process.cpu_affinity()) == node.cpus
            assert process.nice() == psutil.Process().nice()
            assert not any(mapped.path.endswith(".gguf") for mapped in process.memory_maps())
        tasks = await asyncio.gather(*(begin(pool, "a") for _ in range(6)))
        assert status_of(pool, "a").active == 6
        assert [one.active for one in status_of(pool, "a").instances] == [3, 3]
        assert [one.threads for one in status_of(pool, "a").instances] == [1, 1]
        for task in tasks:
            await cancel(task)
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == ["a#1.log", "a.log"]


async def test_another_instance_is_loaded_when_the_queue_says_so(registry_of: LoadedRegistry, tmp_path: Path) -> None:
    async with Pool(registry_of(options="instances: 2", a="warm"), tmp_path, topology=TWO_NODES) as pool:
        await pool.generate("a", SHORT)
        assert [one.state for one in status_of(pool, "a").instances] == ["ready", "absent"]
        tasks = [asyncio.create_task(pool.generate("a", writes(100))) for _ in range(8)]
        await until(lambda: status_of(pool, "a").instances[1].state == "ready")
        assert (await pool.generate("a", SHORT)).usage.output_tokens > 0
        await asyncio.gather(*tasks)


async def test_unloading_ends_with_the_engines_that_were_there(registry_of: LoadedRegistry, tmp_path: Path) -> None:
    async with Pool(registry_of(options="instances: 2", a="warm"), tmp_path, topology=TWO_NODES) as pool:
        await asyncio.gather(*(pool.generate("a", writes(100)) for _ in range(9)))
        await until(lambda: [one.state for one in status_of(pool, "a").instances] == ["ready", "ready"])
        running = await begin(pool, "a")
        assert [one.active for one in status_of(pool, "a").instances] == [1, 0]
        unloading = asyncio.create_task(pool.unload("a"))
        await until(lambda: status_of(pool, "a").instances[1].state == "absent")
        pid = status_of(pool, "a").instances[0].pid
        assert pid is not None
        await pool.generate("a", SHORT)
        assert (await running).usage.output_tokens == 200
        async with asyncio.timeout(100):
            await unloading
        assert not psutil.pid_exists(pid)
        assert status_of(pool, "a").state == "ready"


async def test_a_decoding_engine_lends_a_core_to_a_job(registry_of: LoadedRegistry, tmp_path: Path) -> None:
    async with Pool(registry_of(threads=None, a="warm"), tmp_path, topology=flat(8)) as pool:
        task = await begin(pool, "a")
        changes: list[int] = []
        pool.decoding.subscribe(lambda: changes.append(pool.decoding.free))
        await pool.decoding.lend(3)
        assert (status_of(pool, "a").threads, pool.decoding.free) == (7, 1)
        await pool.decoding.lend(0)
        assert (status_of(pool, "a").threads, pool.decoding.free) == (8, 0)
        await cancel(task)
        assert (pool.decoding.engines, pool.decoding.free) == (0, 8)
        assert changes == [1, 0, 8]
