"""Personas over HTTP: added and retired while the daemon runs, without a restart."""

import httpx2

from orchestrator.service.callers import user_key

PIRATE = {"name": "pirate", "text": "Talk like a pirate who is at sea."}


def test_a_persona_takes_effect_at_once(client: httpx2.Client) -> None:
    added = client.post("/v1/personas", json=PIRATE)
    assert (added.status_code, added.json()["name"], added.json()["new"]) == (201, "pirate", True)
    assert client.post("/v1/personas", json=PIRATE).status_code == 200
    assert "pirate" in [one["name"] for one in client.get("/v1/personas").json()["personas"]]
    assert "pirate" in [one["id"] for one in client.get("/v1/models").json()["data"]]
    step = {"id": "S1", "actor": "worker", "action": "Say ahoy.", "outputs": ["o"], "persona": "pirate"}
    task = {"objective": "greet", "plan": {"steps": [step | {"max_tokens": 4}]}}
    run = client.post("/v1/runs", json={"task": task})
    assert run.status_code == 201
    with client.stream("GET", f"/v1/runs/{run.json()['run_id']}/events") as events:
        assert "run_finished" in events.read().decode()
    shown = client.get("/v1/personas/pirate").json()
    assert (shown["maker"], shown["by"]) == ("user", user_key())
    assert "worker" in {use["role"] for use in shown["uses"]}
    assert client.delete("/v1/personas/pirate").json()["why_retired"] == "by a user"
    assert "pirate" not in [one["name"] for one in client.get("/v1/personas").json()["personas"]]
    assert client.get("/v1/personas/pirate").json()["retired"] is not None
    refused = client.post("/v1/runs", json={"task": task})
    assert 'unknown persona "pirate"' in refused.json()["error"]["message"]


def test_bad_input_is_told(client: httpx2.Client) -> None:
    huge = client.post("/v1/personas", json=PIRATE | {"name": "huge", "text": "x" * (1 << 20)})
    assert (huge.status_code, huge.json()["error"]["problems"][0]["where"]) == (400, "persona.text")
    assert client.post("/v1/personas", json=PIRATE | {"nmae": "x"}).status_code == 400
    assert client.post("/v1/personas", json=PIRATE | {"by": "somebody else"}).status_code == 400
    assert client.get("/v1/personas/gone").status_code == 404
    assert client.delete("/v1/personas/terse").status_code == 400
    assert client.delete("/v1/personas/gone").status_code == 400
