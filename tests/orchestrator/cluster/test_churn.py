"""Runs of a service while the nodes of a real Ray cluster are added, killed, stopped, continued and removed."""

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil
import pytest

from benchmarks.cluster.ray_nodes import RayNodes
from orchestrator.app import attached
from orchestrator.run.job import Job
from orchestrator.service.configuration import Configuration
from orchestrator.service.service import Service
from orchestrator.task.events import AttemptFailed, AttemptSucceeded, Event, FailureKind
from tests.orchestrator.cluster.test_cluster import (
    events_of,
    execute,
    outputs_of,
    registry_on,
    service_on,
    until_generating,
    until_ready,
    until_states,
)
from tests.orchestrator.run_jobs import check_completed_once, job, step

RUNS: Final = 200
BATCH: Final = 10  # runs that are submitted before each disturbance
OPEN: Final = 15  # runs of earlier batches that may be open at the next one
KINDS: Final = 8  # of jobs
NODES: Final = ("churn-a", "churn-b", "churn-c", "churn-d")
SEED: Final = int(os.environ.get("CHURN_SEED", "48"))


def short_job(kind: int) -> Job:
    """Return a job of three steps, of which the last reads what the others write."""
    texts = [f"text{kind}-{part}.txt" for part in "ab"]
    steps = [
        step(f"S{at + 1}", f"Write a short text about the number {kind * 2 + at}.", [], [text])
        for at, text in enumerate(texts)
    ]
    return job([*steps, step("S3", "Summarise the texts.", texts, [f"end{kind}.txt"])])


@pytest.fixture(scope="module")
def undisturbed_jobs(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    """The outputs of each kind of job on this machine alone."""

    async def outputs() -> list[dict[str, str]]:
        home = tmp_path_factory.mktemp("alone")
        async with attached().service(home, registry_on("head"), Configuration()) as service:
            return [outputs_of(events_of(service, await execute(service, short_job(kind)))) for kind in range(KINDS)]

    return asyncio.run(outputs())


class Churn:
    """Submits runs, and disturbs the nodes that carry them out."""

    def __init__(self, service: Service, ray_nodes: RayNodes, seed: int) -> None:
        self.runs: dict[str, int] = {}  # the kind of job by the run's id
        self.engines: set[psutil.Process] = set()  # all that a disturbance has met
        self.disturbances: Counter[str] = Counter()
        self._service = service
        self._ray_nodes = ray_nodes
        self._random = random.Random(seed)  # noqa: S311 (no secret)
        self._nodes: dict[str, str] = {}  # by name: usable, stopped or ended
        self._ended = 0
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Submit all runs, a batch at a time, each with a disturbance, and wait until they have ended."""
        await self._add(NODES[0])
        async with asyncio.TaskGroup() as watching:
            for first in range(0, RUNS, BATCH):
                for number in range(first, first + BATCH):
                    run = (await self._service.submit(short_job(number % KINDS))).run
                    self.runs[run] = number % KINDS
                    watching.create_task(self._watch(run))
                await self._disturb()
                await self._until_ended(len(self.runs) - OPEN)
            await self._until_ended(RUNS)

    async def remove_nodes(self) -> None:
        """Remove all nodes that are left."""
        for name in tuple(self._nodes):
            await self._remove(name)

    async def _watch(self, run: str) -> None:
        async for _ in self._service.orchestrator.watch(run):
            pass
        self._ended += 1
        self._change()

    def _change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            await self._changed.wait()

    async def _until_ended(self, count: int) -> None:
        while self._ended < count:
            if not self._in_state("usable"):  # no run would end
                await self._disturb()
            await self._until(lambda: self._ended >= count or not self._in_state("usable"))

    def _in_state(self, state: str) -> list[str]:
        return [name for name in self._nodes if self._nodes[name] == state]

    async def _disturb(self) -> None:
        for name in self._in_state("ended"):  # it had stood still for so long that Ray has ended it
            await self._remove(name)
        usable, stopped = self._in_state("usable"), self._in_state("stopped")
        choices = [("add", name) for name in NODES if name not in self._nodes]
        choices += [("continue", name) for name in stopped]
        if usable:
            choices += [("kill", name) for name in stopped]
            choices += [(verb, name) for name in usable for verb in ("kill", "stop", "remove")]
        verb, name = self._random.choice(choices)
        if name in usable and name in self._service.orchestrator.pool.machines() and self._random.random() < 0.7:
            await self._until_busy(name)
        self.engines |= engines_of(self._service)
        self.disturbances[verb] += 1
        print(f"{self._ended} of {len(self.runs)} runs have ended, {len(usable)} usable nodes: {verb} {name}")
        await self._carry_out(verb, name)

    async def _until_busy(self, name: str) -> None:
        # Or until the node has ended, or no run is open.
        pool = self._service.orchestrator.pool
        generating = asyncio.create_task(until_generating(pool, name, signal.SIGSTOP))  # so that it cannot finish
        generating.add_done_callback(lambda _: self._change())
        await self._until(lambda: generating.done() or self._nodes[name] == "ended" or self._ended == len(self.runs))
        generating.cancel()

    async def _carry_out(self, verb: str, name: str) -> None:
        match verb:
            case "add":
                await self._add(name)
            case "stop":
                self._nodes[name] = "stopped"
                await self._ray_nodes.signal(name, signal.SIGSTOP)
            case "continue":
                self._nodes[name] = "usable"
                await self._ray_nodes.signal(name, signal.SIGCONT)
            case "kill":
                await self._ray_nodes.signal(name, signal.SIGKILL)
                await self._remove(name)
            case "remove":
                await self._remove(name)

    async def _add(self, name: str) -> None:
        await self._ray_nodes.add(name)
        self._nodes[name] = "usable"
        raylet, loop = os.pidfd_open((await self._ray_nodes.raylet(name)).pid), asyncio.get_running_loop()

        def note_end() -> None:
            loop.remove_reader(raylet)
            os.close(raylet)
            self._nodes[name] = "ended"
            self._change()

        loop.add_reader(raylet, note_end)

    async def _remove(self, name: str) -> None:
        await self._ray_nodes.remove(name)
        await self._until(lambda: self._nodes[name] == "ended")
        del self._nodes[name]


def engines_of(service: Service) -> set[psutil.Process]:
    """Return the processes on this computer that log to a file of the service or of its nodes."""
    engines = set()
    for process in psutil.process_iter():
        with suppress(OSError, psutil.NoSuchProcess):
            if Path(f"/proc/{process.pid}/fd/1").readlink().is_relative_to(service.home):
                engines.add(process)
    return engines


def check_steps(events: list[Event]) -> None:
    """Check that each step has succeeded once and has not run again, and that attempts failed with their node alone."""
    check_completed_once(events)
    assert {event.step for event in events if isinstance(event, AttemptSucceeded)} == {"S1", "S2", "S3"}
    for event in events:
        if isinstance(event, AttemptFailed):
            assert event.failure.kind is FailureKind.INFRASTRUCTURE
            assert any(f" on node {node} was lost: " in event.failure.message for node in event.nodes)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_200_runs_while_nodes_come_and_go_every_accepted_run_ends_correctly(
    tmp_path: Path, ray_nodes: RayNodes, undisturbed_jobs: list[dict[str, str]]
) -> None:
    async with service_on(tmp_path, ray_nodes, registry_on(*NODES), silence_seconds=2.0) as service:
        churn = Churn(service, ray_nodes, SEED)
        await churn.run()
        assert len(churn.runs) == RUNS
        failures = 0
        for run, kind in churn.runs.items():
            events = events_of(service, run)
            assert outputs_of(events) == undisturbed_jobs[kind]
            check_steps(events)
            failures += sum(isinstance(event, AttemptFailed) for event in events)
    print(f"{churn.disturbances}; {failures} failed attempts; {len(churn.engines)} engines")
    assert failures
    assert churn.engines
    await churn.remove_nodes()
    remaining = await asyncio.to_thread(psutil.wait_procs, churn.engines | engines_of(service), 60)
    assert remaining[1] == []


async def test_a_node_whose_process_dies_while_it_joins_is_tried_again(tmp_path: Path, ray_nodes: RayNodes) -> None:
    died = tmp_path / "died"
    (tmp_path / "sitecustomize.py").write_text(
        "import os, pathlib, signal, sys\n"
        "class DieOnce:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        died = pathlib.Path({str(died)!r})\n"
        "        if name == 'orchestrator.cluster.host' and not died.exists():\n"
        "            died.touch()\n"
        "            os.kill(os.getpid(), signal.SIGKILL)\n"
        "sys.meta_path.insert(0, DieOnce())\n"
    )
    await ray_nodes.add_with("dies-once", tmp_path)
    async with service_on(tmp_path, ray_nodes, registry_on("dies-once")) as service:
        rejected = (await until_states(service, {"dies-once": "rejected"}))["dies-once"]
        assert (rejected.reason or "").startswith("this program cannot be started there: ")
        assert (rejected.reason or "").endswith("; it is tried again")
        await until_ready(service, "dies-once")
    assert died.exists()
    await ray_nodes.remove("dies-once")
