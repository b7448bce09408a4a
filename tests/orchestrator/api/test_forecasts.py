"""What a job would cost, before it runs; and uploaded files as what its steps read."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.orchestrator.api.daemon_process import RECORDS, executed, summary

REQUEST = "Summarize a, b, c and d, then compare them"
CODE = "Write a Python function that counts the words of a.txt, save it as count.py"


@pytest.fixture(autouse=True)
def _no_files_are_left(client: httpx2.Client) -> Iterator[None]:
    """Other tests list the files of the same daemon."""
    before = {file["id"] for file in client.get("/v1/files").json()["data"]}
    yield
    for file in client.get("/v1/files").json()["data"]:
        if file["id"] not in before:
            client.delete(f"/v1/files/{file['id']}").raise_for_status()


def uploaded(client: httpx2.Client, path: Path) -> str:
    files = {"file": (path.name, path.read_bytes())}
    answer = client.post("/v1/files", files=files, data={"purpose": "user_data"}).raise_for_status()
    return str(answer.json()["id"])


def test_a_task_has_a_price_and_a_picture(client: httpx2.Client) -> None:
    answer = client.post("/v1/forecasts", json=summary())
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert body["task"]["plan"]["steps"][0]["id"] == "S1"
    (row,) = body["rows"]
    assert (row["state"], row["model"], row["critical"]) == ("waiting", "tiny-large", True)
    assert row["expected"][0] == 0
    report = body["report"]
    assert (report["waves"], report["width"], report["critical_path"]["steps"]) == ([["S1"]], 1, ["S1"])
    low, high = body["range_seconds"]
    assert 0 < low <= body["run_seconds"] <= high
    assert body["output_tokens"] > 0
    assert (body["direct_seconds"], body["direct_has_data"]) == (None, None)
    assert list(body["bytes_to_load"]) == ["tiny-large"]
    assert 0 < body["memory_bytes"] <= body["memory_budget"]
    assert body["bytes_to_load"]["tiny-large"] in (0, body["memory_bytes"])
    assert client.get("/v1/runs", params={"search": "nothing of this name"}).json()["runs"] == []


def test_a_request_is_planned_and_compared_with_a_direct_answer(client: httpx2.Client) -> None:
    before = client.get("/v1/runs", params={"limit": 1}).json()["runs"]
    body = client.post("/v1/forecasts", json={"request": REQUEST, "directory": str(RECORDS)}).raise_for_status().json()
    assert [row["id"] for row in body["rows"]] == ["S1", "S2", "S3", "S4", "S5"]
    assert len(body["lines"]) == 4
    assert body["direct_seconds"] > 0
    assert body["expected_end"] > 0
    assert client.get("/v1/runs", params={"limit": 1}).json()["runs"] == before, "nothing ran"
    task: dict[str, Any] = body["task"]
    done = executed(client, {"task": task, "mode": body["mode"], "directory": str(RECORDS)})
    assert done["status"] == "done"
    body = client.post("/v1/forecasts", json={"request": REQUEST, "directory": str(RECORDS)}).raise_for_status().json()
    assert (body["has_data"], body["direct_has_data"]) == (True, True)


def test_times_of_a_role_that_has_not_run_are_assumed(client: httpx2.Client) -> None:
    body = client.post("/v1/forecasts", json={"request": CODE, "directory": str(RECORDS), "mode": "as-planned"})
    assert body.raise_for_status().json()["direct_seconds"] > 0
    assert body.json()["direct_has_data"] is False


def test_problems_of_a_task_are_listed_by_their_place(client: httpx2.Client) -> None:
    body = summary()
    body["task"]["plan"]["steps"][0] |= {"actor": "nobody", "inputs": ["missing.txt"]}
    refused = client.post("/v1/forecasts", json=body)
    assert refused.status_code == 400
    places = {problem["where"] for problem in refused.json()["error"]["problems"]}
    assert "/plan/steps/0/actor" in places
    assert any(place.startswith("/plan/steps/0/inputs") for place in places)
    for wrong in ({}, {"request": "a", "task": {}}, {**summary(), "mode": "direct"}):
        assert client.post("/v1/forecasts", json=wrong).status_code == 400


def test_steps_read_uploaded_files(client: httpx2.Client) -> None:
    ids = [uploaded(client, RECORDS / f"{name}.txt") for name in "abcd"]
    planned = client.post("/v1/forecasts", json={"request": REQUEST, "files": ids}).raise_for_status().json()
    assert [row["action"] for row in planned["rows"]][:2] == ["Summarize a.txt.", "Summarize b.txt."]
    done = executed(client, {"request": REQUEST, "files": ids})
    assert done["status"] == "done"
    assert "Koldin" in done["answer"]
    task = {key: value for key, value in summary().items() if key != "directory"}
    run = executed(client, {**task, "files": ids[:1]})
    assert run["status"] == "done"
    part = client.get(f"/v1/runs/{run['run_id']}/steps/S1/attempts/1").json()["prompt"][1]
    assert (part["name"], part["text"]) == ("a.txt", (RECORDS / "a.txt").read_text())


def test_files_that_cannot_be_read_are_refused(client: httpx2.Client, tmp_path: Path) -> None:
    earlier = executed(client, summary())["run_id"]
    known = uploaded(client, RECORDS / "a.txt")
    binary = tmp_path / "binary.bin"
    binary.write_bytes(b"\xff\xfe")
    for files, why in (([f"file-{'0' * 24}"], "there is no file"), ([uploaded(client, binary)], "is no text in UTF-8")):
        for path in ("/v1/runs", "/v1/forecasts"):
            refused = client.post(path, json={"request": "Do it.", "files": files})
            assert refused.status_code == 400, refused.text
            assert why in refused.json()["error"]["message"]
    both = client.post("/v1/runs", json={"request": "Do it.", "files": [known], "prior_task_ids": [earlier]})
    assert (both.status_code, both.json()["error"]["param"]) == (400, "files")


def test_runs_are_searched_by_request_and_id(client: httpx2.Client) -> None:
    run = executed(client, {**summary(), "task": {**summary()["task"], "objective": "Find THE Needle 100%_"}})["run_id"]
    for text in ("the needle", "100%_", run, run[:15].upper()):
        found = client.get("/v1/runs", params={"search": text}).json()["runs"]
        assert run in [line["run_id"] for line in found], text
    assert run not in [line["run_id"] for line in client.get("/v1/runs", params={"search": "100_%"}).json()["runs"]]
