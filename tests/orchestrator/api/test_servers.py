"""A daemon whose model also runs on another daemon: what names that one, and what its death costs."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.orchestrator.api.daemon_process import ROOT, Running, executed, finished, running_daemon, submitted, summary
from tests.orchestrator.cli.cli_command import run_here

LARGE = ROOT / "registry" / "tiny" / "large.gguf"
WIDTH = 6


def wide() -> dict[str, Any]:
    """Return the body of a request for a run of steps that do not depend on each other, and write for a while."""
    words = {"type": "array", "items": {"const": "word"}, "minItems": 60, "maxItems": 60}
    steps = [
        {
            "id": f"S{number}",
            "actor": "worker",
            "action": f"Write list {number} of words.",
            "outputs": [f"list{number}"],
            "output_schema": words,
            "max_tokens": 1000,
        }
        for number in range(1, WIDTH + 1)
    ]
    return {"task": {"objective": "a wide test", "plan": {"steps": steps}}}


@pytest.fixture
def registry(tmp_path: Path) -> Path:
    return tmp_path / "model_registry.yaml"


def write_registry(path: Path, far: Running) -> None:
    server = {
        "base_url": f"http://127.0.0.1:{far.port}/v1",
        "model": "tiny-large",
        "api_key_env": "FAR_KEY",
        "slots": 2,
    }
    options = {"threads": 1, "slots": 2, "context": 2048, "batch_invariant": True}
    models = {"m": {"file": str(LARGE), **options, "servers": [server]}}
    roles = {"worker": {"model": "m", "tier": "C"}, "frontdoor": {"model": "m", "tier": "A"}}
    path.write_text(json.dumps({"models": models, "roles": roles}))


def attempts_of(home: Path, run: str) -> list[dict[str, Any]]:
    report = run_here("--home", home, "show", run, "--json").json
    return [attempt for step in report["steps"] for attempt in step["attempts"]]


def far_requests(near: Any) -> int:
    (model,) = near.get("/v1/pool").json()["models"]
    return int(model["servers"][0]["active"])


def test_a_server_is_named_by_what_it_computes_and_its_death_loses_no_step(tmp_path: Path, registry: Path) -> None:
    with running_daemon(tmp_path / "far", ORCHESTRATOR_MEMORY_USE="shadow") as far:
        write_registry(registry, far)
        name, home = f"127.0.0.1:{far.port}", tmp_path / "near"
        settings = {"ORCHESTRATOR_REGISTRY": str(registry), "FAR_KEY": far.token, "ORCHESTRATOR_MEMORY_USE": "shadow"}
        with running_daemon(home, **settings) as daemon, daemon.client() as client:
            run = executed(client, summary())["run_id"]
            (attempt,) = attempts_of(home, run)
            assert attempt["usage"]["nodes"] == [name]
            assert client.get(f"/v1/runs/{run}/steps/S1/attempts/1").json()["nodes"] == [name]
            for command in (("show", run), ("explain", run, "S1")):
                assert name in run_here("--home", home, *command).out
            nodes = client.get("/v1/nodes").json()["nodes"]
            assert [(node["name"], node["state"], node.get("models")) for node in nodes] == [
                ("head", "ready", None),
                (name, "ready", ["m"]),
            ]
            shown = run_here("--home", home, "pool").out
            assert f"  at {name}" in shown
            assert f"m at {name}: " in shown
            (line,) = [line for line in run_here("--home", home, "nodes").out.splitlines() if name in line]
            assert line.split()[0] == name

            far.process.send_signal(signal.SIGSTOP)  # so that it dies before it has answered
            run = submitted(client, wide())
            while not far_requests(client):
                pass
            far.process.send_signal(signal.SIGKILL)
            assert finished(client, run)["status"] == "done"
            attempts = attempts_of(home, run)
            lost = [attempt for attempt in attempts if attempt["outcome"] != "done"]
            assert len(attempts) - len(lost) == WIDTH
            assert all(f"model m at http://{name}/v1: " in attempt["message"] for attempt in lost)
            (_, server) = client.get("/v1/nodes").json()["nodes"]
            assert (server["name"], server["state"]) == (name, "resting")
            assert "left out" in server["reason"]
