"""Kill the daemon, again and again: no accepted run is lost, and each comes to what it would have come to."""

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import count
from threading import Thread

import httpx2
import pytest

from orchestrator.run.journal.reader import JournalReader
from tests.crash.crash_daemon import Daemon, Place, running, submit, wait_ended
from tests.crash.crash_runs import FAN, KINDS, Outcome, outcome_of, reruns_in

# The HTTP client leaves a socket open whose connection was refused, as it is while a daemon dies.
LEFT_OPEN = pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning")
pytestmark = [pytest.mark.crash, pytest.mark.timeout(3600), LEFT_OPEN]

MOMENTS = int(os.environ.get("CRASH_MOMENTS", "200"))
SEED = int(os.environ.get("CRASH_SEED", "1"))
UNENDED = 12
LONGEST = 1.5
"""Seconds that a daemon lives at most after it is ready."""

Tell = Callable[[str], None]


def test_killed_at_every_write_of_a_run(place: Place, reference: Mapping[str, Outcome], figures: Tell) -> None:
    points = Counter[str]()
    for writes in count(1):
        with running(place) as daemon, daemon.client() as client:
            if writes > 1:
                wait_ended(client, submit(client, FAN, f"{writes - 1}"))
            place.arm(writes)
            with suppress(httpx2.TransportError):
                wait_ended(client, submit(client, FAN, f"{writes}"))
                break
            assert daemon.gone() == -9
        points[place.disarm() or "elsewhere"] += 1
    place.disarm()
    with JournalReader.open_to_read(place.home) as journal:
        reruns = Counter({run: reruns_in(journal, run) for run in (row.run for row in journal.runs())})
        assert len(reruns) == writes, "each key has one run"
        assert [run for run in reruns if outcome_of(journal, run) != reference["fan"]] == []
        assert journal.damage() == []
    assert "elsewhere" not in points
    assert points["committed"] >= 8
    figures(f"kills {writes - 1}, runs {len(reruns)}, lost 0, attempts begun again {reruns.total()}; {dict(points)}")


def test_killed_at_every_write_of_a_recovery(place: Place, reference: Mapping[str, Outcome], figures: Tell) -> None:
    with running(place) as daemon, daemon.client() as client:
        run = submit(client, FAN, "the run")
        daemon.kill()
    kills = 1
    for writes in count(1):
        place.arm(writes)
        daemon = Daemon(place)
        if daemon.wait_ready():
            with suppress(httpx2.TransportError), daemon.client() as client:
                wait_ended(client, run)
                daemon.stop()
                break
        assert daemon.gone() == -9
        assert place.disarm() is not None
        kills += 1
    with JournalReader.open_to_read(place.home) as journal:
        reruns = reruns_in(journal, run)
        assert outcome_of(journal, run) == reference["fan"]
    figures(f"kills {kills}, runs 1, lost 0, attempts begun again {reruns}")


class Load:
    """Submits runs of all kinds, without rest, and notes which were accepted."""

    def __init__(self) -> None:
        self.accepted: dict[str, str] = {}
        self._keys = 0

    def press(self, daemon: Daemon) -> None:
        """Keep so many runs unended until the daemon is gone. A run that was not answered for is asked for again."""
        with suppress(httpx2.TransportError), daemon.client() as client:
            while True:
                unended = [line for line in _lines(client) if line["finished_at"] is None]
                for _ in range(UNENDED - len(unended)):
                    self._submit(client)
                time.sleep(0.05)

    def finish(self, daemon: Daemon) -> None:
        """Wait until all runs have ended, that one included whose acceptance may not have been told."""
        with daemon.client() as client:
            self._submit(client)
            for run in self.accepted:
                wait_ended(client, run)

    def _submit(self, client: httpx2.Client) -> None:
        kind = tuple(KINDS)[self._keys % len(KINDS)]
        self.accepted[submit(client, KINDS[kind], f"key {self._keys}")] = kind
        self._keys += 1


def test_killed_at_random_moments_under_load(place: Place, reference: Mapping[str, Outcome], figures: Tell) -> None:
    chance, load, starting = random.Random(SEED), Load(), 0  # noqa: S311 - which moments they are is no secret
    for _ in range(MOMENTS):
        daemon = Daemon(place)
        if chance.random() < 0.1:
            starting += 1
            time.sleep(chance.uniform(0.0, 2.0))
        else:
            assert daemon.wait_ready(), daemon.said
        pressing = Thread(target=load.press, args=(daemon,))
        pressing.start()
        time.sleep(chance.uniform(0.0, LONGEST))
        daemon.kill()
        pressing.join()
    with running(place) as daemon:
        load.finish(daemon)
    with JournalReader.open_to_read(place.home) as journal:
        rows = [row.run for row in journal.runs()]
        reruns = Counter({run: reruns_in(journal, run) for run in rows})
        spoilt = [run for run, kind in load.accepted.items() if outcome_of(journal, run) != reference[kind]]
        assert set(load.accepted) == set(rows), "each key has one run"
        assert spoilt == []
        assert journal.damage() == []
    figures(
        f"kills {MOMENTS} ({starting} while it started), restarts {MOMENTS}, runs accepted {len(load.accepted)}, "
        f"lost 0, spoilt 0, attempts begun again {reruns.total()}"
    )


def _lines(client: httpx2.Client) -> list[dict[str, object]]:
    lines = client.get("/v1/runs", params={"limit": 100}).raise_for_status().json()["runs"]
    assert isinstance(lines, list)
    return lines
