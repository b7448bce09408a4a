"""One run made of several tasks with recoveries."""

from math import inf
from pathlib import Path

import pytest

from benchmarks.gates.measure import BenchPlan, run_setup
from benchmarks.gates.rows import ResultLog, TaskResult
from benchmarks.gates.setups import SETUPS
from benchmarks.gates.showcase import candidates, chosen, joined, show
from benchmarks.gates.tasks import make_tasks
from orchestrator.run.record.view import AttemptRow


def result(task: str, *moves: tuple[str, str]) -> TaskResult:
    attempts = tuple(
        AttemptRow(number, role, None, "m", 0.0, "", 1.0, outcome)
        for number, (role, outcome) in enumerate(moves, start=1)
    )
    return TaskResult(task, task.partition("/")[0], "d", "r", "right", 1.0, attempts)


def test_each_kind_of_recovery_has_its_tasks_code_and_shell_first() -> None:
    late = (("worker", "timeout"), ("coder", "done"))
    results = [
        result("summarize/1", *late),
        result("code/1", *late),
        result("code/2", ("worker", "code"), ("worker", "code"), ("coder", "done")),
        result("shell/1", ("worker", "done")),
        result("extract/1", ("worker", "done")),
    ]
    found = candidates(results)
    assert found == [[], ["code/2"], ["code/1", "summarize/1"], ["shell/1"]]
    assert chosen(found, 0) == ["code/2", "code/1", "shell/1"]
    assert chosen(found, 1) == ["code/2", "summarize/1", "shell/1"]
    assert chosen([["a"], ["a", "b"], ["a"]], 0) == ["a", "b"]
    assert chosen([[], []], 0) == []


def test_tasks_are_joined_to_one_with_names_of_their_own() -> None:
    tasks = [task for task in make_tasks(200) if task.family in ("code", "shell", "summarize")][95:]
    document = joined(tasks, deadline=5.0)
    steps = document.plan.steps
    assert [step.id for step in steps] == [f"S{number}" for number in range(1, len(tasks) + 1)]
    names = [*document.labels, *(name for step in steps for name in step.outputs)]
    assert len(names) == len(set(names))
    for task, step in zip(tasks, steps, strict=True):
        alone = task.task(gates=True, deadline=5.0)
        (own,) = alone.plan.steps
        assert (step.action, step.gates, step.timeout_seconds) == (own.action, own.gates, own.timeout_seconds)
        values = dict(zip(document.labels, (given.value for given in document.inputs), strict=True))
        read = dict(zip(alone.labels, (given.value for given in alone.inputs), strict=True))
        assert [values[name] for name in step.inputs] == [read[name] for name in own.inputs]


@pytest.mark.slow
async def test_a_run_is_shown_as_its_users_see_it(tmp_path: Path) -> None:
    setup = next(setup for setup in SETUPS if setup.escalation)
    tasks = {task.name: task for task in make_tasks(4) if task.family == "shell"}
    rows = ResultLog(tmp_path / "rows.jsonl", {})
    plan = BenchPlan(tasks=[*tasks.values()], rows=rows, folder=tmp_path, until=inf, say=list[str]().append)
    results = await run_setup(setup, plan)
    assert await show(setup, tmp_path, tasks, [], 5.0) is None
    plain = [one for one in results if len(one.attempts) == 1]
    assert plain, "the small model writes this command"
    shown = await show(setup, tmp_path, tasks, plain, 5.0, tries=2)
    assert shown is not None
    assert shown.tasks == {"S1": plain[0].task}
    assert not any(shown.recoveries.values())
    assert "── Figures ──" in shown.text
    assert shown.to_json()["report"]["run_id"] == shown.report.run_id
