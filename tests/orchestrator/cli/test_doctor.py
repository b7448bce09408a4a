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


def test_a_base_model_that_is_to_answer_is_noted_before_the_first_request(command: Cli, tmp_path: Path) -> None:
    write_llama(tmp_path / "base.gguf", ModelShape(chat_template=None))
    registry = tmp_path / "registry.yaml"
    registry.write_text("models: {base: {file: base.gguf}}\nroles: {worker: {model: base}, frontdoor: {model: base}}\n")
    told = command("--registry", registry, "doctor", "--json").json["checks"]
    (check,) = (check for check in told if check["name"] == "model base")
    assert check["state"] == "note"
    assert "it has no chat template, so it is a base model" in check["found"]
    assert "its instruct or chat version" in check["mend"]
    task = tmp_path / "task.json"
    step = {"id": "S1", "actor": "worker", "action": "Say hello.", "outputs": ["o"]}
    task.write_text(json.dumps({"objective": "x", "plan": {"steps": [step]}}))
    checked = command("--registry", registry, "validate", task)
    assert checked.code == 0
    assert "warning: roles.worker.model: base: it has no chat template, so it is a base model" in checked.err


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
