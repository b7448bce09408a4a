"""Let the disk fill up under a daemon at work: it says so, loses nothing, and goes on when there is room."""

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest

from orchestrator.run.journal.reader import JournalReader
from tests.crash.crash_daemon import Daemon, Place, running, submit, wait_ended
from tests.crash.crash_runs import KINDS, Outcome, outcome_of, reruns_in

pytestmark = [pytest.mark.crash, pytest.mark.timeout(3600)]

DISK = "24m"
WAITING_SECONDS = 120
NO_ROOM = "no room is left on its disk"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own, in memory."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", folder], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.fixture
def cramped(place: Place, small_disk: Path) -> Place:
    """A place whose state folder is on the small disk."""
    shutil.move(place.home, small_disk / "home")
    return replace(place, home=small_disk / "home")


def fill(disk: Path) -> Path:
    """Leave no room on the disk, and return the file that takes it."""
    ballast = disk / "ballast"
    with ballast.open("ab", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            return ballast
    raise AssertionError("the disk takes everything")


def wait_health(client: httpx2.Client, status: int) -> str:
    """Wait until the daemon says so of its health, and return what it says."""
    end = time.monotonic() + WAITING_SECONDS
    while (answer := client.get("/health/ready")).status_code != status:
        assert time.monotonic() < end, answer.text
        time.sleep(0.05)
    return str(answer.json()["status"])


def test_full_disk_is_waited_for(
    cramped: Place, small_disk: Path, reference: Mapping[str, Outcome], figures: Callable[[str], None]
) -> None:
    with running(cramped) as daemon, daemon.client() as client:
        runs = {submit(client, body, f"{kind} {number}"): kind for number in range(3) for kind, body in KINDS.items()}
        ballast = fill(small_disk)
        assert NO_ROOM in wait_health(client, 503)
        refused = client.post("/v1/runs", json=KINDS["fan"])
        assert refused.status_code in (503, 507)
        assert NO_ROOM in refused.json()["error"]["message"]
        assert client.get("/v1/runs").is_success
        ballast.unlink()
        assert wait_health(client, 200) == "ok"
        for run in runs:
            wait_ended(client, run)
    assert_unharmed(cramped, runs, reference)
    figures(f"runs {len(runs)}, lost 0, spoilt 0; refused while full: {refused.json()['error']['message']}")


def test_killed_on_a_full_disk(
    cramped: Place, small_disk: Path, reference: Mapping[str, Outcome], figures: Callable[[str], None]
) -> None:
    with running(cramped) as daemon, daemon.client() as client:
        runs = {submit(client, body, kind): kind for kind, body in KINDS.items()}
        ballast = fill(small_disk)
        wait_health(client, 503)
        daemon.kill()
    second = Daemon(cramped)
    if second.wait_listening():
        second.kill()
    else:
        assert second.gone() == 1
        assert NO_ROOM in second.said
    ballast.unlink()
    with running(cramped) as daemon, daemon.client() as client:
        for run in runs:
            wait_ended(client, run)
    assert_unharmed(cramped, runs, reference)
    figures(f"kills 1, runs {len(runs)}, lost 0, spoilt 0")


def assert_unharmed(place: Place, runs: Mapping[str, str], reference: Mapping[str, Outcome]) -> None:
    """Assert that all runs came to what they should, and the database is whole."""
    with JournalReader.open_to_read(place.home) as journal:
        assert {row.run for row in journal.runs()} == set(runs)
        for run, kind in runs.items():
            reruns_in(journal, run)
            assert outcome_of(journal, run) == reference[kind], f"{run}, which is a {kind}"
        assert journal.damage() == []
