"""KV cells of a prompt travel between the machines of a real Ray cluster when that takes less time than computing."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from benchmarks.cluster.ray_nodes import RayNodes
from benchmarks.models import ModelShape, write_llama
from orchestrator.api.metrics import exposition
from orchestrator.engine.client.engine import Completion, Engine
from orchestrator.engine.contract import EngineSpec, Generation, Message
from orchestrator.pool.managed_model import ManagedModel
from orchestrator.pool.places import Replica
from orchestrator.pool.pool import Pool
from orchestrator.registry.forms import HEAD
from orchestrator.registry.load import load_registry
from orchestrator.registry.models import Registry
from orchestrator.service.service import Service
from tests.orchestrator.cluster.test_cluster import service_on, until_ready

DOCUMENT = "the quick brown fox jumps over the lazy dog and runs away " * 50
WAITING = 20  # requests for a machine that is to get no more
LONG = 1000  # tokens of an answer that keeps an engine busy


@pytest.fixture(scope="module")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose prompts take so long that shipping their cells takes much less."""
    shape = ModelShape(width=512, layers=8, heads=8, kv_heads=2, feed_forward=2048, context=4096)
    return write_llama(tmp_path_factory.mktemp("models") / "slow.gguf", shape)


def registry_of(home: Path, model_file: Path, *nodes: str) -> Registry:
    path = home / "registry.yaml"
    path.write_text(
        f"models:\n  m: {{file: '{model_file}', context: 4096, slots: 1, threads: 1, batch_invariant: true,"
        f" flash_attention: on, nodes: [{', '.join(nodes)}], replicas: {{min: 2, max: 2}}}}\n"
        "roles:\n  worker: {model: m}\n"
    )
    return load_registry(path)


def ask(question: str, max_tokens: int = 8) -> Generation:
    messages = (Message("system", DOCUMENT), Message("user", question))
    return Generation(messages=messages, max_tokens=max_tokens, ignore_end=True)


async def computed_alone(registry: Registry, request: Generation) -> str:
    entry = registry.models["m"]
    async with await Engine.start(EngineSpec.of(entry.options, file=str(entry.file))) as engine:
        return (await engine.generate(request)).text


def replica_on(pool: Pool, machine: str) -> tuple[ManagedModel, Replica]:
    model = pool._managed["m"]
    return model, next(
        replica for replica in model.places.replicas if replica.machine == ("" if machine == HEAD else machine)
    )


@contextmanager
def leased(pool: Pool, machine: str) -> Iterator[None]:
    """Let requests go to other machines, since many wait for this one."""
    replica = replica_on(pool, machine)[1]
    for _ in range(WAITING):
        replica.grant(())
    yield
    for _ in range(WAITING):
        pool._residency.release(replica)


@asynccontextmanager
async def saturated(pool: Pool, source: str, target: str) -> AsyncIterator[None]:
    """Have the engine on `source` read the document, and then write a long text about it, while others wait for it."""
    begun = asyncio.Event()
    with leased(pool, target):
        running = asyncio.create_task(pool.generate("m", ask("tell me all", LONG), lambda _: begun.set()))
        await begun.wait()
    with leased(pool, source):
        yield
    assert not running.done()
    running.cancel()


@pytest.fixture(scope="module")
def two_nodes(ray_nodes: RayNodes) -> Iterator[RayNodes]:
    """A cluster with the nodes a and b."""
    asyncio.run(ray_nodes.add("a", "b"))
    yield ray_nodes
    asyncio.run(ray_nodes.remove("a", "b"))


@asynccontextmanager
async def service_of(
    home: Path, two_nodes: RayNodes, model_file: Path, *machines: str, silence_seconds: float = 10.0
) -> AsyncIterator[tuple[Service, Registry]]:
    """Enter a service with an engine on each of two machines, of which the pool knows what their steps take."""
    registry = registry_of(home, model_file, *machines)
    async with service_on(home, two_nodes, registry, silence_seconds) as service:
        await until_ready(service, "a", "b")
        pool = service.orchestrator.pool
        await pool.load("m")
        async with asyncio.timeout(100):
            while sum(replica.pace is not None for replica in pool._managed["m"].places.replicas) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        yield service, registry


def files_on(home: Path, machine: str) -> list[Path]:
    folder = home / "prefixes" if machine == HEAD else home / "nodes" / machine / "prefixes"
    return sorted(folder.glob("*.kv"))  # without those that are still being written


def machines_of(completion: Completion) -> tuple[str, ...]:
    return completion.usage.nodes or (HEAD,)


@pytest.mark.parametrize(("source", "target"), [("a", "b"), (HEAD, "a"), ("a", HEAD)])
async def test_a_prefix_is_shipped_to_a_machine_with_a_free_slot(
    tmp_path: Path, two_nodes: RayNodes, model_file: Path, source: str, target: str
) -> None:
    async with service_of(tmp_path, two_nodes, model_file, source, target) as (service, registry):
        pool, request = service.orchestrator.pool, ask("what does the fox do?")
        async with saturated(pool, source, target), asyncio.TaskGroup() as tasks:
            first, second = (tasks.create_task(pool.generate("m", one)) for one in (request, ask("and the dog?")))
        completion, other = first.result(), second.result()
        assert machines_of(completion) == machines_of(other) == (target,)
        assert other.usage.shipped == ()  # it has waited for the same cells
        assert other.usage.cached_tokens > 0.9 * other.usage.prompt_tokens
        (shipped,) = completion.usage.shipped
        assert shipped.source == source
        (file,) = [path for path in files_on(tmp_path, target) if path.stat().st_size == shipped.bytes]
        assert file.name in [path.name for path in files_on(tmp_path, source)]
        assert completion.usage.cached_tokens >= shipped.tokens > 0.9 * completion.usage.prompt_tokens
        assert completion.text == await computed_alone(registry, request)
        service.totals.shipped["m", "tokens"] += shipped.tokens
        line = f'orchestrator_shipped_total{{kind="tokens",model="m"}} {float(shipped.tokens)}'
        assert line in (await exposition(service)).decode().splitlines()


async def until_stored(home: Path, machine: str) -> Path:
    """Wait until an engine, which is idle, has written what it holds of the document."""
    async with asyncio.timeout(100):
        while not (written := [path for path in files_on(home, machine) if path.stat().st_size > 1 << 20]):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return written[0]


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


async def test_a_damaged_file_is_refused_and_the_prefix_is_computed(
    tmp_path: Path, two_nodes: RayNodes, model_file: Path
) -> None:
    async with service_of(tmp_path, two_nodes, model_file, "a", "b") as (service, registry):
        pool, request = service.orchestrator.pool, ask("what does the fox do?")
        with leased(pool, "b"):
            await pool.generate("m", ask("tell me all"))
        stored = await until_stored(tmp_path, "a")
        damage(stored)
        with leased(pool, "a"):
            completion = await pool.generate("m", request)
        assert machines_of(completion) == ("b",)
        assert completion.usage.shipped == ()
        assert completion.usage.cached_tokens < 100
        assert not stored.exists()  # the next time it is written again
        assert stored.name not in [path.name for path in files_on(tmp_path, "b")]
        assert completion.text == await computed_alone(registry, request)


async def test_nothing_is_shipped_if_computing_takes_less(
    tmp_path: Path, two_nodes: RayNodes, model_file: Path
) -> None:
    async with service_of(tmp_path, two_nodes, model_file, "a", "b") as (service, _):
        pool, request = service.orchestrator.pool, ask("what does the fox do?")
        links = pool._machines.links
        assert links is not None
        for _ in range(20):
            links.learn("a", "b", 1000, 60.0)
        with leased(pool, "b"):
            await pool.generate("m", ask("tell me all"))
        stored = await until_stored(tmp_path, "a")
        with leased(pool, "a"):
            completion = await pool.generate("m", request)
        assert machines_of(completion) == ("b",)
        assert completion.usage.shipped == ()
        assert stored.name not in [path.name for path in files_on(tmp_path, "b")]
        assert completion.usage.cached_tokens < 100


async def test_a_machine_that_stands_still_costs_no_more_than_computing(
    tmp_path: Path, two_nodes: RayNodes, model_file: Path
) -> None:
    machines = service_of(tmp_path, two_nodes, model_file, "a", "b", silence_seconds=600.0)
    async with machines as (service, registry):
        pool, request = service.orchestrator.pool, ask("what does the fox do?")
        with leased(pool, "b"):
            await pool.generate("m", ask("tell me all"))
        await two_nodes.signal("a", signal.SIGSTOP)
        with leased(pool, "a"):
            completion = await pool.generate("m", request)
        assert machines_of(completion) == ("b",)
        assert completion.usage.shipped == ()
        assert ("a", "b") in pool._managed["m"].dispatcher.paused
        await two_nodes.signal("a", signal.SIGCONT)
        assert completion.text == await computed_alone(registry, request)
