"""What a chat is asked and what counts as its files; how answers are kept, judged again, and counted."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.daemon.process import BenchmarkFailed
from benchmarks.jobs.__main__ import main
from benchmarks.jobs.arms import Arm, ModelSetup
from benchmarks.jobs.chat_files import files_in, question_of
from benchmarks.jobs.job import BenchJob, Group
from benchmarks.jobs.measure import (
    ARMS,
    JOBS,
    EarlierVersion,
    JobBench,
    JudgedRun,
    choose,
    goals_of,
    goals_with_intervals,
    table,
)

NAMES = ("a.py", "docs/b.md")


@pytest.mark.parametrize(
    "text",
    [
        "a.py:\n```python\nx = 1\n```\nand docs/b.md\n~~~\n# B\n~~~",
        "### `a.py`\n\n```\nx = 1\n```\n\n**docs/b.md**\n```md\n# B\n```\nThat is all.",
        "```python title=a.py\nx = 1\n```\n```md:docs/b.md\n# B\n```",
        "```python\n# a.py\nx = 1\n```\n```\n<!-- docs/b.md -->\n# B\n```",
        "```\n# a.py\nx = 1\n\n---\n\n# docs/b.md\n# B\n```",
        "Here they are.\n\n**a.py**:\nx = 1\n\n`docs/b.md`\n\n# B\n",
        "First a.py, then docs/b.md. This is a.py:\n```\nx = 1\n```\ndocs/b.md\n```\n# B",
    ],
)
def test_files_of_a_chat_are_known_by_their_names(text: str) -> None:
    files = {name: content.strip() for name, content in files_in(text, NAMES).items()}
    assert files == {"a.py": "x = 1", "docs/b.md": "# B"}


def test_one_wanted_file_needs_no_name() -> None:
    assert files_in("Sure:\n```\nx = 1\n```\n", ["a.py"]) == {"a.py": "x = 1\n"}
    assert files_in("a.py\n\nx = 1", ["a.py"]) == {"a.py": "x = 1"}
    assert files_in("x = 1\n", ["a.py"]) == {"a.py": "x = 1\n"}
    assert files_in("", ["a.py"]) == {}
    assert files_in("```\nx = 1\n```", NAMES) == {}
    assert files_in("```\nx = 1\n```", []) == {}


def test_a_chat_sees_the_files_then_the_request() -> None:
    job = BenchJob("j", "code", "Fix a.py.", lambda answer: [], {"a.py": "x = 1\n"}, ("a.py",))
    question = question_of(job)
    assert question.startswith("a.py:\n```\nx = 1\n```\n\nFix a.py.\n\nWrite each file")
    assert question_of(BenchJob("j", "one-call", "Say hello.", lambda answer: [])) == "Say hello."


def _run(
    job: str,
    arm: Arm,
    *faults: str,
    group: Group = "one-call",
    model: str = "1.5b",
    seconds: float | None = 10.0,
    status: str = "done",
    exit_code: int = 0,
    doubt: str = "",
) -> JudgedRun:
    costs = (seconds, 100, 10)
    return JudgedRun(model, arm, job, group, False, 0, faults, "a processor", *costs, status, exit_code, doubt, "", {})


def test_goals_compare_the_arms_of_the_same_jobs() -> None:
    runs = [
        _run("a", "chat", "bad"),
        _run("a", "orchestrator", seconds=12),
        _run("b", "chat"),
        _run("b", "orchestrator", "bad", seconds=9),
        _run("p", "chat", group="parts"),
        _run("p", "orchestrator", group="parts", seconds=6),
        _run("q", "chat", "bad", group="parts", seconds=1),
        _run("q", "orchestrator", group="parts", seconds=50),
        _run("c", "chat", "bad", group="code"),
        _run("c", "orchestrator", "bad", group="code", doubt="it has no test"),
        _run("c", "chat", "bad", group="code", model="ladder", seconds=20),
        _run("c", "orchestrator", group="code", model="ladder", seconds=22),
    ]
    values = {goal.name: (goal.value, goal.met) for goal in goals_of(runs)}
    assert values == {
        "points more right than one chat, 1.5b, all jobs": (20.0, True),
        "points more right than one chat, 1.5b, one-call": (0.0, True),
        "points more right than one chat, 1.5b, parts": (50.0, True),
        "points more right than one chat, 1.5b, code": (0.0, True),
        "points more right, code, ladder against one chat": (100.0, True),
        "times as long, code, ladder against one chat": (1.1, False),
        "times as long as one chat, 1.5b, parts, both right": (0.6, True),
        "times as long as one chat, 1.5b, one-call": (1.05, True),
    }


def test_a_refused_request_takes_no_time_that_could_be_compared() -> None:
    runs = [_run(job, arm, group="code", model="ladder") for job in "ab" for arm in ("chat", "orchestrator")]
    refused = _run("r", "orchestrator", "it failed", group="code", model="ladder", seconds=0.1, exit_code=3)
    chat = _run("r", "chat", group="code", model="ladder")
    goals = {goal.name: goal.value for goal in goals_of([*runs, refused, chat])}
    assert goals["times as long, code, ladder against one chat"] == 1.0
    assert goals["points more right, code, ladder against one chat"] == -33.3333


def test_times_on_different_processors_are_not_compared() -> None:
    chat = _run("a", "chat")
    slower = replace(_run("a", "orchestrator", seconds=40), processor="another processor")
    assert not any("times as long" in goal.name for goal in goals_of([chat, slower]))
    again = [replace(chat, round=1), replace(_run("a", "orchestrator", seconds=9), round=1)]
    goals = {goal.name: goal.value for goal in goals_of([chat, slower, *again])}
    assert goals["times as long as one chat, 1.5b, one-call"] == 0.9


@given(st.dictionaries(st.sampled_from("abcdef"), st.lists(st.booleans(), min_size=1, max_size=4), min_size=1))
def test_each_job_counts_once_however_many_rounds_it_has(rounds: dict[str, list[bool]]) -> None:
    runs = [
        replace(_run(job, "orchestrator", *([] if right else ["bad"])), round=number)
        for job, answers in rounds.items()
        for number, right in enumerate(answers)
    ]
    chats = [_run(job, "chat", "bad") for job in rounds]
    points = {goal.name: goal.value for goal in goals_of([*runs, *chats])}
    shares = [100 * sum(answers) / len(answers) for answers in rounds.values()]
    assert points["points more right than one chat, 1.5b, all jobs"] == pytest.approx(
        sum(shares) / len(shares), abs=1e-4
    )


def test_intervals_of_goals_come_from_drawing_the_jobs_again() -> None:
    sure = [_run(name, arm, seconds=5 if arm == "chat" else 4) for name in "abcd" for arm in ("chat", "orchestrator")]
    (same, *_) = goals_with_intervals(sure)
    assert (same["value"], same["interval"], same["met"]) == (0.0, [0.0, 0.0], False)
    unsure = [*sure, _run("e", "chat", "bad"), _run("e", "orchestrator")]
    (more, *_) = goals_with_intervals([*unsure, *unsure])
    assert (more["value"], more["interval"]) == (20.0, [0.0, 60.0])
    assert more["met"], "the better end of the interval reaches the goal of 10 points"
    assert goals_with_intervals(unsure) == goals_with_intervals(unsure)


def test_times_of_parts_are_compared_although_no_job_is_right_by_both() -> None:
    runs = [_run("p", "chat", "bad", group="parts"), _run("p", "orchestrator", group="parts", seconds=5)]
    goals = {goal.name: goal.value for goal in goals_of(runs)}
    assert goals["times as long as one chat, 1.5b, parts, no job right by both"] == 0.5


def test_false_done_is_wrong_without_any_sign_of_it() -> None:
    wrong = [
        _run("a", "orchestrator", "bad"),
        _run("b", "orchestrator", "bad", doubt="too short"),
        _run("c", "orchestrator", "it failed", status="failed"),
        _run("d", "orchestrator"),
    ]
    assert [run.false_done for run in wrong] == [True, False, False, False]
    before = EarlierVersion("tuning", table([_run(name, "orchestrator", "bad") for name in "abcd"]))
    new = replace(_run("e", "orchestrator", "bad"), held_out=True)  # was not measured before
    values = {goal.name: goal.value for goal in goals_of([*wrong, new], before) if "false" in goal.name}
    assert values == {
        "share of false done as a multiple of before, 1.5b, tuning jobs": 0.25,
        "share of false done as a multiple of before, 1.5b, held-out jobs, before's of tuning jobs": 1.0,
    }
    (row,) = (row for row in table(wrong) if row["group"] == "all")
    assert (row["right"], row["of"], row["doubted"], row["failed"], row["false_done"]) == (1, 4, 1, 1, 1)


def test_halves_are_counted_apart() -> None:
    tuned = [_run("a", "chat", "bad"), _run("a", "orchestrator")]
    held_out = [replace(run, job="b", held_out=True) for run in (_run("b", "chat"), _run("b", "orchestrator", "bad"))]
    counts = {(row["half"], row["arm"]): row["right"] for row in table([*tuned, *held_out]) if row["group"] == "all"}
    assert counts == {
        ("tuning", "chat"): 0,
        ("tuning", "orchestrator"): 1,
        ("held-out", "chat"): 1,
        ("held-out", "orchestrator"): 0,
    }
    goals = {goal.name: goal.value for goal in goals_of([*tuned, *held_out])}
    assert goals["points more right than one chat, 1.5b, all jobs"] == 100
    assert goals["points more right than one chat, 1.5b, all jobs, held out"] == -100


def test_published_runs_are_of_the_half_that_their_job_is_in_now(tmp_path: Path) -> None:
    job = JOBS[0]
    published = replace(_run(job.name, "chat"), held_out=not job.held_out)
    (judged,) = JobBench(tmp_path, [job], ["chat"], published=[published]).judged(["1.5b"], 1)
    assert judged == replace(published, held_out=job.held_out)


def test_halves_and_names_choose_jobs() -> None:
    assert {job.held_out for job in choose("tuning")} == {False}
    assert {job.held_out for job in choose("held-out")} == {True}
    assert choose("all") == [*JOBS]
    assert {job.group for job in choose("all", ["code"])} == {"code"}
    assert [job.name for job in choose("tuning", ["slugify"])] == ["slugify"]
    with pytest.raises(KeyError):
        choose("tuning", ["slug"])


def test_answers_in_the_log_are_judged_again_by_changed_checks(tmp_path: Path) -> None:
    job = BenchJob(
        "greet", "one-call", "Say hello.", lambda answer: [] if answer.text == "Hello" else ["it is no greeting"]
    )
    seen: list[str] = []
    bench = JobBench(tmp_path, [job], ["chat"], seen.append)
    assert [*bench.judged(["m"], 1)] == []
    _write_row(bench, job)
    (run,) = bench.judged(["m"], 2)
    assert run.right
    assert run.seconds == 2.0
    stricter = BenchJob(job.name, job.group, job.request, lambda answer: ["no name"])
    (again,) = JobBench(tmp_path, [stricter], ["chat"]).judged(["m"], 1)
    assert again.faults == ("no name",)
    other = BenchJob(job.name, job.group, "Say hello to Ida.", job.check)
    assert [*JobBench(tmp_path, [other], ["chat"]).judged(["m"], 1)] == []


def _write_row(bench: JobBench, job: BenchJob) -> None:
    row = {
        "text": "Hello",
        "files": {},
        "processor": "a processor",
        "seconds": 2.0,
        "input_tokens": 3,
        "output_tokens": 1,
        "status": "done",
    }
    row |= {"exit_code": 0, "doubt": "", "error": "", "plan": {}}
    bench.row("m", "chat", job, 0, lambda: row)


def test_published_rows_are_completed_and_not_measured_again(tmp_path: Path) -> None:
    job = BenchJob("greet", "one-call", "Say hello.", lambda answer: ["it is always wrong"])
    published = JudgedRun.from_json(replace(_run("greet", "chat", model="m"), seconds=None).to_json())
    bench = JobBench(tmp_path, [job], ["chat"], published=[published])
    bench.run(ModelSetup("m", ("--model", "there-is-no-such-model")), 1)  # would fail if it started a daemon
    assert [*bench.judged(["m"], 1)] == [published]
    (row, *_) = table([published])
    assert (row["right"], row["seconds"]) == (1, None)
    timed = [_run("a", "chat"), _run("a", "orchestrator", seconds=None)]
    assert not [goal for goal in goals_of(timed) if "times as long" in goal.name]


@pytest.mark.slow
def test_models_that_cannot_start_end_a_round(tmp_path: Path) -> None:
    jobs = [BenchJob(name, "one-call", "Say hello.", lambda answer: []) for name in "abcd"]
    bench = JobBench(tmp_path, jobs, ["chat"], at_once=2)
    with pytest.raises(BenchmarkFailed, match="there-is-no-such-model"):
        bench.run(ModelSetup("m", ("--model", "there-is-no-such-model")), 1)
    assert [*bench.judged(["m"], 1)] == []


@pytest.mark.slow
def test_a_job_is_done_by_a_chat_and_by_a_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--model", "smollm2", "--jobs", "kind-of-ticket", "--rounds", "1", "--folder", str(tmp_path)]
    out = tmp_path / "out.json"
    main([*options, "--out", str(out)])
    rows = {row["arm"]: row for row in json.loads(out.read_text())["rows"]}
    assert {"chat", "orchestrator"} <= rows.keys() <= {*ARMS}
    assert all(row["output_tokens"] > 0 and row["seconds"] > 0 for row in rows.values())
    assert rows["chat"]["plan"] is None
    first = capsys.readouterr().out
    assert "kind-of-ticket orchestrator: " in first
    main(options)
    assert "kind-of-ticket orchestrator: " not in capsys.readouterr().out  # nothing is done twice


def test_an_unknown_job_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--jobs", "nothing"]) == 2
    assert "nothing" in capsys.readouterr().err
