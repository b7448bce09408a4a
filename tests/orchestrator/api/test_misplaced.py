"""A daemon whose files are moved away accepts no runs until they are back, and says so everywhere."""

from pathlib import Path

import httpx2

from tests.orchestrator.api.daemon_process import finished, running_daemon, submitted, summary
from tests.orchestrator.cli.cli_command import make_command

PLACES = ("journal.db", "journal.db-wal", "objects", "runs", "memory", "memory/memory.db", "lock")


def test_no_run_is_accepted_while_a_file_of_the_daemon_is_not_in_its_place(tmp_path: Path) -> None:
    home, aside = tmp_path / "home", tmp_path / "aside"
    with running_daemon(home) as daemon, daemon.client() as client:
        first = submitted(client, summary())
        finished(client, first)
        for place in PLACES:
            (home / place).rename(aside)
            assert_refused(client, home / place)
            if place == "journal.db":
                doctor = make_command(home)("doctor", COLUMNS="1000")
                assert doctor.code == 1
                assert f"{home / place} is in use, but was moved away" in doctor.out
            aside.rename(home / place)
            assert client.get("/health/ready").is_success
        with daemon.tcp(Authorization=f"Bearer {daemon.token}") as caller:
            home.rename(aside)
            assert_refused(caller, home)
            aside.rename(home)
        second = submitted(client, summary())
        (home / "journal.db").unlink()
        assert_refused(client, home / "journal.db", "was deleted")
    with running_daemon(home) as daemon, daemon.client() as client:
        assert finished(client, second)["status"] == "done"
        assert {row["run_id"] for row in client.get("/v1/runs").json()["runs"]} == {first, second}


def assert_refused(client: httpx2.Client, path: Path, how: str = "was moved away") -> None:
    """Assert that a run is refused, and the daemon is not ready, because of this path."""
    answer, health = client.post("/v1/runs", json={"request": "Say hello."}), client.get("/health/ready")
    assert (answer.status_code, health.status_code) == (503, 503)
    assert int(answer.headers["Retry-After"]) >= 1
    reason = f"{path} is in use, but {how}; accepted: the original put back, or a restart of the daemon"
    assert answer.json()["error"]["message"] == health.json()["status"] == reason
