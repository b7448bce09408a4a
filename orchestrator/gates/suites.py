"""Say which tests go with a step. Pure.

A test is a file called `test_NAME.py` or `NAME_test.py`, and belongs to the module `NAME.py`. It comes from the user or
from a model:

- *unit tests* are the tests that the step writes itself, and those that belong to a module that it writes. These may be
  among what it reads, or among the task's inputs, where the model that writes the module does not see them;
- *integration tests* are all other tests that the step reads. They may use everything that it reads and writes.
"""

from orchestrator.gates.contract import Scope, file_name


def module_of(name: str) -> str | None:
    """Return the name of the module that a test belongs to, without `.py`; None for a file that is no test."""
    stem = file_name(name).rpartition("/")[2].removesuffix(".py")
    if not file_name(name).endswith(".py"):
        return None
    if stem.startswith("test_"):
        return stem.removeprefix("test_")
    return stem.removesuffix("_test") if stem.endswith("_test") else None


def unit_tests(scope: Scope) -> tuple[str, ...]:
    """Return the names of a step's unit tests: outputs, what it reads, inputs of the task."""
    written = [name for name in scope.step.outputs if module_of(name) is not None]
    return tuple(dict.fromkeys([*written, *_named_after(scope, (*scope.step.inputs, *scope.given))]))


def integration_tests(scope: Scope) -> tuple[str, ...]:
    """Return the names of a step's integration tests."""
    units = unit_tests(scope)
    return tuple(name for name in dict.fromkeys(scope.step.inputs) if module_of(name) is not None and name not in units)


def unseen_tests(scope: Scope) -> tuple[str, ...]:
    """Return the unit tests that the step neither reads nor writes: inputs of the task that are read for the gate."""
    seen = {*scope.step.inputs, *scope.step.outputs}
    return tuple(name for name in unit_tests(scope) if name not in seen)


def _named_after(scope: Scope, names: tuple[str, ...]) -> list[str]:
    modules = {file_name(name).rpartition("/")[2].removesuffix(".py") for name in scope.outputs("python")}
    return [name for name in names if module_of(name) in modules]
