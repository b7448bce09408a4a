"""Both examples, run through the command line by the embedded models, and what can be asked about them afterwards."""

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest

from tests.orchestrator.cli.cli_command import FANOUT, RECORDS, REQUEST, Cli, Finished

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
KEYS = {
    "run_id",
    "status",
    "mode",
    "answer",
    "error",
    "plan_origin",
    "steps",
    "waves",
    "width",
    "critical_path",
    "artifacts",
}
STEP_KEYS = {
    "id",
    "role",
    "persona",
    "state",
    "depends_on",
    "slack",
    "started",
    "finished",
    "prompt_tokens",
    "output_tokens",
    "attempts",
}
SUMMARIES = (
    "Zilthir: owner Renzer, length 214, speed 38.",
    "Koldin: owner Hillem, length 187, speed 52.",
    "Haklon: owner Votre, length 405, speed 27.",
    "Tromco: owner Lasum, length 96, speed 61.",
)


def test_the_request_is_planned_run_and_answered(finished: Finished) -> None:
    assert finished.request.code == 0, finished.request
    told = finished.request.json
    assert told.keys() >= KEYS
    assert (told["status"], told["plan_origin"], told["error"]) == ("done", "planned", None)
    assert all(step.keys() >= STEP_KEYS for step in told["steps"])
    assert [step["depends_on"] for step in told["steps"]] == [[], [], [], [], ["S1", "S2", "S3", "S4"]]
    assert told["waves"] == [["S1", "S2", "S3", "S4"], ["S5"]]
    assert told["width"] == 4
    values = "Zilthir 214, Koldin 187 (new low), Haklon 405 (new high), Tromco 96 (new low)"
    texts = [*SUMMARIES, f"length: {values}; highest Haklon, lowest Tromco."]
    wanted = [f"[s{number}.txt]\n{text}" for number, text in enumerate(texts, start=1)]
    assert told["answer"].strip() == "\n\n".join(wanted), "the summaries were asked for too"
    assert told["doubt"] == ""


def test_the_figures_agree_with_the_steps(finished: Finished) -> None:
    told = finished.request.json
    path, steps = told["critical_path"], told["steps"]
    seconds = {step["id"]: step["finished"] - step["started"] for step in steps}
    assert 0 < path["work_seconds"] < sum(seconds.values()), "the summaries share the engine's steps"
    assert path["steps"][-1] == "S5"
    assert path["seconds"] == pytest.approx(max(seconds[step] for step in ("S1", "S2", "S3", "S4")) + seconds["S5"])
    assert path["bound"] == pytest.approx(path["serial_seconds"] / path["best_seconds"])
    assert path["serial_seconds"] > path["best_seconds"] > 0
    assert path["best_seconds"] <= told["wall_seconds"]
    assert path["critical_steps"] >= 3, "the plan, a summary, the comparison"
    started = {step["id"]: step["started"] for step in steps}
    assert started["S5"] >= max(step["finished"] for step in steps[:4])
    assert "speedup" not in told


def test_artifacts_are_shown_and_results_are_exported(finished: Finished) -> None:
    told = finished.request.json
    shown = {name: finished.command("show", told["run_id"], "--artifact", name).out for name in told["artifacts"]}
    assert [shown[f"s{number}.txt"].strip() for number in range(1, 5)] == [*SUMMARIES]
    results = [result["name"] for result in told["results"]]
    assert "s5.txt" in results
    assert {path.name: path.read_text() for path in finished.out.iterdir()} == {name: shown[name] for name in results}


def test_a_trace_file_has_the_steps_of_a_run(finished: Finished, tmp_path: Path) -> None:
    run, file = finished.command("runs", "--json").json["runs"][0]["run_id"], tmp_path / "run.json"
    written = finished.command("export", "last", "--trace", file, "--json").json
    assert written == {"run_id": run, "status": "done", "trace": str(file)}
    events = json.loads(file.read_text())["traceEvents"]
    rows = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert {"run", "critical path", "step S1", "step S2", "step S2[3]"} <= rows
    assert {"attempt", "generation", "prompt", "decode"} <= {event.get("cat") for event in events}
    line = finished.command("export", "last", "--trace", file).out
    assert line == f"{file}  open it in https://ui.perfetto.dev or chrome://tracing\n"


def test_a_run_is_exported_into_a_folder_or_one_file(finished: Finished, tmp_path: Path) -> None:
    for arguments, problem in (
        ((), "none of DIR, --trace and --html is given"),
        ((tmp_path / "out", "--trace", tmp_path / "run.json"), "DIR and --trace are given"),
        (("--trace", tmp_path / "run.json", "--html", tmp_path / "run.html"), "--trace and --html are given"),
        (("--trace", tmp_path / "missing" / "run.json"), "cannot be written: No such file or directory"),
        (("--html", tmp_path / "missing" / "run.html"), "cannot be written: No such file or directory"),
    ):
        refused = finished.command("export", "last", *arguments)
        assert refused.code == 2
        assert problem in refused.err
    assert not [*tmp_path.iterdir()]


def test_the_report_of_the_fan_out_reads_well_in_a_pipe(finished: Finished) -> None:
    result = finished.fanout
    assert result.code == 0, result
    assert not CONTROL.search(result.out)
    assert not CONTROL.search(result.err)
    assert max(map(len, result.out.splitlines())) <= 80 or "Answer" in result.out
    for item in range(4):
        assert f"S2[{item}]" in result.out
    for heading in ("Steps", "Answer", "Timeline", "Figures"):
        assert f"── {heading} ─" in result.out
    assert "def hepok(price, stock):\n    return price * stock" in result.out
    assert "python hepok.py" in result.out
    for name in ("Kapet", "Tholcon", "Lerak", "Dregun"):
        assert name in result.out
    progress = result.err.splitlines()
    assert progress[-1].endswith("s  run done")
    assert any(line.endswith("S2 expanded into 4 items") for line in progress)


def test_runs_can_be_listed_shown_and_explained_later(finished: Finished) -> None:
    command = finished.command
    rows = command("runs", "--json").json["runs"]
    assert [(row["status"], row["mode"]) for row in rows] == [("done", "as-planned")] * 2
    assert rows[1]["request"] == REQUEST
    listed = command("runs", "--limit", 1).out
    assert rows[0]["run_id"] in listed
    assert rows[1]["run_id"] not in listed
    assert command("show", rows[1]["run_id"], "--json").json == finished.request.json
    assert command("show", "last").out == finished.fanout.out
    told = command("explain", rows[1]["run_id"], "S5", "--json").json
    assert {edge["before"] for edge in told["waited_for"]} == {"S1", "S2", "S3", "S4"}
    assert told["last_dependency"] in {"S1", "S2", "S3", "S4"}
    explained = command("explain", "last", "S2[1]").out
    assert "role worker: the step's actor" in explained
    assert "S1: data names" in explained
    assert "STEP: is missing; accepted: S1, S2" in command("explain", "last").err
    child = command("explain", "last", "S9")
    assert child.code == 2
    assert "accepted: S1, S2[0]" in child.err


def test_a_plan_is_a_task_that_runs(finished: Finished, tmp_path: Path) -> None:
    made = finished.command("plan", REQUEST, "--dir", RECORDS)
    assert made.code == 0
    file = tmp_path / "plan.json"
    file.write_text(made.out)
    assert [step["action"] for step in json.loads(made.out)["plan"]["steps"]][:2] == [
        "Summarize a.txt.",
        "Summarize b.txt.",
    ]
    told = finished.command("run", file, "--dir", RECORDS, "--json").json
    assert (told["plan_origin"], told["answer"]) == ("taskir", finished.request.json["answer"])


def test_a_dry_run_of_a_request_shows_the_plan(finished: Finished) -> None:
    before = finished.command("runs", "--json").json
    result = finished.command("run", REQUEST, "--dir", RECORDS, "--dry-run")
    assert result.code == 0
    assert "  2  S5\n" in result.out
    assert "\nDirect answer  " in result.out
    assert finished.command("runs", "--json").json == before


def test_a_request_with_nothing_to_split_is_answered_directly(finished: Finished) -> None:
    foretold = finished.command("run", "Summarize b.txt.", "--dir", RECORDS, "--dry-run")
    assert "dry run, nothing was run  direct  1 step\nthe request has nothing to split\n" in foretold.out
    told = finished.command("run", "Summarize b.txt.", "--dir", RECORDS)
    assert told.code == 0
    assert "answered directly: the request has nothing to split" in told.out
    explained = finished.command("explain", "last", "S1")
    assert finished.command("explain", "last").out == explained.out, "it has only one step"
    assert "Mode" in explained.out
    mode = " ".join(explained.out.split()).partition("Mode ")[2].partition(" Waited for")[0]
    assert mode.startswith("direct: the request has nothing to split; predicted: a direct answer ")
    assert "no data" not in mode, "the worker has done such steps here"


def test_a_prediction_without_data_is_marked(command: Cli) -> None:
    assert command("run", "Summarize b.txt.", "--dir", RECORDS).code == 0
    explained = " ".join(command("explain", "last").out.split())
    assert re.search(r"predicted: a direct answer [\d.]+ s \(assumed, no data\) Waited for", explained), explained


def test_any_request_is_answered_directly_where_the_user_wants_it(finished: Finished) -> None:
    told = finished.command("run", REQUEST, "--dir", RECORDS, "--direct", "--json").json
    assert (told["status"], told["mode"], told["plan_origin"]) == ("done", "direct", "direct")
    (only,) = told["steps"]
    assert only["action"] == REQUEST
    assert told["mode_choice"] is None


def test_a_task_that_builds_on_a_run_can_be_checked_and_predicted(finished: Finished, tmp_path: Path) -> None:
    earlier = finished.command("show", "last", "--json").json
    name = next(iter(earlier["artifacts"]))
    step = {"id": "S1", "actor": "worker", "action": "Go.", "inputs": [f"{earlier['run_id']}/{name}"], "outputs": ["o"]}
    task = tmp_path / "task.json"
    for known in (earlier["run_id"], "nobody"):
        told = {"objective": "Go on", "plan": {"steps": [step]}, "context": {"prior_task_ids": [known]}}
        task.write_text(json.dumps(told))
        checked = finished.command("validate", task)
        assert checked.code == finished.command("run", task, "--dry-run").code == (2 if known == "nobody" else 0)
    assert "there is no run 'nobody'" in checked.err


def test_a_speedup_comes_with_the_pair_it_was_measured_on(finished: Finished) -> None:
    told = finished.command("run", FANOUT, "--dir", RECORDS, "--compare-serial", "--json").json
    paired = told["paired"]
    assert told["speedup"] == pytest.approx(paired["serial_seconds"] / paired["seconds"])
    assert told["mode"] == "as-planned"
    serial = finished.command("show", paired["serial_run_id"], "--json").json
    assert serial["mode"] == "serial"
    spans = sorted((step["started"], step["finished"]) for step in serial["steps"] if not step["children"])
    assert all(later[0] >= earlier[1] for earlier, later in pairwise(spans))
    assert serial["answer"] == told["answer"]


def test_a_run_that_fails_exits_with_1_and_says_why(finished: Finished, tmp_path: Path) -> None:
    step = {"id": "S1", "actor": "worker", "action": "Summarize a.txt.", "inputs": ["a.txt"], "outputs": ["s1.txt"]}
    task = tmp_path / "task.json"
    task.write_text(json.dumps({"objective": "Too short", "plan": {"steps": [step | {"max_tokens": 1}]}}))
    told = finished.command("run", task, "--dir", RECORDS, "--json")
    assert told.code == 1
    assert told.json["status"] == "failed"
    assert told.json["steps"][0]["state"] == "failed"
    assert "cut off after 1 tokens" in told.json["error"]
    shown = finished.command("show", "last").out
    assert "── What went wrong ─" in shown
    assert "attempts 1 to 2" in shown


def test_a_doubtful_answer_is_marked_and_is_no_failure(home: Path, command: Cli) -> None:
    result = command("run", "Give me 12 tips about a.txt.", "--dir", RECORDS)
    assert result.code == 0, result
    assert re.search(r"^doubtful: You asked for 12 tips; the answer has at most \d+\.$", result.out, re.MULTILINE)
    assert "done, doubtful" in result.out
    assert "worker repairs the answer" in result.out
    assert re.search(r"done \?", command("runs").out)
    (row,) = command("runs", "--json").json["runs"]
    assert row["doubt"].startswith("You asked for 12 tips;")
    shown = command("result")
    assert shown.code == 0
    assert shown.err.strip() == f"doubtful: {row['doubt']}"
    assert "Doubtful" in command("explain", "last", "S1").out
