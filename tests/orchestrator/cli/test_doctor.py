"""What the doctor finds, and where."""

import pytest

from tests.orchestrator.cli.cli_command import Cli


def test_a_tool_is_looked_for_where_gates_find_it(command: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    found = {check["name"]: (check["state"], check["found"]) for check in command("doctor", "--json").json["checks"]}
    assert found["tool pytest"] == ("ok", pytest.__file__)
    assert found["tool ruff"][0] == "ok", "it lies beside this interpreter"
    assert found["tool bwrap"] == ("note", "not on the PATH")
