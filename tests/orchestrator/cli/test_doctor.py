"""What the doctor finds, and where."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.heads.eagle import EAGLE_LAYERS, random_eagle, write_eagle
from benchmarks.models import ModelShape, write_jamba, write_llama
from benchmarks.tiny.sizes import SIZES
from orchestrator.registry.llama_library import ENVIRONMENT
from orchestrator.run.journal.errors import DiskFull
from orchestrator.service.doctor import examine
from tests.orchestrator.cli.cli_command import Cli, Result
from tests.orchestrator.engine.llama_builds import copied, without

LARGE = SIZES["large"]


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


def test_a_journal_on_a_full_disk_is_not_to_be_moved_away(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.mkdir()

    def fail(_: Path) -> None:
        raise DiskFull(home / "journal.db")

    monkeypatch.setattr("orchestrator.service.doctor.JournalReader.open_to_read", fail)
    (journal,) = (check for check in examine(home / "registry.yaml", home) if check.name == "journal")
    assert journal.state == "broken"
    assert f"{journal.found}{journal.mend}".endswith("free some space there to go on")


def test_a_journal_without_the_runs_of_its_folder_is_noted(home: Path) -> None:
    (home / "runs" / "20260101-000000-0000abcd").mkdir(parents=True)
    (home / "journal.db").touch()
    (journal,) = (check for check in examine(home / "registry.yaml", home) if check.name == "journal")
    assert (journal.state, journal.found.startswith("0 runs, but 1 in ")) == ("note", True)
    assert "backup --list" in journal.mend


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


def libraries(command: Cli, folder: Path, **models: Path) -> dict[str, dict[str, str]]:
    """Return what the doctor says of llama.cpp where the models have these libraries."""
    write_llama(folder / "m.gguf", ModelShape())
    entries = "".join(f"  {name}: {{file: m.gguf, llama_library: {library}}}\n" for name, library in models.items())
    registry = folder / "registry.yaml"
    registry.write_text(f"models:\n{entries}roles: {{worker: {{model: {next(iter(models))}}}}}\n")
    checks = json.loads(command("--registry", registry, "doctor", "--json").out)["checks"]
    return {
        check["name"]: check for check in checks if "llama.cpp" in check["name"] or check["name"].startswith("model")
    }


def test_a_head_that_cannot_be_read_is_noted(command: Cli, tmp_path: Path) -> None:
    """The model works without it, so the registry is valid."""
    registry = tmp_path / "registry.yaml"
    model = f"{{file: {LARGE.shipped}, eagle: {{file: head.gguf}}}}"
    registry.write_text(f"models: {{m: {model}}}\nroles: {{worker: {{model: m, tier: C}}}}\n")

    def found() -> tuple[str, str]:
        checks = json.loads(command("--registry", registry, "doctor", "--json").out)["checks"]
        return next((check["state"], check["found"]) for check in checks if check["name"] == "model m")

    state, text = found()
    assert state == "note"
    assert f"its EAGLE-3 head: {tmp_path}/head.gguf: " in text
    head = random_eagle(LARGE.width, LARGE.hidden, 96)
    write_eagle(LARGE.shipped, head, np.arange(96), EAGLE_LAYERS, tmp_path / "head.gguf")
    state, text = found()
    assert state == "ok"
    assert "an EAGLE-3 head drafts" in text


def test_builds_that_the_registry_names_are_loaded_and_described(command: Cli, tmp_path: Path) -> None:
    good = copied(tmp_path / "good")
    poor = without(tmp_path / "poor", ["llama_adapter_lora_init"])
    bad = without(tmp_path / "bad", ["llama_decode"])
    checks = libraries(command, tmp_path, a=good, b=poor, c=bad, d=bad, e=tmp_path / "nowhere")
    assert checks["llama.cpp"]["state"] == "ok"
    assert checks["llama.cpp"]["found"].startswith("llama-cpp-python ")
    assert checks[f"llama.cpp at {good}/libllama.so"]["state"] == "ok"
    assert ", built with " in checks[f"llama.cpp at {good}/libllama.so"]["found"]
    noted = checks[f"llama.cpp at {poor}/libllama.so"]
    assert noted["state"] == "note"
    assert f"{poor}/libllama.so lacks llama_adapter_lora_init, which is needed for adapters" in noted["found"]
    broken = checks[f"llama.cpp at {bad}/libllama.so"]
    assert (broken["state"], broken["mend"]) == ("broken", "correct llama_library in the registry")
    assert broken["found"].startswith(f"{bad}/libllama.so lacks llama_decode; accepted: ")
    assert checks["model e"]["found"].startswith(f"model e: llama_library {tmp_path}/nowhere: there is no such file")
    assert len(checks) == 4 + 5


@pytest.mark.parametrize("there", [True, False])
def test_the_default_build_of_the_environment_is_described(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    library = copied(tmp_path / "build") if there else tmp_path / "build"
    monkeypatch.setenv(ENVIRONMENT, str(library))
    (check,) = (check for check in examine(tmp_path / "registry.yaml", tmp_path) if check.name == "llama.cpp")
    assert (check.state, check.mend) == (("ok", "") if there else ("broken", f"correct or unset {ENVIRONMENT}"))
    assert check.found.startswith(f"{library}/libllama.so, built with " if there else f"{library} cannot be loaded: ")


def test_a_role_whose_library_is_missing_is_refused_by_validate(command: Cli, tmp_path: Path) -> None:
    libraries(command, tmp_path, m=tmp_path / "nowhere")
    task = tmp_path / "task.json"
    step = {"id": "S1", "actor": "worker", "action": "Say hello.", "outputs": ["o"]}
    task.write_text(json.dumps({"objective": "x", "plan": {"steps": [step]}}))
    refused = command("--registry", tmp_path / "registry.yaml", "validate", task)
    assert refused.code == 2
    assert f"llama_library {tmp_path}/nowhere: there is no such file" in refused.err
