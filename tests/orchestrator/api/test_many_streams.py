"""Many streams of events at once: each client gets every event once, and the daemon keeps nothing for slow ones."""

import asyncio
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import httpx2
import psutil
import pytest

from orchestrator.run.journal.journal import Journal
from orchestrator.task.events import RunFinished
from tests.orchestrator.api.daemon_process import Running, finished, lasting, running_daemon, submitted
from tests.orchestrator.run.record.test_picture import T0, done, planned, started

STREAMS: Final = 30
STEPS: Final = 1000  # of a run that has ended
RUN: Final = "R"  # as `planned` calls it
REASON: Final = "for a reason " * 600  # so that a stream is larger than what sockets and pages of the journal hold
NUMBER: Final = re.compile(rb"^id: (\d+)$", re.MULTILINE)
PATIENCE: Final = 100.0  # seconds


async def write(home: Path) -> None:
    names = [f"S{number}" for number in range(STEPS)]
    starts = [started(name, float(at), reason=REASON) for at, name in enumerate(names)]
    events = [event for at, begun in enumerate(starts) for event in (begun, done(names[at], at + 1.0))]
    with Journal.open(home) as journal:
        finish = RunFinished(at=T0 + STEPS, status="cancelled", error="a test")
        await journal.append(RUN, [*planned({name: [] for name in names}), *events, finish])


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    home = tmp_path_factory.mktemp("streams") / "home"
    asyncio.run(write(home))
    with running_daemon(home, ORCHESTRATOR_MEMORY_USE="off") as running:
        yield running


def numbers_of(daemon: Running, run: str, cut: bool) -> list[int]:
    """Follow a run to its end and return the numbers of its events; with `cut`, over a new connection after each."""
    numbers: list[int] = []
    with daemon.client() as client:
        while True:
            last = str(numbers[-1]) if numbers else "0"
            with client.stream("GET", f"/v1/runs/{run}/events", headers={"Last-Event-ID": last}) as answer:
                assert answer.status_code == 200
                before = len(numbers)
                for event in httpx2.EventSource(answer):
                    if event.event == "event":
                        numbers.append(int(event.id))
                        if cut:
                            break
            if not cut or len(numbers) == before:
                return numbers


def open_files(daemon: Running) -> int:
    return psutil.Process(daemon.process.pid).num_fds()


def settled_files(daemon: Running, most: int) -> int:
    """Return how many files the daemon has open, once there are at most `most`."""
    end = time.monotonic() + PATIENCE
    while (count := open_files(daemon)) > most and time.monotonic() < end:
        time.sleep(0.05)
    return count


def test_every_stream_of_a_live_run_has_every_event_once(daemon: Running, client: httpx2.Client) -> None:
    followed_by_many(daemon, client)  # which starts engines, with sockets of their own
    before = open_files(daemon)
    followed_by_many(daemon, client)
    assert settled_files(daemon, before) <= before


def followed_by_many(daemon: Running, client: httpx2.Client) -> None:
    run = submitted(client, lasting(64))
    with ThreadPoolExecutor(STREAMS) as pool:
        streams = [pool.submit(numbers_of, daemon, run, cut=number % 2 == 1) for number in range(STREAMS)]
        client.post(f"/v1/runs/{run}/cancel")
        everything = [stream.result() for stream in streams]
    finished(client, run)
    count = len(NUMBER.findall(client.get(f"/v1/runs/{run}/events").content))
    assert everything == [list(range(1, count + 1))] * STREAMS


def test_a_client_that_reads_nothing_costs_little(daemon: Running, client: httpx2.Client) -> None:
    path = f"/v1/runs/{RUN}/events"
    whole = client.get(path).content
    count = len(NUMBER.findall(whole))
    assert count == 2 * STEPS + 4
    process = psutil.Process(daemon.process.pid)
    before, files = process.memory_info().rss, open_files(daemon)
    with ExitStack() as stack:
        streams = []
        for _ in range(STREAMS):
            slow = stack.enter_context(daemon.client())
            streams.append(stack.enter_context(slow.stream("GET", path)).iter_raw())
        heads = [next(stream) for stream in streams]
        assert client.get(f"/v1/runs/{RUN}").json()["status"] == "cancelled", "others are answered meanwhile"
        assert open_files(daemon) >= files + STREAMS
        grown = process.memory_info().rss - before
        for head, stream in zip(heads, streams, strict=True):
            body = head + b"".join(stream)
            assert [int(number) for number in NUMBER.findall(body)] == list(range(1, count + 1))
    assert grown < STREAMS * len(whole) / 2, "it holds a part of each stream"
    assert settled_files(daemon, files) <= files
