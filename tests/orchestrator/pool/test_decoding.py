"""Who shares the cores, without processes: a replica that has no engine cannot be told, but it counts."""

import asyncio

import pytest

from orchestrator.pool.decoding import Decoding
from orchestrator.pool.machine import Topology
from orchestrator.pool.places import Replica


async def test_what_is_loaded_has_its_share_like_what_decodes() -> None:
    decoding = Decoding(Topology.flat(8, 1 << 30))
    async with decoding.of_loading(Replica(("a", 0)), None) as alone:
        assert alone == 8
        async with decoding.of_loading(Replica(("b", 0)), None) as second:
            assert second == 4
            async with decoding.of_loading(Replica(("c", 0)), 1) as bounded:
                assert bounded == 1
        async with decoding.of_loading(Replica(("b", 0)), None) as again:
            assert again == 4
    async with decoding.of_loading(Replica(("a", 0)), None) as alone:
        assert alone == 8


async def test_whatever_else_computes_a_load_has_one_core_at_least() -> None:
    decoding = Decoding(Topology.flat(1, 1 << 30))
    async with decoding.of_loading(Replica(("a", 0)), None) as first:
        async with decoding.of_loading(Replica(("b", 0)), None) as second:
            assert (first, second) == (1, 1)


async def test_a_load_that_is_given_up_leaves_its_cores() -> None:
    decoding = Decoding(Topology.flat(4, 1 << 30))
    begun = asyncio.Event()

    async def load() -> None:
        async with decoding.of_loading(Replica(("a", 0)), None):
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(load())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with decoding.of_loading(Replica(("b", 0)), None) as threads:
        assert threads == 4
