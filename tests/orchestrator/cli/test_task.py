"""What `validate` says of a task: its gates, and hints that lead nowhere."""

import json
from pathlib import Path

import pytest

from tests.orchestrator.cli.cli_command import Cli


def test_steps_with_the_same_gates_are_shown_together(command: Cli, tmp_path: Path) -> None:
    def step(number: int, *outputs: str) -> dict[str, object]:
        return {"id": f"S{number}", "actor": "worker", "action": "Go.", "outputs": [*outputs]}

    steps = [step(1, "a.py"), step(2, "b.py"), step(3, "c.txt"), step(4, "d.txt") | {"run_gates": False}]
    file = tmp_path / "task.json"
    file.write_text(json.dumps({"objective": "o", "gates": ["lint", "security"], "plan": {"steps": steps}}))
    assert command("validate", file).out.splitlines()[1:] == [
        "gates of S1, S2: lint, security",
        "gates of S3: security (not lint: no output is Python)",
    ]
    gates = command("validate", file, "--json").json["gates"]
    assert gates["S3"] == {"lint": "no output is Python", "security": None}
    assert gates["S4"] == {}


def test_hints_of_what_is_not_here_are_warnings(command: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Zilthir is a ship.")
    task = {
        "objective": "o",
        "inputs": [{"type": "path", "value": "a.txt", "label": "text"}],
        "agents": [{"tier": "C", "role": "worker", "model_hint": "qwen3:8b", "persona_hint": "pirate"}],
        "plan": {
            "steps": [{"id": "S1", "actor": "worker", "action": "Go.", "inputs": ["a.txt"], "outputs": ["o.txt"]}]
        },
    }
    file = tmp_path / "task.json"
    file.write_text(json.dumps(task))
    result = command("validate", file, "--dir", tmp_path)
    assert result.code == 0
    first, second = result.err.splitlines()
    assert first.startswith('warning: /agents/0/model_hint: unknown model "qwen3:8b"; accepted: tiny-draft, ')
    assert second.startswith('warning: /agents/0/persona_hint: unknown persona "pirate"')
    told = command("validate", file, "--dir", tmp_path, "--json").json
    assert (told["valid"], len(told["warnings"])) == (True, 2)


def test_a_limit_that_the_context_has_no_room_for_is_a_warning(command: Cli, tmp_path: Path) -> None:
    step = {"id": "S1", "actor": "worker", "action": "go", "outputs": ["a"], "max_tokens": 4096}
    path = tmp_path / "task.json"
    path.write_text(json.dumps({"objective": "x", "plan": {"steps": [step]}}))
    (warning,) = command("validate", str(path), "--json").json["warnings"]
    assert warning.startswith("/plan/steps/0/max_tokens: 4096 is more than tiny-")
    assert "2048 tokens, with the prompt" in warning


def test_what_nothing_checks_of_a_schema_is_a_warning(command: Cli, tmp_path: Path) -> None:
    code = {"type": "string", "pattern": "a(?=b)"}
    own = {"type": "object", "properties": {"code": code, "page": {"type": "string", "format": "uri"}}}
    step = {"id": "S1", "actor": "worker", "action": "go", "outputs": ["a"], "output_schema": own}
    path = tmp_path / "task.json"
    path.write_text(json.dumps({"objective": "x", "plan": {"steps": [step]}}))
    first, second = command("validate", str(path), "--json").json["warnings"]
    assert first.startswith("/plan/steps/0/output_schema/properties/code/pattern: the pattern 'a(?=b)' is not checked")
    assert second.startswith("/plan/steps/0/output_schema/properties/page/format: the format uri is not checked")


def test_looking_for_the_sandbox_puts_nothing_before_the_answer(command: Cli, tmp_path: Path) -> None:
    """It is looked for when a step runs code, and what is logged of it belongs into the log of the state folder."""
    step = {"id": "S1", "actor": "coder", "action": "Count.", "kind": "repl", "outputs": ["a"]}
    path = tmp_path / "task.json"
    path.write_text(json.dumps({"objective": "x", "plan": {"steps": [step]}}))
    result = command("validate", path, "--json")
    if "sandbox" in result.err:
        pytest.skip("there is no sandbox here")
    assert result.json["valid"]
