"""`orchestrator cluster start`: what it refuses, and where Ray listens that it has started."""

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from benchmarks.cluster.ray_nodes import TOKEN
from orchestrator.cluster import arbiter_client, nodes
from orchestrator.cluster.arbiter_client import ArbiterClient
from orchestrator.cluster.lease import Granted, Look
from orchestrator.cluster.listening import machine_addresses
from orchestrator.run.journal.reader import JournalReader
from orchestrator.task.events import AttemptGenerated
from tests.orchestrator.api.daemon_process import free_port, running_daemon
from tests.orchestrator.cli.cli_command import COMMAND, Result, environment, make_cli, make_command
from tests.orchestrator.cluster.conftest import PartedMachine, kill_all, needs_namespaces
from tests.orchestrator.cluster.test_cluster import SMALL
from tests.orchestrator.cluster.test_standby import short

FOREIGN = "192.0.2.254"  # of the documentation's network
PATIENCE = 60


@pytest.fixture
def own() -> str:
    """An IPv4 address of this machine that is not loopback."""
    addresses = (text for text in sorted(machine_addresses()) if ":" not in text and not text.startswith("127."))
    return next(addresses, "") or pytest.skip("this machine has no address but loopback")


class Listener(NamedTuple):
    """A socket that listens."""

    pid: int
    process: str
    host: str


def plane_port() -> int:
    """Return a free port for a control plane: none of those that Ray's workers have."""
    while (port := free_port()) < 20_000:
        pass
    return port


def start(home: Path, *arguments: str, **variables: str) -> Result:
    return make_command(home)("cluster", "start", *arguments, **{**TOKEN, **variables})


@pytest.mark.parametrize("address", [FOREIGN, "127.0.0.1", "0.0.0.0", "::1", "localhost", "10.0.0"])  # noqa: S104
def test_an_address_of_another_machine_is_refused_with_those_of_this_one(
    address: str, own: str, tmp_path: Path
) -> None:
    result = start(tmp_path, address)
    assert result.code == 2
    refused, _, accepted = result.err.partition("; accepted: ")
    assert refused == f"error: ADDRESS: {address!r} is no address at which others reach this machine"
    assert own in accepted.strip().split(", ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--name", "../east"], "--name: '../east' is no name of a node; accepted: letters, digits"),
        (["--name", "head"], "--name: 'head' is the daemon's machine; accepted: another name"),
        (["--join", "10.0.0.1"], "--join: '10.0.0.1' is no address; accepted: ADDRESS:PORT of the control plane"),
        (["--join", "10.0.0.1:65536"], "--join: '10.0.0.1:65536' is no address"),
        (["--join", "10.0.0.1:6379", "--port", "6380"], "--port: is the control plane's, which --join names"),
        (["--port", "0"], "Invalid value for '--port'"),
    ],
)
def test_what_cannot_be_meant_is_refused(arguments: list[str], message: str, own: str, tmp_path: Path) -> None:
    result = start(tmp_path, own, *arguments)
    assert result.code == 2
    assert message in result.err


def test_without_ray_the_extra_is_named(own: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    result = start(tmp_path, own)
    assert result.code == 2
    assert result.err == "error: cluster start: needs the extra `ray`; accepted: pip install 'orchestrator[ray]'\n"


@pytest.mark.usefixtures("with_ray")
@pytest.mark.parametrize("stated", [{}, {"RAY_AUTH_MODE": "token"}, {"RAY_AUTH_TOKEN_PATH": "/none"}])
def test_a_token_is_required_unless_the_environment_says_otherwise(
    stated: Mapping[str, str], own: str, tmp_path: Path
) -> None:
    without = {**dict.fromkeys(TOKEN, ""), "RAY_AUTH_MODE": "Token", "RAY_AUTH_TOKEN_PATH": "", **stated}
    with socket.create_server((own, 0)) as server:  # where the control plane is not started
        taken = str(server.getsockname()[1])
        result = start(tmp_path, own, "--port", taken, **without)
        assert result.code == 2
        assert "there is no token, which Ray requires of all machines; accepted: `ray get-auth-token" in result.err
        taken_says = f"error: --port: port {taken} of {own} cannot be listened at: Address already in use"
        assert taken_says in start(tmp_path, own, "--port", taken, **{**without, "RAY_AUTH_MODE": "disabled"}).err
        (tmp_path / ".ray").mkdir()
        (tmp_path / ".ray" / "auth_token").write_text("a token\n")
        assert (taken_says in start(tmp_path, own, "--port", taken, **without).err) == ("/none" not in stated.values())


@pytest.mark.usefixtures("with_ray")
def test_a_control_plane_that_is_not_there_is_named_at_once(own: str, tmp_path: Path) -> None:
    result = start(tmp_path, own, "--join", f"127.0.0.1:{free_port()}")
    assert result.code == 2
    assert "does not answer: Connection refused; accepted: the address of a running one" in result.err


@pytest.mark.usefixtures("with_ray")
def test_without_a_compiler_ray_is_not_started(own: str, tmp_path: Path) -> None:
    result = start(tmp_path, own, "--port", str(free_port()), PATH=str(tmp_path))
    assert result.code == 1
    assert "there is no C compiler `cc`, which Ray needs to listen at one address only; accepted: " in result.err


@pytest.mark.usefixtures("with_ray")
def test_a_start_that_fails_says_why(own: str, tmp_path: Path) -> None:
    result = start(tmp_path, own, "--port", "10002")
    assert result.code == 1
    assert f"error: Ray has not started at {own}: ValueError: Ray component worker_ports is trying to use" in result.err


def of_cluster(address: str) -> dict[int, psutil.Process]:
    """Return the processes of Ray, by pid, whose control plane is at this address, with all that they have started."""
    processes = dict[int, psutil.Process]()
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess):
            if any(address in re.split("[=:]", word) for word in process.cmdline()):
                processes |= {other.pid: other for other in (process, *process.children(recursive=True))}
    return processes


def of_module(module: str, parent: int) -> int:
    """Return the pid of the descendant of a process that runs this module."""
    (process,) = (other for other in psutil.Process(parent).children(recursive=True) if module in other.cmdline())
    return process.pid


LISTENERS = """
import json, psutil
listening = [socket for socket in psutil.net_connections("tcp") if socket.status == psutil.CONN_LISTEN]
print(json.dumps([[socket.pid, psutil.Process(socket.pid).name(), socket.laddr.ip] for socket in listening]))
"""


def listeners(prefix: Sequence[str] = ()) -> list[Listener]:
    """Return the sockets that listen on this machine, or on that of the prefix."""
    process = subprocess.run([*prefix, sys.executable, "-c", LISTENERS], capture_output=True, text=True, check=True)
    return [Listener(pid, name, host.removeprefix("::ffff:")) for pid, name, host in json.loads(process.stdout)]


def names_at(address: str, sockets: Iterable[Listener]) -> set[str]:
    """Check that sockets are at this address or for their machine alone, and return whose are at this address."""
    sockets = list(sockets)
    assert {socket.host for socket in sockets} <= {address, "127.0.0.1"}, sockets
    return {socket.process for socket in sockets if socket.host == address}


@pytest.fixture
def token(with_ray: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in TOKEN.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("token")
def test_ray_listens_at_one_address_until_the_command_is_ended(own: str, tmp_path: Path) -> None:
    port = plane_port()
    command = [*COMMAND, "cluster", "start", own, "--port", str(port), "--block"]
    with (tmp_path / "log").open("wb") as log:
        ray = subprocess.Popen(command, env=environment(tmp_path), stdout=log, stderr=log)
    processes, names = dict[int, psutil.Process](), set[str]()
    try:
        end = time.monotonic() + PATIENCE
        while not {"gcs_server", "raylet"} <= names:
            assert ray.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < end, (tmp_path / "log").read_text()
            processes = {process.pid: process for process in psutil.Process(ray.pid).children(recursive=True)}
            names = names_at(own, (socket for socket in listeners() if socket.pid in processes))
        ray.terminate()
        ray.wait(PATIENCE)
        assert psutil.wait_procs(processes.values(), PATIENCE)[1] == []
    finally:
        kill_all(processes.values())
        ray.kill()
        ray.wait()


@needs_namespaces
@pytest.mark.usefixtures("token")
def test_on_machines_with_two_addresses_all_of_ray_listens_at_the_one_that_was_named(tmp_path: Path) -> None:
    registry, home, port = tmp_path / "registry.yaml", tmp_path / "home", plane_port()
    registry.write_text(
        f"models:\n  m: {{file: '{SMALL}', context: 256, nodes: [p]}}\nroles:\n  worker: {{model: m}}\n"
    )
    with PartedMachine() as there:
        plane = f"{there.outside}:{port}"
        settings = {"ORCHESTRATOR_CLUSTER_RAY": plane, "ORCHESTRATOR_CLUSTER_FOLDER": str(tmp_path / "nodes")}
        try:
            first = make_cli(tmp_path)("cluster", "start", there.outside, "--port", str(port), "--json")
            assert first.json == {"address": there.outside, "control_plane": plane}
            command = [*COMMAND, "cluster", "start", there.inside, "--join", plane, "--name", "p"]
            second = subprocess.run(
                [*there.prefix, *command], env=environment(tmp_path), capture_output=True, text=True, check=False
            )
            lines = f"Ray listens at {there.inside}, and its control plane is {plane}\nend it: ray stop\n"
            assert (second.stdout, second.stderr) == (lines, "")
            with (
                running_daemon(home, ORCHESTRATOR_REGISTRY=str(registry), **settings) as daemon,
                daemon.client() as client,
                closing(ArbiterClient(plane, str(tmp_path / "arbiter"), tmp_path, PATIENCE)) as arbiter,
            ):
                run = client.post("/v1/runs", json=short()).json()["run_id"]
                client.get(f"/v1/runs/{run}/events").raise_for_status()
                assert isinstance(arbiter.ask(Look()), Granted)
                with JournalReader.open_to_read(home) as journal:
                    events = [event for _, event in journal.events(run)]
                computed = {event.usage.nodes for event in events if isinstance(event, AttemptGenerated)}
                assert computed == {("p",)}
                assert {"raylet", "ray::Host"} <= names_at(there.inside, listeners(there.prefix))
                sockets, processes = listeners(), of_cluster(there.outside)
                for driver in (
                    of_module(nodes.PROGRAM, daemon.process.pid),
                    of_module(arbiter_client.PROGRAM, os.getpid()),
                ):
                    assert names_at(there.outside, (socket for socket in sockets if socket.pid == driver))
                names = names_at(there.outside, (socket for socket in sockets if socket.pid in processes))
                assert {"raylet", "gcs_server", "ray::ArbiterHost"} <= names
        finally:
            kill_all(of_cluster(there.outside).values())
