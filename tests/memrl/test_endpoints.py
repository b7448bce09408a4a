"""What the router has learned, over HTTP, and models that requests force."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from orchestrator.memrl.parl.trainings import FOLDER, write_points
from tests.memrl.advised_runs import PERSONA, write_advised_runs
from tests.orchestrator.api.daemon_process import Running, running_daemon

STEP = {"id": "S1", "actor": "worker", "action": "Say ahoy.", "outputs": ["o"], "max_tokens": 4}
TASK = {"objective": "greet", "plan": {"steps": [STEP]}}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A daemon of these tests alone, whose memory has learned nothing yet."""
    with running_daemon(tmp_path_factory.mktemp("daemon") / "home") as running:
        yield running


def run(client: httpx2.Client, **headers: str) -> str:
    accepted = client.post("/v1/runs", json={"task": TASK}, headers=headers)
    assert accepted.status_code == 201
    name = str(accepted.json()["run_id"])
    with client.stream("GET", f"/v1/runs/{name}/events") as events:
        assert "run_finished" in events.read().decode()
    return name


def _advised(client: httpx2.Client) -> str:
    """Return a run that began after something had been learned."""
    for _ in range(100):
        if client.get("/v1/memory").json()["outcomes"]:
            return run(client)
        run(client)  # which takes a while
    raise AssertionError("nothing is learned")


def _settled(client: httpx2.Client) -> dict[str, Any]:
    """Return the status of the memory between two batches: while one is taught, its counts are not of one moment."""
    for _ in range(200):
        status: dict[str, Any] = client.get("/v1/memory").json()
        if status["ready"] == sum(caller["drawn"] for caller in status["callers"]):
            return status
        time.sleep(0.05)
    return status


def test_choices_are_advised_in_the_shadow_and_learned_from(client: httpx2.Client) -> None:
    client.post(f"/v1/runs/{run(client)}/ratings", json={"score": 1})
    name = _advised(client)
    client.post(f"/v1/runs/{name}/ratings", json={"score": 1})
    choice = client.get(f"/v1/memory/runs/{name}").json()["choices"][0]
    assert choice["taken"] == "worker on tiny-large"
    assert not choice["advice"]["followed"]
    status = _settled(client)
    assert (status["configured"], status["use"], status["problem"]) == ("auto", "shadow", "")
    assert sum(one["outcomes"] for one in status["callers"]) == status["stats"]["outcomes"]
    assert status["ready"] == sum(one["drawn"] for one in status["callers"])
    assert client.get("/v1/memory/evaluate/rules").json()["choices"] >= 1
    assert client.get("/v1/memory/evaluate/magic").status_code == 400
    assert client.get("/v1/memory/runs/gone").status_code == 404


def test_the_graph_answers_questions_that_read(client: httpx2.Client) -> None:
    assert client.post("/v1/memory/rebuild").json() == {"status": "ok"}
    answer = client.post("/v1/memory/ask", json={"cypher": "MATCH (a:Attempt) RETURN count(*)"})
    assert answer.status_code == 200
    for cypher in (
        "CREATE (:Run {name: 'x'})",
        "UNWIND [1] AS x WITH x LIMIT 1LOAD FROM '/etc/hostname' (file_format='csv', header=false) RETURN *",
    ):
        refused = client.post("/v1/memory/ask", json={"cypher": cypher})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "CYPHER")


def test_a_forced_model_does_every_step_and_answers_every_chat(client: httpx2.Client) -> None:
    forced = {"X-Force-Model": "tiny-medium"}
    name = run(client, **forced)
    assert client.get(f"/v1/runs/{name}").json()["steps"][0]["attempts"][0]["model"] == "tiny-medium"
    choices = client.get(f"/v1/memory/runs/{name}").json()["choices"]
    assert {choice["unforced"] for choice in choices} == {0.0}, "the rules would have taken another one"
    body = {"model": "auto", "messages": [{"role": "user", "content": "Say ahoy."}], "max_tokens": 4}
    for asked in ("auto", "worker", "tiny-large"):
        answer = client.post("/v1/chat/completions", json=body | {"model": asked}, headers=forced)
        assert answer.json()["system_fingerprint"].startswith("tiny-medium"), asked
    refused = client.post("/v1/runs", json={"task": TASK}, headers={"X-Force-Model": "huge"})
    assert (refused.status_code, refused.json()["error"]["problems"][0]["where"]) == (400, "model")


def test_past_choices_are_shown_with_what_came_of_them(tmp_path: Path) -> None:
    asyncio.run(write_advised_runs(tmp_path / "home", 8))
    with running_daemon(tmp_path / "home", ORCHESTRATOR_MEMORY_USE="shadow") as daemon, daemon.client() as client:
        learned_from(client, 8)
        body = client.get("/v1/memory/choices").json()
        assert [choice["run"] for choice in body["choices"]] == [f"R{number}" for number in reversed(range(8))]
        newest = body["choices"][0]
        assert (newest["taken"], newest["followed"]) == (f"worker on tiny-large with persona {PERSONA}", True)
        assert (newest["expected"], newest["success"], newest["regret"]) == (0.8, 0.8, 0.0)
        assert body["choices"][3]["regret"] == pytest.approx(0.4), "it was tried on purpose"
        assert sum(row["choices"] for row in body["spans"]) == 8
        assert [(row["low"], row["choices"]) for row in body["calibration"]] == [(0.4, 2), (0.8, 6)]
        assert body["calibration_error"] == pytest.approx(0.0, abs=0.15), "rewards have a part for finished steps"
        assert len(client.get("/v1/memory/choices", params={"limit": 3}).json()["choices"]) == 3
        assert client.get("/v1/memory/choices", params={"limit": 0}).status_code == 400
        values = client.get("/v1/memory/values").json()["values"]
        assert {(row["role"], row["persona"]): row["count"] for row in values} == {
            ("worker", ""): 4,
            ("worker", PERSONA): 4,
        }
        (evidence,) = client.get("/v1/memory/personas").json()["personas"]
        assert (evidence["persona"], evidence["attempts"], evidence["succeeded"]) == (PERSONA, 4, 4)
        assert evidence["q"] > evidence["q_without"]


def learned_from(client: httpx2.Client, outcomes: int) -> None:
    """Wait until the memory has learned from this number of outcomes."""
    end = time.monotonic() + 100
    while client.get("/v1/memory").json()["outcomes"] < outcomes:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_trainings_of_the_frontdoor_are_listed(daemon: Running, client: httpx2.Client) -> None:
    assert client.get("/v1/memory/trainings").json() == {"trainings": []}
    folder = daemon.home / FOLDER / "training-0"
    folder.mkdir(parents=True)
    write_points(folder, [{"update": 1, "reward": 0.5}])
    (training,) = client.get("/v1/memory/trainings").json()["trainings"]
    assert (training["name"], training["points"], training["result"]) == (
        "training-0",
        [{"update": 1, "reward": 0.5}],
        None,
    )
