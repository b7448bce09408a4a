"""Tear the files of a dead daemon: what can be recovered is, and what cannot is told and restored from a backup."""

import os
import re
import shutil
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.run.journal.reader import JournalReader
from tests.crash.crash_daemon import ROOT, Daemon, Place, running, submit, wait_ended
from tests.crash.crash_runs import DIAMOND, FAN, KINDS, Outcome, outcome_of, reruns_in

pytestmark = [pytest.mark.crash, pytest.mark.timeout(3600)]

LOG = "journal.db-wal"
LOG_HEADER, FRAME_HEADER = 32, 24
"""Bytes; see "WAL-mode File Format" of SQLite."""


def commits(log: bytes) -> list[int]:
    """Return where in a write-ahead log each commit ends: a frame that says how large the database is from there on."""
    (page,) = struct.unpack_from(">I", log, 8)
    salt, ends = log[16:24], list[int]()
    for start in range(LOG_HEADER, len(log) - FRAME_HEADER - page + 1, FRAME_HEADER + page):
        if log[start + 8 : start + 16] != salt:
            break
        if struct.unpack_from(">I", log, start + 4)[0]:
            ends.append(start + FRAME_HEADER + page)
    return ends


def numbers_at(home: Path, length: int, folder: Path) -> tuple[list[int], int]:
    """Return the numbers of the events, and how many runs there are, by so many bytes of the write-ahead log."""
    folder.mkdir(exist_ok=True)
    for leftover in folder.iterdir():
        leftover.unlink()
    shutil.copy(home / "journal.db", folder)
    (folder / LOG).write_bytes((home / LOG).read_bytes()[:length])
    with closing(sqlite3.connect(folder / "journal.db")) as copy:
        if not copy.execute("SELECT name FROM sqlite_schema WHERE name = 'runs'").fetchone():
            return [], 0
        numbers = [number for (number,) in copy.execute("SELECT number FROM events ORDER BY number")]
        (runs,) = copy.execute("SELECT count(*) FROM runs").fetchone()
    return numbers, runs


def copied(place: Place, folder: Path) -> Place:
    """Return a copy of a place and all that lies there."""
    shutil.copytree(place.home, folder / "home", ignore=shutil.ignore_patterns("api.sock"))
    (folder / "orders").mkdir()
    return replace(place, home=folder / "home", orders=folder / "orders")


def test_torn_tail_of_the_write_ahead_log(
    place: Place, tmp_path: Path, reference: Mapping[str, Outcome], figures: Callable[[str], None]
) -> None:
    with running(place) as daemon, daemon.client() as client:
        runs = {submit(client, FAN, "first"): "fan", submit(client, DIAMOND, "second"): "diamond"}
        wait_ended(client, next(iter(runs)))
        daemon.kill()
    ends = commits((place.home / LOG).read_bytes())
    seen = {end: numbers_at(place.home, end, tmp_path / "at") for end in ends}
    accepted = [end for end in ends if seen[end][1] == len(runs)]
    assert len(accepted) > 5
    torn = {accepted[-1] - 7: accepted[-2], accepted[-1] - 4000: accepted[-2], accepted[3] + 11: accepted[3]}
    reruns = 0
    for length, last in torn.items():
        other = copied(place, tmp_path / f"torn at {length}")
        os.truncate(other.home / LOG, length)
        with JournalReader.open_to_read(other.home) as journal:
            there = [number for run in runs for number, _ in journal.events(run)]
        assert sorted(there) == seen[last][0], "what was committed before is there, and nothing else"
        with running(other) as daemon, daemon.client() as client:
            for run in runs:
                wait_ended(client, run)
        with JournalReader.open_to_read(other.home) as journal:
            assert {run: outcome_of(journal, run) for run in runs} == {run: reference[runs[run]] for run in runs}
            reruns += sum(reruns_in(journal, run) for run in runs)
    figures(
        f"kills 1, commits in the log {len(ends)}, torn {len(torn)} times, runs {len(torn) * len(runs)}, lost 0, "
        f"attempts begun again {reruns}"
    )


def zeroed(page: bytearray, _: int) -> None:
    """Spoil a page as a write does of which only the second half has arrived."""
    page[: len(page) // 2] = bytes(len(page) // 2)


def bent(page: bytearray, place: int) -> None:
    """Spoil some digits of the time in an event: it looks like an event all the same, and the page like a page."""
    page[place + 9 : place + 14] = b"99999"


@pytest.mark.parametrize("spoil", [zeroed, bent])
def test_torn_page_of_the_database(
    place: Place,
    reference: Mapping[str, Outcome],
    figures: Callable[[str], None],
    spoil: Callable[[bytearray, int], None],
) -> None:
    with running(place) as daemon, daemon.client() as client:
        runs = dict[str, str]()
        for kind, body in KINDS.items():
            runs[run := submit(client, body, kind)] = kind
            wait_ended(client, run)
        backup = client.post("/v1/backups").raise_for_status().json()["name"]
    victim = next(iter(runs))
    tear(place.home / "journal.db", victim, spoil)
    refused = Daemon(place)
    assert not refused.wait_ready()
    assert refused.gone() == 1
    told = re.search(
        r"journal.db: damaged: .*can be read of (\d) of 4 runs, not of (.*); .*`orchestrator restore NAME`",
        refused.said,
    )
    assert told, refused.said
    assert 0 < int(told[1]) < 4
    assert victim in told[2]
    environ = {
        **os.environ,
        "ORCHESTRATOR_HOME": str(place.home),
        "ORCHESTRATOR_REGISTRY": str(place.registry),
        "PYTHONPATH": str(ROOT),
    }
    restore = [sys.executable, "-m", "orchestrator", "restore", backup]
    subprocess.run(restore, env=environ, check=True)
    with running(place), JournalReader.open_to_read(place.home) as journal:
        assert {run: outcome_of(journal, run) for run in runs} == {run: reference[kind] for run, kind in runs.items()}
        assert journal.damage() == []
    figures(f"runs {len(runs)}, told and restored; {refused.said.splitlines()[-1]}")


def tear(database: Path, run: str, spoil: Callable[[bytearray, int], None]) -> None:
    """Spoil the page that holds the end of a run."""
    with closing(sqlite3.connect(database)) as opened:
        (size,) = opened.execute("PRAGMA page_size").fetchone()
        (number, body) = opened.execute(
            "SELECT number, body FROM events WHERE run = ? AND kind = 'run_finished'", (run,)
        ).fetchone()
    data = bytearray(database.read_bytes())
    assert data.count(body.encode()) == 1, f"event {number} is not in the file, or more than once"
    place = data.find(body.encode())
    start = place - place % size
    page = data[start : start + size]
    spoil(page, place - start)
    database.write_bytes(data[:start] + page + data[start + size :])
