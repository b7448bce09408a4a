"""A Ray cluster on this machine. Its head runs no engines, nodes are added by the tests."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
import pytest

from benchmarks.cluster.ray_nodes import TOKEN, RayNodes


class PartedNode:
    """A node in a network namespace of its own, which can be cut off. A context manager, which needs root.

    A second network, in which Ray has no address, connects `other` with this process.
    """

    def __init__(self, address: str, name: str, log: Path, *options: str) -> None:
        """`options` are further ones of `ray start`."""
        self._address, self._name, self._log, self._options = address, name, log, options
        self._space, self._link = f"orchestrator-{os.getpid()}", f"orch{os.getpid()}"
        # Addresses of its own, as tests that were killed leave theirs behind.
        self.outside, self.inside, self._far, self.other = (
            f"10.213.{os.getpid() % 256}.{number}" for number in (1, 2, 5, 6)
        )
        self._raylet: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        inside = ("netns", "exec", self._space, "ip")
        self._ip("netns", "add", self._space)
        self._ip(*inside, "link", "set", "lo", "up")
        self._connect(self._link, self.outside, "eth0", self.inside)
        self._connect(f"{self._link}b", self._far, "eth1", self.other)
        self._ip(*inside, "route", "add", "default", "via", self.outside)
        ray = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats"]
        own = [f"--node-name={self._name}", f"--node-ip-address={self.inside}", "--num-cpus=0", *self._options]
        with self._log.open("wb") as log:
            self._raylet = subprocess.Popen(
                ["ip", "netns", "exec", self._space, *ray, f"--address={self._address}", *own],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._raylet is not None
        with suppress(psutil.NoSuchProcess):
            processes = [*(started := psutil.Process(self._raylet.pid)).children(recursive=True), started]
            for process in processes:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        self._raylet.wait()
        self._ip("link", "del", self._link)
        self._ip("link", "del", f"{self._link}b")
        self._ip("netns", "del", self._space)

    @property
    def prefix(self) -> tuple[str, ...]:
        """The words before a command that runs it on this node."""
        return ("ip", "netns", "exec", self._space)

    def cut_off(self) -> None:
        """Let no packet through any more, without a word to either side."""
        self._ip("link", "set", self._link, "down")

    def reconnect(self) -> None:
        """Let packets through again."""
        self._ip("link", "set", self._link, "up")

    def _connect(self, link: str, outside: str, name: str, inside: str) -> None:
        within = ("netns", "exec", self._space, "ip")
        self._ip("link", "add", link, "type", "veth", "peer", "name", name, "netns", self._space)
        self._ip("addr", "add", f"{outside}/30", "dev", link)
        self._ip("link", "set", link, "up")
        self._ip(*within, "addr", "add", f"{inside}/30", "dev", name)
        self._ip(*within, "link", "set", name, "up")

    @staticmethod
    def _ip(*arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture(scope="session")
def with_ray() -> None:
    """Skip tests where Ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("the extra `ray` is not installed")


@pytest.fixture(scope="module")
def ray_nodes(with_ray: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayNodes]:
    nodes = RayNodes(tmp_path_factory.mktemp("ray") / "nodes.log")
    with pytest.MonkeyPatch.context() as patch, closing(nodes):
        for name, value in TOKEN.items():
            patch.setenv(name, value)
        yield nodes


@pytest.fixture
def arbiter_nodes(ray_nodes: RayNodes) -> Iterator[RayNodes]:
    """The cluster for a test that has its own arbiter."""
    yield ray_nodes
    ray_nodes.end_arbiter()
