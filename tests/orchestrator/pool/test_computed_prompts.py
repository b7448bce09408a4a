"""What is expected of an engine because another one has computed it."""

import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.engine.contract import Generation, Message
from orchestrator.engine.errors import EngineDied
from orchestrator.pool.pool import Pool
from orchestrator.task.reuse import BLOCK, LossCause
from tests.orchestrator.pool.conftest import LoadedRegistry
from tests.orchestrator.pool.pool_use import begin, cancel, pid_of, status_of, until
from tests.orchestrator.pool.test_pool_cores import TWO_NODES

SHARED = "both requests start with this text, which one engine computes "


def ask(question: str) -> Generation:
    return Generation(messages=(Message("user", f"{SHARED * 3}{question}"),), max_tokens=2)


async def kill(pool: Pool) -> None:
    pid = pid_of(pool, "a")
    os.kill(pid, signal.SIGKILL)
    await until(lambda: status_of(pool, "a").pid != pid)


async def swap(pool: Pool) -> None:
    await pool.unload("a")


@pytest.mark.parametrize("end", [kill, swap])
async def test_what_an_engine_had_is_lost_with_it(
    registry_of: LoadedRegistry, tmp_path: Path, end: Callable[[Pool], Awaitable[None]]
) -> None:
    async with Pool(registry_of(a="warm"), tmp_path) as pool:
        for question in ("1", "2"):
            usage = (await pool.generate("a", ask(question))).usage
            assert usage.reuse.expected_tokens == usage.cached_tokens
        shared = usage.cached_tokens
        assert shared > 100
        await end(pool)
        reuse = (await pool.generate("a", ask("3"))).usage.reuse
        assert reuse.lost_tokens == {"engine restarted": reuse.expected_tokens}
        assert shared - BLOCK < reuse.expected_tokens <= shared
        usage = (await pool.generate("a", ask("4"))).usage
        assert usage.reuse.lost_tokens == {}
        assert usage.reuse.expected_tokens == usage.cached_tokens == shared


async def test_what_a_killed_engine_was_answering_is_lost(registry_of: LoadedRegistry, tmp_path: Path) -> None:
    endless = replace(ask("1"), max_tokens=None, grammar='root ::= "a" root')
    async with Pool(registry_of(options="context: 512", a="warm"), tmp_path) as pool:
        running = await begin(pool, "a", endless)
        await kill(pool)
        with pytest.raises(EngineDied):
            await running
        reuse = (await pool.generate("a", ask("2"))).usage.reuse
        assert reuse.lost_tokens == {"engine restarted": reuse.expected_tokens}
        assert reuse.expected_tokens > 100


async def test_what_another_replica_has_is_computed_again(registry_of: LoadedRegistry, tmp_path: Path) -> None:
    async with Pool(registry_of(options="instances: 2", a="hot"), tmp_path, topology=TWO_NODES) as pool:
        await until(lambda: all(replica.state == "ready" for replica in status_of(pool, "a").instances))
        assert (await pool.generate("a", ask("1"))).usage.reuse.expected_tokens == 0
        busy = await begin(pool, "a")
        assert [replica.active for replica in status_of(pool, "a").instances] == [1, 0]
        reuse = (await pool.generate("a", ask("2"))).usage.reuse
        await cancel(busy)
        cause: LossCause = "other engine"
        assert reuse.lost_tokens == {cause: reuse.expected_tokens}
        assert reuse.expected_tokens > 100
        again = (await pool.generate("a", ask("3"))).usage
        assert (again.reuse.expected_tokens, again.reuse.lost_tokens) == (again.cached_tokens, {})
