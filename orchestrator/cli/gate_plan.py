"""Tell which gates will look at a step's outputs, and why others that are asked for will not."""

from collections.abc import Sequence
from typing import Any

from orchestrator.gates import PlannedGate, gates_for_step
from orchestrator.taskir import TaskIR


def told(plans: Sequence[PlannedGate]) -> str:
    """Return the gates of one step in one line."""
    looking = ", ".join(plan.gate for plan in plans if not plan.idle) or "none"
    idle = "; ".join(f"not {plan.gate}: {plan.idle}" for plan in plans if plan.idle)
    return f"{looking} ({idle})" if idle else looking


def gate_lines(task: TaskIR) -> list[tuple[list[str], str]]:
    """Return the steps of a task that have the same gates, with these; without those that have none."""
    groups: dict[str, list[str]] = {}
    for step in task.plan.steps:
        if plans := gates_for_step(step, task):
            groups.setdefault(told(plans), []).append(step.id)
    return [(steps, gates) for gates, steps in groups.items()]


def gates_json(task: TaskIR) -> dict[str, Any]:
    """Return for each step its gates: null for one that will look, else why not."""
    return {step.id: {plan.gate: plan.idle or None for plan in gates_for_step(step, task)} for step in task.plan.steps}
