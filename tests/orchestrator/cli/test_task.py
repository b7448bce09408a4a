"""What `validate` says of the gates of a task."""

from orchestrator.cli.task import gate_lines, gates_json
from orchestrator.taskir import task_from


def test_steps_with_the_same_gates_are_told_together() -> None:
    def step(number: int, *outputs: str) -> dict[str, object]:
        return {"id": f"S{number}", "actor": "worker", "action": "Go.", "outputs": [*outputs]}

    steps = [step(1, "a.py"), step(2, "b.py"), step(3, "c.txt"), step(4, "d.txt") | {"run_gates": False}]
    task = task_from({"objective": "o", "gates": ["lint", "security"], "plan": {"steps": steps}})
    assert gate_lines(task) == [
        (["S1", "S2"], "lint, security"),
        (["S3"], "security (not lint: no output is Python)"),
    ]
    assert gates_json(task)["S3"] == {"lint": "no output is Python", "security": None}
    assert gates_json(task)["S4"] == {}
