"""What the doctor finds, and where."""

import json
from pathlib import Path

import pytest

from benchmarks.models import ModelShape, write_llama
from tests.orchestrator.cli.cli_command import Cli


def test_a_tool_is_looked_for_where_gates_find_it(command: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    found = {check["name"]: (check["state"], check["found"]) for check in command("doctor", "--json").json["checks"]}
    assert found["tool pytest"] == ("ok", pytest.__file__)
    assert found["tool ruff"][0] == "ok", "it lies beside this interpreter"
    assert found["tool bwrap"] == ("note", "not on the PATH")


def test_a_chat_template_that_loses_words_is_reported_before_the_first_request(command: Cli, tmp_path: Path) -> None:
    write_llama(tmp_path / "last.gguf", ModelShape(chat_template="{{ messages[-1].content }}"))
    registry = tmp_path / "registry.yaml"
    registry.write_text("models: {last: {file: last.gguf}}\nroles: {worker: {model: last, tier: C}}\n")
    told = command("--registry", registry, "doctor", "--json").json["checks"]
    (check,) = (check for check in told if check["name"] == "model last")
    assert check["state"] == "broken"
    assert "the model's chat template loses words of the user" in check["found"]
    task = tmp_path / "task.json"
    step = {"id": "S1", "actor": "worker", "action": "Say hello.", "outputs": ["o"]}
    task.write_text(json.dumps({"objective": "x", "plan": {"steps": [step]}}))
    refused = command("--registry", registry, "validate", task)
    assert refused.code == 2
    assert "the model's chat template loses words of the user" in refused.err
