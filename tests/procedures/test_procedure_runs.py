"""Procedures with steps that carry out runs: their outcomes are outputs, and a kill neither loses nor repeats a run."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from orchestrator.run.journal.reader import JournalReader
from tests.orchestrator.cli.cli_command import COMMAND, RECORDS, Cli, environment
from tests.orchestrator.run_jobs import step

TINY = Path(__file__).parents[2] / "registry" / "tiny"
STEPS = [
    step("S1", "Summarize a.txt.", ["a.txt"], ["s1"]),
    step("S2", "Summarize b.txt.", ["b.txt", "s1"], ["s2"]),
    step("S3", "Summarize c.txt.", ["c.txt", "s2"], ["s3"]),
]


@pytest.fixture
def registry(tmp_path: Path) -> Path:
    path = tmp_path / "registry.yaml"
    document = {
        "models": {"small": {"file": str(TINY / "small.gguf"), "threads": 1, "context": 2048}},
        "roles": {"worker": {"model": "small", "tier": "C"}},
    }
    path.write_text(json.dumps(document))
    return path


@pytest.fixture
def folder(tmp_path: Path, command: Cli, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the user's own procedures."""
    found = tmp_path / "own"
    found.mkdir()
    monkeypatch.setenv("ORCHESTRATOR_PROCEDURES_FOLDER", str(found))
    return found


def write_procedure(folder: Path, *steps: dict[str, object], **more: object) -> None:
    document = {
        "id": "upkeep",
        "version": "1.0.0",
        "category": "test",
        "description": "A test.",
        "permissions": {"roles": ["owner"], "requires_approval": False},
        "steps": list(steps),
        **more,
    }
    (folder / "upkeep.yaml").write_text(yaml.safe_dump(document, sort_keys=False))


def run_step(**more: object) -> dict[str, object]:
    task = {"objective": "a test", "plan": {"steps": STEPS}}
    return {"id": "run", "taskir": {"task": task, "folder": str(RECORDS)}, **more}


def runs(home: Path) -> dict[str, str]:
    """Return the status of each run."""
    with JournalReader.open_to_read(home) as journal:
        return {row.run: row.status for row in journal.runs()}


@contextmanager
def killed_once_the_run_has_begun(home: Path, folder: Path, registry: Path) -> Iterator[str]:
    """Execute the procedure in a process that is killed, and give the id of the run that it had begun."""
    words = [*COMMAND, "--registry", str(registry), "procedures", "run", "upkeep", "--yes"]
    variables = environment(home, ORCHESTRATOR_PROCEDURES_FOLDER=str(folder))
    with subprocess.Popen(words, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        told = next(line for line in child.stderr if line.startswith("run: run "))
        child.kill()
    yield told.removeprefix("run: run ").strip()


def test_a_run_that_was_begun_before_a_kill_is_found_again(
    home: Path, folder: Path, registry: Path, command: Cli
) -> None:
    write_procedure(
        folder,
        run_step(),
        on_interruption="resume",
        outputs={"run": {"value": "{{ steps.run.run }}", "description": "The run."}},
    )
    with killed_once_the_run_has_begun(home, folder, registry) as run:
        assert list(runs(home)) == [run]
        (recovered,) = command("--registry", registry, "procedures", "recover", "--json").json["recovered"]
    assert (recovered["state"], recovered["interruptions"]) == ("done", 1)
    assert recovered["outputs"] == {"run": run}
    assert runs(home) == {run: "done"}


@pytest.mark.slow
def test_a_run_that_was_begun_before_a_kill_is_cancelled_where_all_is_undone(
    home: Path, folder: Path, registry: Path, command: Cli
) -> None:
    write_procedure(folder, run_step())
    with killed_once_the_run_has_begun(home, folder, registry) as run:
        (recovered,) = command("--registry", registry, "procedures", "recover", "--json").json["recovered"]
    assert recovered["state"] == "rolled back"
    assert runs(home) == {run: "cancelled"}


def test_the_outcome_of_a_run_is_what_the_step_returns_and_its_failure_fails_the_step(
    home: Path, folder: Path, registry: Path, command: Cli
) -> None:
    value = "{{ steps.run.texts['s1'] + '|' + str(len(steps.run.digests)) }}"
    outputs = {"told": {"value": value, "description": "What it made."}}
    write_procedure(folder, run_step(), outputs=outputs)
    done = command("--registry", registry, "procedures", "run", "upkeep", "--json").json
    first, _, count = done["outputs"]["told"].rpartition("|")
    assert (done["state"], count) == ("done", "3")
    assert first

    failing = {
        "objective": "x",
        "plan": {"steps": [{**STEPS[0], "output_schema": {"type": "object"}, "max_tokens": 1}]},
    }
    write_procedure(folder, {"id": "run", "taskir": {"task": failing, "folder": str(RECORDS)}, "retries": 1})
    failed = command("--registry", registry, "procedures", "run", "upkeep", "--json")
    assert failed.code == 1
    told, ended = json.loads(failed.out), runs(home)
    assert told["state"] == "rolled back"
    failures = [name for name, status in ended.items() if status == "failed"]
    assert len(failures) == 2, "each attempt is a run of its own"
    assert any(f"run {name} has ended: failed" in told["error"] for name in failures)


def test_a_task_that_cannot_run_here_is_refused_by_the_plan(folder: Path, registry: Path, command: Cli) -> None:
    unknown = {"objective": "x", "plan": {"steps": [{**STEPS[0], "actor": "welder"}]}}
    write_procedure(folder, {"id": "run", "taskir": {"task": unknown, "folder": str(RECORDS)}})
    refused = command("--registry", registry, "procedures", "run", "upkeep", "--dry-run")
    assert refused.code == 1
    assert "welder" in refused.out


def test_steps_of_every_other_kind_work(home: Path, folder: Path, registry: Path, command: Cli, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "good.py").write_text("x = 1\n")
    write_procedure(
        folder,
        {"id": "pause", "wait": {"seconds": 0.01}},
        {"id": "speed", "benchmark": {"model": "small", "seconds": 0.1}},
        {"id": "gates", "gate": {"folder": str(tmp_path / "code"), "gates": ["schema"]}},
        {"id": "anew", "memory": {"operation": "rebuild"}},
        {"id": "note", "depends_on": ["speed"], "file_write": {"path": str(tmp_path / "n"), "content": "x"}},
        outputs={"decode": {"value": "{{ steps.speed.decode }}", "description": "Tokens per second."}},
    )
    done = command("--registry", registry, "procedures", "run", "upkeep", "--json").json
    assert done["state"] == "done", done["error"]
    assert done["outputs"]["decode"] > 0
    late = {"id": "pause", "wait": {"seconds": 5}, "timeout_seconds": 0.05}
    write_procedure(folder, late)
    failed = command("--registry", registry, "procedures", "run", "upkeep", "--json")
    assert failed.code == 1
    assert "its time is over" in json.loads(failed.out)["error"]


@pytest.mark.usefixtures("sandbox")
def test_programs_are_carried_out_and_a_checkpoint_puts_back_what_they_have_changed(
    folder: Path, command: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "a").write_text("one")
    (code / "b").write_text("two")
    copy = {"command": ["/bin/cp", "b", "a"], "sandbox": False, "folder": str(code)}
    write_procedure(
        folder,
        {"id": "keep", "checkpoint": {"paths": [str(code)]}},
        {"id": "copy", "depends_on": ["keep"], "shell": copy, "compensation": {"wait": {"seconds": 0}}},
        {
            "id": "read",
            "depends_on": ["copy"],
            "shell": {"command": ["cat", "in.txt"], "files": {"in.txt": str(code / "a")}},
        },
        outputs={"text": {"value": "{{ steps.read.stdout }}", "description": "What the file says."}},
    )
    refused = json.loads(command("procedures", "run", "upkeep", "--json").out)
    assert refused["state"] == "rolled back"
    assert "/bin/cp may not be run outside the sandbox" in refused["error"]
    monkeypatch.setenv("ORCHESTRATOR_PROCEDURES_COMMANDS", "/bin/cp")
    done = command("procedures", "run", "upkeep", "--json").json
    assert (done["state"], done["outputs"], (code / "a").read_text()) == ("done", {"text": "two"}, "two")
    assert command("procedures", "rollback", done["id"]).code == 0
    assert (code / "a").read_text() == "one"
