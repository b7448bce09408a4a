"""The service over one state folder: what waits, what is refused, and what goes on after a restart."""

from pathlib import Path

import pytest
from daemon_tasks import job, step

from orchestrator.daemon.configuration import Configuration, FolderSettings, RunSettings
from orchestrator.daemon.refusals import Busy, FolderFull, NotReady
from orchestrator.daemon.service import Service
from registry import find_registry, load_registry

REGISTRY = load_registry(find_registry(environment={}))
SHORT = [step("S1", "Summarize a.txt.", ["a.txt"], ["s1"])]
ONE_AT_A_TIME = Configuration(runs=RunSettings(max_running=1, max_queued=2))


async def ended(service: Service, run: str) -> str:
    """Return the status of a run once it has ended."""
    async for _ in service.watch(run):
        pass
    return (await service.row(run)).status


async def test_runs_that_wait_or_are_interrupted_go_on_after_a_restart(tmp_path: Path) -> None:
    async with Service(tmp_path / "home", REGISTRY, ONE_AT_A_TIME) as service:
        runs = [(await service.submit(job(SHORT))).run for _ in range(3)]
        assert len(service.running) == 1
        assert [service.position(run) for run in runs] == [None, 0, 1]
    async with Service(tmp_path / "home", REGISTRY, ONE_AT_A_TIME) as service:
        assert [await ended(service, run) for run in runs] == ["done"] * 3


async def test_more_runs_than_may_wait_are_told_to_come_back(tmp_path: Path) -> None:
    async with Service(tmp_path / "home", REGISTRY, ONE_AT_A_TIME) as service:
        runs = [(await service.submit(job(SHORT))).run for _ in range(3)]
        with pytest.raises(Busy) as refused:
            await service.submit(job(SHORT))
        assert 1 <= refused.value.retry_seconds <= 60
        await service.cancel(runs[2])
        assert await ended(service, runs[2]) == "cancelled"
        runs[2] = (await service.submit(job(SHORT))).run
        assert [await ended(service, run) for run in runs] == ["done"] * 3
        assert (service.totals.refused, service.totals.runs["done"]) == (1, 3)


@pytest.mark.parametrize("limit", [FolderSettings(max_bytes=1), FolderSettings(min_free_bytes=1 << 60)])
async def test_no_run_is_accepted_where_there_is_no_room(tmp_path: Path, limit: FolderSettings) -> None:
    async with Service(tmp_path / "home", REGISTRY, Configuration(folder=limit)) as service:
        with pytest.raises(FolderFull, match="bytes"):
            await service.submit(job(SHORT))
        service.adopt(Configuration())
        assert await ended(service, (await service.submit(job(SHORT))).run) == "done"


async def test_a_service_that_is_to_stop_ends_what_runs_and_begins_nothing(tmp_path: Path) -> None:
    async with Service(tmp_path / "home", REGISTRY, ONE_AT_A_TIME) as service:
        first, second = [(await service.submit(job(SHORT))).run for _ in range(2)]
        await service.drain()
        with pytest.raises(NotReady):
            await service.submit(job(SHORT))
        assert (await service.row(first)).status == "done"
        assert service.position(second) == 0
        assert (await service.row(second)).finished is None
