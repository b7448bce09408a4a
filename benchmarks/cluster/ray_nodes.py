"""A Ray cluster on this machine, in a process of its own, so that its users do not import Ray.

`python -m benchmarks.cluster.ray_nodes` starts the head, and prints its address. Then it carries out the commands that
it reads, one a line, each with the name of a node, and prints a line for each: `add`, `pid` (of the raylet, of which
all processes of a node are descendants), `remove`. After `add` and the name there may be a folder from which the node's
processes import first. `end-arbiter -` kills the actor that gives leases. It ends with its standard input. The node
`head-of-ray` is there from the start. Its processes include Ray's control plane, which has forgotten everything when it
is added again, at the same address.
"""

import asyncio
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

ROOT: Final = Path(__file__).parents[2]
TOKEN: Final = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(16)}
"""What every process of the cluster needs: its nodes, and the daemon, whose bridge gets its environment."""
HEAD: Final = "head-of-ray"
ANSWER: Final = "answer: "
"""How lines begin that are no messages of Ray, which prints what happens to nodes."""
SETTINGS: Final = {"num_cpus": 0, "include_dashboard": False}
PRIORITY: Final = {"RAY_worker_niceness": "0"}
"""Lets engines of nodes have the priority of those of the head."""


class RayNodes:
    """The nodes of a Ray cluster, which a process of its own starts; see above."""

    def __init__(self, log: Path, environment: Mapping[str, str] = TOKEN) -> None:
        """`environment` is for all nodes, in addition to that of this process."""
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.cluster.ray_nodes"],
                cwd=ROOT,
                env={**os.environ, **environment, **PRIORITY},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.address = self._line()
        assert self.address, log.read_text()

    def _line(self) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(ANSWER):
                return line.removeprefix(ANSWER).strip()
        return ""

    def _do(self, command: str) -> int:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        return int(self._line())

    async def add(self, *names: str) -> None:
        for name in names:
            await asyncio.to_thread(self._do, f"add {name}")

    async def add_with(self, name: str, folder: Path) -> None:
        """Add a node whose processes import from this folder first."""
        await asyncio.to_thread(self._do, f"add {name} {folder}")

    async def remove(self, *names: str) -> None:
        for name in names:
            await asyncio.to_thread(self._do, f"remove {name}")

    async def raylet(self, name: str) -> psutil.Process:
        """Return the process of which all processes of a node are descendants."""
        return psutil.Process(await asyncio.to_thread(self._do, f"pid {name}"))

    async def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to all processes of a node at once, as if the machine had been stopped or switched off."""
        raylet = await self.raylet(name)
        for process in (raylet, *raylet.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def end_arbiter(self) -> None:
        """End the actor that gives leases, for good."""
        self._do("end-arbiter -")

    def close(self) -> None:
        self._process.communicate()


def main() -> None:
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args=(head := {**SETTINGS, "node_name": HEAD}))
    address, nodes = cluster.address, {HEAD: cluster.head_node}
    print(f"{ANSWER}{address}", flush=True)
    for line in sys.stdin:
        verb, name, *first = line.split()
        if verb == "add" and name == HEAD:
            nodes[name] = cluster.add_node(gcs_server_port=int(address.rpartition(":")[2]), **head)
        elif verb == "add":
            path = os.pathsep.join([*first, os.environ.get("PYTHONPATH", "")])
            nodes[name] = cluster.add_node(
                **SETTINGS,
                node_name=name,
                object_store_memory=100 << 20,
                env_vars={"PYTHONPATH": path},
            )
        elif verb == "remove":
            cluster.remove_node(nodes.pop(name), allow_graceful=False)
        elif verb == "end-arbiter":
            ray.init(address=address, namespace="orchestrator", log_to_driver=False, logging_level="error")
            ray.kill(ray.get_actor("arbiter"))
            ray.shutdown()
        raylet = nodes[name].all_processes["raylet"][0].process.pid if name in nodes else 0
        print(f"{ANSWER}{raylet}", flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main()
