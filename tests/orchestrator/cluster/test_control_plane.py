"""Runs, engines and nodes while Ray's control plane, or all of Ray, ends and is started again."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from benchmarks.cluster.ray_nodes import HEAD, TOKEN, RayNodes
from orchestrator.cluster.nodes import RayCluster
from orchestrator.service.service import Service
from tests.orchestrator.cli.cli_command import run_here
from tests.orchestrator.cluster.heads import machine
from tests.orchestrator.cluster.test_churn import engines_of
from tests.orchestrator.cluster.test_cluster import (
    check_failures,
    events_of,
    execute,
    outputs_of,
    registry_on,
    service_on,
    until_generating,
    until_loaded,
    until_ready,
    until_states,
    wide_job,
)
from tests.orchestrator.cluster.test_standby import HEAD_PORT, STANDBY_PORT, short, submitted, until_ended

PATIENCE = 60
RECONNECT_SECONDS = 8
"""For which Ray's processes wait for their control plane; a minute by default."""


@pytest.fixture
def own_nodes(with_ray: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RayNodes]:
    """A cluster whose control plane may end."""
    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", str(RECONNECT_SECONDS))
    for name, value in TOKEN.items():
        monkeypatch.setenv(name, value)
    with closing(RayNodes(tmp_path / "ray.log")) as nodes:
        yield nodes


async def until_problem(service: Service, matches: Callable[[str | None], bool]) -> None:
    """Wait until the problem of the cluster, None if there is none, is such a one."""
    assert isinstance(service.cluster, RayCluster)
    while not matches(service.cluster.problem):
        await service.cluster.changed.wait()


def is_away(problem: str | None) -> bool:
    return "does not answer: Connection refused; accepted: the address of a running one" in (problem or "")


async def check_ended(engines: set[psutil.Process]) -> None:
    assert engines
    assert (await asyncio.to_thread(psutil.wait_procs, engines, PATIENCE))[1] == []


async def test_nodes_work_without_the_control_plane_and_join_again_after_it(
    tmp_path: Path, own_nodes: RayNodes
) -> None:
    await own_nodes.add("a", "b")
    async with service_on(tmp_path, own_nodes, registry_on("a", "b")) as service:
        await until_loaded(service, "a", "b")
        await own_nodes.remove(HEAD)
        await until_problem(service, is_away)
        run = (await service.submit(wide_job())).run
        await until_generating(service.orchestrator.pool, "a", signal.SIGSTOP)
        engines = engines_of(service)
        states = {status.name: status.state for status in service.cluster.nodes()}
        assert states == {"head": "ready", "a": "ready", "b": "ready"}
        await own_nodes.add(HEAD)
        lost = (await until_states(service, {"a": "lost", "b": "lost"}))["a"]
        assert "was started again, and has forgotten its nodes; accepted: nodes that are started again, too" in (
            lost.reason or ""
        )
        await check_ended(engines)
        await until_problem(service, lambda problem: problem is None)
        await own_nodes.remove("a", "b")
        await own_nodes.add("a", "b")
        await until_ready(service, "a", "b")
        async for _ in service.orchestrator.watch(run):
            pass
        events = events_of(service, run)
        outputs_of(events)
        check_failures(events, "was lost: the connection to the cluster was lost: the control plane at ")


async def test_all_of_ray_ends_and_is_started_again_much_later(tmp_path: Path, own_nodes: RayNodes) -> None:
    await own_nodes.add("a", "b")
    async with service_on(tmp_path, own_nodes, registry_on("a", "b")) as service:
        await until_loaded(service, "a", "b")
        run = (await service.submit(wide_job())).run
        await until_generating(service.orchestrator.pool, "b", signal.SIGSTOP)
        engines = engines_of(service)
        await own_nodes.remove(HEAD)
        await until_states(service, {"a": "lost", "b": "lost"})  # Ray's processes have ended, as nobody came back
        await until_problem(service, is_away)
        await check_ended(engines)
        waiting = (await service.submit(wide_job())).run
        await own_nodes.add(HEAD)
        await until_problem(service, lambda problem: problem is None)
        await own_nodes.remove("a", "b")
        await own_nodes.add("a", "b")
        for submitted_run in (run, waiting):
            async for _ in service.orchestrator.watch(submitted_run):
                pass
            outputs_of(events_of(service, submitted_run))
        check_failures(events_of(service, run), " was lost: ")
        outputs_of(events_of(service, await execute(service, wide_job())))


async def test_ray_ends_on_the_daemons_machine_alone(tmp_path: Path, own_nodes: RayNodes) -> None:
    async with service_on(tmp_path, own_nodes, registry_on("head")) as service:
        await until_problem(service, lambda problem: problem is None)
        (await own_nodes.raylet(HEAD)).kill()
        await until_problem(service, lambda problem: "Ray has ended on this machine; accepted: " in (problem or ""))


def test_a_head_and_its_standby_outlive_the_control_plane(tmp_path: Path, own_nodes: RayNodes) -> None:
    with (
        machine(tmp_path / "a", own_nodes.address, HEAD_PORT) as head,
        machine(tmp_path / "b", own_nodes.address, STANDBY_PORT) as standby,
    ):
        head.serve()
        head.until_ready()
        standby.stand_by()
        head.until_standby("in sync")
        asyncio.run(own_nodes.remove(HEAD))
        head.until_arbiter(answers=False)
        until_ended(head, during := submitted(head, short()))
        shown = run_here("--home", head.home, "nodes").out
        assert "does not answer" in " ".join(shown.split())
        asyncio.run(own_nodes.add(HEAD))
        head.until_arbiter(answers=True)
        assert head.until_standby("in sync")["epoch"] == 1
        head.kill()
        standby.until_ready()
        assert standby.runs() == [during]
