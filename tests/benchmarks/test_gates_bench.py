from collections import Counter

from benchmarks.gates.measure import Result, rows_of
from benchmarks.gates.stories import code_retry_then_escalation, format_retry, found, frequencies, timeout_escalation
from benchmarks.gates.tasks import SHARES, make_tasks
from benchmarks.gates.world import WORLDS
from orchestrator.daemon import gates_of
from orchestrator.daemon.story import AttemptRow
from orchestrator.events import GateResult, Usage


def attempts(*moves: tuple[str, str]) -> tuple[AttemptRow, ...]:
    """Return attempts of (role, outcome)."""
    usage = Usage(prompt_tokens=10, output_tokens=5, decode_seconds=0.5)
    gates = (GateResult("unit", "passed", seconds=2.0),)
    return tuple(
        AttemptRow(number, role, None, "m", 0.0, "", 1.0, outcome, usage=usage, gates=gates)
        for number, (role, outcome) in enumerate(moves, start=1)
    )


def test_tasks_are_the_same_each_time_and_as_many_as_asked_for() -> None:
    tasks = make_tasks(200)
    assert Counter(task.family for task in tasks) == SHARES
    assert len({task.name for task in tasks}) == 200
    again = {task.name: task for task in make_tasks(40)}
    assert all(again[task.name].step == task.step for task in tasks if task.name in again)


def test_every_task_is_a_document_and_its_gates_look() -> None:
    for task in make_tasks(40):
        document = task.task(gates=True, timeout_seconds=5)
        plans = gates_of(document.plan.steps[0], document)
        assert plans
        assert not any(plan.idle for plan in plans)
        assert gates_of(task.task(gates=False, timeout_seconds=5).plan.steps[0], document) == ()


def test_an_answer_is_right_when_it_says_the_same_as_the_reference() -> None:
    code = next(task for task in make_tasks(8) if task.family == "code")
    reference = code.inputs[0]["value"].split("def reference", 1)[1].split("\n\n", 1)[0]
    name = code.output.removesuffix(".py")
    assert code.right(f"def {name}{reference}\n")
    assert not code.right(f"def {name}{reference} + 1\n")
    assert not code.right("def (")


def test_stories_are_told_apart() -> None:
    retried = attempts(("worker", "format"), ("worker", "done"))
    handed_over = attempts(("worker", "code"), ("worker", "code"), ("coder", "done"))
    late = attempts(("worker", "timeout"), ("coder", "done"))
    lost = attempts(("worker", "timeout"), ("coder", "code"))
    stories = (format_retry, code_retry_then_escalation, timeout_escalation)
    told = [[tells(one) for tells in stories] for one in (retried, handed_over, late, lost)]
    assert told == [[True, False, False], [False, True, False], [False, False, True], [False, False, False]]


def test_what_failed_and_what_followed_is_counted() -> None:
    (task, *_) = make_tasks(4)
    results = [
        Result(task, "r1", "right", attempts(("worker", "code"), ("worker", "code"), ("coder", "done"))),
        Result(task, "r2", "refused", attempts(("worker", "timeout"))),
    ]
    assert frequencies(results) == {"code": {"retried": 1, "escalated": 1}, "timeout": {"given up": 1}}
    assert [len(tasks) for tasks in found(results).values()] == [0, 1, 0]
    row = rows_of(WORLDS[0], results, 3.0)[-1]
    assert (row.tasks, row.right, row.refused, row.attempts) == (2, 1, 1, 4)
    assert (row.prompt_tokens, row.output_tokens, row.engine_seconds, row.gate_seconds) == (40, 20, 2.0, 8.0)
