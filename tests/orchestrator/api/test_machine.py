"""What the API says of the machine: cores, models, caches, steps, queue; the checks and the log; and what-ifs."""

import json
import os
import time
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from orchestrator.api.machine_history import PERIOD_SECONDS, SAMPLES, MachineHistory, ProcessorLine, ProcessorSample
from tests.orchestrator.api.callers import SIGNED_BY, client_of, daemon_with
from tests.orchestrator.api.daemon_process import RECORDS, Running, executed, lasting, submitted, summary

SECRET = "a-key-that-nobody-may-see"  # noqa: S105 (of the test)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A daemon of its own, with a secret in its environment; the token `reader` may not operate it."""
    folder = tmp_path_factory.mktemp("machine")
    variables = {"ORCHESTRATOR_MEMORY_USE": "shadow", "SOME_API_KEY": SECRET}
    with daemon_with(folder, {"reader": "read:all submit"}, **variables) as running:
        yield running


def machine(client: httpx2.Client) -> dict[str, Any]:
    body: dict[str, Any] = client.get("/v1/machine").raise_for_status().json()
    return body


def until_writing(client: httpx2.Client) -> dict[str, Any]:
    """Wait until a sequence decodes, and return the machine then."""
    end = time.monotonic() + 100
    while True:
        state = machine(client)
        if any(engine["running"] and engine["step_times"]["width"] for engine in state["engines"]):
            return state
        assert time.monotonic() < end
        time.sleep(0.01)


def until_history(client: httpx2.Client, count: int) -> list[dict[str, Any]]:
    """Wait until the daemon keeps `count` samples, and return them."""
    end = time.monotonic() + 100
    while True:
        history: list[dict[str, Any]] = client.get("/v1/machine", params={"after": 0}).json()["history"]
        if len(history) >= count:
            return history
        assert time.monotonic() < end
        time.sleep(0.05)


def test_samples_of_the_cores_are_kept(client: httpx2.Client) -> None:
    first, second = until_history(client, 2)[:2]
    state = client.get("/v1/machine", params={"after": first["at"]}).json()
    assert state["history"][0] == second
    assert first["at"] < second["at"] < state["at"]
    assert 0 < first["processor_seconds"]["daemon"] <= second["processor_seconds"]["daemon"]
    assert client.get("/v1/machine", params={"after": state["history"][-1]["at"]}).json()["history"] == []
    assert machine(client)["history"] == [], "on request only"


def test_no_more_than_an_hour_is_kept() -> None:
    history, line = MachineHistory(), ProcessorLine(engines={}, daemon=0.0, programs=0.0)
    for number in range(SAMPLES + 2):
        history.add(ProcessorSample(at=1.0 + number, processor_seconds=line))
    kept = history.after(0.0)
    assert (len(kept), kept[0].at) == (SAMPLES, 3.0)
    assert SAMPLES * PERIOD_SECONDS == 3600


def test_a_machine_that_works_says_at_what(client: httpx2.Client) -> None:
    run = submitted(client, lasting())
    state = until_writing(client)
    assert state["queue"] == {
        "interactive": {"waiting": 0, "running": 1},
        "batch": {"waiting": 0, "running": 0},
    }
    engine = next(engine for engine in state["engines"] if engine["running"])
    assert engine["model"] == "tiny-large"
    assert set(engine["cells_by_role"]) == {"worker"}
    held = engine["cells_by_role"]["worker"] + engine["finished_cells"]
    assert 0 < engine["cells_by_role"]["worker"] <= held <= engine["used_cells"] <= engine["cells"]
    times = engine["step_times"]
    assert times["decode"][0] == times["verify"][0]
    assert [count for count, _ in times["decode"]] == sorted({count for count, _ in times["decode"]})
    assert times["width"] >= 1
    assert times["tokens"] >= times["width"]
    assert times["seconds"] > 0
    model = next(model for model in state["pool"]["models"] if model["model"] == "tiny-large")
    assert engine["pid"] == model["pid"]
    assert state["processors"] >= 1
    before = state["processor_seconds"]
    client.post(f"/v1/runs/{run}/cancel")
    after = machine(client)
    assert after["at"] > state["at"]
    assert after["processor_seconds"]["engines"]["tiny-large"] >= before["engines"]["tiny-large"] > 0
    assert after["processor_seconds"]["daemon"] >= before["daemon"] > 0
    assert after["processor_seconds"]["programs"] >= 0


def test_a_cache_keeps_finished_prompts_for_others(client: httpx2.Client) -> None:
    executed(client, summary())
    engine = next(engine for engine in machine(client)["engines"] if engine["model"] == "tiny-large")
    assert engine["running"] == 0
    assert engine["finished_cells"] > 0


def test_a_run_is_replayed_on_other_machines(client: httpx2.Client) -> None:
    run = executed(client, {"request": "Summarize a, b, c and d, then compare them", "directory": str(RECORDS)})
    cores = machine(client)["pool"]["cores"]
    body = {"machines": [{}, {"cores": 16 * cores}, {"cores": 16 * cores, "bandwidth": 1}, {"cores": 4, "replicas": 2}]}
    answer = client.post(f"/v1/runs/{run['run_id']}/what-if", json=body).raise_for_status().json()
    measured, (here, large, slow, double) = answer["measured"], answer["machines"]
    report = client.get(f"/v1/runs/{run['run_id']}").json()
    assert measured["path"] == report["critical_path"]["steps"]
    assert measured["seconds"] == report["wall_seconds"]
    assert (here["cores"], here["replicas"], here["bandwidth"]) == (cores, 1, 1)
    assert (double["replicas"], double["bytes"]) == (2, 2 * here["bytes"])
    rest = answer["other_seconds"]
    assert answer["factor"] > 0
    assert here["path_seconds"] == pytest.approx(measured["path_seconds"], rel=0.05), "the replay is fitted to it"
    assert rest < large["seconds"] < here["seconds"], "with more of everything it ends sooner"
    assert large["seconds"] <= slow["seconds"] <= here["seconds"], "the memory is as slow as here"
    for replay in answer["machines"]:
        assert replay["path"][-1] == "S5"
        assert len(replay["path"]) == 2
        assert 0 < replay["path_seconds"] <= replay["seconds"], answer
        assert 1 <= replay["width"] <= 4
    print(json.dumps(answer, indent=1))


@pytest.mark.parametrize(
    ("machines", "status"),
    [([], 400), ([{"cores": 0}], 400), ([{"cores": 2, "replicas": 3}], 400), ([{}] * 9, 400), ([{"gpus": 1}], 400)],
)
def test_machines_that_cannot_be_are_refused(client: httpx2.Client, machines: list[Any], status: int) -> None:
    run = executed(client, summary())["run_id"]
    assert client.post(f"/v1/runs/{run}/what-if", json={"machines": machines}).status_code == status


def test_a_run_that_cannot_be_replayed_is_refused_with_the_reason(client: httpx2.Client) -> None:
    run = submitted(client, lasting())
    refused = client.post(f"/v1/runs/{run}/what-if", json={"machines": [{}]})
    assert refused.status_code == 409
    assert "accepted: a run that has ended" in refused.json()["error"]["message"]
    client.post(f"/v1/runs/{run}/cancel")
    ended = executed(client, summary())["run_id"]
    client.post("/v1/pool/tiny-large/unpin")
    client.post("/v1/pool/tiny-large/unload").raise_for_status()
    unknown = client.post(f"/v1/runs/{ended}/what-if", json={"machines": [{}]})
    assert unknown.status_code == 409
    assert "load tiny-large first" in unknown.json()["error"]["message"]
    client.post("/v1/pool/tiny-large/load").raise_for_status()
    assert client.post(f"/v1/runs/{ended}/what-if", json={"machines": [{}]}).status_code == 200


def test_the_doctor_checks_the_daemon_that_it_is_asked_of(client: httpx2.Client) -> None:
    report = client.get("/v1/doctor").raise_for_status().json()
    checks = {check["name"]: check for check in report["checks"]}
    assert report["healthy"] is all(check["state"] != "broken" for check in report["checks"])
    assert checks["lock"] == {"name": "lock", "state": "ok", "found": "held by this daemon", "mend": ""}
    assert checks["llama.cpp"]["state"] in ("ok", "note")
    assert checks["journal"]["state"] == "ok"
    for check in report["checks"]:
        assert check["state"] == "ok" or check["mend"], check


def test_the_log_is_read_from_where_it_was_left(client: httpx2.Client) -> None:
    run = executed(client, summary())["run_id"]
    lines = client.get("/v1/log").raise_for_status().json()["lines"]
    numbers = [line["number"] for line in lines]
    assert numbers == sorted(set(numbers))
    ended = [line for line in lines if line["event"] == "a run has ended" and line["facts"].get("run") == run]
    assert len(ended) == 1
    assert ended[0]["level"] == "info"
    assert ended[0]["at"].endswith("Z")
    assert client.get("/v1/log", params={"after": numbers[-1]}).json()["lines"] == []
    assert [line["number"] for line in client.get("/v1/log", params={"limit": 2}).json()["lines"]] == numbers[-2:]
    assert client.get("/v1/log", params={"level": "loud"}).status_code == 400


def test_the_log_is_filtered_by_level(client: httpx2.Client) -> None:
    client.post("/v1/runs", content=b"{")
    client.get("/v1/runs/../runs/no-such-run")
    levels = {line["level"] for line in client.get("/v1/log", params={"level": "warning"}).json()["lines"]}
    assert levels <= {"warning", "error"}


def test_no_secret_is_in_findings_and_log(daemon: Running, client: httpx2.Client) -> None:
    hidden = (SECRET, daemon.token, f"{SIGNED_BY}reader")
    with client_of(daemon, "reader") as reader:
        for secret in hidden:  # the path of a request that is refused gets into the log
            assert reader.post(f"/v1/pool/{secret}/load").status_code == 403
    lines = client.get("/v1/log").json()["lines"]
    refused = [line["facts"]["path"] for line in lines if line["event"] == "a request was refused"]
    assert refused[-3:] == ["/v1/pool/[hidden]/load"] * 3
    text = client.get("/v1/log", params={"level": "debug", "limit": 1000}).text + client.get("/v1/doctor").text
    assert not [secret for secret in hidden if secret in text]


def test_doctor_and_log_are_for_operators(daemon: Running) -> None:
    with client_of(daemon, "reader") as reader:
        for path in ("/v1/doctor", "/v1/log"):
            assert reader.get(path).status_code == 403
        assert machine(reader)["processors"] >= 1


def test_the_log_holds_what_the_file_holds(daemon: Running, client: httpx2.Client) -> None:
    file = daemon.home / "logs" / "daemon.log"
    newest = client.get("/v1/log", params={"limit": 1}).json()["lines"][-1]
    written = [json.loads(line) for line in file.read_text().splitlines()]
    assert newest["event"] in {line["event"] for line in written}
    assert os.stat(file).st_size
