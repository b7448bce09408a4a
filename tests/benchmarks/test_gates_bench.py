import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path

import pytest

from benchmarks.gates.measure import DEADLINE_FACTOR, BenchPlan, deadline_of, rows_of, run_setup
from benchmarks.gates.recoveries import code_retry_then_escalation, find, format_retry, frequencies, timeout_escalation
from benchmarks.gates.rows import ResultLog, TaskResult
from benchmarks.gates.setups import FIRST, SETUPS
from benchmarks.gates.tasks import SHARES, BenchTask, correct_answer, make_tasks
from orchestrator.run.gates.planned import gates_for_step
from orchestrator.run.gates.tests import PytestReport, PytestRun
from orchestrator.run.record.view import AttemptRow
from orchestrator.run.sandbox.contract import JobOutcome
from orchestrator.task.events import GateResult, Usage


def attempts(*moves: tuple[str, str]) -> tuple[AttemptRow, ...]:
    """Return attempts of (role, outcome)."""
    usage = Usage(prompt_tokens=10, output_tokens=5, decode_seconds=0.5)
    gates = (GateResult("unit", "passed", seconds=2.0),)
    return tuple(
        AttemptRow(number, role, None, "m", 0.0, "", 1.0, outcome, usage=usage, gates=gates)
        for number, (role, outcome) in enumerate(moves, start=1)
    )


def result(outcome: str, *moves: tuple[str, str], family: str = "code", document: str = "d1") -> TaskResult:
    return TaskResult(f"{family}/1", family, document, "r1", outcome, 3.0, attempts(*moves))


def test_tasks_are_the_same_each_time_and_as_many_as_asked_for() -> None:
    tasks = make_tasks(200)
    assert Counter(task.family for task in tasks) == SHARES
    assert len({task.name for task in tasks}) == 200
    again = {task.name: task for task in make_tasks(40)}
    assert all(again[task.name].step == task.step for task in tasks if task.name in again)


def test_every_task_is_a_document_and_its_gates_look() -> None:
    for task in make_tasks(40):
        document = task.task(gates=True, deadline=5)
        plans = gates_for_step(document.plan.steps[0], document)
        assert plans
        assert not any(plan.idle for plan in plans)
        assert gates_for_step(task.task(gates=False, deadline=5).plan.steps[0], document) == ()


def test_an_answer_is_right_when_it_says_the_same_as_the_reference() -> None:
    code = next(task for task in make_tasks(8) if task.family == "code")
    answer = correct_answer(code)
    assert code.right(answer)
    assert not code.right(f"{answer.rstrip()} + 1\n")
    assert not code.right("def (")


@pytest.mark.slow
def test_an_answer_that_is_not_right_fails_its_unit_test(tmp_path: Path) -> None:
    tasks = [task for task in make_tasks(80) if task.family == "code"]
    raises, gives_none, *right = tasks
    answers = {task.name: correct_answer(task) for task in tasks}
    answers[raises.name] += "raise ValueError\n"
    answers[gives_none.name] = answers[gives_none.name].replace("return ", "return None and ")
    broken = run_tests(tmp_path / "broken", answers, [raises])
    assert [finding.file for finding in broken.failed] == [raises.inputs[0]["label"]]
    report = run_tests(tmp_path / "others", answers, [gives_none, *right])
    failed = {finding.file.partition("::")[0] for finding in report.failed}
    assert failed == {gives_none.inputs[0]["label"]}
    assert report.passed >= 4 * len(right), "there are samples enough where the reference has a value"


def run_tests(folder: Path, answers: Mapping[str, str], tasks: Sequence[BenchTask]) -> PytestReport:
    """Run the unit tests of tasks on their answers, without a sandbox."""
    tests = {task.inputs[0]["label"]: task.inputs[0]["value"].encode() for task in tasks}
    code = {task.output: answers[task.name].encode() for task in tasks}
    run = PytestRun.plan({**code, **tests}, list(tests), code)
    folder.mkdir()
    for name, data in run.files.items():
        (folder / name).write_bytes(data)
    command = [sys.executable, *run.argv[1:]]
    ended = subprocess.run(command, cwd=folder, input=run.stdin, stdout=subprocess.PIPE, check=True)
    return run.read(JobOutcome(exit_code=0, stdout=ended.stdout))


def test_kinds_of_recovery_are_distinguished() -> None:
    retried = attempts(("worker", "format"), ("worker", "done"))
    handed_over = attempts(("worker", "code"), ("worker", "code"), ("coder", "done"))
    late = attempts(("worker", "timeout"), ("coder", "done"))
    lost = attempts(("worker", "timeout"), ("coder", "code"))
    recoveries = (format_retry, code_retry_then_escalation, timeout_escalation)
    told = [[matches(one) for matches in recoveries] for one in (retried, handed_over, late, lost)]
    assert told == [[True, False, False], [False, True, False], [False, False, True], [False, False, False]]


def test_what_failed_and_what_followed_is_counted() -> None:
    results = [
        result("right", ("worker", "code"), ("worker", "code"), ("coder", "done")),
        result("refused", ("worker", "timeout")),
    ]
    assert frequencies(results) == {"code": {"retried": 1, "escalated": 1}, "timeout": {"given up": 1}}
    assert [len(tasks) for tasks in find(results).values()] == [0, 1, 0]
    row = rows_of(SETUPS[0], results)[-1]
    assert (row.tasks, row.right, row.refused, row.attempts, row.task_seconds) == (2, 1, 1, 4, 3.0)
    assert (row.prompt_tokens, row.output_tokens, row.engine_seconds, row.gate_seconds) == (40, 20, 2.0, 8.0)


def test_the_deadline_is_a_multiple_of_what_attempts_took() -> None:
    quick = [result("right", ("worker", "done")) for _ in range(19)]
    others = [result("right", ("worker", "done"), family="shell"), result("refused", ("worker", "code"))]
    assert deadline_of([*quick, *others]) == DEADLINE_FACTOR * 1.0
    with pytest.raises(ValueError, match="no attempt at code"):
        deadline_of(others)


def test_results_are_kept_for_their_stamp_and_setup_and_a_line_that_was_cut_off_is_not(tmp_path: Path) -> None:
    rows, first = ResultLog(tmp_path / "new" / "rows.jsonl", {"weights": "a"}), result("right", ("worker", "done"))
    assert rows.read("w", ["d1"]) == {}
    rows.append("w", first)
    with rows.file.open("a") as file:
        file.write('\n{"stamp": {"wei')
    second = result("wrong", ("worker", "done"), document="d2")
    rows.append("w", second)
    assert rows.read("w", ["d1", "d2"]) == {"d1": first, "d2": second}
    assert rows.read("w", ["d2"]) == {"d2": second}
    assert rows.read("other", ["d1", "d2"]) == {}
    assert ResultLog(rows.file, {"weights": "b"}).read("w", ["d1", "d2"]) == {}


async def test_a_run_that_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    said = list[str]()
    rows = ResultLog(tmp_path / "rows.jsonl", {})
    some, all_tasks = make_tasks(4)[:2], make_tasks(4)
    first = await run_setup(FIRST, BenchPlan(tasks=some, rows=rows, folder=tmp_path, until=inf, say=said.append))
    assert [one.task for one in first] == [task.name for task in some]
    over = await run_setup(FIRST, BenchPlan(tasks=all_tasks, rows=rows, folder=tmp_path, until=0, say=said.append))
    assert over == first
    went_on = await run_setup(FIRST, BenchPlan(tasks=all_tasks, rows=rows, folder=tmp_path, until=inf, say=said.append))
    assert [one.task for one in went_on] == [task.name for task in all_tasks]
    assert went_on[:2] == first
    assert all(one.outcome in ("right", "wrong", "refused") and one.attempts for one in went_on)
