"""What steps run themselves does not wait for what gates run."""

from pathlib import Path

import pytest

from orchestrator.registry.load import find_registry, load_registry
from orchestrator.run.job import Job
from orchestrator.run.orchestrator import Orchestrator
from orchestrator.run.record.report import StepRow
from orchestrator.task.taskir.parse import task_from
from tests.orchestrator.run_jobs import RECORDS, execute, report_of, step

GATE_SECONDS = (3, 12, 40)
"""How long the gate takes. What runs beside it takes a part of the first, on a busy machine a part of the last."""


async def rows_of(home: Path, gate_seconds: int) -> dict[str, StepRow]:
    """Run a tool with a slow gate, and beside it a model and then another tool; return the steps by their ids."""

    def tool(name: str, tool: str, arguments: dict[str, str], **more: object) -> dict[str, object]:
        made = step(name, "Go.", [], [name.lower()], kind="tool", tools=[tool], arguments=arguments, **more)
        return {key: value for key, value in made.items() if key not in ("max_tokens", "inputs")}

    steps = [
        tool("S1", "read_file", {"name": "a.txt"}, gates=["bench"]),
        step("S2", "Summarize a.txt.", ["a.txt"], ["s2"]),
        tool("S3", "shell", {"command": "echo done"}, depends_on=["S2"]),
    ]
    commands = {"bench": {"run": ["sleep", str(gate_seconds)], "max_seconds": 100}}
    task = task_from({"objective": "a test", "commands": commands, "plan": {"steps": steps}})
    async with Orchestrator.open(home, load_registry(find_registry(environment={}))) as orchestrator:
        run = await execute(orchestrator, Job(None, task, RECORDS, "as-planned"))
    rows = {row.id: row for row in report_of(home, run).steps}
    assert {name: row.state for name, row in rows.items()} == dict.fromkeys(("S1", "S2", "S3"), "done"), rows
    return rows


async def test_a_tool_does_not_wait_for_a_gate(tmp_path: Path) -> None:
    for seconds in GATE_SECONDS:
        rows = await rows_of(tmp_path / f"{seconds}", seconds)
        gated, called = rows["S1"], rows["S3"]
        assert gated.finished is not None
        assert called.finished is not None
        if called.finished < gated.finished:
            return
    pytest.fail(f"a tool was not done before a gate that began earlier and took {seconds} s")
