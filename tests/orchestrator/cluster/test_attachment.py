"""What a service gets: one machine unless the configuration names a cluster."""

import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.app import attached
from orchestrator.cluster.standby import check_configuration
from orchestrator.errors import InputError
from orchestrator.registry.load import empty_registry
from orchestrator.service.configuration import Configuration, load_configuration
from orchestrator.service.extent import Extent
from orchestrator.service.service import ended_in_order
from tests.orchestrator.run_jobs import ON_DEMAND

ROOT = Path(__file__).parents[3]
CLUSTER = Configuration.model_validate({"cluster": {"ray": "10.0.0.1:6379"}})
PROGRAM = """
import asyncio, pathlib, sys
from orchestrator.app import attached
from orchestrator.registry.load import empty_registry
from orchestrator.service.configuration import Configuration

async def main(home):
    async with attached().service(home, empty_registry(home / "r.yaml"), Configuration()):
        print(*sorted(name for name in sys.modules if name.partition(".")[0] == "ray" or ".cluster" in name))

asyncio.run(main(pathlib.Path(sys.argv[1])))
"""


def test_without_a_configured_cluster_nothing_of_it_is_imported(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, tmp_path], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-1].split() == ["orchestrator.cluster", "orchestrator.cluster.attachment"]


def test_without_ray_a_configured_cluster_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"cluster\.ray.* not installed; accepted: the extra `ray`"):
        attached().service(tmp_path, ON_DEMAND, CLUSTER)


STANDBY = {"ray": "10.0.0.1:6379", "standby": "10.0.0.1:7400"}


def test_a_standby_without_a_cluster_is_refused(tmp_path: Path) -> None:
    alone = Configuration.model_validate({"cluster": {"standby": "10.0.0.1:7400"}})
    with pytest.raises(InputError, match=r"cluster\.standby: needs a Ray cluster; accepted: ray of \[cluster\]"):
        attached().service(tmp_path, ON_DEMAND, alone)
    with pytest.raises(InputError, match=r"cluster\.standby: needs a Ray cluster"):
        check_configuration(alone.cluster)


def test_a_standby_needs_an_address_and_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"cluster\.standby: is not configured; accepted: ADDRESS:PORT"):
        check_configuration(CLUSTER.cluster)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"cluster\.ray.* not installed; accepted: the extra `ray`"):
        check_configuration(Configuration.model_validate({"cluster": STANDBY}).cluster)


async def test_with_a_standby_commands_without_a_daemon_change_nothing(tmp_path: Path) -> None:
    configured = Configuration.model_validate({"cluster": STANDBY})
    for extent in (Extent.JOURNAL, Extent.RUNS):
        service = attached().service(tmp_path, empty_registry(tmp_path / "r.yaml"), configured, extent)
        with pytest.raises(InputError, match=r"may not change the state folder; accepted: a daemon that runs"):
            async with ended_in_order(service):
                await service.open()
    assert not (tmp_path / "journal.db").exists()


@pytest.mark.parametrize("address", ["10.0.0.1", ":7400", "10.0.0.1:port", "http://10.0.0.1:7400"])
def test_what_is_no_address_of_a_standby_is_refused(address: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="ORCHESTRATOR_CLUSTER_STANDBY"):
        load_configuration({"HOME": str(tmp_path), "ORCHESTRATOR_CLUSTER_STANDBY": address})


def test_commands_without_a_daemon_use_this_machine_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    service = attached().service(tmp_path, empty_registry(tmp_path / "r.yaml"), CLUSTER, Extent.RUNS)
    assert service.cluster.nodes() == []
    assert service.cluster.problem is None


async def test_one_machine_is_the_head(tmp_path: Path) -> None:
    async with attached().service(tmp_path, ON_DEMAND, Configuration()) as service:
        (head,) = service.cluster.nodes()
        assert (head.name, head.state, head.reason) == ("head", "ready", None)
        assert head.machine is not None
        assert head.machine.cores == service.orchestrator.pool.cores
        assert head.machine.models == ()


@pytest.mark.parametrize("address", ["auto", "10.0.0.1:6379", "head.example.org:6379", "[fd00::1]:6379", ""])
def test_addresses_of_a_cluster(address: str, tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "ORCHESTRATOR_CLUSTER_RAY": address}
    assert load_configuration(environ).cluster.ray == address


@pytest.mark.parametrize("address", ["ray://10.0.0.1:10001", "10.0.0.1", "two words:1"])
def test_what_is_no_address_is_refused(address: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="ORCHESTRATOR_CLUSTER_RAY"):
        load_configuration({"HOME": str(tmp_path), "ORCHESTRATOR_CLUSTER_RAY": address})
