"""What steps run themselves does not wait for what gates run."""

from pathlib import Path

from run_jobs import RECORDS, execute, report_of, step

from orchestrator.runs import Job, Orchestrator
from orchestrator.taskir import task_from
from registry import find_registry, load_registry

SLOW = "import time; time.sleep(4)"


async def test_a_tool_does_not_wait_for_a_gate(tmp_path: Path) -> None:
    def tool(name: str, tool: str, arguments: dict[str, str], **more: object) -> dict[str, object]:
        made = step(name, "Go.", [], [name.lower()], kind="tool", tools=[tool], arguments=arguments, **more)
        return {key: value for key, value in made.items() if key not in ("max_tokens", "inputs")}

    steps = [
        tool("S1", "read_file", {"name": "a.txt"}, gates=["bench"]),
        step("S2", "Summarize a.txt.", ["a.txt"], ["s2"]),
        tool("S3", "shell", {"command": "echo done"}, depends_on=["S2"]),
    ]
    commands = {"bench": {"run": ["python3", "-c", SLOW], "max_seconds": 60}}
    task = task_from({"objective": "a test", "commands": commands, "plan": {"steps": steps}})
    async with Orchestrator.open(tmp_path / "home", load_registry(find_registry(environment={}))) as orchestrator:
        run = await execute(orchestrator, Job(None, task, RECORDS, "as-planned"))
    report = report_of(tmp_path / "home", run)
    rows = {row.id: row for row in report.steps}
    assert {name: row.state for name, row in rows.items()} == dict.fromkeys(("S1", "S2", "S3"), "done"), report
    gated, called = rows["S1"], rows["S3"]
    assert gated.finished is not None
    assert called.started is not None
    assert called.finished is not None
    assert (gated.started or 0.0) < called.started < called.finished < gated.finished
