"""Runs over the socket: submitted, watched, cancelled, retried, exported, deleted."""

import hashlib
import io
import json
import tarfile
from typing import Any

import httpx2
import pytest

from orchestrator.service.callers import user_key
from tests.orchestrator.api.daemon_process import RECORDS, executed, finished, lasting, submitted, summary


def told_events(text: str) -> list[tuple[int, dict[str, Any]]]:
    """Return the numbered events of a stream."""
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if fields.get("event") == "event":
            found.append((int(fields["id"]), json.loads(fields["data"])))
    return found


def test_a_run_is_accepted_streamed_and_answered(client: httpx2.Client) -> None:
    run = submitted(client, summary())
    events = told_events(client.get(f"/v1/runs/{run}/events").text)
    assert [number for number, _ in events] == list(range(1, len(events) + 1))
    assert events[0][1]["kind"] == "run_accepted"
    assert events[-1][1]["kind"] == "run_finished"
    result = client.get(f"/v1/runs/{run}/result").json()
    assert result["status"] == "done"
    assert result["answer"]
    report = client.get(f"/v1/runs/{run}").json()
    assert [step["id"] for step in report["steps"]] == ["S1"]
    assert report["artifacts"] == result["artifacts"]


def test_a_request_is_answered_directly_or_as_the_caller_says(client: httpx2.Client) -> None:
    request = {"request": "Summarize a.txt.", "directory": str(RECORDS)}
    for mode, made in ((None, "direct"), ("direct", "direct"), ("as-planned", "as-planned")):
        run = submitted(client, {**request, "mode": mode})
        events = told_events(client.get(f"/v1/runs/{run}/events").text)
        assert (events[0][1]["mode"], events[-1][1]["status"]) == (made, "done")
    refused = client.post("/v1/runs", json={**summary(), "mode": "direct"})
    assert refused.status_code == 400
    assert refused.json()["error"]["problems"][0]["where"] == "mode"


def test_a_plan_says_how_a_run_would_be_carried_out(client: httpx2.Client) -> None:
    request = {"request": "Summarize a.txt.", "directory": str(RECORDS)}
    free = client.post("/v1/plans", json=request).json()
    assert (free["mode"], free["reason"]) == ("direct", "the request has nothing to split")
    assert [step["action"] for step in free["task"]["plan"]["steps"]] == [request["request"]]
    assert client.post("/v1/plans", json={**request, "mode": "as-planned"}).json()["mode"] == "as-planned"


def test_a_stream_resumes_after_the_last_event_that_was_seen(client: httpx2.Client) -> None:
    run = submitted(client, summary())
    every = told_events(client.get(f"/v1/runs/{run}/events").text)
    assert len(every) > 3
    later = client.get(f"/v1/runs/{run}/events", headers={"Last-Event-ID": "2"})
    assert told_events(later.text) == every[2:]
    assert told_events(client.get(f"/v1/runs/{run}/events?after={len(every)}").text) == []


def test_requests_with_the_same_key_get_the_same_run(client: httpx2.Client) -> None:
    key = {"Idempotency-Key": "the same"}
    first = client.post("/v1/runs", json=summary(), headers=key)
    again = client.post("/v1/runs", json=summary(), headers=key)
    other = client.post("/v1/runs", json=summary("b"), headers=key)
    assert (first.status_code, again.status_code, other.status_code) == (201, 200, 409)
    assert again.json()["run_id"] == first.json()["run_id"]
    assert other.json()["error"]["code"] == "conflict"


def test_a_run_keeps_the_span_of_its_caller_if_the_header_is_valid(client: httpx2.Client) -> None:
    span = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    for header, kept in ((span, span), ("00-no-span-01", "")):
        run = client.post("/v1/runs", json=summary(), headers={"traceparent": header}).json()["run_id"]
        events = told_events(client.get(f"/v1/runs/{run}/events").text)
        assert events[0][1].get("traceparent", "") == kept


def test_runs_are_listed_newest_first_page_by_page(client: httpx2.Client) -> None:
    runs = [executed(client, summary())["run_id"] for _ in range(3)]
    page = client.get("/v1/runs", params={"limit": 2}).json()
    assert [row["run_id"] for row in page["runs"]] == [runs[2], runs[1]]
    rest = client.get("/v1/runs", params={"limit": 1, "before": page["before"], "status": "done"}).json()
    assert [row["run_id"] for row in rest["runs"]] == [runs[0]]
    count = len(client.get("/v1/runs", params={"limit": 1000}).json()["runs"])
    assert client.get("/v1/runs", params={"limit": count}).json()["before"] is None, "there are no older ones"
    assert client.get("/v1/runs", params={"limit": count - 1}).json()["before"] is not None
    unknown = client.get("/v1/runs", params={"before": "20260101-000000-abcdef"})
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "unknown_run")


def test_artifacts_come_byte_for_byte_with_their_digest(client: httpx2.Client) -> None:
    result = executed(client, summary(output="folder/summary.txt"))
    place = f"/v1/runs/{result['run_id']}/artifacts"
    (line,) = client.get(place).json()["artifacts"]
    answer = client.get(f"{place}/folder/summary.txt")
    assert hashlib.sha256(answer.content).hexdigest() == line["sha256"] == answer.headers["ETag"].strip('"')
    assert len(answer.content) == line["bytes"]
    assert client.get(f"{place}/other").status_code == 404


def test_a_diff_shows_new_versions_of_what_the_run_read(client: httpx2.Client) -> None:
    result = executed(client, summary(output="a.txt"))
    assert result["results"] == ["a.txt"]
    answer = client.get(f"/v1/runs/{result['run_id']}/diff")
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert answer.text.startswith("--- a/a.txt\n+++ b/a.txt\n@@ ")
    (of_report,) = client.get(f"/v1/runs/{result['run_id']}").json()["results"]
    assert of_report["digest"] == result["artifacts"]["a.txt"]
    assert len(of_report["original"]) == 64


def test_the_answer_of_an_attempt_is_returned_with_how_it_ended(client: httpx2.Client) -> None:
    cut = summary()
    cut["task"]["plan"]["steps"][0]["max_tokens"] = 2
    for body, outcome in ((summary(), "done"), (cut, "format")):
        run = executed(client, body)["run_id"]
        answer = client.get(f"/v1/runs/{run}/steps/S1/attempts/1").json()
        assert (answer["step"], answer["number"], answer["outcome"]) == ("S1", 1, outcome)
        assert answer["answer"]
        assert bool(answer["message"]) is (outcome == "format")
        for path in ("S1/attempts/99", "S9/attempts/1"):
            assert client.get(f"/v1/runs/{run}/steps/{path}").status_code == 404


def test_an_export_holds_report_events_and_artifacts(client: httpx2.Client) -> None:
    result = executed(client, summary())
    run = result["run_id"]
    with tarfile.open(fileobj=io.BytesIO(client.get(f"/v1/runs/{run}/export").content)) as archive:
        held = {name: archive.extractfile(name) for name in archive.getnames()}
        read = {name: file.read() for name, file in held.items() if file is not None}
    assert read.keys() == {f"{run}/report.json", f"{run}/events.jsonl", f"{run}/artifacts/summary.txt"}
    assert json.loads(read[f"{run}/report.json"])["answer"] == result["answer"]
    assert len(read[f"{run}/events.jsonl"].splitlines()) >= 4


def test_a_trace_is_of_a_run_that_has_ended_or_not(client: httpx2.Client) -> None:
    run = submitted(client, lasting())
    running = client.get(f"/v1/runs/{run}/trace").json()
    assert running["otherData"]["run"] == run
    (whole,) = [event for event in running["traceEvents"] if event.get("cat") == "run"]
    assert whole["args"]["has not ended"] is True
    client.post(f"/v1/runs/{run}/cancel")
    finished(client, run)
    answer = client.get(f"/v1/runs/{executed(client, summary())['run_id']}/trace")
    assert answer.headers["Content-Type"] == "application/json"
    names = [event["name"] for event in answer.json()["traceEvents"] if event["ph"] == "X"]
    assert {"S1", "attempt 1", "prompt", "decode"} <= {*names}
    assert client.get("/v1/runs/20260101-000000-abcdef/trace").status_code == 404


def test_a_run_can_be_cancelled_and_only_then_deleted_or_retried(client: httpx2.Client) -> None:
    run = submitted(client, lasting())
    assert client.delete(f"/v1/runs/{run}").status_code == 409
    assert client.post(f"/v1/runs/{run}/retry").status_code == 409
    assert client.post(f"/v1/runs/{run}/resume").json()["run_id"] == run, "it continues in any case"
    unknown = client.post(f"/v1/runs/{run}/cancel", json={"step": "S9"})
    assert (unknown.status_code, unknown.json()["error"]["problems"][0]["where"]) == (400, "step")
    assert client.post(f"/v1/runs/{run}/cancel").status_code == 202
    assert finished(client, run)["status"] == "cancelled"
    refused = client.post(f"/v1/runs/{run}/resume")
    assert (refused.status_code, "has ended: cancelled" in refused.json()["error"]["message"]) == (400, True)
    again = client.post(f"/v1/runs/{run}/retry")
    assert again.status_code == 201
    second = again.json()["run_id"]
    assert second != run
    client.post(f"/v1/runs/{second}/cancel")
    assert finished(client, second)["status"] == "cancelled"
    assert client.delete(f"/v1/runs/{run}").status_code == 204
    assert client.get(f"/v1/runs/{run}").status_code == 404
    assert client.get(f"/v1/runs/{second}").status_code == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/runs", b'{"request": "\\ud800 x"}'),
        ("/v1/runs", b'{"request": "x", "prior_task_ids": ["\\udfff"]}'),
        ("/v1/runs", b'{"request": "x", "directory": "/\\ud800"}'),
        ("/v1/runs/RUN/cancel", b'{"step": "\\ud800"}'),
        ("/v1/chat/completions", b'{"model": "worker", "messages": [], "stop": "\\ud800"}'),
    ],
)
def test_half_a_surrogate_pair_is_refused(client: httpx2.Client, path: str, body: bytes) -> None:
    run = submitted(client, lasting())
    answer = client.post(path.replace("RUN", run), content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    assert "Unicode" in answer.text
    client.post(f"/v1/runs/{run}/cancel")
    assert finished(client, run)["status"] == "cancelled"


def test_a_run_is_cancelled_when_it_exceeds_its_limits(client: httpx2.Client) -> None:
    by_tokens = executed(client, lasting(64) | {"limits": {"tokens": 20}})
    assert by_tokens["status"] == "cancelled"
    assert "tokens used, 20 allowed" in by_tokens["error"]
    by_time = executed(client, lasting() | {"limits": {"seconds": 0.05}})
    assert by_time["status"] == "cancelled"
    assert "not done within 0.05 s" in by_time["error"]


def test_a_run_reads_artifacts_of_earlier_runs(client: httpx2.Client) -> None:
    first = executed(client, summary())
    name = f"{first['run_id']}/summary.txt"
    step = {"id": "S1", "actor": "worker", "action": "Summarize the text.", "inputs": [name], "outputs": ["again"]}
    task = {
        "objective": "a test",
        "plan": {"steps": [{**step, "max_tokens": 64}]},
        "context": {"prior_task_ids": [first["run_id"]]},
    }
    second = executed(client, {"task": task})
    assert second["status"] == "done", second
    unknown = client.post("/v1/runs", json={"task": task | {"context": {"prior_task_ids": ["nobody"]}}})
    assert unknown.status_code == 400
    assert unknown.json()["error"]["problems"][0]["where"] == "context.prior_task_ids"


def test_every_error_has_the_same_body(client: httpx2.Client) -> None:
    neither = client.post("/v1/runs", json={})
    unknown = client.post("/v1/runs", json={"request": "x", "colour": "red"})
    document = client.post("/v1/runs", json={"task": {"objective": "x", "plan": {"steps": []}}})
    missing = client.get("/v1/runs/nobody")
    nowhere = client.get("/v1/nowhere")
    codes = [answer.status_code for answer in (neither, unknown, document, missing, nowhere)]
    assert codes == [400, 400, 400, 404, 404]
    for answer in (neither, unknown, document, missing, nowhere):
        assert answer.json()["error"].keys() == {"message", "type", "param", "code", "problems"}


def test_a_backup_can_be_restored(client: httpx2.Client) -> None:
    before = executed(client, summary())
    made = client.post("/v1/backups")
    assert made.status_code == 201
    later = executed(client, summary())
    assert client.post(f"/v1/backups/{made.json()['name']}/restore").status_code == 200
    assert client.get(f"/v1/runs/{later['run_id']}").status_code == 404
    assert client.get(f"/v1/runs/{before['run_id']}/result").json() == before
    assert executed(client, summary())["status"] == "done"
    assert client.post("/v1/backups/19990101-000000/restore").status_code == 400


def test_models_are_loaded_unloaded_and_pinned(client: httpx2.Client) -> None:
    def state(answer: httpx2.Response) -> tuple[str, bool]:
        body = answer.json()
        return body["state"], body["pinned"]

    assert state(client.post("/v1/pool/tiny-draft/load")) == ("ready", False)
    assert state(client.post("/v1/pool/tiny-draft/pin")) == ("ready", True)
    assert client.post("/v1/pool/tiny-draft/unload").status_code == 409
    assert state(client.post("/v1/pool/tiny-draft/unpin")) == ("ready", False)
    assert state(client.post("/v1/pool/tiny-draft/unload"))[1] is False
    assert client.post("/v1/pool/nobody/load").status_code == 404
    pool = client.get("/v1/pool").json()
    assert "machines" not in pool, "there is no cluster"
    assert "tiny-draft" in [model["model"] for model in pool["models"]]


@pytest.mark.parametrize("place", ["/health/live", "/health/ready"])
def test_health_is_reported(client: httpx2.Client, place: str) -> None:
    assert client.get(place).json() == {"status": "ok"}


def test_prometheus_gets_counters(client: httpx2.Client) -> None:
    def finished_runs() -> float:
        lines = client.get("/metrics").text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith("orchestrator_runs_finished_total{"))

    before = finished_runs()
    executed(client, summary())
    assert finished_runs() == before + 1
    shown = client.get("/v1/pool").json()["models"]
    counted = next(one["counters"]["output_tokens"] for one in shown if one["model"] == "tiny-large")
    assert counted > 0
    line = f'orchestrator_engine_total{{kind="output_tokens",model="tiny-large"}} {float(counted)}'
    assert line in client.get("/metrics").text.splitlines()


def test_prometheus_counts_tokens_that_prompts_share(client: httpx2.Client) -> None:
    def counted() -> dict[str, float]:
        families = ("reuse_expected_tokens_total", "reuse_tokens_total", "reuse_lost_tokens_total")
        lines = client.get("/metrics").text.splitlines()
        return {
            name: sum(float(line.split()[-1]) for line in lines if line.startswith(f"orchestrator_{name}{{"))
            for name in families
        }

    before = counted()
    runs = [executed(client, summary())["run_id"] for _ in range(2)]
    reuses = [client.get(f"/v1/runs/{run}").json()["reuse"] for run in runs]
    assert reuses[1]["expected_tokens"] > 0
    assert reuses[1]["reused_tokens"] == reuses[1]["expected_tokens"] - sum(reuses[1]["lost_tokens"].values())
    after = counted()
    assert [after[name] - before[name] for name in after] == [
        sum(reuse["expected_tokens"] for reuse in reuses),
        sum(reuse["reused_tokens"] for reuse in reuses),
        sum(sum(reuse["lost_tokens"].values()) for reuse in reuses),
    ]


def test_a_run_that_has_ended_is_rated(client: httpx2.Client) -> None:
    run = executed(client, summary())["run_id"]
    made = client.post(f"/v1/runs/{run}/ratings", json={"score": 0.5, "step": "S1", "note": "so so"})
    assert made.status_code == 201
    assert {**made.json(), "at": 0} == {
        "run_id": run,
        "step": "S1",
        "score": 0.5,
        "by": user_key(),
        "note": "so so",
        "at": 0,
    }
    assert client.post(f"/v1/runs/{run}/ratings", json={"score": 1}).status_code == 201
    shown = client.get(f"/v1/runs/{run}").json()
    assert [(row["score"], row["by"]) for row in shown["ratings"]] == [(1.0, user_key())]
    assert [(row["score"], row["note"]) for row in shown["steps"][0]["ratings"]] == [(0.5, "so so")]
    events = client.get(f"/v1/runs/{run}/events").text
    assert events.count('"rating_given"') == 2
    for body, problem in (
        ({"score": 1.01}, "score"),
        ({"score": 1, "step": "S9"}, "step"),
        ({"score": 1, "by": "somebody else"}, "by: is not known; accepted: note, score, step"),
        ({}, "score"),
    ):
        refused = client.post(f"/v1/runs/{run}/ratings", json=body)
        assert refused.status_code in (400, 422), refused.text
        assert problem in refused.text
    unknown = client.post("/v1/runs/nobody/ratings", json={"score": 1})
    assert (unknown.status_code, unknown.json()["error"]["message"]) == (404, "there is no run 'nobody'")


def test_the_openapi_document_lists_the_operations(client: httpx2.Client) -> None:
    document = client.get("/openapi.json").json()
    assert {"/v1/runs", "/v1/runs/{run}/events", "/v1/chat/completions", "/metrics"} <= document["paths"].keys()
    streamed = document["paths"]["/v1/runs/{run}/events"]["get"]["responses"]["200"]["content"]
    assert streamed.keys() == {"text/event-stream"}
