"""Where Ray accepts connections: on a machine where it was started by hand, and on one where our command did it."""

import shutil
import socket
import subprocess
import sys
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
from tests.orchestrator.cluster.conftest import PartedMachine, PartedNode, needs_namespaces
from tests.orchestrator.cluster.heads import PATIENCE
from tests.orchestrator.cluster.test_cluster import SMALL

GUIDE = Path(__file__).parents[3] / "docs" / "cluster.md"
# Listens at an address until its standard input ends, and prints the port.
SERVER = """
import socket, sys
with socket.create_server((sys.argv[1], 0)) as server:
    print(server.getsockname()[1], flush=True)
    sys.stdin.read()
"""


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


@needs_namespaces
def test_addresses_at_which_ray_listens_are_named_where_it_was_started_by_hand(
    tmp_path: Path, ray_nodes: RayNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, home = tmp_path / "registry.yaml", tmp_path / "home"
    registry.write_text(
        f"models:\n  m: {{file: '{SMALL}', context: 256, nodes: [p]}}\nroles:\n  worker: {{model: m}}\n"
    )
    settings = {"ORCHESTRATOR_CLUSTER_RAY": ray_nodes.address, "ORCHESTRATOR_CLUSTER_FOLDER": str(tmp_path / "nodes")}
    monkeypatch.setenv("ORCHESTRATOR_CLUSTER_RAY", ray_nodes.address)
    port = int(ray_nodes.address.rpartition(":")[2])
    with (
        PartedNode(ray_nodes.address, "p", tmp_path / "p.log") as node,
        running_daemon(home, ORCHESTRATOR_REGISTRY=str(registry), **settings) as daemon,
        daemon.client() as client,
    ):
        assert accepts(node.outside, port)
        until_exposed(client, "head", lambda places: f"{node.outside}:{port}" in places)
        until_exposed(client, "p", lambda places: not places)
        assert "listens at" in run_here("--home", home, "nodes").out
        check = ray_ports(home)
        assert check["state"] == "note"
        assert "head: Ray also listens at " in check["found"]
        assert "p: Ray" not in check["found"]
        client.post("/v1/pool/m/load").raise_for_status()


def ray_ports(home: Path) -> dict[str, str]:
    """Return what the command `doctor` says of Ray's ports."""
    checks: list[dict[str, str]] = run_here("--home", home, "doctor", "--json").json["checks"]
    (check,) = [check for check in checks if check["name"] == "ports of Ray"]
    return check


def firewall_of(address: str, interface: str) -> str:
    """Return the rules of the guide for a machine."""
    _, start, after = GUIDE.read_text("utf-8").partition("table inet ray {")
    rules = start + after.partition("```")[0]
    for shown, own in (("10.0.0.2", address), ("eth1", interface)):
        assert shown in rules
        rules = rules.replace(shown, own)
    return rules


@needs_namespaces
@pytest.mark.skipif(shutil.which("nft") is None, reason="the rules of the guide need `nft`")
def test_what_comes_from_another_network_is_rejected_by_the_rules_of_the_guide() -> None:
    with (
        PartedMachine() as there,
        subprocess.Popen(
            [*there.prefix, sys.executable, "-c", SERVER, there.inside], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as server,
    ):
        assert server.stdout is not None
        port = int(server.stdout.readline())
        with there.reached_by_other():
            assert accepts(there.inside, port)
            rules = firewall_of(there.inside, "eth0")
            subprocess.run([*there.prefix, "nft", "-f", "-"], input=rules, text=True, check=True)
            assert not accepts(there.inside, port)
        assert accepts(there.inside, port)
        server.communicate()


async def test_other_programs_are_none_of_ray() -> None:
    with socket.create_server(("", 0)) as server:  # at all addresses
        port = server.getsockname()[1]
        assert all(not place.endswith(f":{port}") for place in await exposed("127.0.0.1"))
