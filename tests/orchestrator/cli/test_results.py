"""A run makes a new version of a file that it reads: it is shown, exported and applied, and the folder is safe."""

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.steps.files import NO_FILE
from orchestrator.task.events import AttemptSucceeded
from tests.orchestrator.cli.cli_command import RECORDS, Cli, make_command
from tests.orchestrator.cli.kill_writes import contents

COPY = "kopien/größe.de.md"
SUMMARY = "Zilthir: owner Renzer, length 214, speed 38."
TASK = {
    "objective": "Summarize a.txt in place, and copy the summary",
    "plan": {
        "steps": [
            {
                "id": "S1",
                "actor": "worker",
                "action": "Summarize a.txt.",
                "inputs": ["a.txt"],
                "outputs": ["a.txt"],
            },
            {
                "id": "S2",
                "actor": "worker",
                "action": "Copy it.",
                "kind": "tool",
                "tools": ["write_artifact"],
                "arguments": {"name": COPY, "text": {"$input": "a.txt"}},
                "inputs": ["a.txt"],
                "outputs": [COPY],
            },
        ]
    },
}


@dataclass(frozen=True)
class Edited:
    """A finished run that has made a new version of a file in `folder`, which is as it was."""

    command: Cli
    folder: Path
    out: Path
    run: str
    before: dict[str, str]
    after: dict[str, str]


@pytest.fixture(scope="session")
def run_once(tmp_path_factory: pytest.TempPathFactory) -> Edited:
    """The run, in a folder that no test may change."""
    place = tmp_path_factory.mktemp("results")
    folder, task = place / "user", place / "task.json"
    shutil.copytree(RECORDS, folder)
    task.write_text(json.dumps(TASK))
    command = make_command(place / "home")
    before = contents(folder)
    told = command("run", task, "--dir", folder, "--out", place / "out", "--json").json
    assert told["status"] == "done", told["error"]
    artifacts = place / "home" / "runs" / told["run_id"] / "artifacts"
    new = {name: (artifacts / name).read_text() for name in ("a.txt", COPY)}
    assert contents(folder) == before
    return Edited(command, folder, place / "out", told["run_id"], before, before | new)


@pytest.fixture
def edited(run_once: Edited, tmp_path: Path) -> Edited:
    """The run, with a copy of its folder that a test may change."""
    folder = tmp_path / "user"
    shutil.copytree(run_once.folder, folder)
    return Edited(run_once.command, folder, run_once.out, run_once.run, run_once.before, run_once.after)


def test_later_steps_read_the_new_version_and_out_has_both_results(run_once: Edited) -> None:
    new = {name: text for name, text in run_once.after.items() if run_once.before.get(name) != text}
    assert {name: text.strip() for name, text in new.items()} == {"a.txt": SUMMARY, COPY: SUMMARY}
    assert contents(run_once.out) == new


def test_the_report_names_the_new_versions_and_the_commands_for_them(run_once: Edited) -> None:
    shown = run_once.command("show", run_once.run).out
    run = run_once.run
    line = f"New versions (a.txt): `orchestrator diff {run}` shows them, `orchestrator apply {run}` writes them back\n"
    assert line in shown


def test_results_are_exported_into_a_new_folder(run_once: Edited, tmp_path: Path) -> None:
    told = run_once.command("export", run_once.run, tmp_path / "new" / "folder", "--json").json
    assert told["files"] == [{"name": COPY, "state": "new"}, {"name": "a.txt", "state": "new"}]
    assert contents(tmp_path / "new" / "folder") == contents(run_once.out)
    again = run_once.command("export", run_once.run, tmp_path / "new" / "folder")
    assert (again.code, again.err) == (0, "")
    assert "has all results already" in again.out


def test_a_folder_that_cannot_be_used_is_bad_input(run_once: Edited, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        refused = run_once.command("export", run_once.run, place)
        assert refused.code == 2
        assert f"DIR {place}: cannot be created" in refused.err


def test_nothing_is_exported_into_the_folder_of_the_run(run_once: Edited) -> None:
    for arguments in (["export", run_once.run, run_once.folder], ["run", "x", "--dir", run_once.folder, "--out"]):
        refused = run_once.command(*arguments, *([run_once.folder] if arguments[-1] == "--out" else []))
        assert refused.code == 2
        assert "is the folder whose files the run reads" in refused.err
        assert "orchestrator apply RUN" in refused.err
    assert contents(run_once.folder) == run_once.before


def test_a_diff_shows_the_results_against_the_files_that_the_run_read(edited: Edited) -> None:
    shown = edited.command("diff", edited.run)
    assert (shown.code, shown.err) == (0, "")
    old, new = edited.before["a.txt"].splitlines(), edited.after["a.txt"].splitlines()
    assert "--- a/a.txt\n+++ b/a.txt\n" in shown.out
    assert f"--- /dev/null\n+++ b/{COPY}\n@@ -0,0 +1" in shown.out
    assert all(f"\n-{line}\n" in shown.out for line in old)
    assert all(f"\n+{line}\n" in shown.out for line in new)
    told = edited.command("diff", edited.run, "--json").json
    assert [(file["name"], file["state"]) for file in told["files"]] == [(COPY, "new"), ("a.txt", "changed")]
    assert "".join(file["diff"] for file in told["files"]) == shown.out


def test_results_are_applied_once(edited: Edited) -> None:
    applied = edited.command("apply", edited.run, "--dir", edited.folder)
    assert (applied.code, applied.err) == (0, "")
    assert applied.out.splitlines() == [f"new  {COPY}", "changed  a.txt"]
    assert contents(edited.folder) == edited.after
    again = edited.command("apply", edited.run, "--dir", edited.folder, "--json").json
    assert again["files"] == []


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.txt", "edited", "a.txt: was changed since the run read it; accepted: the file as the run read it"),
        ("a.txt", None, "a.txt: was deleted since the run read it; accepted: the file as the run read it"),
        (COPY, "mine", f"{COPY}: exists, and did not when the run wrote its output; accepted: a folder without it"),
    ],
)
def test_nothing_is_applied_over_what_the_user_has_changed(
    edited: Edited, name: str, text: str | None, message: str
) -> None:
    path = edited.folder / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    if text is not None:
        path.write_text(text)
    before = contents(edited.folder)
    refused = edited.command("apply", edited.run, "--dir", edited.folder)
    assert refused.code == 2
    assert message in refused.err
    assert contents(edited.folder) == before


def test_the_run_records_what_it_has_seen_of_the_folder(run_once: Edited) -> None:
    with JournalReader.open_to_read(run_once.folder.parent / "home") as journal:
        ended = [event for _, event in journal.events(run_once.run) if isinstance(event, AttemptSucceeded)]
        assert journal.get(ended[0].originals["a.txt"]).decode() == run_once.before["a.txt"]
        assert dict(ended[0].originals) == dict(ended[0].reads)
        assert (dict(ended[1].reads), dict(ended[1].originals)) == ({}, {COPY: NO_FILE})
        assert (run_once.run, ended[0].originals["a.txt"]) in journal.named_objects()


def test_a_run_without_a_folder_has_nothing_to_apply_to(run_once: Edited, tmp_path: Path) -> None:
    call = {"kind": "tool", "tools": ["write_artifact"], "arguments": {"name": "o.txt", "text": "x\n"}}
    step = {"id": "S1", "actor": "worker", "action": "Copy it.", "outputs": ["o.txt"], **call}
    task = tmp_path / "task.json"
    task.write_text(json.dumps({"objective": "Write", "plan": {"steps": [step]}}))
    told = run_once.command("run", task, "--json").json
    refused = run_once.command("apply", told["run_id"])
    assert refused.code == 2
    assert "read no folder that could be written back" in refused.err
    shown = run_once.command("diff", told["run_id"])
    assert shown.out == "--- /dev/null\n+++ b/o.txt\n@@ -0,0 +1 @@\n+x\n"


def test_the_results_of_a_run_that_failed_are_not_written(run_once: Edited, tmp_path: Path) -> None:
    step = {"id": "S1", "actor": "worker", "action": "Summarize a.txt.", "inputs": ["a.txt"], "outputs": ["a.txt"]}
    task = tmp_path / "task.json"
    task.write_text(json.dumps({"objective": "Too short", "plan": {"steps": [step | {"max_tokens": 1}]}}))
    out = tmp_path / "out"
    told = run_once.command("run", task, "--dir", RECORDS, "--out", out, "--json")
    assert told.code == 1
    assert os.listdir(out) == []
    for command in (
        ["export", told.json["run_id"], out],
        ["diff", told.json["run_id"]],
        ["apply", told.json["run_id"]],
    ):
        refused = run_once.command(*command)
        assert refused.code == 2
        assert "is failed; accepted: a run that is done" in refused.err
