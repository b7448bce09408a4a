import json
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from benchmarks.chaos.__main__ import main
from benchmarks.chaos.audit import done_again
from benchmarks.chaos.faults import WEIGHTS, fault_order
from benchmarks.chaos.workload import kinds, registry_text
from orchestrator.registry.load import load_registry
from orchestrator.run.gates.pipeline import BUILTIN_GATES
from orchestrator.run.gates.planned import requested_gates
from orchestrator.task.events import AttemptFailed, AttemptStarted, AttemptSucceeded, Event, Failure, FailureKind
from orchestrator.task.taskir.parse import task_from
from tests.crash.crash_daemon import ROOT


def started(number: int, step: str = "S1") -> AttemptStarted:
    return AttemptStarted(at=1.0, step=step, number=number, role="worker", persona=None, model="m", reason="first")


DONE = AttemptSucceeded(at=2.0, step="S1", number=1, outputs={})
FAILED = AttemptFailed(at=2.0, step="S1", number=1, failure=Failure(FailureKind.CODE, "wrong"))


@pytest.mark.parametrize(
    ("events", "again"),
    [
        ([started(1), DONE, started(1, "S2")], []),
        ([started(1), FAILED, started(2), DONE], []),
        ([started(1), DONE, started(2)], ["S1 was done, and then: attempt_started"]),
        ([started(1), DONE, DONE], ["S1 was done, and then: attempt_succeeded"]),
    ],
)
def test_a_step_that_runs_after_it_was_done_is_found(events: list[Event], again: list[str]) -> None:
    assert list(done_again(events)) == again


def test_a_seed_repeats_the_order_of_faults_and_each_round_has_all_of_them() -> None:
    size = sum(WEIGHTS.values())
    first, again, other = (list(islice(fault_order(seed), 3 * size)) for seed in (1, 1, 2))
    assert first == again != other
    assert set(first[: len(WEIGHTS)]) == set(WEIGHTS)
    assert Counter(first[len(WEIGHTS) :][:size]) == WEIGHTS


def test_the_runs_are_tasks_with_gates_and_lists(tmp_path: Path) -> None:
    tasks = [task_from(body["task"]) for body in kinds().values()]
    gates = {gate for task in tasks for step in task.plan.steps for gate in requested_gates(step, task.gates)}
    assert {"schema", "shellcheck", "format", "lint", "build", "typecheck", "unit"} == gates <= set(BUILTIN_GATES)
    assert any(step.foreach for task in tasks for step in task.plan.steps)
    (tmp_path / "registry.yaml").write_text(registry_text(ROOT / "registry" / "tiny" / "small.gguf"))
    assert {"worker", "coder"} <= load_registry(tmp_path / "registry.yaml").usable_roles


@pytest.mark.crash
@pytest.mark.timeout(3600)
def test_a_short_chaos_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    out = tmp_path / "chaos.json"
    main(["--runs", "10", "--minutes", "1", "--out", str(out)])
    goals = json.loads(out.read_text())["goals"]
    never = [goal for goal in goals if goal["goal"] == "= 0"]
    assert len(never) > 5
    assert [goal["name"] for goal in never if goal["state"] != "met"] == []
