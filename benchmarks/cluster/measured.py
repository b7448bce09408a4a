"""Measure three nodes of a Ray cluster on this machine: what a step costs there, and what several of them bring.

One service has three copies of the embedded model: on the head, on one node, and on three nodes. Each engine has one
thread. Rounds on the head and on nodes take turns. The chain runs while there is one node, since the processes of each
take a part of the cores of this machine.
"""

import asyncio
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from benchmarks.cluster.ray_nodes import RayNodes
from orchestrator.app import attached
from orchestrator.bench.critical_path.workloads import Document, Roles, deep, task_of, wide
from orchestrator.bench.simulate.machine import Machine
from orchestrator.bench.simulate.measure import describe
from orchestrator.bench.simulate.run import answer_lengths, simulate_rounds
from orchestrator.cluster.nodes import RayCluster
from orchestrator.registry.forms import ReplicaLimits
from orchestrator.registry.load import PACKAGED, load_registry
from orchestrator.registry.models import Registry
from orchestrator.run.job import Job
from orchestrator.run.record.report import Report, load_report
from orchestrator.service.configuration import Configuration
from orchestrator.service.service import Service

MODEL: Final = "tiny-large"
NODES: Final = ("a", "b", "c")
PLACES: Final = {"worker": ("head",), "coder": NODES[:1], "architect": NODES}  # where a role's model runs
CHAIN_ROLES: Final = ("worker", "coder")
CHAIN: Final = 20  # steps, one after the other
WIDTH: Final = 48  # steps at once, as many as three engines have slots
SLOTS: Final = 16


@dataclass(frozen=True, slots=True)
class Measured:
    """Rounds of a chain of steps and of a wide task, in seconds from the submission to the end."""

    chain_head: tuple[float, ...]
    chain_node: tuple[float, ...]
    wide_head: tuple[float, ...]
    wide_node: tuple[float, ...]
    wide_nodes: tuple[float, ...]  # on three nodes
    simulated_chain: float  # on one machine, with what a step costs longer on a node
    simulated_wide: float  # on three machines that share the cores of this one

    @property
    def overheads(self) -> list[float]:
        """The seconds that a step of the chain took longer on a node, by pairs of rounds."""
        return [(node - head) / CHAIN for node, head in zip(self.chain_node, self.chain_head, strict=True)]


def registry_here() -> Registry:
    """Return a registry with a copy of the embedded model for each role of `PLACES`."""
    base = load_registry(PACKAGED)
    entry = base.models[MODEL]
    options = replace(entry.options.without_drafts(), threads=1, slots=SLOTS)
    models = {
        role: replace(
            entry,
            id=role,
            residency="warm",
            nodes=nodes,
            replicas=ReplicaLimits(len(nodes), len(nodes)),
            options=options,
        )
        for role, nodes in PLACES.items()
    }
    roles = {role: replace(base.roles["worker"], name=role, model=role) for role in PLACES}
    others = {name: replace(entry, residency="warm") for name, entry in base.models.items()}
    return replace(base, models={**others, **models}, roles={**base.roles, **roles})


async def measure(rounds: int, say: Callable[[str], None]) -> Measured:
    """Measure with a Ray cluster that is started for it. Raises what a service does."""
    with tempfile.TemporaryDirectory(prefix="bench-cluster-") as folder:
        home = Path(folder)
        with closing(RayNodes(home / "ray.log")) as nodes:
            settings = {"ray": nodes.address, "folder": str(home / "nodes")}
            # After 200 outcomes the memory would route steps to other roles, so to engines elsewhere.
            configuration = Configuration.model_validate({"cluster": settings, "memory": {"use": "off"}})
            async with attached().service(home / "state", registry_here(), configuration) as service:
                times: dict[tuple[str, str], tuple[float, ...]] = {}
                reports: dict[str, Report] = {}
                for name, added, roles in (("chain", NODES[:1], CHAIN_ROLES), ("wide", NODES[1:], tuple(PLACES))):
                    await nodes.add(*added)
                    await until_ready(service, NODES[: NODES.index(added[-1]) + 1])
                    for role, series in (await _rounds(service, name, roles, rounds, reports, say)).items():
                        times[name, role] = series
        machine, alone = await asyncio.to_thread(_described, home, say)
        away = sorted(
            (node - head) / CHAIN for node, head in zip(times["chain", "coder"], times["chain", "worker"], strict=True)
        )[rounds // 2]
        simulated = {
            name: await asyncio.to_thread(_simulated, machine, alone, name, reports[name], away, home / name)
            for name in reports
        }
    return Measured(
        times["chain", "worker"],
        times["chain", "coder"],
        times["wide", "worker"],
        times["wide", "coder"],
        times["wide", "architect"],
        simulated["chain"],
        simulated["wide"],
    )


def _document(name: str) -> Document:
    return deep(CHAIN) if name == "chain" else wide(WIDTH)


async def until_ready(service: Service, names: Sequence[str]) -> None:
    """Wait until these nodes can be used."""
    assert isinstance(service.cluster, RayCluster)
    while True:
        changed = service.cluster.changed
        ready = {node.name for node in service.cluster.nodes() if node.state == "ready" and node.machine is not None}
        if ready >= set(names):
            return
        await changed.wait()


async def _rounds(
    service: Service,
    name: str,
    roles: Sequence[str],
    rounds: int,
    reports: dict[str, Report],
    say: Callable[[str], None],
) -> dict[str, tuple[float, ...]]:
    # The times of a workload by role. Its report on the head is put into `reports`.
    times: dict[str, list[float]] = {role: [] for role in roles}
    for number in range(rounds + 1):  # the first one loads the models, and does not count
        for role in roles if number % 2 else reversed(roles):
            seconds, report = await _timed(service, name, role)
            if number:
                times[role].append(seconds)
            if role == "worker":
                reports[name] = report
            say(f"round {number}, {name} on {', '.join(PLACES[role])}: {seconds:.2f} s")
    return {role: tuple(series) for role, series in times.items()}


async def _timed(service: Service, name: str, role: str) -> tuple[float, Report]:
    task = task_of(_document(name), Roles(worker=role))
    begun = time.perf_counter()
    run = (await service.submit(Job(None, task, None, "as-planned"))).run
    async for _ in service.orchestrator.watch(run):
        pass
    seconds = time.perf_counter() - begun
    report = load_report(service.orchestrator.journal, run)
    assert report.status == "done", report.error
    return seconds, report


def _described(home: Path, say: Callable[[str], None]) -> tuple[Machine, Registry]:
    registry = registry_here()
    model = replace(registry.models["worker"], nodes=(), replicas=None)
    alone = replace(registry, models={"worker": model}, roles={"worker": registry.roles["worker"]})
    return describe(alone, ["worker"], say, home / "described"), alone


def _simulated(machine: Machine, alone: Registry, name: str, report: Report, away: float, home: Path) -> float:
    # The seconds of a warm round. Three engines with a thread each share the cores of this machine.
    overheads = machine.overheads.model_copy(update={"away_seconds": away})
    count = 1 if name == "chain" else len(NODES)
    if count == 1:
        waiting = machine.overheads.waiting_seconds + away
        overheads = machine.overheads.model_copy(update={"waiting_seconds": waiting})
    slower = max(1.0, count / machine.cores)
    ((id, model),) = machine.models.items()
    changes = {
        "step_seconds": {size: slower * seconds for size, seconds in model.step_seconds.items()},
        "verify_seconds": {size: slower * seconds for size, seconds in (model.verify_seconds or {}).items()} or None,
        "prompt_token_seconds": slower * model.prompt_token_seconds,
    }
    changed = {"machines": count, "overheads": overheads, "models": {id: model.model_copy(update=changes)}}
    task = task_of(_document(name))
    lengths = answer_lengths(task, report)
    return simulate_rounds(task, machine.model_copy(update=changed), alone, home, 2, lengths=lengths)[-1].seconds
