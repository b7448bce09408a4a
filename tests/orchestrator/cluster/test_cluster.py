"""Runs of a service whose engines are on the nodes of a real Ray cluster, which are killed and stopped meanwhile."""

import asyncio
import hashlib
import os
import shutil
import signal
from collections import Counter
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.cluster.ray_nodes import RayNodes
from orchestrator.app import attached
from orchestrator.cluster.nodes import PROGRAM, RayCluster
from orchestrator.engine.contract import Generation, Message
from orchestrator.engine.protocol import VERSION
from orchestrator.pool.errors import ModelUnavailable
from orchestrator.pool.pool import Pool
from orchestrator.registry.forms import ReplicaLimits
from orchestrator.registry.load import load_registry
from orchestrator.registry.models import Registry
from orchestrator.registry.watch import files_of
from orchestrator.run.job import Job
from orchestrator.service.attachments import NodeStatus
from orchestrator.service.configuration import Configuration
from orchestrator.service.service import Service
from orchestrator.task.events import (
    AttemptFailed,
    AttemptGenerated,
    AttemptSucceeded,
    Event,
    FailureKind,
    RunFinished,
)
from tests.orchestrator.api.daemon_process import running_daemon
from tests.orchestrator.cli.cli_command import run_here
from tests.orchestrator.cluster.conftest import PartedNode
from tests.orchestrator.run_jobs import ON_DEMAND, check_completed_once, job, step

WIDTH = 12
CHUNK_BYTES = 8 << 20  # as in the bridge, whose module imports Ray
SMALL = Path(__file__).parents[3] / "registry" / "tiny" / "small.gguf"


def registry_on(*nodes: str) -> Registry:
    """Return the embedded models, each with an engine on each of these nodes, which computes the same in any batch."""
    models = {
        name: replace(
            entry,
            nodes=nodes,
            replicas=ReplicaLimits(len(nodes), len(nodes)),
            options=replace(entry.options, batch_invariant=True, slots=2, threads=1),
        )
        for name, entry in ON_DEMAND.models.items()
    }
    return replace(ON_DEMAND, models=models)


@asynccontextmanager
async def service_on(
    home: Path, ray_nodes: RayNodes, registry: Registry, silence_seconds: float = 10.0, node_bytes: int = 0
) -> AsyncIterator[Service]:
    """Enter a service whose nodes keep their files below its state folder."""
    configuration = Configuration.model_validate(
        {
            "cluster": {
                "ray": ray_nodes.address,
                "folder": str(home / "nodes"),
                "silence_seconds": silence_seconds,
                "node_bytes": node_bytes,
            }
        }
    )
    async with attached().service(home, registry, configuration) as service:
        yield service


async def until_ready(service: Service, *names: str) -> dict[str, NodeStatus]:
    """Wait until these nodes can be used."""
    return await until_states(service, dict.fromkeys(names, "ready"))


async def until_states(service: Service, states: dict[str, str]) -> dict[str, NodeStatus]:
    while True:
        assert isinstance(service.cluster, RayCluster)
        changed = service.cluster.changed
        statuses = {status.name: status for status in service.cluster.nodes()}
        if all(
            name in statuses
            and statuses[name].state == state
            and (state != "ready" or statuses[name].machine is not None)
            for name, state in states.items()
        ):
            return statuses
        await changed.wait()


async def until_generating(pool: Pool, machine: str, number: signal.Signals | None = None) -> None:
    """Wait until an engine of a machine generates a text. Send its process a signal at once, before it can finish."""
    generating = asyncio.Event()

    def look() -> None:
        replicas = (replica for model in pool.snapshot().models for replica in model.instances)
        busy = [replica for replica in replicas if replica.machine == machine and replica.pid and replica.active]
        if busy and not generating.is_set():
            generating.set()
            for replica in busy:
                if number is not None and replica.pid is not None:
                    os.kill(replica.pid, number)

    pool._machines.decoding(machine).subscribe(look)
    await generating.wait()


async def until_loaded(service: Service, *machines: str) -> None:
    """Wait until these machines are ready and each has an engine of the worker's model that has generated a text."""
    await until_ready(service, *machines)
    pool, model = service.orchestrator.pool, service.orchestrator.registry.roles["worker"].model
    short = Generation(messages=(Message("user", "hello"),), max_tokens=4)
    used = [asyncio.create_task(until_generating(pool, machine)) for machine in machines]
    while not all(task.done() for task in used):
        await pool.generate_batch(model, [short] * 8)


def wide_job() -> Job:
    """Return a job of steps that do not depend on each other, and one that reads what all have written."""
    outputs = [f"out{number}.txt" for number in range(WIDTH)]
    steps: list[dict[str, Any]] = [
        step(f"S{number + 1}", f"Write a short text about the number {number}.", [], [output])
        for number, output in enumerate(outputs)
    ]
    return job([*steps, step(f"S{WIDTH + 1}", "Summarise the texts.", outputs[:2], ["end.txt"])])


async def execute(service: Service, asked: Job) -> str:
    run = (await service.submit(asked)).run
    async for _ in service.orchestrator.watch(run):
        pass
    return run


def events_of(service: Service, run: str) -> list[Event]:
    return [event for _, event in service.orchestrator.journal.events(run)]


def outputs_of(events: Collection[Event]) -> dict[str, str]:
    """Return the digests of all outputs by name, after checking that the run is done."""
    (end,) = [event for event in events if isinstance(event, RunFinished)]
    assert end.status == "done"
    return {
        name: digest
        for event in events
        if isinstance(event, AttemptSucceeded)
        for name, digest in event.outputs.items()
    }


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The outputs of the wide job on this machine alone."""

    async def outputs() -> dict[str, str]:
        home = tmp_path_factory.mktemp("alone")
        async with attached().service(home, registry_on("head"), Configuration()) as service:
            return outputs_of(events_of(service, await execute(service, wide_job())))

    return asyncio.run(outputs())


async def test_a_run_uses_engines_on_two_nodes(
    tmp_path: Path, ray_nodes: RayNodes, undisturbed: dict[str, str]
) -> None:
    await ray_nodes.add("a", "b")
    async with service_on(tmp_path, ray_nodes, registry_on("a", "b")) as service:
        await until_loaded(service, "a", "b")
        statuses = await until_ready(service, "a", "b")
        assert statuses["a"].library == statuses["b"].library != ""
        pool = service.orchestrator.pool
        async with asyncio.TaskGroup() as tasks:
            for node in ("a", "b"):
                tasks.create_task(until_generating(pool, node))
            run = await execute(service, wide_job())
        events = events_of(service, run)
        assert outputs_of(events) == undisturbed
        named = {node for event in events if isinstance(event, AttemptGenerated) for node in event.usage.nodes}
        assert named == {"a", "b"}
        nodes = {status.name: status for status in service.cluster.nodes()}
        assert nodes["head"].machine is not None
        assert nodes["head"].machine.models == ()
        for name in ("a", "b"):
            machine = nodes[name].machine
            assert machine is not None
            assert machine.models
            assert machine.budget > machine.used > 0
    await ray_nodes.remove("a", "b")


async def test_a_node_that_is_killed_costs_its_running_attempts_only(
    tmp_path: Path, ray_nodes: RayNodes, undisturbed: dict[str, str]
) -> None:
    await ray_nodes.add("c", "d")
    async with service_on(tmp_path, ray_nodes, registry_on("c", "d")) as service:
        await until_loaded(service, "c", "d")
        run = (await service.submit(wide_job())).run
        await until_generating(service.orchestrator.pool, "c", signal.SIGSTOP)
        await ray_nodes.signal("c", signal.SIGKILL)
        async for _ in service.orchestrator.watch(run):
            pass
        events = events_of(service, run)
        assert outputs_of(events) == undisturbed
        check_failures(events, " on node c was lost: ")
        lost = (await until_states(service, {"c": "lost"}))["c"]
        assert lost.reason
    await ray_nodes.remove("c", "d")


def check_failures(events: Collection[Event], reason: str) -> None:
    """Check that attempts failed for this reason alone, and that no step ran again after it had succeeded."""
    failures = [event.failure for event in events if isinstance(event, AttemptFailed)]
    assert failures
    for failure in failures:
        assert failure.kind is FailureKind.INFRASTRUCTURE
        assert reason in failure.message
    check_completed_once(events)


async def test_a_node_that_stands_still_is_lost_and_comes_back(
    tmp_path: Path, ray_nodes: RayNodes, undisturbed: dict[str, str]
) -> None:
    await ray_nodes.add("e", "f")
    async with service_on(tmp_path, ray_nodes, registry_on("e", "f"), silence_seconds=2.0) as service:
        await until_loaded(service, "e", "f")
        before = (await until_ready(service, "e"))["e"].epoch
        run = (await service.submit(wide_job())).run
        await until_generating(service.orchestrator.pool, "e", signal.SIGSTOP)
        await ray_nodes.signal("e", signal.SIGSTOP)
        await until_states(service, {"e": "lost"})
        async for _ in service.orchestrator.watch(run):
            pass
        await ray_nodes.signal("e", signal.SIGCONT)
        events = events_of(service, run)
        assert outputs_of(events) == undisturbed
        check_failures(events, "on node e was lost: it did not answer for 2 s")
        after = (await until_ready(service, "e"))["e"].epoch
        assert after is not None
        assert before is not None
        assert after > before
    await ray_nodes.remove("e", "f")


# Each step of an engine computes for longer, as on a slower processor.
SLOWER = """
import sys
if any(word.startswith("orchestrator.engine.") for word in sys.orig_argv):
    import time
    from orchestrator.engine.llama.model import Llama
    decode = Llama.decode

    def slower(self, width=0):
        start = time.process_time()
        logits = decode(self, width)
        end = start + 4 * (time.process_time() - start)
        while time.process_time() < end:
            pass
        return logits

    Llama.decode = slower
"""


async def test_a_slow_node_costs_no_attempt_and_gets_fewer_steps(
    tmp_path: Path, ray_nodes: RayNodes, undisturbed: dict[str, str]
) -> None:
    (tmp_path / "sitecustomize.py").write_text(SLOWER)
    await ray_nodes.add_with("slow", tmp_path)
    await ray_nodes.add("quick")
    async with service_on(tmp_path, ray_nodes, registry_on("quick", "slow")) as service:
        epochs = {name: status.epoch for name, status in (await until_ready(service, "quick", "slow")).items()}
        pool, model = service.orchestrator.pool, service.orchestrator.registry.roles["worker"].model
        await pool.load(model)
        while sum(replica.pace is not None for replica in pool._managed[model].places.replicas) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        computed: Counter[str] = Counter()
        for _ in range(3):
            events = events_of(service, await execute(service, wide_job()))
            assert outputs_of(events) == undisturbed
            assert not any(isinstance(event, AttemptFailed) for event in events)
            check_completed_once(events)
            generated = (event for event in events if isinstance(event, AttemptGenerated))
            computed.update(node for event in generated for node in event.usage.nodes)
        assert computed.total() == 3 * (WIDTH + 1)
        assert computed["slow"] < computed["quick"]
        assert {name: status.epoch for name, status in (await until_ready(service, *epochs)).items()} == epochs
    await ray_nodes.remove("quick", "slow")


async def test_adapters_of_requests_work_on_a_node_as_on_this_machine(tmp_path: Path, ray_nodes: RayNodes) -> None:
    await ray_nodes.add("v")
    role = ON_DEMAND.roles["frontdoor"]
    assert role.lora
    texts = []
    for machine in ("head", "v"):
        async with service_on(tmp_path / machine, ray_nodes, registry_on(machine)) as service:
            message = Message("user", "summarize the files a.txt and b.txt")
            request = Generation(messages=(message,), lora=role.lora, max_tokens=60)
            completion = await service.orchestrator.pool.generate(role.model, request)
            assert completion.usage.nodes == (() if machine == "head" else (machine,))
            texts.append(completion.text)
    assert texts[0] == texts[1]
    await ray_nodes.remove("v")


async def test_a_file_that_a_node_has_a_part_of_is_continued(tmp_path: Path, ray_nodes: RayNodes) -> None:
    await ray_nodes.add("g")
    registry = registry_on("g")
    small, worker = SMALL.read_bytes(), registry.models["tiny-small"]
    digest = hashlib.sha256(small).hexdigest()
    part = tmp_path / "nodes" / "g" / "models" / digest / f"{SMALL.name}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(small[: len(small) // 2])
    inode = part.stat().st_ino
    async with service_on(tmp_path, ray_nodes, registry) as service:
        await service.orchestrator.pool.load(worker.id)
    arrived = part.with_suffix("")
    assert arrived.read_bytes() == small
    assert arrived.stat().st_ino == inode
    arrived.with_name(f"{SMALL.name}.sha256").unlink()
    arrived.rename(part)
    with part.open("r+b") as damaged:
        damaged.write(b"damaged")
    async with service_on(tmp_path, ray_nodes, registry) as service:
        await service.orchestrator.pool.load(worker.id)
    assert arrived.read_bytes() == small
    await ray_nodes.remove("g")


def overwrite(path: Path, content: bytes) -> None:
    """Change the content of a file, but not its time."""
    status = path.stat()
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def model_on(home: Path, own: Path, *names: str) -> tuple[Registry, dict[str, Path]]:
    """Return a model `on-NAME` of this file for each node, and where the nodes store the file."""
    lines = [f"  on-{name}: {{file: '{own}', context: 256, nodes: [{name}]}}" for name in names]
    path = home / "registry.yaml"
    path.write_text("\n".join(["models:", *lines, "roles:", f"  worker: {{model: on-{names[0]}}}"]))
    digest = hashlib.sha256(own.read_bytes()).hexdigest()
    return load_registry(path), {name: home / "nodes" / name / "models" / digest / own.name for name in names}


async def test_a_node_gets_a_file_from_a_node_that_has_it_else_from_the_head(
    tmp_path: Path, ray_nodes: RayNodes
) -> None:
    content = SMALL.read_bytes() + bytes(2 * CHUNK_BYTES)  # what follows the tensors is not read
    damaged = content[:-1] + bytes([content[-1] ^ 1])
    own = tmp_path / "own.gguf"
    own.write_bytes(content)
    registry, copies = model_on(tmp_path, own, "q", "r", "s")
    await ray_nodes.add(*copies)
    async with service_on(tmp_path, ray_nodes, registry) as service:
        pool = service.orchestrator.pool
        await until_ready(service, *copies)
        await pool.load("on-q")
        overwrite(own, damaged)  # the head would not notice, but the node that gets it does
        await pool.load("on-r")
        assert copies["r"].read_bytes() == content
        overwrite(own, content)
        for name in ("q", "r"):
            await pool.unload(f"on-{name}")
            overwrite(copies[name], damaged)
        await pool.load("on-s")
        assert copies["s"].read_bytes() == content
    await ray_nodes.remove(*copies)


async def test_a_node_that_stands_still_while_it_gives_a_file_is_replaced_by_the_head(
    tmp_path: Path, ray_nodes: RayNodes
) -> None:
    registry, copies = model_on(tmp_path, SMALL, "t", "u")
    await ray_nodes.add(*copies)
    async with service_on(tmp_path, ray_nodes, registry, silence_seconds=2.0) as service:
        pool = service.orchestrator.pool
        before = (await until_ready(service, *copies))["u"].epoch
        await pool.load("on-t")
        await ray_nodes.signal("t", signal.SIGSTOP)
        await pool.load("on-u")
        assert copies["u"].read_bytes() == SMALL.read_bytes()
        await until_states(service, {"t": "lost"})
        assert (await until_ready(service, "u"))["u"].epoch == before
    await ray_nodes.signal("t", signal.SIGCONT)
    await ray_nodes.remove(*copies)


async def test_a_node_with_another_version_is_rejected(tmp_path: Path, ray_nodes: RayNodes) -> None:
    program = f"import orchestrator.engine.protocol as protocol\nprotocol.VERSION = {VERSION - 1}\n"
    (tmp_path / "sitecustomize.py").write_text(program)
    await ray_nodes.add_with("old", tmp_path)
    async with service_on(tmp_path, ray_nodes, registry_on("head")) as service:
        old = (await until_states(service, {"old": "rejected"}))["old"]
        assert f"version {VERSION - 1} of the protocol; accepted: {VERSION}" in (old.reason or "")
        assert old.library
        assert old.machine is None
        await ray_nodes.remove("old")
        while any(status.name == "old" for status in service.cluster.nodes()):
            assert isinstance(service.cluster, RayCluster)
            await service.cluster.changed.wait()


async def test_a_node_without_room_for_a_model_says_so(tmp_path: Path, ray_nodes: RayNodes) -> None:
    await ray_nodes.add("h")
    async with service_on(tmp_path, ray_nodes, registry_on("h"), node_bytes=1000) as service:
        with pytest.raises(ModelUnavailable, match=r"node h: small\.gguf needs .* accepted: more node_bytes"):
            await service.orchestrator.pool.load("tiny-small")
    await ray_nodes.remove("h")


async def test_a_node_that_makes_room_for_a_model_does_not_have_the_other_any_more(
    tmp_path: Path, ray_nodes: RayNodes
) -> None:
    await ray_nodes.add("i")
    registry = registry_on("i")
    small, *others = sorted(registry.models.values(), key=lambda entry: entry.file.stat().st_size if entry.file else 0)
    other = others[-1]
    needed = sum(file.stat().st_size for file in files_of(other))  # with its adapters
    async with service_on(tmp_path, ray_nodes, registry, node_bytes=needed + 1000) as service:
        pool = service.orchestrator.pool
        await until_ready(service, "i")
        on_disk = pool._machines["i"].on_disk
        await pool.load(small.id)
        assert on_disk(small)
        await pool.unload(small.id)
        await pool.load(other.id)
        assert (on_disk(small), on_disk(other)) == (False, True)
    await ray_nodes.remove("i")


async def test_engines_end_with_their_daemon_and_the_next_one_finds_the_nodes(
    tmp_path: Path, ray_nodes: RayNodes
) -> None:
    await ray_nodes.add("k")
    registry = tmp_path / "registry.yaml"
    registry.write_text(
        f"models:\n  m: {{file: '{SMALL}', context: 256, nodes: [k], replicas: 1}}\nroles:\n  worker: {{model: m}}\n"
    )
    epochs = []
    for _ in range(2):
        settings = {
            "ORCHESTRATOR_REGISTRY": str(registry),
            "ORCHESTRATOR_CLUSTER_RAY": ray_nodes.address,
            "ORCHESTRATOR_CLUSTER_FOLDER": str(tmp_path / "nodes"),
        }
        with running_daemon(tmp_path / "home", **settings) as daemon, daemon.client() as client:
            client.post("/v1/pool/m/load").raise_for_status()
            pool = client.get("/v1/pool").json()
            (model,) = pool["models"]
            assert [(name, machine["models"]) for name, machine in pool["machines"].items()] == [
                ("head", []),
                ("k", ["m"]),
            ]
            lines = run_here("--home", tmp_path / "home", "pool").out.splitlines()
            assert [line.split(":")[0] for line in lines if " taken, " in line] == ["head", "k"]
            engine = psutil.Process(model["pid"])
            nodes = run_here("--home", tmp_path / "home", "nodes", "--json").json["nodes"]
            assert [(node["name"], node["state"], node["machine"]["models"]) for node in nodes] == [
                ("head", "ready", []),
                ("k", "ready", ["m"]),
            ]
            shown = run_here("--home", tmp_path / "home", "nodes").out
            assert [line.split()[:1] for line in shown.splitlines() if " ready " in line] == [["head"], ["k"]]
            epochs.append(nodes[1]["epoch"])
            assert not any("_raylet" in mapped.path for mapped in psutil.Process(daemon.process.pid).memory_maps())
            daemon.process.send_signal(signal.SIGKILL)
            assert psutil.wait_procs([engine], timeout=60)[0] == [engine]
    assert epochs[0] < epochs[1]
    await ray_nodes.remove("k")


async def test_a_process_that_ends_with_ray_is_started_again(tmp_path: Path, ray_nodes: RayNodes) -> None:
    await ray_nodes.add("m")
    async with service_on(tmp_path, ray_nodes, registry_on("m")) as service:
        await until_ready(service, "m")
        pool = service.orchestrator.pool
        await pool.load("tiny-small")
        bridges = [child for child in psutil.Process().children() if PROGRAM in child.cmdline()]
        (bridge,) = bridges
        bridge.kill()
        lost = (await until_states(service, {"m": "lost"}))["m"]
        assert (lost.reason or "").startswith("the connection to the cluster was lost: its process ended")
        assert service.cluster.problem is not None
        await until_ready(service, "m")
        await pool.load("tiny-small")
        assert pool.machines()["m"].models == ("tiny-small",)
        assert service.cluster.problem is None
    await ray_nodes.remove("m")


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None, reason="network namespaces need root and `ip`")
async def test_a_node_that_is_cut_off_ends_its_engines_while_others_go_on(
    tmp_path: Path, ray_nodes: RayNodes, undisturbed: dict[str, str]
) -> None:
    await ray_nodes.add("n")
    async with service_on(tmp_path, ray_nodes, registry_on("n", "p"), silence_seconds=2.0) as service:
        with PartedNode(ray_nodes.address, "p", tmp_path / "p.log") as parted:
            await until_loaded(service, "n", "p")
            run = (await service.submit(wide_job())).run
            await until_generating(service.orchestrator.pool, "p", signal.SIGSTOP)
            models = service.orchestrator.pool.snapshot().models
            replicas = [replica for model in models for replica in model.instances if replica.machine == "p"]
            engines = [psutil.Process(replica.pid) for replica in replicas if replica.pid is not None]
            assert engines
            parted.cut_off()
            await until_states(service, {"p": "lost"})
            async for _ in service.orchestrator.watch(run):
                pass
            events = events_of(service, run)
            assert outputs_of(events) == undisturbed
            check_failures(events, " on node p was lost: ")
            ended, running = await asyncio.to_thread(psutil.wait_procs, engines, 60)
            assert (len(ended), running) == (len(engines), [])
    await ray_nodes.remove("n")
