"""The log is rotated without losing a line, each line is one JSON object, and SIGHUP reopens it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.orchestrator.api.daemon_process import ROOT, Running, running_daemon

WRITER = """\
import logging, sys, threading
from pathlib import Path
import structlog
from orchestrator.api.logs import log_to
from orchestrator.service.configuration import LogSettings

log, other = structlog.get_logger("ours"), logging.getLogger("another")

def write(thread):
    for number in range(150):
        (log if number % 2 else other).info(f"line {thread * 150 + number}\\nand its second half: \\u00e9 \\ud800")

for argument in sys.argv[2:]:
    keep, reopened = map(int, argument.split("-"))
    folder, settings = Path(sys.argv[1], argument), LogSettings(max_bytes=4096, keep=keep)
    log_to(folder, settings)
    threads = [threading.Thread(target=write, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(reopened):
        log_to(folder, settings)
    for thread in threads:
        thread.join()
    try:
        1 / 0
    except ZeroDivisionError:
        log.exception("line 600")
"""
EVERY = list(range(601))
Written = Callable[..., list[Path]]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Return the log files, the oldest first, of a program that has logged 601 lines to each of several folders.

    Four of its threads log at the same time. It keeps so many files, and meanwhile opens the log anew so many times.
    """
    folder = tmp_path_factory.mktemp("logs")
    program = [sys.executable, "-c", WRITER, str(folder), "100-0", "100-25", "1-0", "3-0"]
    subprocess.run(program, check=True, cwd=ROOT, stderr=subprocess.DEVNULL)

    def files(keep: int, reopened: int = 0) -> list[Path]:
        found = (folder / f"{keep}-{reopened}").iterdir()
        return sorted(found, key=lambda path: -int(path.suffix[1:]) if path.suffix != ".log" else 0)

    return files


def lines(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a log file, each of which has to be a JSON object."""
    text = path.read_text(encoding="utf-8")
    assert text.endswith("\n") or not text
    return [json.loads(line) for line in text.splitlines()]


def numbers(files: list[Path]) -> list[int]:
    """Return which lines there are."""
    return [int(line["event"].split()[1]) for file in files for line in lines(file)]


@pytest.mark.parametrize("reopened", [0, 25])
def test_no_line_is_lost_while_files_are_kept(written: Written, reopened: int) -> None:
    files = written(100, reopened)
    assert len(files) > 10
    assert sorted(numbers(files)) == EVERY
    (last,) = [line for line in lines(files[-1]) if "exception" in line]
    assert last["level"] == "error"
    assert "ZeroDivisionError" in last["exception"]


@pytest.mark.parametrize("keep", [1, 3])
def test_only_the_newest_files_are_kept(written: Written, keep: int) -> None:
    files = written(keep)
    aside = [f"daemon.log.{number}" for number in range(keep - 1, 0, -1)]
    assert [path.name for path in files] == [*aside, "daemon.log"]
    assert all(path.stat().st_size <= 4096 for path in files)
    assert 3000 * (keep - 1) < sum(path.stat().st_size for path in files)
    kept = numbers(files)
    assert kept[-1] == 600
    assert len(kept) == len(set(kept))


def test_sighup_reopens_the_log_and_reads_the_configuration(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("")
    with running_daemon(tmp_path / "home", ORCHESTRATOR_CONFIG=str(file)) as daemon:
        log = daemon.home / "logs" / "daemon.log"
        log.rename(log.with_name("moved"))
        file.write_text("[folder]\nmax_bytes = 1\n")
        assert "was read again" in hung_up(daemon, log)["event"]
        assert not any("was read again" in line["event"] for line in lines(log.with_name("moved")))
        with daemon.client() as client:
            refused = client.post("/v1/runs", json={"request": "Count the stars."})
        assert refused.status_code == 507
        assert refused.json()["error"]["code"] == "folder_full"
        assert "`orchestrator vacuum`" in refused.json()["error"]["message"]
        assert "Retry-After" not in refused.headers, "retrying does not help before space is made"
        log.rename(log.with_name("moved too"))
        file.write_text("[folder]\nmax_bites = 1\n")
        record = hung_up(daemon, log)
        assert "stays as it was" in record["event"]
        assert "max_bites" in record["error"]


def hung_up(daemon: Running, log: Path) -> dict[str, Any]:
    """Send SIGHUP, and return the first line of the log that is opened then."""
    os.kill(daemon.process.pid, signal.SIGHUP)
    end = time.monotonic() + 60
    while not (log.exists() and log.read_bytes().endswith(b"\n")):
        assert time.monotonic() < end, "no new log"
        time.sleep(0.01)
    return lines(log)[0]
