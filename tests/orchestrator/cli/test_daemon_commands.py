"""The commands that speak to a daemon, which the command line itself has started."""

import getpass
import json
import os
import signal
import subprocess
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from orchestrator.cli.daemon import DaemonClient
from orchestrator.service.callers import user_key
from orchestrator.service.configuration import Configuration, load_configuration
from tests.orchestrator.cli.cli_command import (
    COMMAND,
    RECORDS,
    ROOT,
    Cli,
    environment,
    make_command,
    run_here,
    wait_socket,
)

TINY = ROOT / "registry" / "tiny" / "medium.gguf"
STEP = {"id": "S1", "actor": "worker", "action": "Summarize a.txt.", "inputs": ["a.txt"], "outputs": ["s"]}
TASK = {"objective": "a test", "plan": {"steps": [{**STEP, "max_tokens": 64}]}}


@dataclass(frozen=True)
class Served:
    """A daemon, and the command line on its state folder, inside of this process."""

    home: Path
    command: Cli
    task: Path
    process: subprocess.Popen[bytes]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """`orchestrator serve`, ended by SIGTERM."""
    folder = tmp_path_factory.mktemp("served")
    home, task = folder / "home", folder / "task.json"
    task.write_text(json.dumps(TASK))
    with open(folder / "log", "wb") as log:
        variables = environment(home, ORCHESTRATOR_SERVER_DRAIN_SECONDS="1")
        process = subprocess.Popen([*COMMAND, "serve"], env=variables, stderr=log)
        try:
            wait_socket(process, home / "api.sock")
            yield Served(home, make_command(home), task, process)
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(120) == 0
    assert not (home / "api.sock").exists()
    lines = [json.loads(line) for line in (folder / "log").read_text().splitlines()]
    assert lines[-1]["event"] == "the daemon has ended"


def test_a_model_is_added_to_what_the_daemon_may_load(served: Served) -> None:
    before = served.command("pool", "--json").json
    told = served.command("models", "add", TINY, "--json").json
    assert told["memory"]["budget"] == before["budget"]


def test_a_task_is_submitted_followed_and_reported(served: Served) -> None:
    waited = served.command("submit", served.task, "--dir", RECORDS, "--wait", "--json").json
    assert waited["status"] == "done"
    run = served.command("submit", served.task, "--dir", RECORDS, "--key", "k").out.strip()
    again = served.command("submit", served.task, "--dir", RECORDS, "--key", "k", "--json").json
    assert again["run_id"] == run
    watched = served.command("watch", run)
    assert watched.code == 0, watched
    assert served.command("result", run).out.strip() == waited["answer"].strip()
    assert served.command("result", run, "--json").json["run_id"] == run
    repeated = served.command("retry", run, "--json").json
    assert repeated["run_id"] != run
    assert served.command("cancel", repeated["run_id"], "--json").json["run_id"] == repeated["run_id"]
    assert served.command("cancel", run).out == f"run {run} had ended before: done\n"


def test_a_cancelled_run_or_step_is_told_with_what_depends_on_it(served: Served, tmp_path: Path) -> None:
    text = {"type": "text", "label": "x", "value": "one"}
    steps: list[dict[str, Any]] = [
        {"id": "S1", "actor": "worker", "action": "Write a long list.", "inputs": ["x"], "outputs": ["a"]},
        {"id": "S2", "actor": "worker", "action": "Go on.", "inputs": ["a"], "outputs": ["b"]},
        {"id": "S3", "actor": "worker", "action": "Go on.", "inputs": ["b"], "outputs": ["c"]},
        {"id": "S4", "actor": "worker", "action": "Go on.", "inputs": ["a"], "outputs": ["d"]},
    ]
    schema = {"type": "array", "items": {"type": "integer"}, "minItems": 200}
    steps[0] |= {"output_schema": schema, "max_tokens": 1024}
    file = tmp_path / "task.json"
    file.write_text(json.dumps({"objective": "a test", "inputs": [text], "plan": {"steps": steps}}))
    run = served.command("submit", file).out.strip()
    assert served.command("prioritise", run, "S4").out == f"first in run {run}: S4, S1\n"
    assert served.command("prioritise", run, "S4", "--json").json == {"run_id": run, "first": ["S4", "S1"]}
    told = f"step S2 of run {run} is cancelled, and what depends on it: S3\n"
    assert served.command("cancel", run, "S2").out == told
    assert served.command("cancel", "last").out == f"run {run} is cancelled\n"
    served.command("watch", run)
    again = served.command("cancel", run, "S2", "--json").json
    assert (again["had_ended"], again["cancelled"]) == ("cancelled", [])
    assert again["done"] == f"step S2 of run {run} had ended before: cancelled"
    assert "S4 of run" in served.command("prioritise", run, "S4").err
    resumed = served.command("retry", run, "S4", "--json").json["run_id"]
    assert resumed != run
    assert served.command("cancel", resumed).code == 0
    assert "no step 'S9'" in served.command("retry", run, "S9").err


def test_a_persona_is_added_and_retired_with_a_daemon(served: Served) -> None:
    rhymes = "Write in verse, and let every line rhyme."
    assert served.command("personas", "add", "poet", "--text", rhymes).out == "poet added\n"
    (poet,) = (one for one in served.command("personas", "list", "--json").json["personas"] if one["name"] == "poet")
    assert (poet["maker"], poet["by"]) == ("user", user_key())
    same = served.command("personas", "add", "bard", "--text", f"{rhymes}!", "--json").json
    assert (same["name"], same["new"]) == ("poet", False)
    assert served.command("personas", "add", "bard", "--text", f"{rhymes}!", "--distinct", "--json").json["new"]
    assert [served.command("personas", "retire", name).code for name in ("poet", "bard")] == [0, 0]


def test_run_uses_the_daemon_where_there_is_one(served: Served) -> None:
    ran = served.command("run", served.task, "--dir", RECORDS, "--json")
    assert ran.code == 0
    log = (served.home / "logs" / "daemon.log").read_text()
    assert any(json.loads(line).get("run") == ran.json["run_id"] for line in log.splitlines())
    assert not (served.home / "logs" / "orchestrator.log").exists()
    bad = served.command("run", served.task, "--json")
    assert bad.code == 2, "a.txt is not there without --dir"


def test_an_earlier_run_that_does_not_exist_is_reported_by_its_option(served: Served) -> None:
    refused = served.command("submit", served.task, "--after", "nobody")
    assert refused.code == 2
    assert refused.err.startswith("error: --after: there is no run 'nobody'; accepted: the id of an earlier run")


CYCLE = [STEP | {"inputs": ["b"], "outputs": ["a"]}, STEP | {"id": "S2", "inputs": ["a"], "outputs": ["b"]}]


@pytest.mark.parametrize(
    ("task", "where", "what"),
    [
        (TASK | {"objektive": "x"}, "/objektive", "unknown field"),
        (TASK | {"plan": {"steps": [STEP | {"actor": 1}]}}, "/plan/steps/0/actor", "1"),
        (TASK | {"plan": {"steps": [STEP | {"action": "\ud800"}]}}, "/plan/steps/0/action", "surrogate"),
        ([TASK], "/", ""),
        (TASK | {"plan": {"steps": [STEP | {"actor": "wizard"}]}}, "/plan/steps/0/actor", 'unknown role "wizard"'),
        (TASK | {"plan": {"steps": [STEP | {"tools": ["saw"]}]}}, "/plan/steps/0/tools/0", 'unknown tool "saw"'),
        (TASK | {"plan": {"steps": [STEP | {"inputs": ["no.txt"]}]}}, "/plan/steps/0/inputs/0", "no.txt"),
        (TASK | {"inputs": [{"type": "path", "value": "no.txt"}]}, "/inputs/0/value", "no.txt"),
        (TASK | {"plan": {"steps": CYCLE}}, "/plan/steps/0", "S1 → S2 → S1"),
        (TASK | {"context": {"prior_task_ids": ["nobody"]}}, "context.prior_task_ids", "there is no run 'nobody'"),
    ],
)
def test_what_is_wrong_with_a_document_is_reported_with_its_file_and_the_place_in_it(
    served: Served, tmp_path: Path, task: object, where: str, what: str
) -> None:
    file = tmp_path / "task.json"
    file.write_text(json.dumps(task))
    refused = served.command("submit", file, "--dir", RECORDS)
    assert refused.code == 2
    assert f"error: {file}: {where}" in refused.err
    for name in ("submit", "run", "validate"):
        problems = served.command(name, file, "--dir", RECORDS, "--json").json["problems"]
        assert all(problem["where"].startswith(f"{file}: ") for problem in problems)
        assert any(where in problem["where"] and what in problem["what"] for problem in problems), problems


def test_what_is_wrong_with_an_option_is_not_reported_as_in_the_document(served: Served) -> None:
    refused = served.command("submit", served.task, "--dir", RECORDS, "--mode", "direct", "--json")
    assert [problem["where"] for problem in refused.json["problems"]] == ["mode"]
    refused = served.command("submit", served.task, "--dir", RECORDS, "--after", "nobody", "--json")
    assert [problem["where"] for problem in refused.json["problems"]] == ["--after"]


def test_what_is_wrong_with_a_document_on_stdin_is_reported_with_its_place_in_stdin(served: Served) -> None:
    document = json.dumps(TASK | {"plan": {"steps": [STEP | {"actor": "wizard"}]}})
    with patch.dict(os.environ, environment(served.home), clear=True):
        refused = run_here("submit", "-", "--dir", RECORDS, stdin=document)
    assert refused.err.startswith('error: stdin: /plan/steps/0/actor: unknown role "wizard"')


@pytest.mark.slow
def test_procedures_on_personas_memory_and_runs_are_carried_out_by_the_daemon(served: Served) -> None:
    def known() -> list[str]:
        with DaemonClient(served.home) as daemon:
            return [one["name"] for one in daemon.ask("GET", "/v1/personas")["personas"]]

    text = "text=Speak as a lighthouse keeper of the last century would have spoken to his cat."
    words = ("procedures", "run", "add-persona", "-i", "name=keeper", "-i", text, "--yes")
    added = served.command(*words, "--json").json
    assert added["state"] == "done", added
    assert "keeper" in known()
    assert served.command("procedures", "rollback", added["id"]).code == 0
    assert "keeper" not in known()
    assert served.command("procedures", "run", "rebuild-memory", "--json").json["state"] == "done"
    assert served.command("procedures", "run", "compact-memory", "--yes", "--json").json["state"] == "done"

    folder = f"folder={RECORDS}"
    done = served.command("procedures", "run", "run-task", "-i", "request=Summarize a", "-i", folder, "--json").json
    assert done["state"] == "done", done["error"]
    assert served.command("result", done["outputs"]["run"]).out.strip() == done["outputs"]["answer"].strip()


def test_separators_of_lines_that_json_allows_break_no_stream(served: Served, tmp_path: Path) -> None:
    task, objective = tmp_path / "task.json", "one\u2028two\u2029three\x85four"
    task.write_text(json.dumps({**TASK, "objective": objective}))
    (tmp_path / os.fsdecode(b"caf\xe9.txt")).write_text("a name that is no Unicode")
    (tmp_path / "a.txt").write_text("Koldin has size 21.")
    ran = served.command("run", task, "--dir", tmp_path, "--json")
    assert (ran.code, ran.json["status"]) == (0, "done"), ran


def test_pool_and_logs_are_shown(served: Served) -> None:
    shown = served.command("pool").out
    assert "tiny-large" in shown
    assert " prompt tokens reused" in shown
    assert "tiny-large: worker: " in shown
    assert served.command("models", "load", "tiny-draft", "--json").json["state"] == "ready"
    assert served.command("models", "pin", "tiny-draft", "--off", "--json").json["pinned"] is False
    assert served.command("models", "unload", "tiny-draft").code == 0
    assert served.command("models", "load", "nobody").code == 1
    assert any("the daemon serves" in line for line in served.command("logs", "--json").json["lines"])


def test_the_configuration_is_read_again_on_sighup(served: Served) -> None:
    path = served.home / ".config" / "orchestrator" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text("[runs]\nmax_queued = -1\n")
    served.process.send_signal(signal.SIGHUP)
    wait_line(served, "the configuration stays as it was")
    path.write_text("[runs]\nmax_queued = 12\n")
    served.process.send_signal(signal.SIGHUP)
    wait_line(served, "the configuration was read again")


def wait_line(served: Served, text: str) -> None:
    """Return when the daemon has logged something."""
    end = time.monotonic() + 60
    while text not in (served.home / "logs" / "daemon.log").read_text():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_without_a_daemon_the_commands_say_how_to_start_one(command: Cli) -> None:
    for words in (("pool",), ("submit", "Do it."), ("backup",)):
        ended = command(*words)
        assert ended.code == 1
        assert "orchestrator serve" in ended.err


def test_an_unsafe_address_is_refused_before_anything_begins(
    command: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[object] = []
    monkeypatch.setattr("os.execve", lambda *program: started.append(program))
    ended = command("serve", "--tcp", "0.0.0.0:8484")
    assert ended.code == 2
    assert not started
    assert "insecure" in ended.err
    assert not home.exists()


def test_the_unit_starts_the_daemon_with_the_same_settings(command: Cli, home: Path) -> None:
    home.mkdir()
    path = Path(command("service", "install", "--user", "--json").json["unit"])
    text = path.read_text()
    assert f'"ORCHESTRATOR_HOME={home}"' in text
    assert "orchestrator.app" in text
    assert command("service", "show").out == text
    assert command("service", "show", "--json").json == {"name": "orchestrator.service", "text": text}


def test_the_unit_has_every_word_as_it_is(command: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = tmp_path / 'a $HOME "b" 100%'
    monkeypatch.setenv("ORCHESTRATOR_HOME", str(odd))
    text = command("service", "show").out
    told = str(odd).replace('"', '\\"').replace("%", "%%")
    assert f'"ORCHESTRATOR_HOME={told}"' in text, "a dollar is no variable there"


def test_logs_are_of_the_rotated_files_too(command: Cli, home: Path) -> None:
    (home / "logs").mkdir(parents=True)
    for suffix, lines in (("", "five\nsix r1\n"), (".1", "three r1\nfour\n"), (".2", "one\ntwo r1\n")):
        (home / "logs" / f"daemon.log{suffix}").write_text(lines)
    assert command("logs", "-n", "3").out.split() == ["four", "five", "six", "r1"]
    assert command("logs", "--run", "r1", "--json").json["lines"] == ["two r1", "three r1", "six r1"]
    (home / "logs" / "daemon.log").unlink()
    assert command("logs").code == 2


def test_the_configuration_is_shown(command: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCHESTRATOR_RUNS_MAX_RUNNING", "3")
    assert "max_running = 3" in command("config", "show").out
    assert command("config", "show", "--json").json["runs"]["max_running"] == 3
    monkeypatch.setenv("ORCHESTRATOR_SERVER_TOKENS", "ann=/etc/ann.token, ben=/etc/ben.token")
    monkeypatch.setenv("ORCHESTRATOR_SERVER_CALLERS", "token:ann=read:own submit visitor, user:nobody-here=operator")
    shown = command("config", "show").out
    assert Configuration.model_validate(tomllib.loads(shown)) == load_configuration()
    for line in (
        f"#   {user_key():16}  read:own read:all submit operate approve own teach",
        "#   token             read:own read:all submit operate teach",
        "#   token:ann         read:own submit visitor",
        "#   token:ben         nothing",
        "#   user:nobody-here  read:own read:all submit operate teach",
        "#   routes    POST /v1/runs/{run}/ratings, POST /v1/chats/{chat}/ratings",
        "#   commands  restore, vacuum",
    ):
        assert line in shown.splitlines()
    permissions = command("config", "show", "--json").json["permissions"]
    assert permissions["callers"]["token:ann"] == ["read:own", "submit", "visitor"]
    assert permissions["needs"]["own"]["commands"] == ["restore", "vacuum"]
    monkeypatch.setenv("ORCHESTRATOR_RUNS_MAX_RUNNING", "none")
    assert command("config", "show").code == 2


def test_the_command_line_loads_nothing_that_only_the_daemon_needs(tmp_path: Path) -> None:
    code = (
        "import sys; from tools.reference.commands import page; "
        "page(); print({'fastapi', 'uvicorn', 'starlette'} & set(sys.modules))"
    )
    done = subprocess.run([COMMAND[0], "-c", code], env=environment(tmp_path), capture_output=True, check=True)
    assert done.stdout.decode().strip() == "set()"


def test_mcp_over_stdio_needs_a_daemon(command: Cli) -> None:
    refused = command("mcp")
    assert (refused.code, "no daemon owns" in refused.err, refused.out) == (1, True, "")


def test_words_are_completed(tmp_path: Path) -> None:
    asked = environment(tmp_path, _ORCHESTRATOR_COMPLETE="complete_bash", COMP_WORDS="orchestrator sub", COMP_CWORD="1")
    done = subprocess.run([*COMMAND], env=asked, capture_output=True, check=False)
    assert done.stdout.decode().split() == ["submit"]


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("models load tiny-l", ["tiny-large"]),
        ("--registry no/such.yaml models pin ", []),
        ("models add x.gguf --role fr", ["frontdoor"]),
        ("models get smollm2-13", ["smollm2-135m"]),
        ("personas show ters", ["terse"]),
        ("procedures show rotate-t", ["rotate-token"]),
        ("init --model lin", ["link/", "linked.gguf"]),
        ("models try tiny-m", ["tiny-medium"]),
    ],
)
def test_names_are_completed(
    command: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, completed: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").mkdir()
    (tmp_path / "linked.gguf").touch()
    monkeypatch.setenv("_ORCHESTRATOR_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"orchestrator {words}")
    monkeypatch.setenv("COMP_CWORD", str(len(f"orchestrator {words}".split()) - (not words.endswith(" "))))
    assert command().out.split() == completed


def test_procedures_are_executed_by_the_daemon(served: Served) -> None:
    done = served.command("procedures", "run", "backup", "--json").json
    assert (done["state"], done["caller"].endswith(f"(user {os.getuid()})")) == ("done", True)
    assert done["outputs"]["name"] in [
        one["name"] for one in served.command("backup", "--list", "--json").json["backups"]
    ]
    told = served.command("procedures", "run", "verify-installation", "--yes")
    assert (told.code, "check: done" in told.err) == (0, True), told
    kept = served.command("procedures", "run", "rotate-token")
    assert "waits for an approval" in kept.out
    identity = kept.out.split("procedures approve ")[1].split()[0]
    assert served.command("procedures", "withdraw", identity).code == 0
    assert served.command("procedures", "approve", identity, "0" * 16).code == 1
    assert identity in served.command("procedures", "history").out
    assert served.command("procedures", "audit", "--verify", "--json").json["verified"] > 5
    assert served.command("procedures", "audit", "--begin-new").code == 1
    assert served.command("procedures", "recover").out == "nothing was interrupted\n"
    for words, told_as in ((("show", "back-up"), "backup?"), (("history", "nothing"), "no execution 'nothing'")):
        refused = served.command("procedures", *words)
        assert (refused.code, told_as in refused.err) == (2, True), refused


def test_a_request_to_maintain_the_installation_shows_its_plan_and_tells_how_to_approve_it(served: Served) -> None:
    told = served.command("run", "deprecate the model tiny-small")
    assert told.code == 0, told
    assert "residency: cold" in told.out
    identity, digest = told.out.rpartition("procedures approve ")[2].split()[:2]
    waiting = served.command("procedures", "history", identity, "--json").json
    assert (waiting["state"], waiting["plan"][:16], waiting["needs_approval"]) == ("planned", digest, True)


LOGINCTL = """#!/bin/sh
echo "$*" >> {log}
case $1 in
show-user) echo {answer}; exit {code};;
enable-linger) echo "Access denied" >&2; exit {denied};;
esac
"""
"""Answers as logind does, which no container has."""


@pytest.mark.parametrize(
    ("answer", "code", "lingers", "line"),
    [
        ("yes", 0, True, None),
        (
            "no",
            0,
            False,
            "it ends with the last login of this user, and starts with the next one; to keep it running: ",
        ),
        ("'Failed: User ID 7 is not logged in or lingering' >&2", 1, False, "it ends with the last login of this user"),
        ("'Failed to connect to bus' >&2", 1, None, "it may end with the last login of this user"),
    ],
)
def test_installing_says_whether_the_daemon_outlives_the_last_login(
    command: Cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    code: int,
    lingers: Any,
    line: str | None,
) -> None:
    log = put_loginctl(tmp_path, monkeypatch, answer=answer, code=code, denied=0)
    assert command("service", "install", "--user", "--json").json["lingers"] is lingers
    told = command("service", "install", "--user").out.splitlines()
    assert len(told) == (2 if line is None else 3)
    assert line is None or told[2].startswith(line)
    assert "loginctl enable-linger" in told[-1] or line is None
    assert set(log.read_text().splitlines()) == {f"show-user {getpass.getuser()} --property=Linger --value"}
    assert command("service", "install", "--user", "--linger", "--json").json["lingers"] is True
    assert log.read_text().splitlines()[-1] == "enable-linger"


def test_lingering_that_is_not_allowed_is_an_error(
    command: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_loginctl(tmp_path, monkeypatch, answer="no", code=0, denied=1)
    refused = command("service", "install", "--user", "--linger")
    assert refused.code == 2
    assert "lingering is not enabled: Access denied; accepted: `loginctl enable-linger USER` by root" in refused.err


def put_loginctl(folder: Path, monkeypatch: pytest.MonkeyPatch, **answers: Any) -> Path:
    """Put a `loginctl` with these answers before any other, and return the file in which it notes its arguments."""
    program, log = folder / "bin" / "loginctl", folder / "calls"
    program.parent.mkdir()
    program.write_text(LOGINCTL.format(log=log, **answers))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return log
