"""Say what the gates of an attempt may use: tests and commands of the task, the judge, the sandbox."""

from collections.abc import Collection

from orchestrator.gates import RunJob, scope_of, unseen_tests
from orchestrator.steps.attempt import Checks, ResolvedRole, resolve_role
from orchestrator.steps.inputs import RunInputs
from orchestrator.taskir import Step, TaskIR
from registry.models import Registry

JUDGE = "judge"


def checks_of(
    step: Step, gates: Collection[str], task: TaskIR | None, inputs: RunInputs, registry: Registry, run: RunJob
) -> Checks:
    """Return what these gates may use. May block on the disk, and raises `AttemptError` as `RunInputs` does."""
    if not gates:
        return Checks()
    if task is None:
        return Checks(run=run)
    tests = inputs.given(unseen_tests(scope_of(step, task))) if "unit" in gates else ()
    return Checks(tests=tests, commands=task.commands, judge=judge_role(registry), run=run)


def judge_role(registry: Registry) -> ResolvedRole | None:
    """Return who judges in this installation, if anyone."""
    return resolve_role(registry, JUDGE) if JUDGE in registry.usable_roles else None
