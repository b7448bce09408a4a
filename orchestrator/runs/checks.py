"""Say what the gates of an attempt may use: tests and commands of the task, the judge, the sandbox."""

from collections.abc import Collection

from orchestrator.gates import Run, scope_of, unseen_tests
from orchestrator.steps.attempt import Checks, JudgeRole
from orchestrator.steps.inputs import RunInputs
from orchestrator.taskir import Step, TaskIR
from registry import Registry

JUDGE = "judge"


def checks_of(
    step: Step, gates: Collection[str], task: TaskIR | None, inputs: RunInputs, registry: Registry, run: Run
) -> Checks:
    """Return what these gates may use. May block on the disk, and raises `AttemptError` as `RunInputs` does."""
    if not gates:
        return Checks()
    if task is None:
        return Checks(run=run)
    tests = inputs.given(unseen_tests(scope_of(step, task))) if "unit" in gates else ()
    return Checks(tests=tests, commands=task.commands, judge=judge_role(registry), run=run)


def judge_role(registry: Registry) -> JudgeRole | None:
    """Return who judges in this installation, if anyone."""
    if JUDGE not in registry.usable_roles:
        return None
    role = registry.roles[JUDGE]
    return JudgeRole(
        model=role.model,
        system=role.system,
        max_tokens=role.max_tokens,
        temperature=role.temperature,
        top_p=role.top_p,
    )
