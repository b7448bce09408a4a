"""A Ray cluster on this machine. Its head runs no engines, nodes are added by the tests."""

import asyncio
import importlib.util
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[3]
TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(16)}
"""What every process of the cluster needs: its nodes, and the daemon, whose bridge gets its environment."""


class RayNodes:
    """The nodes of a Ray cluster, which a process of its own starts; see `ray_nodes`."""

    def __init__(self, log: Path) -> None:
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.orchestrator.cluster.ray_nodes"],
                cwd=ROOT,
                env={**os.environ, **TOKEN},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.address = self._line()
        assert self.address, log.read_text()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def _do(self, command: str) -> int:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        return int(self._line())

    async def add(self, *names: str) -> None:
        for name in names:
            await asyncio.to_thread(self._do, f"add {name}")

    async def remove(self, *names: str) -> None:
        for name in names:
            await asyncio.to_thread(self._do, f"remove {name}")

    async def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to all processes of a node at once, as if the machine had been stopped or switched off."""
        raylet = psutil.Process(await asyncio.to_thread(self._do, f"pid {name}"))
        for process in (raylet, *raylet.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="module")
def ray_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayNodes]:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("the extra `ray` is not installed")
    nodes = RayNodes(tmp_path_factory.mktemp("ray") / "nodes.log")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in TOKEN.items():
            patch.setenv(name, value)
        yield nodes
    nodes.close()
