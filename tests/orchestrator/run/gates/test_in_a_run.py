"""Gates inside of whole runs, on the models that ship with the project."""

from pathlib import Path
from typing import Any

import pytest

from orchestrator.registry.load import find_registry, load_registry
from orchestrator.run.job import Job
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.orchestrator import Orchestrator
from orchestrator.run.record.report import Report, load_report
from orchestrator.run.sandbox.sandbox import Sandbox, SandboxOnDemand
from orchestrator.run.updates import Progress
from orchestrator.task.taskir.parse import task_from

TEST = "from add import add\n\n\ndef test_sum():\n    assert add(1, 2) == 3\n"
WRITE: dict[str, Any] = {
    "id": "S1",
    "actor": "coder",
    "action": "Write a function add(a, b) that returns the sum of a and b.",
    "outputs": ["add.py"],
    "max_tokens": 96,
}


async def report_of(home: Path, **task: Any) -> Report:
    """Run a task of one step and return its report."""
    document = task_from({"objective": "a test", **task})
    async with Orchestrator.open(home, load_registry(find_registry(None))) as orchestrator:
        run = await orchestrator.submit(Job(None, document, None, "as-planned"))
        async for _ in orchestrator.watch(run):
            pass
    with JournalReader.open_to_read(home) as journal:
        return load_report(journal, run)


@pytest.mark.usefixtures("sandbox")
async def test_code_is_tested_by_what_the_model_never_saw(tmp_path: Path) -> None:
    tests = [{"type": "text", "label": "test_add.py", "value": TEST}]
    report = await report_of(tmp_path, gates=["unit", "lint", "shellcheck"], inputs=tests, plan={"steps": [WRITE]})
    (step,) = report.steps
    assert {plan.gate: bool(plan.idle) for plan in step.gates} == {"shellcheck": True, "lint": False, "unit": False}
    last = {gate.gate: gate.status for gate in step.attempts[-1].gates}
    assert last["shellcheck"] == "not run"
    if report.status == "done":
        assert (last["lint"], last["unit"]) == ("passed", "passed")
    else:
        assert "failed" in last.values()


async def test_without_a_sandbox_code_gates_fail_closed_and_other_runs_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no bubblewrap on it
    refused = await report_of(tmp_path / "one", gates=["lint"], plan={"steps": [WRITE]})
    assert refused.status == "failed"
    (step,) = refused.steps
    assert [attempt.outcome for attempt in step.attempts] == ["infrastructure"], "trying again would not help"
    assert "bubblewrap is not installed" in step.attempts[0].message
    assert (await report_of(tmp_path / "two", gates=["schema"], plan={"steps": [WRITE]})).status == "done"


@pytest.mark.usefixtures("sandbox")
async def test_watchers_learn_which_gates_check(tmp_path: Path) -> None:
    commands = {"bench": {"run": ["sleep", "0.5"], "max_seconds": 60}}
    say = {"actor": "worker", "action": "Say yes or no.", "output_schema": {"type": "boolean"}}
    plan = {"steps": [{**say, "id": "S1", "outputs": ["said.json"]}]}
    document = task_from({"objective": "a test", "gates": ["bench"], "commands": commands, "plan": plan})
    async with Orchestrator.open(tmp_path, load_registry(find_registry(None))) as orchestrator:
        run = await orchestrator.submit(Job(None, document, None, "as-planned"))
        waits = [update.wait async for update in orchestrator.watch(run) if isinstance(update, Progress)]
    assert "checking: bench" in waits


@pytest.mark.usefixtures("sandbox")
async def test_a_deadline_is_the_models_and_not_that_of_slow_gates(tmp_path: Path) -> None:
    """The first step waits until the model is loaded, so that the second one has a few tokens to write and no more."""
    say = {"actor": "worker", "action": "Say yes or no.", "output_schema": {"type": "boolean"}}
    loaded = {**say, "id": "S1", "outputs": ["loaded.json"], "run_gates": False}
    write = {**say, "id": "S2", "outputs": ["said.json"], "timeout_seconds": 3, "depends_on": ["S1"]}
    commands = {"bench": {"run": ["sleep", "3.5"], "max_seconds": 60}}
    report = await report_of(tmp_path, gates=["bench"], commands=commands, plan={"steps": [loaded, write]})
    (attempt,) = report.steps[1].attempts
    assert attempt.outcome == "done", attempt.message
    assert [gate.status for gate in attempt.gates if gate.gate == "bench"] == ["passed"]
    assert sum(gate.seconds for gate in attempt.gates) > 3


async def test_the_sandbox_is_probed_once(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    probes = 0

    async def probe() -> Sandbox:
        nonlocal probes
        probes += 1
        return sandbox

    monkeypatch.setattr(Sandbox, "probe", probe)
    on_demand = SandboxOnDemand()
    assert await on_demand() is await on_demand() is sandbox
    assert probes == 1
