"""A model with an engine on a node of a real Ray cluster and a server: requests go to both."""

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.cluster.ray_nodes import RayNodes
from orchestrator.engine.contract import Generation, Message
from orchestrator.registry.forms import ReplicaLimits
from orchestrator.registry.models import Endpoint
from tests.orchestrator.api.daemon_process import running_daemon
from tests.orchestrator.cluster.test_cluster import service_on, until_ready
from tests.orchestrator.run_jobs import ON_DEMAND

MODEL = "tiny-small"
WORDS = {"type": "array", "items": {"const": "word"}, "minItems": 60, "maxItems": 60}
REQUEST = Generation(messages=(Message("user", "List words."),), max_tokens=1000, schema=WORDS)


async def test_requests_go_to_a_node_and_to_a_server(
    tmp_path: Path, ray_nodes: RayNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ray_nodes.add("s")
    with running_daemon(tmp_path / "far", ORCHESTRATOR_MEMORY_USE="shadow") as daemon:
        monkeypatch.setenv("FAR_KEY", daemon.token)
        far = Endpoint(f"http://127.0.0.1:{daemon.port}/v1", MODEL, "FAR_KEY", 120.0, slots=1)
        entry = ON_DEMAND.models[MODEL]
        options = replace(entry.options, slots=1, threads=1)
        both = replace(entry, nodes=("s",), replicas=ReplicaLimits(1, 1), servers=(far,), options=options)
        registry = replace(ON_DEMAND, models={**ON_DEMAND.models, MODEL: both})
        async with service_on(tmp_path / "home", ray_nodes, registry) as service:
            await until_ready(service, "s")
            pool = service.orchestrator.pool
            answers = await asyncio.gather(*(pool.generate(MODEL, REQUEST) for _ in range(16)))
            assert len({answer.text for answer in answers}) == 1
            computed = Counter(node for answer in answers for node in answer.usage.nodes)
            assert computed.keys() == {"s", far.name}
            assert computed.total() == 16
            assert [(node.name, node.state) for node in service.cluster.nodes()] == [
                ("head", "ready"),
                ("s", "ready"),
                (far.name, "ready"),
            ]
    await ray_nodes.remove("s")
