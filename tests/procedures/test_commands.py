"""The commands about procedures, from a scaffold to a rollback and the audit log."""

import os
import signal
from pathlib import Path

import pytest

from orchestrator.procedures.library import SHIPPED
from tests.orchestrator.cli.cli_command import Cli


@pytest.fixture
def own(home: Path, command: Cli, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the user's own procedures, with one that `new` has written."""
    folder = home.parent / "own"
    monkeypatch.setenv("ORCHESTRATOR_PROCEDURES_FOLDER", str(folder))
    assert command("procedures", "new", "take-note").code == 0
    return folder


def test_a_scaffold_is_valid_runs_after_an_approval_and_is_rolled_back(own: Path, home: Path, command: Cli) -> None:
    assert command("procedures", "validate", own / "take-note.yaml").code == 0
    assert command("procedures", "new", "take-note").code == 2
    note = home / "note.txt"
    shown = command("procedures", "run", "take-note", "-i", "text=hello", "--dry-run")
    assert (shown.code, note.exists()) == (0, False)
    assert "+hello" in shown.out
    assert "undo: what it changes is put back" in shown.out
    kept = command("procedures", "run", "take-note", "-i", "text=hello", "--json").json
    assert (kept["state"], note.exists()) == ("planned", False)
    refused = command("procedures", "approve", kept["id"], "0" * 16)
    assert (refused.code, note.exists()) == (1, False)
    done = command("procedures", "approve", kept["id"], kept["plan"][:16], "--json").json
    assert (done["state"], done["outputs"]) == ("done", {"file": str(note)})
    assert note.read_text() == "hello"
    assert command("procedures", "history").out.startswith(kept["id"])
    assert command("procedures", "history", kept["id"], "--json").json["approved_by"]
    assert command("procedures", "rollback", kept["id"]).code == 0
    assert not note.exists()
    told = command("procedures", "audit").out
    assert all(f"{kept['id']}  {what}" in told for what in ("planned take-note by ", "ended done", "ended rolled back"))
    checked = command("procedures", "audit", "--verify", "--json").json
    assert checked["verified"] == int(checked["head"].partition(":")[0])
    assert command("procedures", "audit", "--verify", "--head", checked["head"]).code == 0
    assert command("procedures", "audit", "--verify", "--head", f"9999:{'0' * 64}").code == 1


def test_a_failure_exits_with_1_and_tells_why(own: Path, command: Cli) -> None:
    text = (own / "take-note.yaml").read_text()
    (own / "take-note.yaml").write_text(text.replace('== "done"', '== "not done"'))
    failed = command("procedures", "run", "take-note", "--yes")
    assert failed.code == 1
    assert "rolled back" in failed.out
    assert "verification: nothing was written" in failed.out


def test_bad_input_is_told_and_exits_with_2(own: Path, command: Cli) -> None:
    for words, told in (
        (("run", "take-nite"), "take-note?"),
        (("run", "take-note", "-i", "text"), "NAME=VALUE"),
        (("run", "take-note", "-i", "txt=x"), "text?"),
        (("history", "nothing"), "no execution 'nothing'"),
        (("audit", "--verify", "--head", "x"), "NUMBER:HASH"),
        (("new", "Not A Name"), "id"),
    ):
        refused = command("procedures", *words)
        assert refused.code == 2, words
        assert told in refused.err, words
    (own / "take-note.yaml").write_text("id: take-note\nverson: 1\n")
    broken = command("procedures", "validate", own / "take-note.yaml")
    assert broken.code == 2
    assert "version?" in broken.err
    assert any("version?" in text for text in command("procedures", "list", "--json").json["broken"])


def test_all_that_is_wrong_with_several_files_is_told_at_once(own: Path, command: Cli) -> None:
    """Also in calls of operations, those of compensations among them."""
    head = "version: 1.0.0\ncategory: test\ndescription: A test.\n"
    (own / "one.yaml").write_text(f"id: one\n{head}")
    (own / "two.yaml").write_text(
        f"id: two\n{head}steps:\n"
        "  - id: a\n    call: {operation: models.uage}\n    compensation: {memory: {operation: rebild}}\n"
        "  - id: b\n    call: {operation: models.usage, arguments: {modl: x}}\n"
    )
    refused = command("procedures", "validate", own / "one.yaml", own / "take-note.yaml", own / "two.yaml")
    assert refused.code == 2
    for told in (
        "one.yaml:1: steps: is required",
        "two.yaml:7: steps.0.call.operation: there is no operation 'models.uage'; accepted: models.usage? (one of ",
        "two.yaml:8: steps.0.compensation.memory.operation: there is no operation 'rebild'; accepted: rebuild? (",
        "two.yaml:10: steps.1.call.arguments.modl: models.usage has no such argument; accepted: model? (one of model)",
        "two.yaml:10: steps.1.call: models.usage needs the argument model",
    ):
        assert told in refused.err


def test_a_new_procedure_does_not_take_the_place_of_one_that_ships(own: Path, command: Cli) -> None:
    refused = command("procedures", "new", "backup")
    assert (refused.code, "backup is a procedure that ships" in refused.err) == (2, True)
    assert not (own / "backup.yaml").exists()


def test_ctrl_c_stops_what_is_executed_and_undoes_it(
    own: Path, home: Path, command: Cli, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ORCHESTRATOR_PROCEDURES_COMMANDS", "/bin/sh")
    (own / "stopped.yaml").write_text(
        f"""\
id: stopped
version: 1.0.0
category: test
description: Writes a file, has itself interrupted as by ctrl-C, and waits.
permissions: {{requires_approval: false}}
steps:
  - id: write
    file_write: {{path: {home}/note.txt, content: x}}
  - id: interrupt
    depends_on: [write]
    shell: {{command: [/bin/sh, -c, "kill -INT {os.getpid()}"], sandbox: false}}
    compensation: {{wait: {{seconds: 0}}}}
  - id: pause
    depends_on: [interrupt]
    wait: {{seconds: 20}}
"""
    )

    def not_reached(_number: int, _frame: object) -> None:
        pytest.fail("ctrl-C was not taken by the command")

    earlier = signal.signal(signal.SIGINT, not_reached)
    try:
        stopped = command("procedures", "run", "stopped")
        assert signal.getsignal(signal.SIGINT) is not_reached
    finally:
        signal.signal(signal.SIGINT, earlier)
    assert (stopped.code, (home / "note.txt").exists()) == (1, False)
    assert "stopped 1.0.0: rolled back" in stopped.out
    assert "the execution was cancelled" in stopped.out
    assert "it stops before its next action" in capfd.readouterr().err


def test_what_ships_is_listed_valid_and_shown(command: Cli) -> None:
    names = {path.stem for path in SHIPPED.glob("*.yaml")}
    assert {one["id"] for one in command("procedures", "list", "--json").json["procedures"]} == names
    assert command("procedures", "validate", *sorted(SHIPPED.glob("*.yaml"))).code == 0
    assert "id: vacuum" in command("procedures", "show", "vacuum").out
    assert "state.vacuum(" in command("procedures", "operations").out
    assert command("procedures", "schema").json["title"] == "Procedure"


def test_a_plan_is_withdrawn(own: Path, command: Cli) -> None:
    kept = command("procedures", "run", "take-note", "--json").json
    assert command("procedures", "withdraw", kept["id"]).code == 0
    assert command("procedures", "approve", kept["id"], kept["plan"]).code == 1
    assert command("procedures", "recover").out == "nothing was interrupted\n"
