"""What the doctor finds, and where."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.models import ModelShape, write_jamba, write_llama
from orchestrator.service.doctor import examine
from tests.orchestrator.cli.cli_command import Cli, Result


def test_a_tool_is_looked_for_where_gates_find_it(command: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    found = {check["name"]: (check["state"], check["found"]) for check in command("doctor", "--json").json["checks"]}
    assert found["tool pytest"] == ("ok", pytest.__file__)
    assert found["tool ruff"][0] == "ok", "it lies beside this interpreter"
    assert found["tool bwrap"] == ("note", "not on the PATH")


def test_a_missing_tool_names_the_gates_that_use_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    monkeypatch.setattr("orchestrator.run.gates.jobs.find_spec", lambda name: None)
    tools = [check for check in examine(tmp_path / "registry.yaml", tmp_path) if check.name.startswith("tool ")]
    extra = "; accepted: pip install 'orchestrator[gates]'"
    assert [(check.name, check.found, check.mend) for check in tools] == [
        ("tool shellcheck", "not on the PATH", f"only the gate shellcheck would use it{extra}"),
        ("tool ruff", "not on the PATH", f"only the gates format, lint and security would use it{extra}"),
        ("tool mypy", "not installed for this Python", f"only the gate typecheck would use it{extra}"),
        (
            "tool pytest",
            "not installed for this Python",
            f"only the gates unit and integration, and the tool run_tests, would use it{extra}",
        ),
        ("tool bwrap", "not on the PATH", "only running code that a model wrote would use it"),
    ]


def judged(command: Cli, folder: Path, chat_template: str | None) -> tuple[dict[str, Any], Result]:
    """Return what the doctor and `validate` say where a model with this template does everything."""
    write_llama(folder / "m.gguf", ModelShape(chat_template=chat_template))
    registry, task = folder / "registry.yaml", folder / "task.json"
    registry.write_text("models: {m: {file: m.gguf}}\nroles: {worker: {model: m, tier: C}, frontdoor: {model: m}}\n")
    step = {"id": "S1", "actor": "worker", "action": "Say hello.", "outputs": ["o"]}
    task.write_text(json.dumps({"objective": "x", "plan": {"steps": [step]}}))
    told = command("--registry", registry, "doctor", "--json")
    (check,) = (check for check in json.loads(told.out)["checks"] if check["name"] == "model m")
    return check, command("--registry", registry, "validate", task)


def test_a_base_model_that_is_to_answer_is_noted_before_the_first_request(command: Cli, tmp_path: Path) -> None:
    check, checked = judged(command, tmp_path, None)
    assert check["state"] == "note"
    assert "it has no chat template, so it is a base model" in check["found"]
    assert "its instruct or chat version" in check["mend"]
    assert checked.code == 0
    assert "warning: roles.worker.model: m: it has no chat template, so it is a base model" in checked.err


def test_a_chat_template_that_loses_words_is_reported_before_the_first_request(command: Cli, tmp_path: Path) -> None:
    check, refused = judged(command, tmp_path, "{{ messages[-1].content }}")
    assert check["state"] == "broken"
    assert "the model's chat template loses words of the user" in check["found"]
    assert refused.code == 2
    assert "the model's chat template loses words of the user" in refused.err


@pytest.mark.parametrize(
    ("options", "how"), [("", "where a state is kept"), (", batch_invariant: true", "no prefixes")]
)
def test_a_model_with_recurrent_layers_is_said_to_share_prefixes_by_states(
    command: Cli, tmp_path: Path, options: str, how: str
) -> None:
    write_jamba(tmp_path / "m.gguf", ModelShape(context=512))
    registry = tmp_path / "registry.yaml"
    registry.write_text(f"models: {{m: {{file: m.gguf{options}}}}}\nroles: {{worker: {{model: m, tier: C}}}}\n")
    checks = json.loads(command("--registry", registry, "doctor", "--json").out)["checks"]
    (check,) = (check for check in checks if check["name"] == "model m")
    assert check["state"] == "ok"
    assert how in check["found"]
    assert "5.5 KiB a state" in check["found"]
