"""Turn what a step that acts came to into its artifacts: the value of `final`, of a tool, and what it has written.

One output: the value is the artifact. Several: the value is an object that has them as keys. What was written with
`write_artifact` need not be in the value, and then there may be no value at all.
"""

from collections.abc import Mapping
from typing import Any

from orchestrator.events import Failure, FailureKind
from orchestrator.gates import BadSchema, OutputSchema, SchemaMismatch, is_json
from orchestrator.steps.errors import AttemptError
from orchestrator.steps.foreach import compact_json
from orchestrator.taskir import Step


def outputs_of(step: Step, value: Any, written: Mapping[str, str]) -> dict[str, bytes]:
    """Return the step's artifacts by name. Raises `AttemptError` for a value that is not what the step has to give."""
    missing = [name for name in step.outputs if name not in written]
    given = dict(written) | _given(step, missing, value)
    return {name: _artifact(step, name, given[name]) for name in step.outputs}


def _given(step: Step, missing: list[str], value: Any) -> dict[str, Any]:
    if not missing:
        return {}
    if len(step.outputs) == 1:
        if value is None or value == "":
            raise _mismatch(f"there is no value for {missing[0]}; accepted: a text that is not empty, or JSON")
        return {missing[0]: value}
    if not isinstance(value, dict) or not value.keys() >= set(missing):
        raise _mismatch(f"the value has to be an object with {', '.join(missing)}")
    return {name: value[name] for name in missing}


def _artifact(step: Step, name: str, value: Any) -> bytes:
    text = value if isinstance(value, str) else compact_json(value)
    if is_json(step, name):
        text = _json(step, name, value, text)
    return text.encode()


def _json(step: Step, name: str, value: Any, text: str) -> str:
    """Return the artifact as JSON that fits the step's schema. A text is JSON already, or the string that a schema
    asks for.
    """
    try:
        form = OutputSchema(step.output_schema)
        if not isinstance(value, str):
            form.check(value)
            return text
        try:
            form.read(text)
        except SchemaMismatch:
            if step.output_schema is None:
                raise
            form.check(value)
            return compact_json(value)
        return text
    except SchemaMismatch as error:
        raise _mismatch(f"{name}: {error.evidence}") from error
    except BadSchema as error:
        message = f"output_schema cannot be used: {error}"
        raise AttemptError(Failure(FailureKind.SCHEMA, message, final=True)) from error


def _mismatch(evidence: str) -> AttemptError:
    return AttemptError(Failure(FailureKind.SCHEMA, f"the result does not match: {evidence}", evidence))
