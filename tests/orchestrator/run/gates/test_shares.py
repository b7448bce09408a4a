"""Which niceness jobs get next to engines, and in which order they run."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.bench.simulate.clock import run_virtually
from orchestrator.pool.decoding import LENT_SHARE, Decoding, lendable_cores
from orchestrator.pool.machine import Topology
from orchestrator.pool.places import Replica
from orchestrator.run.gates.shares import PATIENCE, JobShares, NoEngines, Turns, share_out
from orchestrator.run.sandbox.niceness import IDLE, LOWEST, weight

LONG = 1000.0


@dataclass(frozen=True, slots=True)
class Busy(NoEngines):
    """Cores on which engines decode with so many threads."""

    threads: int = 0

    @property
    def free(self) -> int:
        return self.cores - self.threads


def machine(cores: int) -> Decoding:
    return Decoding(Topology.flat(cores, 1 << 30))


@asynccontextmanager
async def decoding(cores: Decoding) -> AsyncIterator[None]:
    """Let an engine compute. One that has no process cannot be told its threads, but it counts."""
    async with cores.of_loading(Replica(("a", 0)), None):
        yield


@given(st.integers(1, 64), st.integers(1, 8), st.integers(0, 64), st.lists(st.booleans(), max_size=20))
def test_urgent_jobs_together_take_no_more_than_decoding_may_lose(
    cores: int, engines: int, lent: int, urgent: list[bool]
) -> None:
    urgent.sort(reverse=True)
    busy = Busy(cores, engines, LENT_SHARE, threads=max(0, cores - lent))
    given = share_out(urgent, busy)
    assert len(given) == len(urgent)
    sharing = [niceness for niceness, each in zip(given, urgent, strict=True) if each and niceness]
    engine = engines / cores
    together = sum(map(weight, sharing))
    if sharing and max(sharing) < LOWEST:  # no weight is less
        assert together / (together + engine) <= LENT_SHARE * 1.25**0.5
    assert given.count(0) <= max(lent, int(engine > 1)) or engine > 4
    assert all(niceness == IDLE for niceness, each in zip(given, urgent, strict=True) if not each)


@given(st.lists(st.booleans(), min_size=1, max_size=20))
def test_without_engines_only_jobs_with_slack_stand_back(urgent: list[bool]) -> None:
    for each, niceness in zip(urgent, share_out(urgent, NoEngines(4)), strict=True):
        assert niceness == (0 if each else LOWEST)


@pytest.mark.parametrize(("cores", "lent"), [(1, 0), (2, 0), (7, 0), (8, 1), (16, 2), (64, 8)])
def test_whole_cores_are_lent_where_they_are_a_small_part(cores: int, lent: int) -> None:
    assert lendable_cores(Topology.flat(cores, 1)) == lent


async def test_an_urgent_job_borrows_a_core() -> None:
    cores = machine(8)
    shares = JobShares(cores)
    async with decoding(cores):
        assert (cores.engines, cores.free) == (1, 0)
        async with shares.of(_now()) as first:
            assert (cores.free, first.value) == (1, 0)
            async with shares.of(_now() + LONG) as patient:
                assert (cores.free, first.value, patient.value) == (1, 0, IDLE)
            async with shares.of(_now()) as second:
                assert (cores.free, first.value) == (1, 0)
                assert 0 < second.value <= LOWEST
        assert cores.free == 0


async def test_a_job_gives_way_when_an_engine_starts_to_decode() -> None:
    cores = machine(2)
    async with JobShares(cores).of(_now()) as niceness:
        assert niceness.value == 0
        async with decoding(cores):
            assert 0 < niceness.value <= LOWEST
            assert cores.free == 0, "the cores are too few to lend one"
        assert niceness.value == 0


def test_a_job_is_hurried_when_its_slack_is_over() -> None:
    async def main() -> list[int]:
        cores = machine(2)
        async with decoding(cores), JobShares(cores).of(_now() + PATIENCE + 60) as niceness:
            seen = [niceness.value]
            for seconds in (59, 2):
                await asyncio.sleep(seconds)
                seen.append(niceness.value)
            return seen

    first, before, after = run_virtually(main)
    assert (first, before) == (IDLE, IDLE)
    assert after < IDLE


def test_a_job_that_waits_for_its_turn_is_hurried_too() -> None:
    async def main() -> float:
        turns = Turns(urgent=2, patient=1)
        async with turns.of(_now() + LONG):
            asked = _now()
            async with turns.of(_now() + PATIENCE + 60):
                return _now() - asked

    assert run_virtually(main) == pytest.approx(60)


async def test_the_least_slack_comes_first() -> None:
    turns, order = Turns(urgent=1, patient=1), list[float]()

    async def job(slack: float) -> None:
        async with turns.of(_now() + slack):
            order.append(slack)

    async with asyncio.TaskGroup() as jobs:
        async with turns.of(_now()):
            for slack in (3 * LONG, 2 * LONG, 1.0, 0.0):
                jobs.create_task(job(slack))
            await asyncio.sleep(0)
            assert order == []
    assert order == [0.0, 1.0, 2 * LONG, 3 * LONG]


async def test_no_job_with_slack_keeps_an_urgent_one_waiting() -> None:
    turns = Turns(urgent=2, patient=1)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(turns.of(_now() + LONG))
        await stack.enter_async_context(turns.of(_now()))
        await stack.enter_async_context(turns.of(_now()))
        late = asyncio.ensure_future(stack.enter_async_context(turns.of(_now())))
        await asyncio.sleep(0)
        assert not late.done()
        late.cancel()
        await asyncio.wait([late])
    async with turns.of(_now() + LONG):
        pass  # those that were cancelled hold no turn


def _now() -> float:
    return asyncio.get_running_loop().time()
