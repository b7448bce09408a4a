"""A Ray cluster on this machine. Its head runs no engines, nodes are added by the tests."""

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
import pytest

from benchmarks.cluster.ray_nodes import TOKEN, RayNodes
from tests.orchestrator.cli.cli_command import COMMAND


class PartedMachine:
    """A network namespace that stands for another machine, and can be cut off. A context manager, which needs root.

    One network connects its address `inside` with `outside` of this machine. A second one connects its address `other`.
    """

    def __init__(self) -> None:
        self._space, self._link = f"orchestrator-{os.getpid()}", f"orch{os.getpid()}"
        # Addresses of its own, as tests that were killed leave theirs behind.
        self.outside, self.inside, self._far, self.other = (
            f"10.213.{os.getpid() % 256}.{number}" for number in (1, 2, 5, 6)
        )

    def __enter__(self) -> Self:
        inside = ("netns", "exec", self._space, "ip")
        self._ip("netns", "add", self._space)
        self._ip(*inside, "link", "set", "lo", "up")
        self._connect(self._link, self.outside, "eth0", self.inside)
        self._connect(f"{self._link}b", self._far, "eth1", self.other)
        self._ip(*inside, "route", "add", "default", "via", self.outside)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ip("link", "del", self._link)
        self._ip("link", "del", f"{self._link}b")
        self._ip("netns", "del", self._space)

    @property
    def prefix(self) -> tuple[str, ...]:
        """The words before a command that runs it there."""
        return ("ip", "netns", "exec", self._space)

    def cut_off(self) -> None:
        """Let no packet through any more, without a word to either side."""
        self._ip("link", "set", self._link, "down")

    def reconnect(self) -> None:
        """Let packets through again."""
        self._ip("link", "set", self._link, "up")

    @contextmanager
    def reached_by_other(self) -> Iterator[None]:
        """Have packets for `inside` come by the network of `other` in the block."""
        route = (f"{self.inside}/32", "via", self.other)
        self._ip("route", "add", *route)
        try:
            yield
        finally:
            self._ip("route", "del", *route)

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


class PartedNode(PartedMachine):
    """A machine with a node of a Ray cluster, which `orchestrator cluster start` starts."""

    def __init__(self, address: str, name: str, log: Path) -> None:
        super().__init__()
        self._address, self._name, self._log = address, name, log
        self._raylet: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        super().__enter__()
        start = [*COMMAND, "cluster", "start", self.inside, "--join", self._address, "--name", self._name, "--block"]
        with self._log.open("wb") as log:
            self._raylet = subprocess.Popen(
                [*self.prefix, *start],
                env={**os.environ, "XDG_STATE_HOME": str(self._log.with_suffix(".state"))},
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
            kill_all([*(started := psutil.Process(self._raylet.pid)).children(recursive=True), started])
        self._raylet.wait()
        super().__exit__(kind, error, trace)


def kill_all(processes: Iterable[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()


needs_namespaces = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None, reason="network namespaces need root and `ip`"
)


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
