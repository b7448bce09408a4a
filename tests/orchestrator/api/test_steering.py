"""Single steps of a run: made again, in a new run or in the same one, and put first. Runs are compared."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import httpx2

from tests.orchestrator.api.callers import client_of, daemon_with
from tests.orchestrator.api.daemon_process import RECORDS, executed, finished, lasting, submitted

SUMMARIES = [
    {"id": f"S{at}", "actor": "worker", "action": f"Summarize {name}.txt.", "inputs": [f"{name}.txt"]}
    | {"outputs": [f"s{at}"], "max_tokens": 48}
    for at, name in enumerate("ab", 1)
]
COMPARISON = {"id": "S3", "actor": "worker", "action": "Compare.", "inputs": ["s1", "s2"], "outputs": ["both"]}
STEPS = [*SUMMARIES, {**COMPARISON, "max_tokens": 48}]


def body(steps: list[dict[str, Any]] = STEPS) -> dict[str, Any]:
    return {"task": {"objective": "a test", "plan": {"steps": steps}}, "directory": str(RECORDS)}


def wait_event(client: httpx2.Client, run: str, matches: Callable[[dict[str, Any]], bool]) -> None:
    """Wait until a run has an event that matches."""
    with client.stream("GET", f"/v1/runs/{run}/events") as stream:
        for line in stream.iter_lines():
            if line.startswith("data: ") and matches(json.loads(line.removeprefix("data: "))):
                return
    raise AssertionError("the run has ended without it")


def is_attempt(number: int) -> Callable[[dict[str, Any]], bool]:
    return lambda event: event.get("kind") == "attempt_started" and event["number"] == number


def test_a_new_run_makes_one_step_again_and_takes_over_the_others(client: httpx2.Client) -> None:
    first = executed(client, body())["run_id"]
    answer = client.post(f"/v1/runs/{first}/retry", json={"step": "S3"})
    assert answer.status_code == 201, answer.text
    second = answer.json()["run_id"]
    assert second != first
    assert finished(client, second)["status"] == "done"
    steps = {step["id"]: step for step in client.get(f"/v1/runs/{second}").json()["steps"]}
    assert {name: step["reused"] for name, step in steps.items()} == {"S1": first, "S2": first, "S3": None}
    assert {name: len(step["attempts"]) for name, step in steps.items()} == {"S1": 0, "S2": 0, "S3": 1}
    for name in ("s1", "s2"):
        earlier, later = (client.get(f"/v1/runs/{run}/artifacts/{name}").content for run in (first, second))
        assert earlier == later != b""
    assert client.delete(f"/v1/runs/{first}").status_code == 204
    client.post("/v1/vacuum", json={}).raise_for_status()
    assert client.get(f"/v1/runs/{second}/artifacts/s1").status_code == 200


def test_a_plan_in_words_is_kept_for_its_other_steps(client: httpx2.Client) -> None:
    body = {"request": "Summarize a, b, c and d, then compare them", "directory": str(RECORDS), "mode": "as-planned"}
    first = executed(client, body)["run_id"]
    second = client.post(f"/v1/runs/{first}/retry", json={"step": "S2"}).json()["run_id"]
    assert finished(client, second)["status"] == "done"
    before, after = (client.get(f"/v1/runs/{run}").json() for run in (first, second))
    assert [(step["id"], step["action"]) for step in after["steps"]] == [
        (step["id"], step["action"]) for step in before["steps"]
    ]
    made = {step["id"] for step in after["steps"] if step["reused"] is None}
    assert {"S2"} < made < {step["id"] for step in after["steps"]}
    assert after["plan_usage"]["output_tokens"] == 0


def test_what_cannot_be_made_again_is_said(client: httpx2.Client) -> None:
    run = executed(client, body(SUMMARIES[:1]))["run_id"]
    unknown = client.post(f"/v1/runs/{run}/retry", json={"step": "S9"})
    assert (unknown.status_code, unknown.json()["error"]["problems"][0]["where"]) == (400, "step")
    assert client.post(f"/v1/runs/{run}/prioritise", json={"step": "S1"}).status_code == 409
    assert client.post(f"/v1/runs/{run}/prioritise", json={}).status_code in (400, 422)
    assert client.post("/v1/runs/nobody/prioritise", json={"step": "S1"}).status_code == 404


def test_a_running_attempt_is_made_again_in_its_run(client: httpx2.Client) -> None:
    run = submitted(client, lasting())
    wait_event(client, run, is_attempt(1))
    answer = client.post(f"/v1/runs/{run}/retry", json={"step": "S1"})
    assert (answer.status_code, answer.json()["run_id"]) == (202, run)
    wait_event(client, run, is_attempt(2))
    waiting = client.post(f"/v1/runs/{run}/retry", json={"step": "S5"})
    assert waiting.status_code == 409
    assert "S5 of run" in waiting.json()["error"]["message"]
    assert client.post(f"/v1/runs/{run}/retry", json={"step": "S9"}).status_code == 400
    assert client.post(f"/v1/runs/{run}/retry").status_code == 409
    client.post(f"/v1/runs/{run}/cancel")
    finished(client, run)
    attempts = client.get(f"/v1/runs/{run}").json()["steps"][0]["attempts"]
    assert attempts[0]["outcome"] == "cancelled"
    assert "at the request of the user" in attempts[1]["reason"]


def test_requests_with_one_key_make_a_step_again_once(client: httpx2.Client) -> None:
    run = submitted(client, lasting())
    wait_event(client, run, is_attempt(1))
    again = partial(client.post, f"/v1/runs/{run}/retry", json={"step": "S1"}, headers={"Idempotency-Key": "once"})
    assert again().status_code == 202
    wait_event(client, run, is_attempt(2))
    assert (again().status_code, again().json()["run_id"]) == (202, run)
    client.post(f"/v1/runs/{run}/cancel")
    finished(client, run)
    assert (again().status_code, again().json()["run_id"]) == (202, run), "an answer that was lost is sent again"
    attempts = client.get(f"/v1/runs/{run}").json()["steps"][0]["attempts"]
    assert [attempt["outcome"] for attempt in attempts] == ["cancelled", "cancelled"]
    repeated = partial(client.post, f"/v1/runs/{run}/retry", json={"step": "S1"}, headers={"Idempotency-Key": "twice"})
    first, second = repeated(), repeated()
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json()["run_id"] == second.json()["run_id"] != run
    client.post(f"/v1/runs/{first.json()['run_id']}/cancel")


def test_a_step_goes_first_with_what_it_waits_for(client: httpx2.Client) -> None:
    run = submitted(client, lasting())
    wait_event(client, run, is_attempt(1))
    answer = client.post(f"/v1/runs/{run}/prioritise", json={"step": "S3"})
    assert (answer.status_code, answer.json()) == (202, {"run_id": run, "first": ["S3", "S2", "S1"]})
    wait_event(client, run, lambda event: event.get("kind") == "step_prioritised")
    rows = {row["id"]: row["first"] for row in client.get(f"/v1/runs/{run}/picture").json()["rows"]}
    assert rows == {f"S{number}": number == 3 for number in range(1, 6)}
    assert client.post(f"/v1/runs/{run}/prioritise", json={"step": "S9"}).status_code == 400
    client.post(f"/v1/runs/{run}/cancel")
    assert finished(client, run)["status"] == "cancelled"


def test_runs_are_compared_step_by_step(client: httpx2.Client) -> None:
    first = executed(client, body())["run_id"]
    other = executed(client, body([*STEPS[:2], {**STEPS[2], "action": "Compare them in one sentence."}]))["run_id"]
    compared = client.get(f"/v1/runs/{first}/comparison/{other}").json()
    assert [side["run_id"] for side in compared["runs"]] == [first, other]
    assert [step["id"] for step in compared["steps"]] == ["S1", "S2", "S3"]
    assert not compared["same_plan"]
    for step in compared["steps"]:
        for side in step["sides"]:
            assert (side["state"], side["role"], side["attempts"]) == ("done", "worker", 1)
            assert side["seconds"] > 0
            assert side["output_tokens"] > 0
    report = client.get(f"/v1/runs/{first}").json()
    figures = compared["runs"][0]["figures"]
    assert figures["path_seconds"] == report["critical_path"]["seconds"]
    assert figures["output_tokens"] == sum(step["output_tokens"] for step in report["steps"])
    same = client.get(f"/v1/runs/{first}/comparison/{first}").json()
    assert (same["same_plan"], same["answers"]) == (True, "")
    assert client.get(f"/v1/runs/{first}/comparison/nobody").status_code == 404


def test_the_list_has_what_was_predicted_and_measured(client: httpx2.Client) -> None:
    run = executed(client, body())["run_id"]
    path = client.get(f"/v1/runs/{run}").json()["critical_path"]
    for _ in range(2):  # the second time without reading events
        (line,) = client.get("/v1/runs", params={"limit": 1, "figures": True}).json()["runs"]
        assert line["run_id"] == run
        assert line["figures"]["path_seconds"] == path["seconds"]
        assert line["figures"]["predicted_seconds"] == path["predicted_seconds"]
        assert line["figures"]["steps"] == 3
    (plain,) = client.get("/v1/runs", params={"limit": 1}).json()["runs"]
    assert plain["figures"] is None


def test_runs_of_others_are_neither_compared_nor_steered(tmp_path: Any) -> None:
    callers = {"ann": "read:own submit", "bob": "read:own submit"}
    with daemon_with(tmp_path, callers) as daemon, client_of(daemon, "ann") as ann, client_of(daemon, "bob") as bob:
        task = {"objective": "x", "plan": {"steps": [{**SUMMARIES[0], "inputs": []}]}}
        hers, his = (executed(client, {"task": task})["run_id"] for client in (ann, bob))
        assert ann.get(f"/v1/runs/{hers}/comparison/{his}").status_code == 404
        assert ann.post(f"/v1/runs/{his}/retry", json={"step": "S1"}).status_code == 404
        assert ann.post(f"/v1/runs/{his}/prioritise", json={"step": "S1"}).status_code == 404
