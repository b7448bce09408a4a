"""Ray on a node with two networks, with and without the firewall of docs/cluster.md."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from benchmarks.cluster.ray_nodes import RayNodes
from orchestrator.cluster.exposure import exposed
from tests.orchestrator.api.daemon_process import running_daemon
from tests.orchestrator.cli.cli_command import run_here
from tests.orchestrator.cluster.conftest import PartedNode
from tests.orchestrator.cluster.heads import PATIENCE
from tests.orchestrator.cluster.test_cluster import SMALL

GUIDE = Path(__file__).parents[3] / "docs" / "cluster.md"
PORTS = {"--node-manager-port": 6380, "--object-manager-port": 6381}  # as in GUIDE


def firewall_of(address: str, interface: str) -> str:
    """Return the rules of the guide for a machine."""
    before, start, after = GUIDE.read_text("utf-8").partition("table inet ray {")
    assert all(f"{option}={port}" in before for option, port in PORTS.items())
    rules = start + after.partition("```")[0]
    for shown, own in (("10.0.0.2", address), ("eth1", interface)):
        assert shown in rules
        rules = rules.replace(shown, own)
    return rules


def accepts(address: str, port: int) -> bool:
    """Return whether a machine accepts connections at this port."""
    with suppress(OSError), socket.create_connection((address, port), timeout=5):
        return True
    return False


def until_exposed(client: httpx2.Client, name: str, matches: Callable[[list[str]], bool]) -> None:
    """Wait until the daemon says of a machine that Ray is exposed in such a way."""
    end = time.monotonic() + PATIENCE
    while True:
        nodes: list[dict[str, Any]] = client.get("/v1/nodes").json()["nodes"]
        places = [node["exposed"] for node in nodes if node["name"] == name and "exposed" in node]
        if places and matches(places[0]):
            return
        assert time.monotonic() < end, nodes
        time.sleep(0.05)


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("nft") is None,
    reason="network namespaces need root, `ip` and `nft`",
)
def test_addresses_at_which_ray_listens_are_named_until_the_firewall_closes_them(
    tmp_path: Path, ray_nodes: RayNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, home = tmp_path / "registry.yaml", tmp_path / "home"
    registry.write_text(
        f"models:\n  m: {{file: '{SMALL}', context: 256, nodes: [p]}}\nroles:\n  worker: {{model: m}}\n"
    )
    settings = {"ORCHESTRATOR_CLUSTER_RAY": ray_nodes.address, "ORCHESTRATOR_CLUSTER_FOLDER": str(tmp_path / "nodes")}
    monkeypatch.setenv("ORCHESTRATOR_CLUSTER_RAY", ray_nodes.address)
    options = [f"{option}={port}" for option, port in PORTS.items()]
    with (
        PartedNode(ray_nodes.address, "p", tmp_path / "p.log", *options) as node,
        running_daemon(home, ORCHESTRATOR_REGISTRY=str(registry), **settings) as daemon,
        daemon.client() as client,
    ):
        until_exposed(client, "p", lambda places: {f"{node.other}:{port}" for port in PORTS.values()} <= {*places})
        until_exposed(client, "head", lambda places: all(":" in place for place in places))
        for address in (node.inside, node.other):
            assert all(accepts(address, port) for port in PORTS.values())
        assert node.other in run_here("--home", home, "nodes").out
        check = ray_ports(home)
        assert (check["state"], "p: Ray also listens at " in check["found"]) == ("note", True)

        rules = firewall_of(node.inside, "eth0")
        subprocess.run([*node.prefix, "nft", "-f", "-"], input=rules, text=True, check=True)
        assert all(accepts(node.inside, port) for port in PORTS.values())
        assert not any(accepts(node.other, port) for port in PORTS.values())
        until_exposed(client, "p", lambda places: not places)
        assert "p: Ray" not in ray_ports(home)["found"]
        client.post("/v1/pool/m/load").raise_for_status()


def ray_ports(home: Path) -> dict[str, str]:
    """Return what the command `doctor` says of Ray's ports."""
    checks: list[dict[str, str]] = run_here("--home", home, "doctor", "--json").json["checks"]
    (check,) = [check for check in checks if check["name"] == "ports of Ray"]
    return check


async def test_other_programs_are_none_of_ray() -> None:
    with socket.create_server(("", 0)) as server:  # at all addresses
        port = server.getsockname()[1]
        assert all(not place.endswith(f":{port}") for place in await exposed("127.0.0.1"))
