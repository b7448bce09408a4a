"""Bad input ends with code 2, one clear message and no traceback, as JSON too; and commands that need no model work."""

import json
import subprocess
from contextlib import redirect_stdout
from pathlib import Path

import jsonschema
import pytest

from tests.orchestrator.cli import cli_command
from tests.orchestrator.cli.cli_command import COMMAND, FANOUT, RECORDS, Cli, environment

STEP = {"id": "S1", "actor": "worker", "action": "Do it.", "outputs": ["a.txt"]}
TASK = {"objective": "Try it", "plan": {"steps": [STEP]}}
CYCLE = [STEP | {"inputs": ["b.txt"]}, STEP | {"id": "S2", "inputs": ["a.txt"], "outputs": ["b.txt"]}]


def _write(folder: Path, task: object) -> Path:
    file = folder / "task.json"
    file.write_text(json.dumps(task))
    return file


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["run"], "Missing argument"),
        (["run", ""], "the request: is empty"),
        (["run", "no/such.json"], "no/such.json: No such file or directory"),
        (["run", "x", "--mode", "sideways"], "'sideways' is not one of 'as-planned', 'discover', 'serial'"),
        (["run", "x", "--dir", "no/such/folder"], "--dir no/such/folder: does not exist"),
        (["run", "x", "--out", "/dev/null"], "--out /dev/null: cannot be created"),
        (["run", "x", "--no-such-option"], "No such option"),
        (["no-such-command"], "No such command"),
        (["show", "no-such-run"], "there are no runs in"),
        (["explain", "no-such-run", "S1"], "there are no runs in"),
        (["resume", "no-such-run"], "there are no runs in"),
        (["plan", str(FANOUT)], "is a TaskIR document"),
        (["--registry", "no/such.yaml", "models"], "no/such.yaml"),
    ],
)
def test_bad_input_is_reported_with_code_2(command: Cli, arguments: list[str], told: str) -> None:
    plain = command(*arguments)
    assert (plain.code, plain.out) == (2, "")
    assert plain.err.startswith("error: ")
    assert told in plain.err
    assert "Traceback" not in plain.err
    as_json = command(*arguments, "--json")
    assert as_json.code == 2
    assert told in as_json.json["error"] or "No such option" in as_json.json["error"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["run", "x\udcffy"], "request: is no Unicode; accepted: text in UTF-8"),
        (["plan", "x\udcffy"], 'request: is "x?y"'),
        (["personas", "add", "poet", "--text", "x\udcffy"], "persona.text: holds the character U+DCFF"),
        (["memory", "ask", "x\udcffy"], 'cypher: is "x?y"'),
    ],
)
def test_bytes_that_are_no_text_are_reported_in_words(command: Cli, arguments: list[str], told: str) -> None:
    refused = command(*arguments)
    assert refused.code == 2
    assert refused.err.startswith(f"error: {told}")


@pytest.mark.parametrize(
    ("task", "where", "told"),
    [
        (TASK | {"objektive": "x"}, "/objektive", "unknown field"),
        (TASK | {"plan": {"steps": [STEP | {"actor": "wizard"}]}}, "/plan/steps/0/actor", 'unknown role "wizard"'),
        (TASK | {"plan": {"steps": [STEP | {"persona": "pirate"}]}}, "/plan/steps/0/persona", "unknown persona"),
        (TASK | {"plan": {"steps": [STEP | {"inputs": ["b.txt"]}]}}, "/plan/steps/0/inputs/0", "b.txt"),
        (TASK | {"plan": {"steps": CYCLE}}, "/plan/steps/0", "S1 → S2 → S1"),
        (TASK | {"inputs": [{"type": "url", "value": "http://x"}]}, "/inputs/0/type", "unknown type of input"),
        (TASK | {"inputs": [{"type": "path", "value": "a.txt"}]}, "/inputs/0/value", "no folder was given"),
    ],
)
def test_what_is_wrong_with_a_task_is_reported_by_pointer(
    command: Cli, home: Path, tmp_path: Path, task: object, where: str, told: str
) -> None:
    file = _write(tmp_path, task)
    for words in (["validate", file], ["run", file], ["run", file, "--dry-run"]):
        result = command(*words, "--json")
        assert result.code == 2
        problems = result.json["problems"]
        assert any(where in problem["where"] and told in problem["what"] for problem in problems), problems
    assert not home.exists(), "a task that cannot be run loads no model, and leaves nothing behind"


def test_a_valid_task_is_reported_from_a_file_and_from_stdin(command: Cli, tmp_path: Path) -> None:
    file = _write(tmp_path, TASK)
    plain = command("validate", file)
    assert (plain.code, plain.out, plain.err) == (0, "✓ valid: 1 step in 1 wave, width 1\n", "")
    told = command("validate", "-", "--json", stdin=file.read_text()).json
    assert told == {
        "valid": True,
        "steps": 1,
        "waves": [["S1"]],
        "width": 1,
        "gates": {"S1": {}},
        "warnings": [],
    }
    assert command("validate", FANOUT, "--dir", RECORDS).code == 0


def test_gates_of_a_list_are_predicted_as_they_look_at_each_of_its_items(command: Cli, tmp_path: Path) -> None:
    listed = STEP | {"outputs": ["names.json"]}
    told = STEP | {"id": "S2", "foreach": "names.json", "outputs": ["told.json", "all.py"]}
    file = _write(tmp_path, TASK | {"gates": ["schema", "build"], "plan": {"steps": [listed, told]}})
    gates = command("validate", file, "--json").json["gates"]
    assert gates["S1"] == {"schema": None, "build": "no output is Python, and the task has no commands.build"}
    assert gates["S2"] == {"schema": "neither an output_schema nor an output that ends in .json", "build": None}


def test_the_published_schema_accepts_the_example(command: Cli) -> None:
    schema = command("schema").json
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads(FANOUT.read_text()), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(TASK | {"objektive": 1}, schema)


def test_a_dry_run_of_a_task_foretells_and_runs_nothing(command: Cli, home: Path, tmp_path: Path) -> None:
    told = command("run", FANOUT, "--dir", RECORDS, "--dry-run", "--json").json
    assert told["critical_path"]["steps"] == ["S1", "S2", "S3"]
    assert told["waves"] == [["S1", "S4", "S5"], ["S2"], ["S3"]]
    assert 0 < told["memory_bytes"] == sum(told["bytes_to_load"].values()), "nothing is loaded"
    assert (told["dry_run"], told["direct_seconds"]) == (True, None)
    ordered = [STEP, STEP | {"id": "S2", "depends_on": ["S1"], "outputs": ["b.txt"]}]
    file = _write(tmp_path, TASK | {"plan": {"steps": ordered}})
    assert "S1 → S2  order only\n" in command("run", file, "--dry-run").out
    plain = command("run", file, "--dry-run", "--mode", "discover")
    assert "S1 → S2  order only, dropped" in plain.out
    assert "  1  S1, S2\n" in plain.out
    assert not home.exists()


def test_a_direct_answer_is_for_requests_in_words(command: Cli, home: Path, tmp_path: Path) -> None:
    for words in (("--direct",), ("--mode", "direct"), ("--direct", "--dry-run")):
        refused = command("run", _write(tmp_path, TASK), *words)
        assert refused.code == 2
        told = (
            "mode: direct is for requests in words, and a document has its plan; accepted: as-planned, discover, serial"
        )
        assert told in refused.err
    both = command("run", "Say hello", "--direct", "--mode", "serial")
    assert (both.code, "--direct: --mode is serial; accepted: one of the two" in both.err) == (2, True)
    paired = command("run", "Say hello", "--direct", "--compare-serial")
    assert (paired.code, "a direct answer is one step" in paired.err) == (2, True)
    assert not home.exists()


def test_help_and_versions(command: Cli) -> None:
    help_text = command().out
    assert help_text == command("--help").out
    for name in ("run", "plan", "validate", "schema", "models", "runs", "show", "explain", "resume", "doctor"):
        assert f"\n  {name} " in help_text
    assert command("version", "--json").json["llama-cpp-python"]
    assert command("--version").out == command("version").out


def test_there_are_no_runs_at_first(command: Cli, home: Path) -> None:
    assert command("runs", "--json").json == {"runs": []}
    assert command("runs").out == "There are no runs yet.\n"
    assert not home.exists(), "reading leaves nothing behind"


def test_a_file_in_the_place_of_the_state_folder_is_reported(command: Cli, home: Path) -> None:
    home.write_text("no folder")
    for name in ("runs", "show"):
        refused = command(name)
        assert (refused.code, refused.err) == (1, f"error: {home}: is not a folder, so it cannot be the state folder\n")


def test_a_group_without_a_command_prints_its_help(command: Cli) -> None:
    shown = command("memory")
    assert (shown.code, shown.err.startswith("Usage: orchestrator memory")) == (2, True)


def test_a_log_without_a_line_about_the_run_says_so(command: Cli, home: Path) -> None:
    (home / "logs").mkdir(parents=True)
    log = home / "logs" / "daemon.log"
    log.write_text('{"event": "a run begins", "run": "R"}\n')
    assert command("logs", "--run", "R").out == log.read_text()
    refused = command("logs", "--run", "S")
    assert (refused.code, "--run: no line of" in refused.err) == (2, True)


def test_what_is_accepted_is_said_once(command: Cli, tmp_path: Path) -> None:
    file = _write(tmp_path, TASK | {"inputs": [{"type": "path", "value": "../a"}]})
    refused = command("validate", file, "--dir", tmp_path)
    assert (refused.code, refused.err.count("accepted: ")) == (2, 1)


def test_a_registry_with_a_mistake_is_reported_by_line(command: Cli, tmp_path: Path) -> None:
    registry = tmp_path / "registry.yaml"
    registry.write_text("models:\n  a:\n    fil: a.gguf\nroles: {}\n")
    result = command("--registry", registry, "models")
    assert result.code == 2
    assert f"error: {registry}:3: models.a.fil" in result.err
    assert command("--registry", registry, "doctor").code == 1


def test_a_reader_that_goes_away_ends_nothing_badly(home: Path) -> None:
    command = f"{' '.join(COMMAND)} schema | head -c 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, env=environment(home), timeout=100, check=False, text=True
    )
    assert (done.stdout, done.stderr) == ("{0\n", "")


NO_SPACE = "error: No space left on device\n"


def test_output_that_cannot_be_written_is_reported_in_one_line(home: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND, "version"], stdout=full, stderr=subprocess.PIPE, env=environment(home), check=False, text=True
        )
    assert (done.returncode, done.stderr) == (1, NO_SPACE)


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("version", "--json"), 1, NO_SPACE),
        (("run", "", "--json"), 2, "error: the request: is empty; accepted: a request in plain language"),
    ],
)
def test_json_that_cannot_be_written_is_an_error_in_one_line(
    command: Cli, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], code: int, told: str
) -> None:
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(cli_command, "redirect_stdout", lambda _: redirect_stdout(full))
        done = command(*words)
    assert done.code == code
    assert done.err.startswith(told)
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_an_encoding_without_our_characters_is_no_obstacle(command: Cli, encoding: str) -> None:
    result = command("run", FANOUT, "--dir", RECORDS, "--dry-run", encoding=encoding)
    assert (result.code, result.err) == (0, "")
    assert result.out.isascii()
    assert "S1 -> S2  data" in result.out


def test_request_that_needs_a_missing_file_ends_with_code_3(command: Cli) -> None:
    missing = "aa.txt is not among the files of the request (perhaps a.txt is meant)"
    result = command("run", "Summarize aa.txt", "--dir", RECORDS, "--json")
    assert (result.code, result.json["status"], result.json["missing"]) == (3, "failed", [missing])
    shown = command("show", "last")
    assert f"missing: {missing}" in " ".join(shown.out.split())
    assert command("result").code == 3
    assert f"has no steps: {missing}; accepted: a run that has steps" in command("explain", "last").err
    dry = command("run", "Summarize aa.txt", "--dir", RECORDS, "--dry-run")
    assert (dry.code, dry.err) == (3, f"error: request: {missing}\n")


@pytest.mark.parametrize("options", [[], ["--direct"], ["--mode", "as-planned"]])
def test_order_for_a_tool_that_nobody_has_ends_with_code_3(command: Cli, options: list[str]) -> None:
    result = command("run", "Book me a flight to Lisbon", *options, "--json")
    assert (result.code, result.json["status"], result.json["steps"]) == (3, "failed", [])
    (missing,) = result.json["missing"]
    assert missing.startswith("the request needs a tool that books or reserves, and there is none")
