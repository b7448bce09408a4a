"""A head and its standby as real daemons on a real Ray cluster, killed, stopped and cut off from each other."""

import json
import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.cluster.ray_nodes import RayNodes
from orchestrator.run.journal.home import Home
from orchestrator.task.events import AttemptSucceeded, Event, RunFinished
from tests.orchestrator.cli.cli_command import run_here
from tests.orchestrator.cluster.conftest import PartedNode
from tests.orchestrator.cluster.heads import PATIENCE, SECONDS, Machine, machine, shown_events
from tests.orchestrator.run_jobs import check_completed_once

HEAD_PORT, STANDBY_PORT = 17_100, 17_101
LENGTH = 40


def chain() -> dict[str, Any]:
    """Return the body of a request for a run of steps that follow each other."""
    steps = [
        {
            "id": f"S{number}",
            "actor": "worker",
            "action": f"Write a short text about the number {number}.",
            "outputs": [f"text{number}"],
            "depends_on": [f"S{number - 1}"] if number > 1 else [],
            "max_tokens": 96,
        }
        for number in range(1, LENGTH + 1)
    ]
    return {"task": {"objective": "a chain", "plan": {"steps": steps}}}


def short() -> dict[str, Any]:
    step = {"id": "S1", "actor": "worker", "action": "Write a text.", "outputs": ["text"], "max_tokens": 8}
    return {"task": {"objective": "a short test", "plan": {"steps": [step]}}}


def submitted(head: Machine, body: dict[str, Any]) -> str:
    with head.client() as client:
        answer = client.post("/v1/runs", json=body)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["run_id"])


def until_ended(head: Machine, run: str) -> list[Event]:
    """Wait for the end of a run, and return its events after checking that no step ran again once it had ended."""
    with head.client() as client:
        client.get(f"/v1/runs/{run}/events").raise_for_status()
    events = head.events(run)
    (end,) = [event for event in events if isinstance(event, RunFinished)]
    assert end.status == "done"
    check_completed_once(events)
    return events


@pytest.fixture
def pair(tmp_path: Path, arbiter_nodes: RayNodes) -> Iterator[tuple[Machine, Machine]]:
    """A head and a standby in sync."""
    with (
        machine(tmp_path / "a", arbiter_nodes.address, HEAD_PORT) as head,
        machine(tmp_path / "b", arbiter_nodes.address, STANDBY_PORT) as standby,
    ):
        head.serve()
        head.until_ready()
        standby.stand_by()
        head.until_standby("in sync")
        yield head, standby


def test_a_killed_head_is_replaced_and_no_completed_step_runs_again(pair: tuple[Machine, Machine]) -> None:
    head, standby = pair
    ended = submitted(head, short())
    until_ended(head, ended)
    run = submitted(head, chain())
    with head.client() as client:
        shown = shown_events(client, run, 2, "attempt_succeeded")
    head.kill()
    standby.until_ready()
    events = until_ended(standby, run)
    completed = [event["step"] for event in shown if event.get("kind") == "attempt_succeeded"]
    assert len(completed) == 2
    first = next(index for index, event in enumerate(events) if event not in head.events(run))
    assert events[:first] == head.events(run)[:first]
    assert {*completed} <= {event.step for event in events[:first] if isinstance(event, AttemptSucceeded)}
    assert standby.events(ended) == head.events(ended)
    with standby.client() as client:
        result = client.get(f"/v1/runs/{run}/result").json()
        for name in result["artifacts"]:  # those of completed steps came with the journal
            client.get(f"/v1/runs/{run}/artifacts/{name}").raise_for_status()
    assert standby.until_standby("absent")["epoch"] > 1
    head.serve()
    assert head.wait() == 2
    head.until_says("this machine may not be the head: the head at 127.0.0.1:17101 has the lease in epoch 3")
    head.stand_by()
    standby.until_standby("in sync")
    assert head.runs() == standby.runs() == [run, ended]
    (aside,) = (head.home / "backups").glob("replaced-*/journal.db")
    assert aside.stat().st_size > 0


def test_a_standby_that_missed_something_does_not_take_over(
    pair: tuple[Machine, Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    head, standby = pair
    for name, value in head.settings.items():
        monkeypatch.setenv(name, value)
    assert "standby at 127.0.0.1: in sync; epoch 1" in run_here("--home", head.home, "nodes").out
    assert doctor_of(head) == {"name": "standby", "state": "ok", "found": "in sync; epoch 1 of the head, at 127.0.0.1"}
    standby.process.send_signal(signal.SIGSTOP)
    run = submitted(head, short())
    assert head.until_standby("absent")["epoch"] == 1
    assert doctor_of(head)["state"] == "note"
    until_ended(head, run)
    head.kill()
    standby.process.send_signal(signal.SIGCONT)
    standby.until_says("it may not take over: some events are not here")
    # What was sent before it stood still may have reached it.
    assert run not in standby.runs() or standby.events(run) != head.events(run)
    head.stand_by()  # as the last head it has all events, so it becomes the head again
    head.until_ready()
    assert head.until_standby("in sync")["epoch"] == 3
    assert standby.runs() == [run]
    head.kill()
    standby.until_ready()
    assert standby.runs() == [run]


def doctor_of(head: Machine) -> dict[str, str]:
    """Return what the command `doctor` says of the standby."""
    checks = run_here("--home", head.home, "doctor", "--json").json["checks"]
    (standby,) = [check for check in checks if check["name"] == "standby"]
    return {name: value for name, value in standby.items() if name != "mend"}


def test_a_head_that_stood_still_ends_when_it_wakes_and_has_acknowledged_nothing(pair: tuple[Machine, Machine]) -> None:
    head, standby = pair
    clients = [Client(head), Client(standby)]
    with submitting(*clients):
        clients[0].until_accepted(20)
        head.process.send_signal(signal.SIGSTOP)
        standby.until_ready()
        clients[1].until_accepted(20)
        head.process.send_signal(signal.SIGCONT)
        assert head.wait() == 1
    check_one_after_the_other(*clients)


def test_a_restored_backup_reaches_the_standby(pair: tuple[Machine, Machine]) -> None:
    head, standby = pair
    first = submitted(head, short())
    until_ended(head, first)
    with head.client() as client:
        backup = client.post("/v1/backups").raise_for_status().json()["name"]
        second = submitted(head, short())
        until_ended(head, second)
        assert standby.runs() == [second, first]
        client.post(f"/v1/backups/{backup}/restore").raise_for_status()
    assert head.until_standby("in sync")["epoch"] == 1
    assert standby.runs() == head.runs() == [first]


def test_a_head_needs_the_arbiter_or_the_standby(pair: tuple[Machine, Machine]) -> None:
    head, standby = pair
    (arbiter,) = [process for process in psutil.process_iter() if "ray::ArbiterHost" in " ".join(safe_cmdline(process))]
    arbiter.send_signal(signal.SIGSTOP)
    end = time.monotonic() + 2 * SECONDS
    runs = []
    while time.monotonic() < end:
        runs.append(submitted(head, short()))
    with head.client() as client:
        status = client.get("/v1/nodes").json()["standby"]
    assert status["state"] == "in sync"
    assert "the arbiter did not answer" in status["problem"]
    standby.process.send_signal(signal.SIGSTOP)
    assert head.wait() == 1
    head.until_says("is not the head any more: neither the arbiter nor a standby in sync has answered for 4 s")
    arbiter.kill()  # else it would read what the head has asked for meanwhile: to let nobody take over
    standby.process.send_signal(signal.SIGCONT)
    standby.until_ready()
    assert {*runs} <= {*standby.runs()}


def safe_cmdline(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


class UnixConnection(HTTPConnection):
    """A connection to the socket at `path`. Other clients leave their socket open when nobody listens."""

    path = ""

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(self.path)


@dataclass
class Client:
    """Submits runs to a head all the time, in a thread, and notes when which were accepted."""

    head: Machine
    accepted: dict[str, tuple[float, float]] = field(default_factory=dict)  # when sent and answered, by run
    stopped: threading.Event = field(default_factory=threading.Event)

    def work(self) -> None:
        while not self.stopped.wait(0.01):
            sent = time.monotonic()
            try:
                run = self.submit()
            except (OSError, HTTPException):  # it does not listen, or its end has closed the connection
                continue
            if run is not None:
                self.accepted[run] = (sent, time.monotonic())

    def submit(self) -> str | None:
        """Return the id of a run, None if the head refuses it. Raises OSError, HTTPException."""
        with closing(UnixConnection("localhost", timeout=PATIENCE)) as connection:
            connection.path = str(Home(self.head.home).socket)
            connection.request("POST", "/v1/runs", json.dumps(short()), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            body = answer.read()
            return str(json.loads(body)["run_id"]) if answer.status == 201 else None

    def until_accepted(self, count: int) -> None:
        end = time.monotonic() + PATIENCE
        while len(self.accepted) < count:
            assert time.monotonic() < end
            time.sleep(0.01)


needs_namespaces = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None, reason="network namespaces need root and `ip`"
)


@needs_namespaces
def test_a_standby_that_is_cut_off_costs_the_head_nothing(tmp_path: Path, arbiter_nodes: RayNodes) -> None:
    with (
        PartedNode(arbiter_nodes.address, "p", tmp_path / "p.log") as parted,
        machine(tmp_path / "a", arbiter_nodes.address, HEAD_PORT, parted.outside) as head,
        machine(tmp_path / "b", arbiter_nodes.address, STANDBY_PORT, parted.inside, parted.prefix) as standby,
    ):
        head.serve()
        head.until_ready()
        standby.stand_by()
        head.until_standby("in sync")
        before = submitted(head, short())
        until_ended(head, before)
        parted.cut_off()
        during = submitted(head, short())
        until_ended(head, during)
        assert head.until_standby("absent")["epoch"] == 1
        standby.until_says("it may not take over")
        assert standby.runs() == [before]
        parted.reconnect()
        assert head.until_standby("in sync")["epoch"] == 1
        assert standby.events(during) == head.events(during)


@needs_namespaces
def test_two_heads_never_act_at_once_when_the_network_is_parted(tmp_path: Path, arbiter_nodes: RayNodes) -> None:
    with (
        PartedNode(arbiter_nodes.address, "p", tmp_path / "p.log") as parted,
        machine(tmp_path / "a", arbiter_nodes.address, HEAD_PORT, parted.inside, parted.prefix) as head,
        machine(tmp_path / "b", arbiter_nodes.address, STANDBY_PORT, parted.outside) as standby,
    ):
        head.serve()
        head.until_ready()
        standby.stand_by()
        head.until_standby("in sync")
        clients = [Client(head), Client(standby)]  # over sockets of the file system, which no network parts
        with submitting(*clients):
            clients[0].until_accepted(20)
            parted.cut_off()
            assert head.wait() == 1
            standby.until_ready()
            clients[1].until_accepted(20)
        check_one_after_the_other(*clients)
        parted.reconnect()
        head.serve()
        assert head.wait() == 2
        head.stand_by()
        standby.until_standby("in sync")
        assert head.runs() == standby.runs()


@contextmanager
def submitting(*clients: Client) -> Iterator[None]:
    threads = [threading.Thread(target=client.work) for client in clients]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for client in clients:
            client.stopped.set()
        for thread in threads:
            thread.join()


def check_one_after_the_other(first: Client, second: Client) -> None:
    """Check that the head of `first` acknowledged nothing that is lost, and nothing once the other one was a head."""
    assert {*first.accepted} <= {*second.head.runs()}
    last = max(answered for _, answered in first.accepted.values())
    assert last < min(answered for _, answered in second.accepted.values())
    old = {run: first.head.events(run) for run in first.head.runs()}
    new = {run: second.head.events(run) for run in second.head.runs()}
    added = [event for run, events in new.items() for event in events if event not in old.get(run, ())]
    assert added
    assert max(times(old.values())) < min(event.at for event in added)


def times(runs: Iterable[Iterable[Event]]) -> Iterator[float]:
    return (event.at for events in runs for event in events)
